"""What threads wait with on Windows, where there is neither poll() nor a pipe that select() takes.

No lock is taken there. This is for masters with a fixed answer (`redlock.testing.FixedMasters`), which are in this
process: so it is simple, and slow. A hang-up is noticed when something is next read.
"""

from __future__ import annotations

import asyncio
import contextlib
import select
import socket

from redlock.errors import ConfigurationError

POLLIN, POLLOUT = 1, 4


class _Poll:
    """As the object that `select.poll` makes."""

    def __init__(self) -> None:
        self._wanted: dict[int, int] = {}

    def register(self, fd: int, events: int) -> None:
        self._wanted[fd] = events

    modify = register

    def unregister(self, fd: int) -> None:
        del self._wanted[fd]

    def poll(self, milliseconds: float | None = None) -> list[tuple[int, int]]:
        wanted = self._wanted.copy()
        read = [fd for fd, events in wanted.items() if events & POLLIN]
        write = [fd for fd, events in wanted.items() if events & POLLOUT]
        try:
            ready = select.select(read, write, [], None if milliseconds is None else milliseconds / 1000)
        except (OSError, ValueError):  # another thread has closed one of them just now
            return []
        return [(fd, 0) for fd in {*ready[0], *ready[1]}]


def poll() -> _Poll:
    return _Poll()


class Waker:
    """The waker of `redlock/_io/waker.py`, with sockets."""

    def __init__(self) -> None:
        self._read, self._write = socket.socketpair()
        self._read.setblocking(False)
        self._write.setblocking(False)
        self.fd = self._read.fileno()

    def wake(self) -> None:
        with contextlib.suppress(OSError):  # it is full, or closed
            self._write.send(b"!")

    def read(self, *_: object) -> bool:
        with contextlib.suppress(OSError):
            self._read.recv(4096)
        return False

    def close(self) -> None:
        self.fd = -1
        self._read.close()
        self._write.close()

    __del__ = close


def check(loop: asyncio.AbstractEventLoop) -> None:
    """Raise `ConfigurationError` if the loop cannot watch sockets."""
    if isinstance(loop, getattr(asyncio, "ProactorEventLoop", ())):
        raise ConfigurationError(
            f"{type(loop).__name__} watches no sockets: on Windows take asyncio.SelectorEventLoop, "
            "as in asyncio.Runner(loop_factory=asyncio.SelectorEventLoop)"
        )
