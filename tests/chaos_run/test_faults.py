"""Every fault strikes and heals, seen on real servers, with each backend: see `strikes.py`."""

from __future__ import annotations

import pytest

from chaos.backends import BACKENDS
from chaos.faults import FAULTS
from chaos.run import lacks
from redlock.testing import clock_available
from tests.chaos_run.runs import OF_PROCESSES, struck
from tests.servers.needs import missing

CASES = [(backend, fault) for backend in OF_PROCESSES for fault in FAULTS if fault not in BACKENDS[backend].LACKS]


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """What became of each fault, by backend: all of one backend are made in one session."""
    found = {}

    def look(backend):
        if backend not in found:
            if not clock_available():
                missing("libfaketime")
            found[backend] = struck(backend, tmp_path_factory.mktemp(backend) / "told")
        return found[backend]

    return look


@pytest.mark.parametrize(("backend", "fault"), CASES)
def test_it_strikes_and_heals(backend, fault, told):
    assert told(backend)[fault] == "fine", told(backend)[fault]


def test_without_libfaketime_no_clock_is_set(monkeypatch):
    """So a suite leaves out what sets one, and says so."""
    monkeypatch.setattr("chaos.run.clock_available", lambda _: False)
    assert set(lacks(BACKENDS["namespace"])) >= {"strobe", "clock", "liar", "swing", "slew", "slewed", "kleppmann"}
