"""Takes signals over while an election runs."""

from __future__ import annotations

import os
import signal
import threading
from typing import TYPE_CHECKING, Any

from redlock import options
from redlock._base import process
from redlock.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import FrameType

_NEVER_CAUGHT = {signal.SIGKILL, signal.SIGSTOP}


class Signals:
    """Under ``with``: the first of these signals calls ``stop``.  A second one does what it did before.

    Python runs signal handlers in its main thread, and lets no other one install them.  In other threads this does
    nothing.  Nor does it touch a handler that was not installed from Python: nobody could put it back.
    """

    def __init__(self, numbers: Iterable[int], stop: Callable[[], object]) -> None:
        self._numbers = _checked(numbers)
        self._stop = stop
        self._before: dict[int, Any] = {}
        self._process = process.mark

    def __enter__(self) -> None:
        if threading.current_thread() is threading.main_thread():
            for number in self._numbers:
                before = signal.getsignal(number)
                if before is not None:
                    self._before[number] = before
                    signal.signal(number, self._handle)

    def __exit__(self, *_: object) -> None:
        self._put_back()

    def _handle(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002 - part of the interface
        self._put_back()
        if self._process is process.mark:
            self._stop()
        else:  # a forked child has inherited the handler, and is not the one that leads
            os.kill(os.getpid(), number)

    def _put_back(self) -> None:
        while self._before:
            number, before = self._before.popitem()
            if signal.getsignal(number) == self._handle:  # else the body has installed another one
                signal.signal(number, before)


def _checked(numbers: Iterable[int]) -> list[signal.Signals]:
    try:
        checked = [signal.Signals(number) for number in numbers]
    except (TypeError, ValueError):
        checked = [signal.SIGKILL]
    if not _NEVER_CAUGHT.isdisjoint(checked):
        raise ConfigurationError(
            f"signals={options.shown(numbers)}: allowed are signals that a process can catch, as signal.SIGTERM"
        )
    return checked
