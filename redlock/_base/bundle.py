"""Several streams moved in one go: what nearly always can be done, with the loops in C.

A round writes the same bytes to every master, and reads an answer from most of them.  One after the other, each takes
Python a hundred steps; here they are a few calls for all.  Whatever needs a closer look, a half answer, a full buffer, a broken
connection, is left to whoever looks at one stream at a time.
"""

from __future__ import annotations

from collections import deque
from itertools import repeat
from operator import attrgetter, call
from typing import TYPE_CHECKING, Any

from redlock._base.stream import CHUNK, NOT_NOW, UNREADABLE
from redlock._connect import NOTHING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from redlock._base.link import Link
    from redlock._base.stream import Stream
    from redlock._core.pipeline import Entry

_TORN, _BACKLOG, _STUCK, _TLS = map(attrgetter, ("torn", "backlog", "stuck", "tls"))
_RECV, _FEED, _GETS = map(attrgetter, ("recv", "feed", "gets"))


class Bundle:
    """The links of one deployment.  One at a time, like each of them."""

    __slots__ = ("_links", "_look_at", "_moving", "_patience", "_queues", "_sends")

    def __init__(self, links: Sequence[Link[Any]], patience: float) -> None:
        self._links = links
        self._patience = patience
        self._moving: Sequence[Stream] = ()     # streams that are in the middle of something
        self._look_at = 0.0     # until then no master has been silent for too long
        self._sends: list[Callable[[bytes], int]] = []      # none unless all are connected
        self._queues: list[Callable[[Entry[Any]], None]] = []

    def changed(self) -> None:
        """A link came up, or broke."""
        up = all(link.pipeline.down is None for link in self._links)
        self._sends = [link.sock.send for link in self._links if link.sock is not None] if up else []
        self._queues = [link.pipeline.queue for link in self._links]
        self._look_at = 0.0

    def mend(self) -> None:
        """Whoever moved them was interrupted: mark them as `torn`."""
        for stream in self._moving:
            stream.torn = True
        self._moving = ()

    # -- out -----------------------------------------------------------------------------------------

    def send(self, entry: Entry[Any], data: bytes) -> bool:
        """Queue ``entry`` and write ``data`` on every link.  False: one of them has to be looked at, nothing was done.

        What the kernel did not take of it is the backlog of a link that is `torn`: see `unsent`.
        """
        links, sends = self._links, self._sends
        if not sends or any(map(_TORN, links)) or any(map(_BACKLOG, links)):
            return False
        if entry.at >= self._look_at and self._is_silent(entry.at):
            return False
        self._moving = links
        deque(map(call, self._queues, repeat(entry)), maxlen=0)
        sent: list[int] = []
        try:
            sent.extend(map(call, sends, repeat(data)))     # what an error leaves undone is missing there
        except OSError:
            pass
        if sum(sent) != len(data) * len(links):
            self._keep_rest(sent, data)
        self._moving = ()
        return True

    def _is_silent(self, now: float) -> bool:
        """Whether a master has not answered for too long (see `Pipeline`)."""
        oldest = min((link.pipeline.waits_since(now) for link in self._links), default=now)
        self._look_at = oldest + self._patience
        return now >= self._look_at

    def _keep_rest(self, sent: list[int], data: bytes) -> None:
        sent += [0] * (len(self._links) - len(sent))
        for link, count in zip(self._links, sent, strict=True):
            if count < len(data):
                link.torn = True
                link.backlog += data[count:]

    # -- in ------------------------------------------------------------------------------------------

    def read(self, streams: list[Stream], now: float) -> list[Stream]:
        """Take what is there of each; returns those that need a closer look, `torn` if it is more than to read them."""
        if any(map(_TORN, streams)) or any(map(_STUCK, streams)) or any(map(_TLS, streams)):
            return streams
        self._moving = streams
        data: list[bytes] = []
        try:
            data.extend(map(call, map(_RECV, streams), repeat(CHUNK)))
        except NOT_NOW:
            pass
