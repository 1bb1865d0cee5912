"""Wakes or ends waiting operations from outside: from another thread, another task, or a signal handler."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class Stopped(Exception):  # noqa: N818 - no error: the caller that asked for it catches it
    """The operation was stopped, and has left nothing behind."""


class Watchers:
    """The waiters for a change from elsewhere.  Signal handlers may wake them: a step is one operation on a dict."""

    def __init__(self) -> None:
        self._wakes: dict[object, Callable[[], object]] = {}

    def wake(self) -> None:
        for wake in list(self._wakes.values()):
            wake()

    def subscribe(self, who: object, wake: Callable[[], object]) -> None:
        """From now on call ``wake`` for ``who``: in any thread, and from a signal handler."""
        self._wakes[who] = wake

    def unsubscribe(self, who: object) -> None:
        self._wakes.pop(who, None)


class Stop(Watchers):
    """Asked for once, and then for good."""

    def __init__(self) -> None:
        super().__init__()
        self._requested = False

    def requested(self) -> bool:
        return self._requested

    def request(self) -> None:
        self._requested = True
        self.wake()
