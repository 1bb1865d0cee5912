"""The command: exit codes, what is printed, verdict.json."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, TypeAlias

import pytest

import chaos.judge.verdict as verdict_
from chaos import check
from chaos.__main__ import main
from tests.chaos.tape import Tape, told
from tests.chaos.test_verdict import broken_on_purpose, demands, good, overlapping

if TYPE_CHECKING:
    from collections.abc import Callable


def saved(tape, tmp_path):
    path = tmp_path / "history.jsonl"
    path.write_bytes(tape.bytes())
    return str(path)


Check: TypeAlias = "Callable[..., tuple[int, str, str]]"


@pytest.fixture
def checked(tmp_path, capsys):
    """The exit code, and what was printed."""

    def check_(tape, *options):
        path = tmp_path / "history.jsonl"
        path.write_bytes(tape if isinstance(tape, bytes) else tape.bytes())
        return main(["check", str(path), *options]), *capsys.readouterr()

    return check_


def very_many():
    tape = overlapping()
    for number in range(40):
        tape.held(5, "client-2", f"{number}", until=13, fence=10 + number)
    return tape


UNKNOWN_NAME = "is nothing that can be demanded, only exclusive, fenced, prompt, live, clean"


def with_faults(by_name):
    tape = good()
    tape.header |= {"faults": ["flush", "kill", "pause"], "must_strike": list(by_name)}
    tape.fault("kill", "master-1", 1, 2)
    tape.told("3 B held until 13 fence 2")
    return tape


@pytest.mark.parametrize(("tape", "options", "code", "printed"), [
    pytest.param(good(), [], 0, [
        "live       holds     must hold (no fault was healed)", "PASSED: exclusive, fenced, prompt, live, clean\n",
    ], id="passed"),
    pytest.param(overlapping(), [], 1, [
        "exclusive  VIOLATED  must hold: 1 violation\n",
        "  1. 'a' was held by client-1 (B) until t=13.000000 and by client-2 (C) from t=4.000000",
        "       line 4: t=3.000000  client-1  acquire ok  lock=a  token=B  fence=2  valid_until=13.000000",
        "       line 5: t=4.000000  client-2  acquire ok  lock=a  token=C  fence=3  valid_until=14.000000",
        "VIOLATED: exclusive\n",
    ], id="violated"),
    pytest.param(very_many(), [], 1, ["  10. ", "and 31 more (--json has them all)"], id="of-very-many-the-first"),
    pytest.param(demands(good()), ["--must", "exclusive"], 0, [], id="it-is-demanded-here"),
    pytest.param(overlapping(), ["--must", "fenced,prompt"], 0, ["exclusive  VIOLATED  not demanded: 1 violation"],
        id="not-demanded"),
    pytest.param(overlapping(), ["--must", "fenced,exclusive"], 1, [], id="demanded"),
    pytest.param(broken_on_purpose(overlapping(), "exclusive"), [], 1, [
        "exclusive  VIOLATED  as expected: 1 violation\n", "fenced     holds     must hold\n",
        "VIOLATED: exclusive, as expected (the lock is the broken variant minority)\n",
    ], id="a-variant-that-breaks-what-it-must"),
    pytest.param(broken_on_purpose(overlapping(), "fenced"), [], 1, [
        "fenced     holds     must be violated\n", "VIOLATED: exclusive (the lock is the broken variant minority)\n",
    ], id="a-variant-that-breaks-something-else"),
    pytest.param(broken_on_purpose(good(), "exclusive"), [], 2, [
        "UNKNOWN: exclusive had to be violated, as the lock is broken on purpose, and was not (the lock is",
        "the broken variant minority)\n",
    ], id="a-variant-that-breaks-nothing"),
    pytest.param(with_faults(()), [], 0, [
        "\nflush      0\nkill       1\npause      0\n",
        "PASSED: exclusive, fenced, prompt, live, clean (2 of 3 faults never struck: flush, pause)\n",
    ], id="faults-that-never-struck"),
    pytest.param(with_faults(("pause", "kill")), [], 2, [
        "UNKNOWN: pause never struck, and had been asked for by name (2 of 3 faults never struck: flush, pause)\n",
    ], id="a-fault-that-was-asked-for-by-name-never-struck"),
    pytest.param(Tape(), [], 2, ["UNKNOWN: no lock was ever held, so this history proves nothing\n"],
        id="proves-nothing"),
    pytest.param(told("1 A held until 2"), [], 2, ["UNKNOWN: fenced: 1 grant has no fence, the first in line 2\n"],
        id="unknown-says-why"),
])  # fmt: skip
def test_what_is_printed(checked, tape, options, code, printed):
    found, out, _ = checked(tape, *options)
    assert found == code
    for text in printed:
        assert text in out
    if printed and printed[-1].endswith("\n"):
        assert out.endswith(printed[-1])
    assert "  11. " not in out


@pytest.mark.parametrize(("history", "options", "says"), [
    # Whatever else is found, and nothing of that is printed.
    *((overlapping().bytes(), ["--must", must], UNKNOWN_NAME)
      for must in ("fast", "exclusive,fast", "", "exclusive,", "exclusive, fenced", "EXCLUSIVE")),
    (overlapping().bytes()[:-1], [], "line 6: has no newline, so the file is cut short\n"),
    (demands(good()).bytes(), [], "UNKNOWN: 'must' of its header is empty"),  # and so it proves nothing
])  # fmt: skip
def test_what_is_no_verdict_is_2(checked, history, options, says):
    code, out, error = checked(history, *options)
    assert (code, out) == (2, "")
    assert error.startswith("UNKNOWN: ")
    assert says in error


@pytest.mark.parametrize("command", [["check", "history.jsonl"], ["run"], ["ci"]])
def test_out_is_a_directory(command, capsys):
    with pytest.raises(SystemExit) as ended:
        main([*command, "--out", ""])
    assert ended.value.code == 2
    assert "--out: '': it must be a directory" in capsys.readouterr().err


@pytest.mark.parametrize(("tape", "code"), [(good(), 0), (overlapping(), 1)], ids=["good", "overlapping"])
def test_one_without_a_footer_is_said_to_be_perhaps_cut(checked, tape, code):
    cut = tape.bytes(footer=False)
    found, out, _ = checked(cut)
    assert found == code
    assert "(perhaps cut: the history has no footer" in out.splitlines()[-1]
    for history, perhaps in ((cut, True), (tape.bytes(), False)):
        found, out, _ = checked(history, "--json")
        assert (found, json.loads(out)["perhaps_cut"]) == (code, perhaps)


@pytest.mark.long
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_sixty_thousand_overlapping_holds_are_counted_and_make_a_small_report(tmp_path):
    many, report = 60_000, tmp_path / "report"
    tape = Tape()
    for number in range(many):
        t = number / 1000
        process, fence = f"client-{number % 6}", many - number
        tape.held(t, process, f"{number:040x}", until=t + 2, fence=fence, invoked=t - 0.0005, worker="w")
    path = saved(tape, tmp_path)
    # Not getrusage(): that begins with the memory of the process which started it.
    program = (
        "import sys; from pathlib import Path; from chaos.__main__ import main\n"
        "code = main(['check', sys.argv[1], '--out', sys.argv[2]])\n"
        "peak = [line.split()[1] for line in Path('/proc/self/status').read_text().splitlines() if line.startswith('VmHWM')]\n"
        "print(code, int(peak[0]) // 1024)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, path, str(report)], capture_output=True, text=True, check=True
    )
    code, megabytes = done.stdout.split()[-2:]
    assert code == "1"
    assert int(megabytes) < 300
    assert "and 59989 more (--json has the first 100)" in done.stdout
    verdict = json.loads((report / "verdict.json").read_text())
    for name, count in (("exclusive", many - 1), ("fenced", many - 1)):
        assert verdict["rulings"][name]["count"] == verdict["summary"]["violations"][name] == count
        listed = verdict["rulings"][name]["violations"]
        assert len(listed) == 100
        assert [one["at"] for one in listed] == [number / 1000 for number in range(1, 101)]  # the first ones
    assert (report / "verdict.json").stat().st_size < 1_000_000
    assert (report / "timeline.html").stat().st_size < 10_000_000


def test_not_there(tmp_path, capsys):
    assert main(["check", str(tmp_path / "none")]) == 2
    assert "No such file" in capsys.readouterr().err


@pytest.mark.parametrize("where", ["judge", "elsewhere"])
def test_a_crash_is_2(checked, monkeypatch, where):
    """Python would say 1, and that is a verdict."""
    if where == "judge":
        monkeypatch.setitem(verdict_._JUDGES, "live", lambda *_: 1 / 0)
    else:
        monkeypatch.setattr(check, "summarize", lambda *_: 1 / 0)
    code, out, error = checked(good())
    assert code == 2
    assert ("UNKNOWN: live: the judge crashed: ZeroDivisionError" if where == "judge" else "") in out
    assert "ZeroDivisionError" in (out if where == "judge" else error)


def test_json(checked):
    tape = overlapping().told("12 master-1 has B=-1")
    code, out, _ = checked(tape, "--json", "--must", "exclusive")
    found = json.loads(out)
    assert code == 1
    assert (found["schema"], found["outcome"], found["must"]) == (1, "violated", ["exclusive"])
    assert found["history"]["seed"] == 7
    nothing = {"outcome": "passed", "vacuous": False, "note": "", "count": 0, "violations": []}
    assert found["rulings"]["fenced"] == nothing
    [violation] = found["rulings"]["exclusive"]["violations"]
    granted = {"op": "acquire", "phase": "ok", "lock": "a"}
    assert violation["events"] == [
        granted | {"line": 4, "t": 3, "process": "client-1", "token": "B", "fence": 2, "valid_until": 13},
        granted | {"line": 5, "t": 4, "process": "client-2", "token": "C", "fence": 3, "valid_until": 14},
    ]
    assert (violation["at"], violation["lock"]) == (4, "a")
    assert found["summary"]["violations"] == {"exclusive": 1, "fenced": 0, "prompt": 0, "live": 0, "clean": 1}
    [violation] = found["rulings"]["clean"]["violations"]
    assert violation["events"][-1] == {
        "line": 6, "t": 12, "process": "observer", "op": "inspect", "phase": "ok", "target": ["master-1"],
        "keys": [{"lock": "a", "token": "B", "pttl_ms": -1}],
    }  # fmt: skip


def test_out(tmp_path, capsys):
    out = tmp_path / "new" / "report"
    assert main(["check", saved(overlapping(), tmp_path), "--json", "--out", str(out)]) == 1
    assert json.loads((out / "verdict.json").read_text()) == json.loads(capsys.readouterr().out)
    assert (out / "timeline.html").read_text().startswith("<!doctype html>")


def test_out_is_no_directory(tmp_path, capsys):
    path = saved(good(), tmp_path)
    assert main(["check", path, "--out", path]) == 2
    assert "cannot write into" in capsys.readouterr().err


def test_names_of_a_stranger_neither_colour_nor_forge_a_line(checked):
    tape = overlapping()
    tape.held(5, "client\x1b[31m", "B\nPASSED: all", until=9, fence=4)
    code, out, _ = checked(tape)
    assert code == 1
    assert "\x1b" not in out
    assert "\nPASSED" not in out
    assert r"client\x1b[31m" in out


@pytest.mark.parametrize("words", [[], ["break"], ["check"], ["check", "a", "b"], ["check", "--must"]])
def test_usage_is_2(words, capsys):
    with pytest.raises(SystemExit) as caught:
        main(words)
    assert caught.value.code == 2
    assert "usage: python -m chaos" in capsys.readouterr().err


def test_who_reads_has_gone(tmp_path):
    """``| head``: the exit code is the verdict's, and nobody complains."""
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "chaos", "check", saved(overlapping(), tmp_path)],
            stdout=writing, stderr=subprocess.PIPE, check=False, timeout=60,
        )  # fmt: skip
    finally:
        os.close(writing)
    assert (done.returncode, done.stderr) == (1, b"")
