"""The harness with the masters of ``compose/``: every fault strikes and heals, nothing survives a run that is broken off.

Runs with a verdict are in `make compose`, beside these.  With a daemon that runs already: `running.py`.
"""

from __future__ import annotations

import signal

import pytest

from chaos.backends import compose
from chaos.faults import FAULTS
from tests.chaos_run.runs import Run, state, struck

CAN = [fault for fault in FAULTS if fault not in compose.LACKS]


@pytest.fixture(scope="module")
def told(docker, tmp_path_factory):
    return struck("compose", tmp_path_factory.mktemp("strikes") / "told")


@pytest.mark.xdist_group("told")  # by one process, which asks once
@pytest.mark.parametrize("fault", CAN)
def test_it_strikes_and_heals(fault, told):
    assert told[fault] == "fine", told[fault]


@pytest.fixture
def broken_off(temporary, tmp_path):
    run = Run("compose", tmp_path, scratch=temporary)
    yield run
    run.close()


@pytest.mark.parametrize("there", ["chaos run", "chaos.session", "/compose/daemon.sh "])
def test_killed_while_it_starts(broken_off, there):
    broken_off.wait_until(lambda: any(there in words for words in broken_off.alive().values()))
    broken_off.process.kill()
    broken_off.nothing_is_left()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_broken_off_while_clients_and_masters_are_stopped(broken_off, number):
    broken_off.wait_until(lambda: any(state(pid) == "T" for pid in broken_off.clients()))
    broken_off.process.send_signal(number)
    broken_off.process.wait(60)
    broken_off.nothing_is_left()


def test_its_daemon_is_killed(broken_off):
    """An unknown outcome, which is said, and nothing is left."""
    broken_off.wait_until(broken_off.clients)
    broken_off.kill("/compose/daemon.sh ")
    assert broken_off.process.wait(60) == 2
    assert "the session ended with status" in broken_off.said()
    broken_off.nothing_is_left()
