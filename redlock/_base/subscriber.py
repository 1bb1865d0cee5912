"""The connection on which one master announces what is released (R24), there only while somebody waits."""

from __future__ import annotations

import math
from collections import deque
from typing import TYPE_CHECKING, Any, TypeAlias

from redlock import _connect
from redlock._base.stream import Stream
from redlock._core.refusals import ErrorReply

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterable

    from redlock._connect import Endpoint

_PAUSE = 1.0  # after a refusal, before it is asked again, in seconds

# A "message", or that a channel is on ("subscribe") or off ("unsubscribe"); channel; token.
Announcement: TypeAlias = tuple[bytes, str, bytes]


class Subscriber(Stream):
    """What one master announces.  A connection of its own: one that listens can ask for nothing else."""

    __slots__ = ("_announcements", "_refused_at", "_unanswered", "asked", "refused", "reported")

    def __init__(self, master: int, endpoint: Endpoint) -> None:
        super().__init__(master, endpoint)
        self._announcements: list[Announcement] = []  # that nobody was told yet
        self.asked: set[str] = set()  # channels that it was asked for
        self.refused = ""  # why it does not announce anything, if it said so
        self.reported = False  # somebody was told that it does not work
        self._refused_at = -math.inf
        self._unanswered: deque[str] = deque()  # channels; answers come in the order of the questions

    def open(self, sock: socket.socket, now: float) -> None:
        super().open(sock, now)
        self.asked.clear()
        self._unanswered.clear()
        self._announcements.clear()
        self.refused, self._refused_at = "", -math.inf

    def more(self, channels: Iterable[str], now: float) -> bytes:
        """What to write so that it is asked for ``channels``, too; empty: nothing."""
        if now - self._refused_at < _PAUSE:
            return b""
        new = [channel for channel in channels if channel not in self.asked]
        self.asked.update(new)
        return self._commands("SUBSCRIBE", new)

    def no_more_than(self, channels: Iterable[str]) -> bytes:
        """What to write so that it is asked for no others; empty: nothing."""
        old = self.asked.difference(channels)
        self.asked -= old
        return self._commands("UNSUBSCRIBE", old)

    def _commands(self, verb: str, channels: Iterable[str]) -> bytes:
        """One for each channel: one that is refused is then no matter of the others."""
        self._unanswered.extend(channels)
        return b"".join(_connect.pack_words((verb, channel)) for channel in channels)

    def announcements(self) -> list[Announcement]:
        """What was announced since the last call."""
        self._announcements, announcements = [], self._announcements
        return announcements

    def _recognise(self, data: bytes, now: float) -> int:  # noqa: ARG002 - all that is announced has to be read
        return 0

    def _take(self, value: Any, now: float) -> bool:
        match value:
            case [b"message", bytes(channel), bytes(token)]:
                self._announcements.append((b"message", channel.decode("utf-8", "replace"), token))
            case [bytes(kind), bytes(channel), int()] if self._unanswered:
                self._unanswered.popleft()
                self._announcements.append((kind, channel.decode("utf-8", "replace"), b""))
            case ErrorReply() if self._unanswered:  # it may be busy, or somebody may grant the right later
                self.asked.discard(self._unanswered.popleft())
                self.refused, self._refused_at = value.text, now
            case _:
                raise ConnectionAbortedError("it sent an answer to no question")
        return True
