"""A process that prints what it does, and a thread that reads it."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import threading

from tests.servers.look import eventually


class Process:
    def __init__(self, popen):
        self.popen = popen
        self.lines: list[str] = []
        self.reader = threading.Thread(target=self._read)
        self.reader.start()

    def _read(self):
        assert self.popen.stdout is not None
        for line in self.popen.stdout:
            self.lines.append(line.rstrip())

    def said(self, start, after=0):
        return [line for line in self.lines[after:] if line.startswith(start)]

    def says(self, start, after=0, seconds=20.0):
        """Wait until it says so.  Returns the first such line."""
        lines: list[str] = eventually(lambda: self.said(start, after), seconds)
        return lines[0]

    def ends(self):
        code = self.popen.wait(20)
        self.reader.join()
        return code


@contextlib.contextmanager
def started(*command, cwd=None, environment=None, stdin=None):
    """A program in Python, in a group of its own, all of which is killed at the end."""
    process = Process(
        subprocess.Popen(
            [sys.executable, *command],
            cwd=cwd,
            env={**os.environ, **(environment or {})},
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
    )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.popen.pid, signal.SIGKILL)
        process.ends()
        assert process.popen.stdout is not None
        process.popen.stdout.close()


def run(*command, cwd=None, environment=None):
    """A program in Python, to its end."""
    return subprocess.run(
        [sys.executable, *command],
        cwd=cwd,
        env={**os.environ, **(environment or {})},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


async def soon(condition):
    """`eventually` on an event loop.  The caller has a timeout."""
    while not condition():  # noqa: ASYNC110 - it looks from outside
        await asyncio.sleep(0.01)
