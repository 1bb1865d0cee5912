"""A connection to one master: bytes out, values in.  Neither writing nor reading blocks."""

from __future__ import annotations

import contextlib
import math
import os
import socket
import ssl
import struct
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from redis.exceptions import InvalidResponse

from redlock import _connect
from redlock._connect import NOTHING
from redlock._core.exchange import CHUNK

if TYPE_CHECKING:
    from collections.abc import Callable

    from redlock._connect import Connector, Endpoint

# What a non-blocking socket raises instead of blocking.  TLS has exceptions of its own for it.
_NOT_NOW = (BlockingIOError, InterruptedError, ssl.SSLWantReadError, ssl.SSLWantWriteError)

# What the parser raises for an answer that it cannot build or must not build: see `_core.sizes`.  Some versions turn
# a MemoryError into a SystemError.
_UNREADABLE = (InvalidResponse, TypeError, ValueError, MemoryError, SystemError)


class Stream(ABC):
    """A socket, the bytes that it has not taken yet, and the parser of what it brings.

    It knows no lock, no thread and no loop: `Connections` lets only one user in at a time.

    A KeyboardInterrupt can come between any two steps.  Between taking an answer off the socket and handing it to the
    parser, it would lose that answer, and the next one would be taken for it.  So a caller that moves bytes calls
    `pick_up` first and `put_down` last.  A stream that is found `poisoned` is closed.
    """

    __slots__ = (
        "_half",
        "_parser",
        "backlog",
        "connector",
        "endpoint",
        "failures",
        "fd",
        "master",
        "opened_at",
        "poisoned",
        "retry_at",
        "sock",
        "tls",
        "tried_beside",
    )

    # Takes one parsed value, with its time.  True: there is more to do than that.  OSError: the connection cannot be
    # trusted any more.
    _take: Callable[[Any, float], bool]

    def __init__(self, master: int, endpoint: Endpoint) -> None:
        self.master = master
        self.endpoint = endpoint
        self.sock: socket.socket | None = None
        self.fd = -1
        self.tls = False
        self.poisoned = False
        self.backlog = bytearray()  # bytes that the kernel has not taken yet
        self.failures = 0  # attempts to connect that failed in a row
        self.retry_at = -math.inf  # when the next attempt is due
        self.opened_at = -math.inf
        self.tried_beside = 0  # attempts to connect that failed in a row while this one answered nothing
        self.connector: Connector | None = None  # the attempt that is under way
        self._parser: Any = None
        self._half = False  # the parser has the beginning of a value

    def open(self, sock: socket.socket, now: float) -> None:
        self.sock, self.fd, self.opened_at = sock, sock.fileno(), now
        self.tls = isinstance(sock, ssl.SSLSocket)
        self.poisoned = False
        self.backlog.clear()
        self._parser, self._half = _connect.parser(), False
        self.failures = self.tried_beside = 0

    @property
    @abstractmethod
    def waits_since(self) -> float:
        """Since when the master has owed an answer without giving any; infinity: it owes none."""

    @property
    def stuck(self) -> bool:
        """The kernel takes no more bytes for now."""
        return bool(self.backlog)

    def write(self, data: bytes, sent: int | OSError | None = None) -> None:
        """Hand ``data`` to the kernel.  The backlog keeps the rest.  OSError: the connection broke.

        ``sent``: that was done already, and this came of it.
        """
        if self.backlog:  # it goes first
            self.backlog += data
            return
        try:
            if isinstance(sent, OSError):
                raise sent
            if sent is None:
                sent = self.sock.send(data)  # type: ignore[union-attr]  # nobody writes while it is down
        except _NOT_NOW:
            sent = 0
        self.backlog += data[sent:]

    def pick_up(self) -> None:
        """Bytes are about to move.  If an interruption keeps the caller from `put_down`, the stream is closed."""
        self.poisoned = True

    def put_down(self) -> None:
        """All bytes are where they belong."""
        self.poisoned = False

    def read(self, now: float) -> bool:
        """`read_on`, unless the stream was torn.

        Raises:
            OSError: the connection broke, or cannot be trusted any more.
        """
        if self.poisoned:  # an earlier write or read was interrupted
            raise ConnectionAbortedError("interrupted in the middle of a message")
        if self.sock is None:
            return False
        self.pick_up()
        more = self.read_on(None, now)
        if not more:
            self.put_down()
        return more

    def read_on(self, data: bytes | OSError | None, now: float) -> bool:
        """Hand every complete value to `_take`.  Incomplete ones wait in the parser.  ``data`` was read already.

        True: the caller has more to do.  The stream stays picked up until the caller has done it.
        """
        more = self.stuck and self._unstuck()
        while self.sock is not None:
            try:
                if isinstance(data, OSError):
                    raise data
                if data is None:
                    data = self.sock.recv(CHUNK)
            except _NOT_NOW:
                break
            if not data:
                raise ConnectionResetError("the master closed the connection")
            if self._parse(data, now):
                more = True
            # TLS may keep decrypted bytes that poll() does not see.  Without TLS a short read is the last one.
            if len(data) < CHUNK and not self.tls:
                break
            data = None
        return more

    def _parse(self, data: bytes, now: float) -> bool:
        """Parse ``data`` and `_take` every complete value.  True: one of them needs more to be done."""
        parser = self._parser
        more = False
        self._half = True
        try:
            parser.feed(data)
        except _UNREADABLE as error:
            raise _unreadable(error) from None
        while self._half:
            try:
                value = parser.gets()
            except _UNREADABLE as error:
                raise _unreadable(error) from None
            if value is NOTHING:
                break
            self._half = parser.has_data()
            if self._take(value, now):
                more = True
        return more

    def _unstuck(self) -> bool:
        """Hand the backlog to the kernel.  True: it took all of it."""
        with contextlib.suppress(*_NOT_NOW):
            del self.backlog[: self.sock.send(self.backlog)]  # type: ignore[union-attr]  # nobody writes while it is down
        return not self.backlog

    def close(self, *, abort: bool) -> None:
        """Close the socket.  ``abort``: what is not delivered yet must not arrive after the next connection (R10)."""
        if self.sock is not None:
            if abort:
                with contextlib.suppress(OSError):
                    self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.sock.close()
        self.sock, self.fd = None, -1
        self.backlog.clear()

    def disown(self) -> None:
        """In a forked child: close our copy of the descriptor.  Nothing is sent, not even by TLS."""
        sock, self.sock, self.fd, self.poisoned = self.sock, None, -1, False
        self.backlog.clear()
        if sock is not None:
            with contextlib.suppress(OSError):  # the parent was closing it during the fork
                os.close(sock.detach())
        if self.connector is not None:
            self.connector.disown()


def _unreadable(error: BaseException) -> ConnectionAbortedError:
    return ConnectionAbortedError(f"it does not speak the Redis protocol: {str(error) or type(error).__name__}")
