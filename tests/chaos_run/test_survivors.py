"""Nothing survives a run, whoever is killed and when: no process, hence no server and no namespace; no file."""

from __future__ import annotations

import os
import signal
import sys

import pytest

from tests.chaos_run.runs import OF_PROCESSES, Run, state

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")


@pytest.fixture(params=OF_PROCESSES)
def run(request, tmp_path):
    run = Run(request.param, tmp_path)
    yield run
    run.close()


@pytest.mark.parametrize("there", ["chaos run", "chaos.session", "redis-server", "chaos.clients"])
def test_killed_while_it_starts(run, there):
    run.wait_until(lambda: any(there in words for words in run.alive().values()))
    run.process.kill()
    run.nothing_is_left()


def test_killed_while_clients_and_servers_are_stopped(run):
    """What is stopped cannot notice that it is alone."""
    run.wait_until(lambda: any(state(pid) == "T" for pid in run.clients()))
    run.process.kill()
    run.nothing_is_left()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted(run, number):
    run.wait_until(run.clients)
    run.process.send_signal(number)
    assert run.process.wait(30) in (2, -number)
    run.nothing_is_left()


@pytest.mark.parametrize(
    ("killed", "said"),
    [("session", "the session ended with status"), ("clients", "no client can begin or end any more")],
)
def test_the_harness_crashes(run, killed, said):
    """An unknown outcome, and nothing is left.  Of the clients the first is their parent."""
    run.wait_until(run.clients)
    os.kill(
        min(pid for pid, words in run.alive().items() if f"-m chaos.{killed}" in words and "unshare" not in words),
        signal.SIGKILL,
    )
    assert run.process.wait(30) == 2
    assert said in run.said()
    run.nothing_is_left()


def test_a_client_that_dies_by_itself_is_a_failure_of_the_harness(run):
    run.wait_until(lambda: len(run.clients()) == 4)
    os.kill(run.clients()[0], signal.SIGTERM)
    assert run.process.wait(60) == 2
    assert "ended with status -15" in run.said()
    run.nothing_is_left()
