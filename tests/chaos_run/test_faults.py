"""Every fault strikes and heals, seen on real servers, with both backends: see `strikes.py`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from chaos.backends import BACKENDS
from chaos.faults import FAULTS
from redlock.testing import clock_available
from tests.servers.needs import missing

ROOT = Path(__file__).parent.parent.parent
CASES = [(backend, fault) for backend, what in BACKENDS.items() for fault in FAULTS if fault not in what.LACKS]


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """What became of each fault, by backend: all of one backend are made in one session."""
    found = {}

    def look(backend):
        if backend not in found:
            found[backend] = _strike(backend, tmp_path_factory.mktemp(backend) / "told")
        return found[backend]

    return look


def _strike(backend, out):
    why = BACKENDS[backend].unavailable()
    if why is not None:
        missing(f"the backend {backend}: {why}")
    if not clock_available():
        missing("libfaketime")
    program = [sys.executable, str(Path(__file__).with_name("strikes.py")), backend, str(out)]
    ran = subprocess.run(
        BACKENDS[backend].command(["env", f"PYTHONPATH={ROOT}", *program]),
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=100, check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    return dict(map(json.loads, out.read_text().splitlines()))


@pytest.mark.parametrize(("backend", "fault"), CASES)
def test_it_strikes_and_heals(backend, fault, told):
    assert told(backend)[fault] == "fine", told(backend)[fault]
