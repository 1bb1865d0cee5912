"""Schedules of small scope where an expiry is confirmed (R35): `python -m tests.simulation --schedules` plays more."""

from __future__ import annotations

from unittest import mock

import pytest

from redlock._core.confirm import expiry
from tests.bench.library import replaced
from tests.bench.variants import VARIANTS
from tests.simulation.master import REPLACED
from tests.simulation.schedules import play

SEEDS = range(300)


def test_no_two_leases_are_valid_at_once():
    had, failures = play(SEEDS)
    assert not failures
    assert min(had[what] for what in ("grants", "extensions", "second rounds", "phantoms")) > 15, "they show little"


@pytest.mark.parametrize("name", ["trusts-expiry", "rollback-is-a-release"])
def test_a_broken_script_is_seen(name):
    with mock.patch.dict(REPLACED, replaced(VARIANTS[name].patches)):
        assert any(play(range(seed, seed + 1))[1] for seed in SEEDS)


def test_one_witness_fewer_is_seen(monkeypatch):
    over = expiry._over
    monkeypatch.setattr(expiry, "_over", lambda wrong, shown: over(max(0, wrong - 1), shown))
    assert any(play(range(seed, seed + 1))[1] for seed in SEEDS)
