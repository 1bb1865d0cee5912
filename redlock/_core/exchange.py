"""The hot path: sends a request to all masters, and counts their usual answers where they are read.

Nothing is called here for each master but `send` and `recv`.  A pipeline is `plain` while all about it is usual.
Everything else is left at once to the slow path: to the four methods below that a subclass adds.  So a case that
somebody forgot is slow, not wrong.  The drivers and the simulation all run these two functions.

Interruptions.  A Ctrl-C can come between any two calls.  A connection that has lost bytes must not be used again.  So
each walk over the connections leaves a mark, for all of them together.  Whoever finds a mark learns from it which
connection was in hand, and tears that one.  Who leaves this page tears the connection first, and drops the mark then.
A vote is counted in one step, then noted if it decides, and only then taken off the queue.  Until then a torn
connection tells the request of its failure, and the request looks again whether it is decided.

Votes count to the end of a walk: answers that were read together are all in the result.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from operator import length_hint
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from redlock._core.effects import Send
    from redlock._core.pipeline import Pipeline

CHUNK = 65536


class Exchange(ABC):
    """All pipelines of one `Masters`, and what goes over them."""

    def __init__(self, pipelines: list[Pipeline], votes_from: Sequence[float]) -> None:
        """``votes_from``: the votes of a master count from this time on (R21)."""
        self.pipelines = pipelines
        self.by_fd: dict[int, Pipeline] = {}
        self._votes_from = votes_from
        self._walk: tuple[Sequence[Any], Iterator[Any]] | None = None  # the mark
        self._over: list[Send] = []  # requests that may be decided

    # -- the slow path -------------------------------------------------------------------------------

    @abstractmethod
    def _tear(self, pipeline: Pipeline) -> None:
        """Do not trust this connection any more: what it carries may not be whole."""

    @abstractmethod
    def _send_slowly(self, pipeline: Pipeline, request: Send, data: bytes, now: float) -> None:
        """Send over a connection that is not plain, or to a master that is silent for long."""

    @abstractmethod
    def _sent_a_part(self, pipeline: Pipeline, data: bytes, sent: int | OSError, now: float) -> None:
        """Less than ``data`` was sent.  First `_tear`, then drop the mark."""

    @abstractmethod
    def _read_slowly(self, fd: int, now: float) -> None:
        """Read from what is not a plain connection."""

    @abstractmethod
    def _read_on(self, pipeline: Pipeline, data: bytes | OSError, now: float) -> None:
        """Go on behind what was read: it is not usual.  First `_tear`, then drop the mark."""

    # ------------------------------------------------------------------------------------------------

    def _send_all(self, request: Send, data: bytes, now: float, to: Sequence[Pipeline]) -> None:
        """Send ``request``, packed as ``data``.  It is told at once of masters that are down."""
        if self._walk is not None:
            self._mend_walk(now)
        size, walk = len(data), iter(to)
        self._walk = to, walk
        for pipeline in walk:
            queue = pipeline.under_way
            if pipeline.plain and not (queue and now - queue[0].sent_at > pipeline.patience):
                queue.append(request)
                try:
                    sent = pipeline.send(data)
                except OSError as error:
                    self._sent_a_part(pipeline, data, error, now)
                else:
                    if sent == size:
                        continue
                    self._sent_a_part(pipeline, data, sent, now)
            else:
                self._walk = None
                self._send_slowly(pipeline, request, data, now)
            self._walk = to, walk
        self._walk = None

    def _read_ready(self, ready: Sequence[tuple[int, int]], now: float) -> None:  # noqa: C901 - flat: each call costs
        """Read from the descriptors in ``ready``, each with its events."""
        if self._walk is not None:
            self._mend_walk(now)
        by_fd, votes_from, over, walk = self.by_fd, self._votes_from, self._over, iter(ready)
        self._walk = ready, walk
        for fd, _ in walk:
            pipeline = by_fd.get(fd)
            if pipeline is None or not pipeline.plain:
                self._walk = None
                self._read_slowly(fd, now)
                self._walk = ready, walk
                continue
            queue, master = pipeline.under_way, pipeline.master
            try:
                data = pipeline.recv(CHUNK)
            except OSError as error:
                self._read_on(pipeline, error, now)
                self._walk = ready, walk
                continue
            while queue and data.startswith(usual := (request := queue[0]).usual):
                if request.open:
                    tally = request.counts
                    if tally is not None and tally.entries[master] is None and now > votes_from[master]:
                        tally.entries[master], tally.yes = (
                            ("granted", now - request.sent_at, "", False, False),
                            tally.yes + 1,
                        )
                        if tally.yes >= tally.need or tally.no:
                            over.append(request)
                    elif request.voted(master, now):
                        request.inbox.put(request)
                queue.popleft()
                if data == usual:
                    break
                data = data[len(usual) :]
            else:
                self._read_on(pipeline, data, now)
                self._walk = ready, walk
        self._walk = None
        if over:
            self._end_rounds(now)

    def _end_rounds(self, now: float) -> None:
        """Tell the operations whose rounds are decided."""
        for request in self._over:
            if request.open and request.ends(now):
                request.inbox.put(request)
        self._over.clear()

    def _mend_walk(self, now: float) -> None:
        """An interruption has ended a walk: tear the connection that was in hand.  A second one does no harm."""
        if self._walk is None:
            return
        items, walk = self._walk
        item = items[len(items) - length_hint(walk) - 1]  # if none was in hand, this is the last one
        pipeline = self.by_fd.get(item[0]) if isinstance(item, tuple) else item
        if pipeline is not None:
            self._tear(pipeline)
        self._walk = None
        self._end_rounds(now)
