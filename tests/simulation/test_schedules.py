"""Schedules of small scope where an expiry is confirmed (R35): `python -m tests.simulation --schedules` plays more."""

from __future__ import annotations

import pytest

from tests.simulation.schedules import play
from tests.simulation.variants import VARIANTS

SEEDS = range(300)


def test_no_two_leases_are_valid_at_once():
    had, failures = play(SEEDS)
    assert not failures
    assert min(had[what] for what in ("grants", "extensions", "second rounds", "phantoms")) > 15, "they show little"


@pytest.mark.parametrize("name", ["trusts-expiry", "one-fewer-is-enough", "rollback-is-a-release"])
def test_a_broken_rule_is_seen(name):
    with VARIANTS[name].applied():
        assert any(play(range(seed, seed + 1))[1] for seed in SEEDS)
