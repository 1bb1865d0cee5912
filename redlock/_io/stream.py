"""The two connections to each master: bytes out, values in.  Neither writing nor reading blocks."""

from __future__ import annotations

import contextlib
import math
import os
import socket
import ssl
import struct
from abc import ABC, abstractmethod
from collections import deque
from typing import TYPE_CHECKING, Any

from redis.exceptions import InvalidResponse

from redlock import _connect
from redlock._connect import NOTHING, Connector, Endpoint
from redlock._core.exchange import CHUNK
from redlock._core.outcomes import ErrorReply
from redlock._core.pipeline import Pipeline, SentAgain, request_of
from redlock._system import clock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

# What a non-blocking socket raises instead of blocking.  TLS has exceptions of its own for it.
_NOT_NOW = (BlockingIOError, InterruptedError, ssl.SSLWantReadError, ssl.SSLWantWriteError)

# What the parser raises where it cannot or must not build a value (`_core.sizes`); SystemError hides a MemoryError.
_UNREADABLE = (InvalidResponse, TypeError, ValueError, MemoryError, SystemError)

_REFUSED_FOR = 1.0  # seconds from the refusal of a subscription to the next try


class Stream(ABC):
    """A socket, the bytes that it has not taken yet, and the parser of what it brings.

    It knows no lock, no thread and no loop: `Connections` lets only one user in at a time.

    A KeyboardInterrupt can come between any two steps.  Between taking an answer off the socket and handing it to the
    parser, it would lose that answer, and the next one would be taken for it.  So a caller that moves bytes calls
    `pick_up` first and `put_down` last.  A stream that is found `poisoned` is closed.
    """

    __slots__ = (
        "_half", "_parser", "backlog", "connector", "endpoint", "failures", "fd", "master", "opened_at", "poisoned",
        "retry_at", "sock", "tls", "tried_beside",
    )  # fmt: skip

    # Takes one parsed value, with its time.  True: there is more to do.  OSError: the connection cannot be trusted.
    _take: Callable[[Any, float], bool]

    def __init__(self, master: int, endpoint: Endpoint) -> None:
        self.master = master
        self.endpoint = endpoint
        self.sock: socket.socket | None = None
        self.fd = -1
        self.tls = False
        self.poisoned = False
        self.backlog = bytearray()  # bytes that the kernel has not taken yet: it takes no more for now
        self.failures = 0  # attempts to connect that failed in a row
        self.retry_at = -math.inf  # when the next attempt is due
        self.opened_at = -math.inf
        self.tried_beside = 0  # attempts to connect that failed in a row while this one answered nothing
        self.connector: Connector | None = None  # the attempt that is under way
        self._parser: Any = None
        self._half = False  # the parser has the beginning of a value

    def open(self, sock: socket.socket, now: float) -> None:
        """Take over ``sock``.  The stream is picked up until it is watched."""
        self.pick_up()
        self.sock, self.fd, self.opened_at = sock, sock.fileno(), now
        self.tls = isinstance(sock, ssl.SSLSocket)
        self.backlog.clear()
        self._parser, self._half = _connect.parser(), False
        self.failures = self.tried_beside = 0

    @property
    @abstractmethod
    def waits_since(self) -> float:
        """Since when the master has owed an answer without giving any; infinity: it owes none."""

    def write(self, data: bytes, sent: int | OSError | None = None) -> None:
        """Hand ``data`` to the kernel, unless that was ``sent``; the backlog keeps the rest.  OSError: it broke."""
        if self.backlog:  # it goes first
            self.backlog += data
            return
        try:
            if isinstance(sent, OSError):
                raise sent
            if sent is None:
                sent = self.sock.send(data)  # type: ignore[union-attr]  # no writes while it is down
        except _NOT_NOW as error:
            sent, error.__traceback__ = 0, None  # callers keep the error: see `Connections.detach`
        self.backlog += data[sent:]

    def pick_up(self) -> None:
        """Bytes are about to move.  If an interruption keeps the caller from `put_down`, the stream is closed."""
        self.poisoned = True

    def put_down(self) -> None:
        """All bytes are where they belong."""
        self.poisoned = False

    def read(self, data: bytes | OSError | None = None) -> bool:
        """Hand every complete value to `_take`, with a time after it was read: it may announce for how long it holds
        (R21, R34).

        ``data`` was read already.  True: the caller has more to do, and the stream stays picked up until that is done.
        OSError: the connection broke, or cannot be trusted any more.
        """
        if self.poisoned:  # an earlier write or read was interrupted
            raise ConnectionAbortedError("interrupted in the middle of a message")
        self.pick_up()
        more = bool(self.backlog) and self._unstuck()
        while self.sock is not None:
            try:
                if isinstance(data, OSError):
                    raise data
                if data is None:
                    data = self.sock.recv(CHUNK)
            except _NOT_NOW as error:
                error.__traceback__ = None  # as above
                break
            if not data:
                raise ConnectionResetError("the master closed the connection")
            if self._parse(data, clock.now()):
                more = True
            # TLS may keep decrypted bytes that poll() does not see.  Without TLS a short read is the last one.
            if len(data) < CHUNK and not self.tls:
                break
            data = None
        if not more:
            self.put_down()
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
            del self.backlog[: self.sock.send(self.backlog)]  # type: ignore[union-attr]  # no writes while it is down
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
        self.backlog.clear()
        if self.sock is not None:
            with contextlib.suppress(OSError):  # the parent was closing it during the fork
                os.close(self.sock.detach())
        self.sock, self.fd, self.poisoned = None, -1, False  # last: after an interruption all is done again
        if self.connector is not None:
            self.connector.disown()


def _unreadable(error: BaseException) -> ConnectionAbortedError:
    return ConnectionAbortedError(f"it does not speak the Redis protocol: {str(error) or type(error).__name__}")


class Connection(Stream):
    """The connection that carries the requests to one master, and the queue of those under way on it."""

    __slots__ = ("_take", "pipeline", "votes_from")

    def __init__(self, master: int, endpoint: Endpoint, patience: float) -> None:
        super().__init__(master, endpoint)
        self.pipeline = Pipeline(master, patience)
        self.votes_from = -math.inf  # the last value for the observer
        self._take = self.pipeline.answered

    def open(self, sock: socket.socket, now: float) -> None:
        super().open(sock, now)
        self.pipeline.connected(now)
        self.pipeline.send, self.pipeline.recv = sock.send, sock.recv

    @property
    def waits_since(self) -> float:
        return self.pipeline.waits_since

    def pick_up(self) -> None:
        super().pick_up()
        self.pipeline.plain = False

    def put_down(self) -> None:
        """Nothing else sets `Pipeline.plain`.  Whether its master may vote is asked for each vote (R21)."""
        super().put_down()
        whole = not (self.backlog or self._half or self.tls)
        self.pipeline.plain = whole and self.sock is not None and self.pipeline.down is None and not self.pipeline.odd

    def ask_more(self) -> None:
        """Write the requests that the last answers made necessary, in one packet.  OSError: the connection broke."""
        more = self.pipeline.more()
        if more:
            words = self.pipeline.words
            calls = [(request_of(queued).call, isinstance(queued, SentAgain) and queued.text) for queued in more]
            self.write(b"".join(_connect.pack(call.words_with_text if text else words(call)) for call, text in calls))


class Subscriber(Stream):
    """The connection on which one master announces releases (R24), while there is a waiter.  It asks nothing else."""

    __slots__ = ("_hear", "_refused_at", "_silent_since", "_unanswered", "asked", "refused", "reported")

    def __init__(self, master: int, endpoint: Endpoint, hear: Callable[[int, bytes, str, bytes], None]) -> None:
        """``hear`` gets master, kind ("message", or "subscribe", "unsubscribe" once confirmed), channel and token."""
        super().__init__(master, endpoint)
        self._hear = hear
        self.asked: set[str] = set()  # channels that the master was asked for
        self.refused = ""  # the master's reason for announcing nothing
        self.reported = False  # its failure was logged
        self._refused_at = -math.inf
        self._unanswered: deque[str] = deque()  # channels; the answers come in the same order
        self._silent_since = math.inf  # since its latest answer, or the first request after that

    def open(self, sock: socket.socket, now: float) -> None:
        super().open(sock, now)
        self.asked.clear()
        self._unanswered.clear()
        self.refused, self._refused_at = "", -math.inf

    @property
    def waits_since(self) -> float:
        return self._silent_since if self._unanswered else math.inf

    def more(self, channels: Iterable[str], now: float) -> bytes:
        """The commands that subscribe to new ones of ``channels``; may be empty."""
        if now - self._refused_at < _REFUSED_FOR:
            return b""
        new = [channel for channel in channels if channel not in self.asked]
        self.asked.update(new)
        return self._commands("SUBSCRIBE", new, now)

    def no_more_than(self, channels: Iterable[str], now: float) -> bytes:
        """The commands that unsubscribe from all channels but ``channels``; may be empty."""
        old = self.asked.difference(channels)
        self.asked -= old
        return self._commands("UNSUBSCRIBE", old, now)

    def _commands(self, verb: str, channels: Iterable[str], now: float) -> bytes:
        """One command for each channel, so that the refusal of one does not concern the others."""
        if not self._unanswered:
            self._silent_since = now
        self._unanswered.extend(channels)
        return b"".join(_connect.pack((verb, channel)) for channel in channels)

    def _take(self, value: Any, now: float) -> bool:
        self._silent_since = now
        match value:
            case [b"message", bytes(channel), bytes(token)]:
                self._hear(self.master, b"message", channel.decode("utf-8", "replace"), token)
            case [bytes(kind), bytes(channel), int()] if self._unanswered:
                self._unanswered.popleft()
                self._hear(self.master, kind, channel.decode("utf-8", "replace"), b"")
            case ErrorReply() if self._unanswered:  # temporary: a busy master, or a right that may be granted
                self.asked.discard(self._unanswered.popleft())
                self.refused, self._refused_at = value.text, now
            case _:
                raise ConnectionAbortedError("it sent an answer without a request")
        return False
