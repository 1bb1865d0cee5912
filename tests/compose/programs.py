"""Running what is in ``compose/``."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
COMPOSE = ROOT / "compose"
# The commands of this environment first: redlock-check is one of them.
ENVIRONMENT = {
    **os.environ,
    "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    "PYTHONPATH": str(ROOT),
}
RUNNING = (sys.executable, str(Path(__file__).with_name("running.py")))


def run(*command, **environment):
    return subprocess.run(
        [str(word) for word in command], env={**ENVIRONMENT, **environment}, capture_output=True, text=True, check=False,
        stdin=subprocess.DEVNULL,
    )  # fmt: skip
