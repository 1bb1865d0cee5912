"""The connection that carries the requests to one master, and its answers."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Protocol

from redlock import _connect
from redlock._core.inbox import LineInbox
from redlock._core.pipeline import Pipeline, SentAgain, request_of
from redlock._io.stream import Stream

if TYPE_CHECKING:
    import socket

    from redlock._connect import Endpoint
    from redlock._core.subscriptions import Subscription


class Listener(LineInbox, Protocol):
    """The inbox of an operation that may wait for announced releases."""

    subscription: Subscription | None  # while it does


class Connection(Stream):
    """The connection to one master, and the queue of the requests under way on it."""

    __slots__ = ("_take", "pipeline", "votes_from")

    def __init__(self, master: int, endpoint: Endpoint, patience: float) -> None:
        super().__init__(master, endpoint)
        self.pipeline = Pipeline(master, patience)
        self.votes_from = -math.inf  # what the observer was told last
        self._take = self.pipeline.answered

    def open(self, sock: socket.socket, now: float) -> None:
        super().open(sock, now)
        self.pipeline.connected(now)
        self.pipeline.send, self.pipeline.recv = sock.send, sock.recv
        self._see_whether_plain()

    @property
    def waits_since(self) -> float:
        return self.pipeline.waits_since

    def pick_up(self) -> None:
        super().pick_up()
        self._see_whether_plain()

    def put_down(self) -> None:
        super().put_down()
        self._see_whether_plain()

    def _see_whether_plain(self) -> None:
        """Nothing else sets `Pipeline.plain`.  Whether its master may vote is asked for each vote (R21)."""
        whole = not (self.poisoned or self.backlog or self._half or self.tls)
        self.pipeline.plain = whole and self.sock is not None and self.pipeline.down is None

    def ask_more(self) -> None:
        """Write the requests that the last answers made necessary, in one packet.  OSError: the connection broke."""
        more = self.pipeline.more()
        if more:
            self.write(
                b"".join(
                    _connect.pack_text(request_of(queued).call)
                    if isinstance(queued, SentAgain) and queued.text
                    else _connect.pack(request_of(queued).call)
                    for queued in more
                )
            )
