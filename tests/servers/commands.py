"""The two commands, run as programs."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

RUN = [sys.executable, "-W", "error", "-m", "redlock._cli.run"]
CHECK = [sys.executable, "-W", "error", "-m", "redlock._cli.check"]


def environment(urls: list[str] | None = None, **more: str) -> dict[str, str]:
    """Without what whoever runs the tests has set for masters of their own."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("REDLOCK_") and name != "COLUMNS"}
    return clean | ({"REDLOCK_MASTERS": ",".join(urls)} if urls else {}) | more


def run(command: list[str], urls: list[str] | None = None, *, seconds: float = 60, **options: Any):
    """To its end; no traceback, whatever happens."""
    more = options.pop("environment", {})
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=seconds, check=False, env=environment(urls, **more), **options
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done


def start(command: list[str], urls: list[str], **options: Any) -> subprocess.Popen[str]:
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": subprocess.DEVNULL}
    return subprocess.Popen(command, text=True, env=environment(urls), **(streams | options))
