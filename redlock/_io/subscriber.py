"""The connection on which one master announces releases (R24).  It exists only while somebody waits."""

from __future__ import annotations

import math
from collections import deque
from typing import TYPE_CHECKING, Any, TypeAlias

from redlock import _connect
from redlock._core.refusals import ErrorReply
from redlock._io.stream import Stream

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterable

    from redlock._connect import Endpoint

_PAUSE = 1.0  # seconds from a refusal to the next try

# Kind, channel and token.  The kind is "message", or "subscribe" and "unsubscribe" for the master's confirmation.
Announcement: TypeAlias = tuple[bytes, str, bytes]


class Subscriber(Stream):
    """The subscriptions on one master.

    They have a connection of their own: a connection that subscribes can ask for nothing else.
    """

    __slots__ = ("_announcements", "_refused_at", "_silent_since", "_unanswered", "asked", "refused", "reported")

    def __init__(self, master: int, endpoint: Endpoint) -> None:
        super().__init__(master, endpoint)
        self._announcements: list[Announcement] = []  # not handed on yet
        self.asked: set[str] = set()  # channels that the master was asked for
        self.refused = ""  # the master's reason for announcing nothing
        self.reported = False  # its failure was logged
        self._refused_at = -math.inf
        self._unanswered: deque[str] = deque()  # channels; the answers come in the same order
        self._silent_since = math.inf  # when it was heard of last, or was asked after all was answered

    def open(self, sock: socket.socket, now: float) -> None:
        super().open(sock, now)
        self.asked.clear()
        self._unanswered.clear()
        self._announcements.clear()
        self.refused, self._refused_at = "", -math.inf

    @property
    def waits_since(self) -> float:
        return self._silent_since if self._unanswered else math.inf

    def more(self, channels: Iterable[str], now: float) -> bytes:
        """The commands that subscribe to those of ``channels`` that are new; may be empty."""
        if now - self._refused_at < _PAUSE:
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
        return b"".join(_connect.pack_words((verb, channel)) for channel in channels)

    def announcements(self) -> list[Announcement]:
        """The announcements since the last call."""
        self._announcements, announcements = [], self._announcements
        return announcements

    def _take(self, value: Any, now: float) -> bool:
        self._silent_since = now
        match value:
            case [b"message", bytes(channel), bytes(token)]:
                self._announcements.append((b"message", channel.decode("utf-8", "replace"), token))
            case [bytes(kind), bytes(channel), int()] if self._unanswered:
                self._unanswered.popleft()
                self._announcements.append((kind, channel.decode("utf-8", "replace"), b""))
            case ErrorReply() if self._unanswered:  # temporary: it is busy, or lacks a right that it may get
                self.asked.discard(self._unanswered.popleft())
                self.refused, self._refused_at = value.text, now
            case _:
                raise ConnectionAbortedError("it sent an answer to no question")
        return True
