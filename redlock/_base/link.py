"""The connection that carries the requests to one master, and their answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from redlock import _connect
from redlock._base.stream import Stream
from redlock._core.pipeline import Pipeline
from redlock._core.refusals import ErrorReply

if TYPE_CHECKING:
    import socket
    from collections import deque

    from redlock._connect import Endpoint
    from redlock._core.effects import Event
    from redlock._core.listen import Ear


class Inbox(Protocol):
    """Where what happens arrives for one operation."""

    events: deque[Event]
    ear: Ear | None     # what it hears of releases with

    def put(self, event: Event) -> None:
        """It happened: whoever waits for it wakes."""

    def wake(self) -> None: ...


AnyInbox = TypeVar("AnyInbox", bound=Inbox)


class Link(Stream, Generic[AnyInbox]):
    """One master's connection and the queue of what is under way on it."""

    __slots__ = ("pipeline",)

    def __init__(self, master: int, endpoint: Endpoint, patience: float) -> None:
        super().__init__(master, endpoint)
        self.pipeline: Pipeline[AnyInbox] = Pipeline(master, patience)

    def open(self, sock: socket.socket, now: float) -> None:
        super().open(sock, now)
        self.pipeline.connected()

    def _take(self, value: Any, now: float, hear: Any) -> None:  # noqa: ARG002 - an entry says where its answer goes
        try:
            again = self.pipeline.answered(value, now)
        except IndexError:
            raise ConnectionAbortedError("it sent an answer to no question") from None
        if type(value) is not ErrorReply:
            return
        self.indebted = self.pipeline.in_debt
        if again is not None:
            self.write(_connect.pack_text(again.request.call))
