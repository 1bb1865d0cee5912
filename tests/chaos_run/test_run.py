"""The commands, as a user calls them: short runs from the first server to the verdict."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from chaos.backends import BACKENDS
from tests.servers.needs import missing

ROOT = Path(__file__).parent.parent.parent
SHORT = ("--seed", "3", "--duration", "2", "--masters", "3", "--clients", "2", "--ttl", "1", "--locks", "2")


def chaos(*words, within=80):
    return subprocess.run(
        [sys.executable, "-m", "chaos", *words],
        cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=within, check=False,
    )  # fmt: skip


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_run(backend, tmp_path):
    why = BACKENDS[backend].unavailable()
    if why is not None:
        missing(f"the backend {backend}: {why}")
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
        "ttl": 1.0, "must": ["exclusive", "fenced", "prompt", "live", "clean"],
    }  # fmt: skip
    assert {line["process"] for line in lines[1:]} >= {"client-1", "client-2", "nemesis", "observer"}
    assert sum(line["op"] == "inspect" for line in lines[1:]) == 3
    again = chaos("check", str(tmp_path / "history.jsonl"))
    assert again.returncode == 0


def test_a_broken_lock_is_caught(tmp_path):
    ran = chaos("run", *SHORT, "--variant", "no-owner-check", "--backend", "proxy", "--out", str(tmp_path))
    assert ran.returncode == 1, ran.stdout + ran.stderr
    assert "exclusive  VIOLATED" in ran.stdout


def test_what_was_to_be_shown_and_was_not_proves_nothing(tmp_path):
    """Clocks that jump while nobody holds anything for long enough: exit 2, although nothing was violated."""
    ran = chaos(
        "run", *SHORT, "--scenario", "client-pause", "--lanes", "1", "--faults", "flush", "--backend", "proxy",
        "--out", str(tmp_path),
    )  # fmt: skip
    assert ran.returncode == 2, ran.stdout + ran.stderr
    assert "proves nothing: lost update was not shown" in ran.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--faults", "nonsense"], "no fault 'nonsense'"),
        (["--ttl", "0"], "--ttl is 0.0, it must be more than 0 seconds"),
        (["--ttl", "nan"], "--ttl is nan"),
        (["--ttl", "0.5"], "--node-timeout is 0.25, it must be at most a third of the TTL"),
        (["--clients", "0"], "--clients is 0"),
        (["--must", "nonsense"], "'nonsense' is nothing that can be demanded"),
        (["--server", "/no/such/server"], "/no/such/server"),
        (["--backend", "proxy", "--faults", "disk"], "it cannot mount a small disk"),
        (["--out", "/dev/null/out"], "/dev/null/out"),
        (["--scenario", "nonsense"], "invalid choice: 'nonsense'"),
        (["--duration", "long"], "invalid float value: 'long'"),
    ],
)
def test_what_cannot_be_is_said_plainly(words, said, tmp_path):
    out = [] if "--out" in words else ["--out", str(tmp_path)]
    ran = chaos("run", *words, *out)
    assert ran.returncode == 2
    assert said in ran.stderr
    assert "Traceback" not in ran.stderr
    assert not list(tmp_path.iterdir())


def test_the_list():
    ran = chaos("list")
    assert ran.returncode == 0
    for word in ("namespace", "proxy", "amnesia-guarded", "client-pause", "clock-jump", "no-rollback", "oneway"):
        assert word in ran.stdout


@pytest.mark.parametrize("words", [["--jobs", "0"], ["--longer", "-1"], ["--longer", "nan"]])
def test_ci_refuses_what_cannot_be(words):
    ran = chaos("ci", *words)
    assert ran.returncode == 2
    assert "Traceback" not in ran.stderr
