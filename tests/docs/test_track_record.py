"""The track record is what runs and people have recorded, and each command on it leads somewhere."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest

from tools.track_record import judges, page, runs
from tools.track_record.__main__ import main

SOURCE = runs.Source("2026-01-02", "0123456789", "1.2.3")
KINDS = {"held", "could", "stayed"}
FOUND = {"hunt", "simulation", "chaos", "tests", "report", "not recorded"}


def git(*words, at=runs.ROOT):
    return subprocess.run(["git", *words], cwd=at, capture_output=True, text=True, check=False).stdout.strip()


def test_the_page_is_what_the_records_give():
    assert page.PAGE.read_text(encoding="utf-8") == page.text(runs.read(runs.FILE)), (
        "run `python -m tools.track_record page`"
    )


@pytest.mark.parametrize("defect", page.defects(), ids=lambda defect: defect["what"][:40])
def test_a_defect_says_all_and_its_command_leads_somewhere(defect):
    assert defect["kind"] in KINDS
    assert defect["found"] in FOUND
    program, *words = shlex.split(defect["shows"])
    assert program == "pytest", "no test shows it"
    named = words[words.index("-k") + 1].split(" or ") if "-k" in words else []
    text = "".join((runs.ROOT / word).read_text(encoding="utf-8") for word in words if word.endswith(".py"))
    assert text
    for part in named:
        assert re.search(rf"(?:def test_\w*|id=.*){part}", text), part
    if git("rev-parse", "--is-shallow-repository") == "false":  # neither an unpacked archive nor the last commit alone
        assert git("cat-file", "-t", defect["commit"]) == "commit", defect["commit"]


def unplayed(monkeypatch, *played):
    """No seed is played from now on: each would give ``played``."""
    monkeypatch.setattr(runs, "chunk", lambda _, seeds: (1, 3, [(seeds[0], *one) for one in played]))
    monkeypatch.setattr(runs, "ProcessPoolExecutor", lambda *_, **__: nullcontext(SimpleNamespace(map=map)))


def test_seeds_go_on_where_the_last_record_ended(monkeypatch):
    with monkeypatch.context() as meanwhile:
        unplayed(meanwhile)
        known = list(runs.simulated([], 1, 1, SOURCE))
    assert [line["family"] for line in known] == [*runs.ALL]
    assert {(line["first"], line["grants"]) for line in known} == {(runs.FIRST, 3)}
    assert {runs.following(known, family) for family in runs.ALL} == {runs.FIRST + 1}
    [line] = runs.simulated(known, 1, 1, SOURCE, ["shipped slots"])
    assert (line["family"], line["first"], line["violated"]) == ("shipped slots", runs.FIRST + 1, [])
    assert line["grants"] > 0
    assert page.text(known).count(f"{len(known)} schedules") == 1


def test_a_violation_is_recorded_with_the_command_that_shows_it(monkeypatch, tmp_path, capsys):
    unplayed(monkeypatch, ("P1 exclusive", "…"))
    monkeypatch.setattr(runs, "source", lambda: SOURCE)
    written: list[runs.Line] = []
    monkeypatch.setattr(page, "write", written.extend)
    assert main(["simulation", "--seeds", "1", "--runs", str(tmp_path / "runs")]) == 1
    shown = f"P1 exclusive: python -m tests.simulation --family slots --trace {runs.FIRST}"
    assert [line["violated"] for line in written if line["family"] == "shipped slots"] == [[shown]]
    assert shown in capsys.readouterr().out
    assert shown in page.text(written)


def verdict(**changes):
    history = {"seed": 7, "faults": ["kill"], "must": ["exclusive", "fenced"], "variant": None, "breaks": [], **changes}
    twice = 3 if history["variant"] or changes.get("seed") == 8 else 0
    counts = {"seconds": 10.04, "faults": {"kill": 2}, "locks": [{"holds": 5}, {"holds": 6}]}
    violations = {"exclusive": twice, "steps": changes.get("seed") == 9}
    return {"history": history, "summary": {**counts, "violations": violations}}


def test_of_chaos_only_what_must_hold_is_counted():
    """Neither what is beyond the model nor what is broken on purpose; and a violation says with which seed."""
    broken, calm = verdict(variant="minority", breaks=["exclusive"]), verdict(seed=8)
    del calm["history"]["faults"]
    line = runs.counted(
        [verdict(), verdict(seed=8), verdict(seed=9), broken, verdict(must=["fenced"]), calm], ["--longer", "4"], SOURCE
    )
    assert {name: line[name] for name in ("runs", "holds", "faults", "seconds")} == {
        "runs": 4, "holds": 44, "faults": 8, "seconds": 40.2,
    }  # fmt: skip
    assert line["caught"] == ["minority"]
    assert line["violated"] == [
        "exclusive: seed 8 with kill", "steps: seed 9 with kill", "exclusive: seed 8 with no fault"
    ]  # fmt: skip
    assert json.loads(json.dumps(line)) == line


def test_histories_of_chaos_stay_in_a_new_folder(monkeypatch, tmp_path):
    """The history of a violation can be read."""
    new = tmp_path / "new" / "kill"
    monkeypatch.setattr(runs, "with_steps", lambda run: verdict() if run == new else {})
    monkeypatch.setattr(subprocess, "run", lambda of, **_: Path(of[5], "kill", "verdict.json").mkdir(parents=True))
    assert [line["holds"] for line in runs.under_chaos([], SOURCE, new.parent)] == [11]
    for words in (["chaos", "--out", str(new.parent)], ["simulation", "--out", str(tmp_path / "newer")]):
        with pytest.raises(SystemExit):
            main(words)


def judged(first="", second="", registers="ab", porcupine="", bench=None):
    one, other, of_locks, of_porcupine = map(frozenset, (first, second, registers, porcupine))
    return judges.Judged("one", 3, one, other, bench, of_locks, of_porcupine)


@pytest.mark.parametrize(("one", "differs"), [
    (judged(), False), (judged("ab", "ab", "ab", "ab", bench=True), False), (judged("c", "c"), False),
    (judged("a", ""), True), (judged("a", "a", porcupine=""), True), (judged(porcupine="b"), True),
    (judged(bench=False), False), (judged(bench=True), True), (judged("a", "a", porcupine="a", bench=False), True),
])  # fmt: skip
def test_judges_differ_where_one_of_them_says_something_else(one, differs, capsys):
    line = judges.counted("bench", [one, judged()], SOURCE)
    assert one.differs == bool(line["differ"]) == differs
    assert ("| `one` |" if differs else "| none |") in page.text([line])
    assert ("never" not in runs.told(line)) == differs


def test_a_seed_of_the_bench_is_judged_and_some_are_red():
    green, red = (judges._of_seed(seed, None) for seed in (0, 11))
    assert (green.differs, red.differs, bool(green.second), bool(red.second)) == (False, False, False, True)
    assert red.name == "--family confirmed --trace 11 minority"


def test_what_is_in_no_commit_is_not_recorded(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(runs, "TRIED", ("file",))
    monkeypatch.setattr(runs, "ROOT", tmp_path)
    git("init", "-q", at=tmp_path)
    git("-c", "user.name=x", "-c", "user.email=x@x", "commit", "-q", "--allow-empty", "-m", "x", at=tmp_path)
    assert runs.source().version
    (tmp_path / "file").touch()
    assert main(["simulation", "--runs", str(tmp_path / "runs")]) == 2
    assert "in no commit: file" in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()
