"""Uses that are fenced transactions in PostgreSQL, and the server that is started for them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from chaos import databases, run
from chaos.backends import Unavailable, proxy
from chaos.scenarios import SCENARIOS
from tests.chaos_run.test_run import chaos
from tests.servers.look import eventually
from tests.servers.needs import missing

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture
def database():
    why = databases.unavailable()
    if why is not None:
        missing(f"PostgreSQL: {why}")


@pytest.mark.usefixtures("database")
def test_holders_that_are_stopped_in_their_transactions_lose_no_update(tmp_path):
    short = ("--seed", "3", "--duration", "4", "--masters", "3", "--clients", "4", "--locks", "1", "--faults", "stop")
    ran = chaos("run", "--scenario", "transactions", *short, "--backend", "proxy", "--out", str(tmp_path))
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "PASSED: exclusive, fenced, prompt, live, clean" in ran.stdout
    events = [json.loads(line) for line in (tmp_path / "history.jsonl").read_text().splitlines()]
    uses = [event for event in events if event.get("store") == "fenced" and event["phase"] == "ok"]
    read = sorted(event["detail"]["read"] for event in uses if event["accepted"])
    assert read == sorted(set(read))
    assert read
    assert all("rolled back" in event["detail"] for event in uses if not event["accepted"])


def test_without_postgresql_it_is_refused_before_anything_is_started(monkeypatch):
    monkeypatch.setattr(databases, "unavailable", lambda: "no PostgreSQL")
    with pytest.raises(Unavailable, match="--work transactions: no PostgreSQL"):
        run.check(SCENARIOS["transactions"].with_seed(1), proxy)
    run.check(SCENARIOS["kill"].with_seed(1), proxy)


def test_a_program_that_is_not_installed():
    with pytest.raises(databases.DatabaseFailed, match="no-such-server is not here: apt-get install its-package"):
        databases.program("no-such-server", "its-package")


STARTS = """
import os, signal
from chaos import databases
with databases.postgresql() as host:
    print(host, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.usefixtures("database")
def test_nothing_is_left_of_a_server_whose_starter_was_killed():
    died = subprocess.run([sys.executable, "-c", STARTS], cwd=ROOT, capture_output=True, text=True, check=False)
    folder = Path(died.stdout.strip())
    assert folder.name.startswith("redlock-"), died.stderr
    eventually(lambda: not folder.exists())
    running = ["pgrep", "-f", str(folder)]
    eventually(lambda: subprocess.run(running, check=False, stdout=subprocess.DEVNULL).returncode == 1)
