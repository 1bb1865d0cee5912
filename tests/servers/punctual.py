"""How late this machine is to run a thread whose time has come: on a busy one nothing of ours can be prompt."""

from __future__ import annotations

import threading
import time

PROMPT = 0.05  # P6: how late a holder may be told, in seconds, by a machine that runs what is due
_PAUSE = 0.002


class Watch:
    """Sleeps for moments, and notes by how much it overslept at most."""

    def __init__(self) -> None:
        self.overslept = 0.0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.is_set():
            before = time.monotonic()
            self._over.wait(_PAUSE)
            self.overslept = max(self.overslept, time.monotonic() - before - _PAUSE)

    @property
    def prompt(self) -> float:
        """`PROMPT`, and what three threads, each woken by the one before, may have overslept."""
        return PROMPT + 3 * self.overslept
