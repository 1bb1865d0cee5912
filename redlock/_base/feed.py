"""The connection on which one master announces what is released (R24), there only while somebody waits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from redlock import _connect
from redlock._base.stream import Stream
from redlock._core.refusals import ErrorReply

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Iterable

    from redlock._connect import Endpoint

# What came: a "message", or that a channel is on ("subscribe") or off ("unsubscribe"); channel; token.
Deliver: TypeAlias = "Callable[[Feed, bytes, str, bytes], None]"


class Feed(Stream):
    """What one master announces.  A connection of its own: one that listens can ask for nothing else."""

    __slots__ = ("asked", "refused", "reported")

    def __init__(self, master: int, endpoint: Endpoint) -> None:
        super().__init__(master, endpoint)
        self.asked: set[str] = set()    # channels that it was asked for
        self.refused = ""               # why it does not announce anything, if it said so
        self.reported = False           # somebody was told that it does not work

    def open(self, sock: socket.socket, now: float) -> None:
        super().open(sock, now)
        self.asked.clear()
        self.refused = ""

    def more(self, channels: Iterable[str]) -> bytes:
        """What to write so that it is asked for ``channels``, too; empty: nothing."""
        new = [channel for channel in channels if channel not in self.asked]
        self.asked.update(new)
        return _connect.pack_words(("SUBSCRIBE", *new)) if new else b""

    def no_more_than(self, channels: Iterable[str]) -> bytes:
        """What to write so that it is asked for no others; empty: nothing."""
        old = self.asked.difference(channels)
        self.asked -= old
        return _connect.pack_words(("UNSUBSCRIBE", *old)) if old else b""

    def _take(self, value: Any, now: float, deliver: Deliver) -> None:  # noqa: ARG002 - who hears it looks at the clock
        match value:
            case [bytes(kind), bytes(channel), bytes(token)]:
                deliver(self, kind, channel.decode("utf-8", "replace"), token)
            case [bytes(kind), bytes(channel), int()]:
                deliver(self, kind, channel.decode("utf-8", "replace"), b"")
            case ErrorReply():
                self.refused = value.text
            case _:
                raise ConnectionAbortedError("it sent an answer to no question")
