"""The connection that carries the requests to one master, and its answers."""

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
    """Where the events of one operation arrive."""

    events: deque[Event]
    subscription: Subscription | None  # while the operation waits for announced releases

    def put(self, event: Event) -> None:
        """Deliver ``event``, and wake the operation."""

    def wake(self) -> object: ...


AnyInbox = TypeVar("AnyInbox", bound=Inbox)


class Connection(Stream, Generic[AnyInbox]):
    """The connection to one master, and the queue of the requests under way on it."""

    __slots__ = ("_recognise", "_take", "pipeline", "votes_from")

    def __init__(self, master: int, endpoint: Endpoint, patience: float) -> None:
        super().__init__(master, endpoint)
        self.pipeline: Pipeline[AnyInbox] = Pipeline(master, patience)
        self.votes_from = -math.inf  # what the observer was told last
        self._take, self._recognise = self.pipeline.answered, self.pipeline.recognised

    def open(self, sock: socket.socket, now: float) -> None:
        super().open(sock, now)
        self.pipeline.connected()

    def ask_more(self) -> None:
        """Write the requests that the last answers made necessary, in one packet.  OSError: the connection broke."""
        more = self.pipeline.more()
        if more:
            self.write(
                b"".join(
                    _connect.pack_text(queued.request.call) if queued.text else _connect.pack(queued.request.call)
                    for queued in more
                )
            )
