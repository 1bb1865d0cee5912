"""Chance decides who wins a race: what must break has several seeds to do so, what must hold has one."""

from __future__ import annotations

from pathlib import Path
from threading import Event

import pytest

from chaos import ci
from chaos.launch import PASSED, UNKNOWN, VIOLATED
from chaos.scenarios import SCENARIOS
from chaos.variants import VARIANTS


def job(scenario, variant=None):
    one = SCENARIOS[scenario]
    return ci.Job(scenario, one, one.with_seed(7), None if variant is None else VARIANTS[variant])


def outcome(one, codes, monkeypatch):
    """The exit code of ``one`` if its tries end with ``codes``, and the seeds that it took."""
    seeds: list[int] = []

    def once(again, *_):
        seeds.append(again.settings.seed)
        return codes[len(seeds) - 1], ""

    monkeypatch.setattr(ci, "_try", once)
    code, _ = ci._do(one, None, Path(), Event())  # type: ignore[arg-type]
    return code, seeds


VARIANT = job("kill", "minority")
BEYOND = job("amnesia")
WITHIN = job("kill")


@pytest.mark.parametrize(("one", "codes", "code", "seeds"), [
    (WITHIN, [PASSED], PASSED, [7]),
    (WITHIN, [VIOLATED, PASSED], VIOLATED, [7]),  # what must hold holds at the first try, or does not
    (WITHIN, [UNKNOWN, PASSED], UNKNOWN, [7]),
    (VARIANT, [VIOLATED, PASSED], PASSED, [7, 8]),  # not caught, caught
    (VARIANT, [VIOLATED] * ci._TRIES, VIOLATED, list(range(7, 7 + ci._TRIES))),
    (BEYOND, [UNKNOWN, PASSED], PASSED, [7, 8]),  # it proved nothing, it showed what breaks
    (BEYOND, [VIOLATED, PASSED], VIOLATED, [7]),  # fencing must hold there, too
])  # fmt: skip
def test_tries(one, codes, code, seeds, monkeypatch):
    assert outcome(one, codes, monkeypatch) == (code, seeds)
