"""Takes signals over while an election runs."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from typing import TYPE_CHECKING, Any

from redlock import options
from redlock._io import process
from redlock.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import FrameType


class Signals:
    """Under ``with``: the first of these signals calls ``stop``.  A second one does what it did before.

    Python runs signal handlers in its main thread, and lets no other one install them.  In other threads this does
    nothing.  Nor does it touch a handler that was not installed from Python: it could not be put back.

    A handler of another signal may raise at any line.  Handlers installed by then are put back.  Only what
    strikes the end of the ``with`` itself is left, so call `restore` behind it again.
    """

    def __init__(self, numbers: Iterable[int], stop: Callable[[], object]) -> None:
        self._numbers = _checked(numbers)
        self.stop = stop

    def __enter__(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            return
        try:
            for number in self._numbers:
                _install(number, self)
        except BaseException:  # raised by a handler
            self.restore()
            raise

    def restore(self, *_: object) -> None:
        """Put back the handlers of before. A second call does no harm."""
        for number in self._numbers:
            handler = _HANDLERS.get(number)
            if handler is not None:
                handler.remove(self)

    __exit__ = restore


def _install(number: int, user: Signals) -> None:
    """From one step on a signal stops ``user``. A signal before that step does what it did before; none is lost."""
    while True:
        handler = _HANDLERS.get(number)
        if handler is not None and handler.here() and handler.installed:
            handler.users.append(user)
            if handler.installed:
                return
            continue  # a signal came just now, and its handler has gone
        before = handler.before if handler is not None and handler.installed else signal.getsignal(number)
        if before is None:
            return
        # First of all: the handler has to be known when it is installed.
        handler = _HANDLERS[number] = _Handler(number, before, user)
        signal.signal(number, handler.handle)
        return


class _Handler:
    """One signal that we handle, and the elections that asked for it; the last one to end restores the old handler."""

    def __init__(self, number: int, before: Any, user: Signals) -> None:
        self._number = number
        self.before = before
        self.here = process.noted()  # a forked child inherits the handler, and does not lead
        self.users = [user]

    @property
    def installed(self) -> bool:
        return bool(signal.getsignal(self._number) == self.handle)

    def remove(self, user: Signals) -> None:
        with contextlib.suppress(ValueError):  # a signal has come
            self.users.remove(user)
        if not self.users and threading.current_thread() is threading.main_thread():
            self._restore()

    def handle(self, number: int, frame: FrameType | None) -> None:
        """The handler.  It first stops its elections: an exception in here loses no signal."""
        users = self.users.copy() if self.here() else []
        for user in users:
            user.stop()
        was_there = self._restore()
        if users:
            self.users.clear()
        elif was_there:  # no election wants it: do what it did before
            os.kill(os.getpid(), number)
        elif callable(self.before):  # a handler that has replaced this one has called it
            self.before(number, frame)

    def _restore(self) -> bool:
        """Put back the handler of before.  False: another one has been installed since, which stays."""
        installed = self.installed
        if installed:
            signal.signal(self._number, self.before)
        if _HANDLERS.get(self._number) is self:
            del _HANDLERS[self._number]
        return installed


_HANDLERS: dict[int, _Handler] = {}


def _checked(numbers: Iterable[int]) -> list[signal.Signals]:
    try:
        checked = [signal.Signals(number) for number in numbers]
    except (TypeError, ValueError):
        checked = None
    if checked is None or any(one.name in ("SIGKILL", "SIGSTOP") for one in checked):
        raise ConfigurationError(
            f"signals={options.shown(numbers)}: allowed are signals that a process can catch, as signal.SIGTERM"
        )
    return checked
