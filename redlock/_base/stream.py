"""A connection to one master: bytes out, values in, never blocking on either."""

from __future__ import annotations

import contextlib
import math
import socket
import ssl
import struct
from typing import TYPE_CHECKING, Any

from redis.exceptions import InvalidResponse

from redlock import _connect
from redlock._connect import NOTHING

if TYPE_CHECKING:
    from collections.abc import Callable

    from redlock._connect import Connector, Endpoint

_CHUNK = 65536
# What a socket that does not block says when it would have to; TLS has its own words for it.
_NOT_NOW = (BlockingIOError, InterruptedError, ssl.SSLWantReadError, ssl.SSLWantWriteError)

# What the parser raises for what it cannot build, or is not to: see `_core.sizes`.  Some versions of it make a SystemError
# of a MemoryError.
_UNREADABLE = (InvalidResponse, TypeError, ValueError, MemoryError, SystemError)


class Stream:
    """The socket, what it did not take yet, and the parser of what it brings.

    Knows no lock, no thread and no loop: `Connections` sees to it that only one is at it at a time.  A
    KeyboardInterrupt can come between any two steps, also between taking an answer off the socket and handing it to the parser;
    then what follows would be taken for the answer to another question.  So whoever moves bytes marks
    the stream `poisoned` first and mends it last, and one that is found poisoned is closed.
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
        "stuck",
        "tls",
    )

    # How many bytes at the beginning of these need not be parsed any more: it has taken them.
    _recognise: Callable[[bytes, float], int]

    # One value came, at that time: give it to whom it is for.  True: it asks for more than that.  OSError: it cannot be
    # trusted any more.
    _take: Callable[[Any, float], bool]

    def __init__(self, master: int, endpoint: Endpoint) -> None:
        self.master = master
        self.endpoint = endpoint
        self.sock: socket.socket | None = None
        self.fd = -1
        self.tls = False
        self.poisoned = False
        self.backlog = bytearray()  # what the kernel did not get or take yet
        self.stuck = False  # it takes no more
        self.failures = 0  # attempts to connect that failed in a row
        self.retry_at = -math.inf  # when the next one is due
        self.opened_at = -math.inf
        self.connector: Connector | None = None  # the one that is under way
        self._parser: Any = None
        self._half = False  # it has the beginning of a value

    def open(self, sock: socket.socket, now: float) -> None:
        self.sock, self.fd, self.opened_at = sock, sock.fileno(), now
        self.tls = isinstance(sock, ssl.SSLSocket)
        self.poisoned = self.stuck = False
        self.backlog.clear()
        self._parser, self._half = _connect.parser(), False
        self.failures = 0

    def write(self, data: bytes) -> None:
        """Hand ``data`` to the kernel, and keep what it does not take: see `stuck`.  OSError: the connection broke."""
        if self.backlog:  # which goes first
            self.backlog += data
            if not self.stuck:
                self.flush()
            return
        try:
            sent = self.sock.send(data)  # type: ignore[union-attr]  # nothing is written to one that is down
        except _NOT_NOW:
            sent = 0
        if sent < len(data):
            self.backlog += data[sent:]
            self.stuck = True

    def flush(self) -> None:
        """Hand the backlog to the kernel.  OSError: the connection broke."""
        if self.sock is None or not self.backlog:
            return
        with contextlib.suppress(*_NOT_NOW):
            del self.backlog[: self.sock.send(self.backlog)]
        self.stuck = bool(self.backlog)

    def read(self, now: float) -> bool:
        """`_recognise` or `_take` every whole value that is there; half ones wait in the parser.

        True: that is not all that there is to do, and whoever does it mends the stream afterwards.

        Raises:
            OSError: the connection broke, or cannot be trusted any more.
        """
        if self.poisoned:  # found like this: somebody was interrupted
            raise ConnectionAbortedError("interrupted in the middle of a message")
        sock = self.sock
        if sock is None:
            return False
        self.poisoned = True
        more = self.stuck and self._unstuck()
        while True:
            try:
                data = sock.recv(_CHUNK)
            except _NOT_NOW:
                break
            if not data:
                raise ConnectionResetError("the master closed the connection")
            known = 0 if self._half else self._recognise(data, now)
            if known < len(data) and self._parse(data[known:], now):
                more = True
            # TLS may keep decrypted bytes that poll() does not know of; else a short read is the end.
            if len(data) < _CHUNK and not self.tls:
                break
        self.poisoned = more
        return more

    def _parse(self, data: bytes, now: float) -> bool:
        """`_take` every value that is whole now; True: that asks for more."""
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
        """It may take more now; True: it took all."""
        self.flush()
        return not self.stuck

    def close(self, *, abort: bool) -> None:
        """``abort``: what the kernel has not delivered yet must not arrive behind the next connection (R10)."""
        if self.sock is not None:
            if abort:
                with contextlib.suppress(OSError):
                    self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.sock.close()
        self.sock, self.fd, self.stuck = None, -1, False
        self.backlog.clear()


def _unreadable(error: BaseException) -> ConnectionAbortedError:
    return ConnectionAbortedError(f"it does not speak the Redis protocol: {str(error) or type(error).__name__}")
