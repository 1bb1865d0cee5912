"""Chance decides who wins a race: what must break has several seeds to do so, what must hold has one."""

from __future__ import annotations

import argparse
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


@pytest.mark.parametrize(("codes", "ends", "seeds"), [
    ([UNKNOWN] * ci._TRIES + [PASSED], PASSED, list(range(7, 8 + ci._TRIES))),
    ([UNKNOWN] * 2 * ci._TRIES, UNKNOWN, list(range(7, 7 + 2 * ci._TRIES))),
    ([UNKNOWN, VIOLATED, PASSED], VIOLATED, [7, 8]),
])  # fmt: skip
def test_what_has_shown_nothing_is_tried_again_alone(codes, ends, seeds, monkeypatch, tmp_path, capsys):
    tried, is_shown, show = [], Event(), ci._shown

    def once(again, *_):
        if again.scenario.name == "calm":
            assert is_shown.wait(60), "it goes on until all tries of the other one have ended"
            return PASSED, ""
        tried.append(again.settings.seed)
        return codes[len(tried) - 1], "a line"

    def shown(job, *more):
        if job.scenario.name == "amnesia":
            is_shown.set()
        return show(job, *more)

    monkeypatch.setattr(ci, "_try", once)
    monkeypatch.setattr(ci, "_shown", shown)
    parser = argparse.ArgumentParser()
    ci.add_arguments(parser)
    options = ["--only", "amnesia,calm", "--backend", "proxy", "--out", str(tmp_path)]
    assert (ci.main(parser.parse_args(options)), tried) == (ends, seeds)
    said = capsys.readouterr().out
    assert said.count("once more, with nothing beside it: amnesia") == (len(seeds) > ci._TRIES)
    assert said.index("ok        calm") < said.find("once more") or len(seeds) <= ci._TRIES
    assert f"\n{1 + (ends == PASSED)} of 2 as they must be" in said
