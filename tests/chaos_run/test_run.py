"""The commands, as a user calls them: short runs from the first server to the verdict."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from chaos import ci, databases
from chaos.__main__ import main
from chaos.history import Header, Writer, merge
from chaos.launch import EXIT_CODES, judged
from chaos.scenarios import SCENARIOS
from chaos.variants import VARIANTS
from tests.chaos_run.runs import OF_PROCESSES, needs

ROOT = Path(__file__).parent.parent.parent
SHORT = ("--seed", "3", "--duration", "2", "--masters", "3", "--clients", "2", "--ttl", "1", "--locks", "2")


def chaos(*words, within=80):
    return subprocess.run(
        [sys.executable, "-m", "chaos", *words],
        cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=within, check=False,
    )  # fmt: skip


def here(capfd, *words):
    """In this process, which is quicker: exit code, output and errors."""
    try:
        code: object = main(list(words))
    except SystemExit as ended:
        code = ended.code
    return code, *capfd.readouterr()


@pytest.mark.parametrize("backend", OF_PROCESSES)
def test_a_run(backend, tmp_path):
    needs(backend)
    ran = chaos("run", *SHORT, "--faults", "flush,oneway", "--backend", backend, "--out", str(tmp_path))
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert f"backend {backend}: " in ran.stdout
    assert "seed 3   again: python -m chaos run --seed 3 " in ran.stdout
    assert "PASSED: exclusive, fenced, prompt, live, clean" in ran.stdout
    assert json.loads((tmp_path / "verdict.json").read_text())
    assert (tmp_path / "timeline.html").stat().st_size > 0
    lines = [json.loads(line) for line in (tmp_path / "history.jsonl").read_text().splitlines()]
    assert lines[0] | {"clients": None} == {
        "schema": 1, "seed": 3, "masters": 3, "locks": ["lock-1", "lock-2"], "clients": None, "clock": "boottime",
        "ttl": 1.0, "must": ["exclusive", "fenced", "prompt", "live", "clean"], "footer": True,
        "faults": ["flush", "oneway"], "must_strike": ["flush", "oneway"],
    }  # fmt: skip
    assert lines.pop() == {"events": len(lines) - 1}
    assert {line["process"] for line in lines[1:]} >= {"client-1", "client-2", "nemesis", "observer"}
    assert sum(line["op"] == "inspect" for line in lines[1:]) == 3
    assert chaos("check", str(tmp_path / "history.jsonl")).returncode == 0


AS_INSTALLED = "import sys; from chaos.__main__ import entry; sys.argv[0] = 'redlock-chaos'; entry()"


def test_a_run_in_a_folder_that_has_a_redis_py(tmp_path):
    """A script that was installed imports nothing from the folder that somebody is in; nor does what it starts."""
    folder = tmp_path / "folder"
    folder.mkdir()
    for name in ("redis", "redlock", "select", "sqlite3"):
        (folder / f"{name}.py").write_text("raise SystemExit('imported from the folder')")
    words = ("run", *SHORT, "--faults", "flush", "--backend", "proxy", "--out", str(tmp_path / "out"))
    ran = subprocess.run(
        [sys.executable, "-P", "-c", AS_INSTALLED, *words], cwd=folder, env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=80, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_a_broken_lock_is_caught(tmp_path):
    """A run that shows nothing proves nothing, and is tried again with another seed, as ``ci`` does."""
    run = ("run", *SHORT, "--variant", "one-token", "--backend", "proxy", "--out", str(tmp_path))
    ran, seeds = chaos(*run), iter(range(4, 11))
    while ran.returncode == 2 and "exclusive had to be violated" in ran.stdout and (seed := next(seeds, None)):
        ran = chaos(*run, "--seed", str(seed))
    assert ran.returncode == 1, ran.stdout + ran.stderr
    assert "exclusive  VIOLATED  as expected" in ran.stdout
    assert "(the lock is the broken variant one-token)" in ran.stdout
    assert json.loads((tmp_path / "verdict.json").read_text())["history"]["breaks"] == ["exclusive"]


def test_a_run_that_is_too_short_is_no_pass(tmp_path):
    """Said before it begins, and by its verdict."""
    faults = ("--faults", "kill,pause,stop,partition", "--duration", "1.5", "--max-ttl", "1")
    ran = chaos("run", *SHORT, *faults, "--backend", "proxy", "--out", str(tmp_path))
    assert ran.returncode == 2, ran.stdout + ran.stderr
    before, _, after = ran.stdout.partition("must hold")
    told = json.loads((tmp_path / "verdict.json").read_text())["never_struck"]
    assert {"kill", "pause", "stop"} & set(told)
    assert f"never strike in this run: {', '.join(told)} ({len(told)} of 8); --duration " in before
    assert "never struck, and had been asked for by name" in after


def test_a_history_says_what_was_demanded_of_it(tmp_path):
    """So that it is judged by the same again."""
    demanding = ("--ttl", "5", "--work", "steady", "--must", "kept,fenced", "--faults", "flush")
    ran = chaos("run", *SHORT, *demanding, "--backend", "proxy", "--out", str(tmp_path))
    again = chaos("check", str(tmp_path / "history.jsonl"))
    kept, verdict = re.compile(r"^kept .*$", re.MULTILINE), re.compile(r"^(?:PASSED|FAILED).*$", re.MULTILINE)
    for line in (kept, verdict):  # whether a lease was lost is up to the machine
        assert line.findall(ran.stdout) == line.findall(again.stdout) != []
    assert "must hold" in kept.findall(ran.stdout)[0]
    assert "kept" in verdict.findall(ran.stdout)[0], ran.stdout + ran.stderr


@pytest.mark.parametrize("shows", ["exclusive", "lost update"])
@pytest.mark.parametrize("shown", [False, True])
def test_what_was_to_be_shown_and_was_not_proves_nothing(tmp_path, shows, shown):
    """Beyond the model a run that shows no breakage is no pass: exit 2, although nothing was violated."""
    with Writer(tmp_path / "events", "client-1") as first, Writer(tmp_path / "more", "client-2") as second:
        for fence, who, t in ((1, first, 1.0), (2, second, 1.5 if shown and shows == "exclusive" else 3.0)):
            token = f"token-{fence}"
            who.write("acquire", "invoke", t=t - 0.1, lock="a")
            who.write("acquire", "ok", t=t, lock="a", token=token, fence=fence, valid_until=t + 1.9)
            read = 1 if shown and shows == "lost update" else fence
            use = {"lock": "a", "token": token, "fence": fence, "store": "plain"}
            who.write("use", "invoke", t=t + 0.1, **use)
            who.write("use", "ok", t=t + 0.2, **use, accepted=True, detail={"read": read})
            who.write("release", "invoke", t=t + 1.0, lock="a", token=token)
    header = Header(masters=5, locks=("a",), clients=("client-1", "client-2"), ttl=2.0, must=("fenced",))
    merge([tmp_path / "events", tmp_path / "more"], header, tmp_path / "history.jsonl")
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    found = judged(ended, tmp_path, ("fenced",), shows)
    assert (found.ending, EXIT_CODES[found.ending]) == (("passed", 0) if shown else ("proves nothing", 2))
    assert found.note == (f"shows {shows} 1 times" if shown else f"proves nothing: {shows} was not shown")


@pytest.mark.parametrize(("words", "said"), [
    (["--faults", "nonsense"], "no fault 'nonsense'"),
    (["--faults", ""], "--faults is '', it must name one at least"),  # a variable that is not set
    (["--faults", " ,"], "it must name one at least"),
    (["--ttl", "0"], "--ttl is 0.0, it must be more than 0 and at most 3600 seconds"),
    (["--ttl", "nan"], "--ttl is nan"),
    (["--ttl", "0.5"], "--node-timeout is 0.25, it must be at most a third of the TTL"),
    (["--ttl", "4000"], "--ttl is 4000.0, it must be more than 0 and at most 3600 seconds"),
    (["--max-ttl", "5000"], "--max-ttl is 5000.0, it must be more than 0 and at most 3600 seconds"),
    (["--max-ttl", "nan"], "--max-ttl is nan"),
    (["--ttl", "0.002", "--node-timeout", "0.0005"], "ttl=0.002 with drift_factor=0.01"),  # says the library
    (["--skew", "nan"], "--skew is nan, it must be 0 seconds or more"),
    (["--slots", "3"], "--slots goes with --work slots"),
    (["--work", "slots"], "--slots goes with --work slots"),
    (["--clients", "0"], "--clients is 0"),
    (["--must", "nonsense"], "'nonsense' is nothing that can be demanded"),
    (["--server", "/no/such/server"], "/no/such/server"),
    (["--server", "/bin/true", "--backend", "proxy"], "ended with status 0"),
    (["--backend", "proxy", "--faults", "disk"], "it cannot mount a small disk"),
    (["--out", "/dev/null/out"], "/dev/null/out"),
    (["--scenario", "nonsense"], "--scenario: there is no scenario 'nonsense', only calm"),
    (["--duration", "long"], "invalid float value: 'long'"),
])  # fmt: skip
def test_what_cannot_be_is_said_plainly(words, said, tmp_path, capfd):
    out = [] if "--out" in words else ["--out", str(tmp_path)]
    code, _, error = here(capfd, "run", *words, *out)
    assert code == 2
    assert said in error
    assert "Traceback" not in error
    assert {path.name for path in tmp_path.iterdir()} <= {"settings.json"}


def test_the_list(capfd):
    code, listed, _ = here(capfd, "list")
    assert code == 0
    for word in (
        "namespace", "proxy", "amnesia-guarded", "client-pause", "clock-jump", "no-rollback", "no-repair", "oneway", "roll",
        "PostgreSQL", "transactions", "without-fence-row",
    ):  # fmt: skip
        assert word in listed


@pytest.mark.parametrize(
    "words", [["--only", "calm,nonsense"], ["--jobs", "0"], ["--longer", "-1"], ["--longer", "nan"]]
)
def test_ci_refuses_what_cannot_be(words, capfd):
    code, _, error = here(capfd, "ci", *words)
    assert code == 2
    assert "Traceback" not in error


def test_ci_does_what_it_is_told_to_and_nothing_else():
    chosen = ci._chosen(ci._jobs(None, 1.0), "variant-minority, calm")
    assert sorted(job.name for job in chosen) == ["calm", "variant-minority"]


def test_what_cannot_be_done_here_is_left_out_by_name(monkeypatch):
    """A scenario of many faults goes on without the one that is missing; one that is about it does not."""
    monkeypatch.setattr(databases, "unavailable", lambda: "no PostgreSQL")
    jobs, left_out = ci._possible(ci._jobs(7, 1.0), {"disk": "no mounts", "strobe": "no libfaketime"})
    database = {"transactions: no PostgreSQL", "variant-without-fence-row: no PostgreSQL"}
    assert {"full-disk", "full-disk-everysec", "strobe", "strobe in everything"} | database == set(left_out)
    assert "strobe" not in next(job for job in jobs if job.name == "everything").settings.faults
    assert {"calm", "kill", "variant-no-rollback"} < {job.name for job in jobs}
    everything = ci._jobs(None, 1.0)
    assert {scenario.name for scenario in SCENARIOS.values()} < {job.name for job in everything}
    assert {f"variant-{name}" for name in VARIANTS} < {job.name for job in everything}
    assert len(everything) == len(SCENARIOS) + len(VARIANTS) + 1, "and one with a random seed"
