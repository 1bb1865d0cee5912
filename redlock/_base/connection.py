"""The connection that carries the requests to one master, and their answers."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from redlock import _connect
from redlock._base.stream import Stream
from redlock._core.pipeline import Pipeline

if TYPE_CHECKING:
    import socket
    from collections import deque

    from redlock._connect import Endpoint
    from redlock._core.effects import Event
    from redlock._core.subscriptions import Subscription


class Inbox(Protocol):
    """Where what happens arrives for one operation."""

    events: deque[Event]
    subscription: Subscription | None  # what it hears of releases with

    def put(self, event: Event) -> None:
        """It happened: whoever waits for it wakes."""

    def wake(self) -> object: ...


AnyInbox = TypeVar("AnyInbox", bound=Inbox)


class Connection(Stream, Generic[AnyInbox]):
    """One master's connection and the queue of what is under way on it."""

    __slots__ = ("_recognise", "_take", "pipeline", "votes_from")

    def __init__(self, master: int, endpoint: Endpoint, patience: float) -> None:
        super().__init__(master, endpoint)
        self.pipeline: Pipeline[AnyInbox] = Pipeline(master, patience)
        self.votes_from = -math.inf  # as an observer was told last
        self._take, self._recognise = self.pipeline.answered, self.pipeline.recognised

    def open(self, sock: socket.socket, now: float) -> None:
        super().open(sock, now)
        self.pipeline.connected()

    def ask_more(self) -> None:
        """Write what its answers ask for, in one packet.  OSError: the connection broke."""
        more = self.pipeline.more()
        if more:
            self.write(
                b"".join(
                    _connect.pack_text(queued.request.call) if queued.text else _connect.pack(queued.request.call)
                    for queued in more
                )
            )
