"""A client whose wall clock is wrong."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_its_fences_are_proposed_by_the_clock_that_is_wrong(tmp_path):
    """R16.  Else no run with skewed clocks would show anything."""
    program = textwrap.dedent("""
        import pathlib, sys, time
        from chaos.clients.stage import Stage
        from chaos.control import WORK, Control
        from redlock import Masters
        from redlock.testing import LocalMasters
        file = pathlib.Path(sys.argv[1])
        Control(file, new=True).tell(3600.0, WORK)
        Stage(file).set_wall_clock()
        with LocalMasters(1) as servers, Masters(servers.urls, restart_guard=False) as masters:
            with masters.lock("job") as lease:
                print(lease.fence / 1e6 - time.clock_gettime(time.CLOCK_REALTIME))
    """)
    command = [sys.executable, "-c", program, str(tmp_path / "control")]
    assert float(subprocess.run(command, cwd=ROOT, check=True, timeout=60, capture_output=True).stdout) > 3000.0
