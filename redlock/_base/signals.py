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
        self.stop = stop

    def __enter__(self) -> None:
        if threading.current_thread() is threading.main_thread():
            for number in self._numbers:
                _Taken.over(number, self)

    def __exit__(self, *_: object) -> None:
        for number in self._numbers:
            taken = _TAKEN.get(number)
            if taken is not None:
                taken.leave(self)


class _Taken:
    """A signal that was taken over, by all that run now: tasks begin and end in any order."""

    def __init__(self, number: int, before: Any) -> None:
        self._number = number
        self._before = before
        self._process = process.mark
        self._users: list[Signals] = []

    @staticmethod
    def over(number: int, user: Signals) -> None:
        taken = _TAKEN.get(number)
        if taken is None or signal.getsignal(number) != taken.handle:
            before = signal.getsignal(number)
            if before is None:
                return
            taken = _TAKEN[number] = _Taken(number, before)
            signal.signal(number, taken.handle)
        taken._users.append(user)

    def leave(self, user: Signals) -> None:
        if user in self._users:
            self._users.remove(user)
            if not self._users:
                self._put_back()

    def handle(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002 - part of the interface
        users, self._users = self._users, []
        self._put_back()
        if self._process is process.mark:
            for user in users:
                user.stop()
        else:  # a forked child has inherited the handler, and is not the one that leads
            os.kill(os.getpid(), number)

    def _put_back(self) -> None:
        if _TAKEN.get(self._number) is self:
            del _TAKEN[self._number]
        if signal.getsignal(self._number) == self.handle:  # else somebody has installed another one
            signal.signal(self._number, self._before)


_TAKEN: dict[int, _Taken] = {}


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
