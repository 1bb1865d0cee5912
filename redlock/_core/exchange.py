"""The hot path: sends a request to all masters, and counts their usual answers where they are read.

Nothing is called here for each master but `send` and `recv`; where several answers came together, one method more.  A
pipeline is `plain` while all about it is usual.  Everything else is left at once to the slow path, methods that a
subclass adds: a forgotten case is slow, not wrong.

Interruptions.  A Ctrl-C can come between any two calls, and a connection that has lost bytes must not be used again.
So each walk over the connections leaves a trace until it is through: `mend_walk` finds by it which connection was in
use, and tears it; the slow path does the same.  A request is added to `_voted_on` before its votes are counted, so an
interruption cannot hide a decided round.  A vote is counted in one step, and only then taken off the queue: until then
a torn connection fails the request, which checks again whether it is decided.

Votes count to the end of a walk: answers that were read together are all in the result.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from itertools import takewhile
from operator import length_hint
from typing import TYPE_CHECKING, Any

from redlock._core.pipeline import Pipeline

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from redlock._core.effects import Send
    from redlock._core.kernel.quorum import Entry, Tally
    from redlock._core.protocols import Inbox

CHUNK = 65536
_ELSEWHERE = Pipeline(-1, 0.0)  # never plain


class ByDescriptor(dict[int, Pipeline]):
    """The pipelines, by descriptor.  For any other descriptor, one that is never plain."""

    def __missing__(self, fd: int) -> Pipeline:
        return _ELSEWHERE


class Exchange(ABC):
    """All pipelines of one `Masters`, and what goes over them."""

    def __init__(
        self, pipelines: list[Pipeline], votes_from: Sequence[float], pack: Callable[[tuple[str, ...]], bytes]
    ) -> None:
        """``votes_from``: the votes of a master count from this time on (R21).  ``pack``: the bytes of a command."""
        self.pipelines = pipelines
        self._pack = pack
        self.by_fd = ByDescriptor()
        self._votes_from = votes_from
        self._walk: tuple[Sequence[Any], Iterator[Any]] | None = None  # the trace
        self.functions = False  # most masters are asked by functions (R44): requests to all are packed in that way
        self._voted_on: list[Send] = []  # requests that got votes, so they may be decided
        self.corked: list[tuple[Send, bytes, Sequence[Pipeline]]] = []  # to leave together; each with packet, receivers
        self._flight: Iterator[Pipeline] | None = None  # the receivers that are left of the present walk

    @abstractmethod
    def _tear(self, pipeline: Pipeline) -> None:
        """Do not trust this connection any more: it may carry half a message."""

    @abstractmethod
    def _send_slowly(self, pipeline: Pipeline, requests: list[Send], data: bytes, now: float) -> None:
        """Send over a connection that is not plain, or to a master that is silent for long."""

    @abstractmethod
    def _sent_a_part(self, pipeline: Pipeline, data: bytes, sent: int | OSError, now: float) -> None:
        """Less than ``data`` was sent."""

    @abstractmethod
    def _read_slowly(self, fd: int, now: float) -> None:
        """Read from a connection that is not plain."""

    @abstractmethod
    def _read_on(self, pipeline: Pipeline, data: bytes | OSError, now: float) -> None:
        """Go on with what was read: it is not usual."""

    def submit(self, request: Send, inbox: Inbox, now: float, *, corked: bool = False) -> None:
        """Write ``request`` to its masters, behind all that is in the cork; ``corked``: the caller flushes."""
        if request.only_if is not None and not request.only_if():
            return
        request.sent_at, request.inbox = now, inbox
        to, masters, call = self.pipelines, request.to, request.call
        data = self._pack(call.words_as_function if self.functions else call.words)
        if masters is not None and len(masters) < len(to):
            to = [to[master] for master in masters]
        if corked or self.corked:
            self._put_into_cork(request, data, now, to)
            if not corked:
                self.flush_cork(now)
        else:
            self._send_all([request], data, now, to)

    def _send_all(
        self, asked: list[Send], data: bytes, now: float, to: Sequence[Pipeline], rest: Iterator[Pipeline] | None = None
    ) -> None:
        """Send ``asked``, packed as ``data``.  ``rest``: those in ``to`` that do not have them yet."""
        if self._walk is not None:
            self.mend_walk(now)
        size, walk = len(data), rest or iter(to)
        self._walk = to, walk
        for pipeline in walk:
            queue = pipeline.under_way
            if not pipeline.plain or (queue and now - queue[0].sent_at > pipeline.patience):
                self._send_slowly(pipeline, asked, data, now)
                continue
            queue += asked
            try:
                sent = pipeline.send(data)
            except OSError as error:
                self._sent_a_part(pipeline, data, error, now)
            else:
                if sent != size:
                    self._sent_a_part(pipeline, data, sent, now)
        self._walk = None

    def _put_into_cork(self, request: Send, data: bytes, now: float, to: Sequence[Pipeline]) -> None:
        """Send ``request`` with the next `flush_cork`.  A second time, after an interruption, changes nothing."""
        if self._flight is not None:
            self.flush_cork(now)
        if not (self.corked and self.corked[-1][0] is request):
            self.corked.append((request, data, to))

    def flush_cork(self, now: float) -> None:
        """Send what is in the cork, in its order, and in few packets.  After an interruption this sends the rest."""
        self.mend_walk(now)
        while self.corked:
            requests, packets, to = self._together()
            if self._flight is None:
                self._flight = iter(to)
            self._send_all(requests, b"".join(packets), now, to, self._flight)
            self.corked, self._flight = self.corked[len(requests) :], None

    def _together(self) -> tuple[list[Send], list[bytes], Sequence[Pipeline]]:
        """What leaves the cork next: all in front that goes to the same receivers."""
        to = self.corked[0][2]
        leaving = list(takewhile(lambda entry: entry[2] is to, self.corked))
        return [request for request, _, _ in leaving], [data for _, data, _ in leaving], to

    def read_ready(self, ready: Sequence[tuple[int, int]], now: float) -> None:  # noqa: C901 - flat: each call costs
        """Read from the descriptors in ``ready``, each with its events."""
        if self._walk is not None:
            self.mend_walk(now)
        by_fd, votes_from, over, walk = self.by_fd, self._votes_from, self._voted_on, iter(ready)
        self._walk = ready, walk
        current: Send | None = None  # most answers that are read together are to one request that is open
        tally: Tally | None = None
        said: list[Entry | float | None] = []  # to this tally
        took = 0.0  # ... and for how long it has been under way
        for fd, _ in walk:
            pipeline = by_fd[fd]
            if not pipeline.plain:
                self._read_slowly(fd, now)
                continue
            try:
                data = pipeline.recv(CHUNK)
            except OSError as error:
                self._read_on(pipeline, error, now)
                continue
            queue = pipeline.under_way
            if not queue or data != (request := queue[0]).usual:
                self._read_several(pipeline, data, now)
                continue
            if request.open:
                if request is not current:
                    current, tally, took = request, request.counts, now - request.sent_at
                    if tally is not None:
                        said = tally.said
                        over.append(request)
                master = pipeline.master
                if tally is not None and said[master] is None and now > votes_from[master]:
                    said[master], tally.yes = took, tally.yes + 1
                elif request.voted(master, now):
                    request.inbox.put(request)
            elif request.counts is not None:
                request.counts.late |= 1 << pipeline.master
            queue.popleft()
            pipeline.heard_at = now
        self._walk = None
        if over:
            self._decide_rounds(now)

    def _read_several(self, pipeline: Pipeline, data: bytes, now: float) -> None:
        """Count the usual answers in ``data``.  The slow path gets the rest of it."""
        queue, master, at = pipeline.under_way, pipeline.master, 0
        votes = now > self._votes_from[master]
        for request in list(queue):
            usual = request.usual
            if not data.startswith(usual, at):
                break
            tally = request.counts
            if not request.open:
                if tally is not None:
                    tally.late |= 1 << master
            elif votes and tally is not None and tally.said[master] is None:
                self._voted_on.append(request)
                tally.said[master], tally.yes = now - request.sent_at, tally.yes + 1
            elif request.voted(master, now):
                request.inbox.put(request)
            queue.popleft()
            at += len(usual)
        if at:
            pipeline.heard_at = now
        if not at or at < len(data):
            self._read_on(pipeline, data[at:], now)

    def _decide_rounds(self, now: float) -> None:
        """Resume the operations whose rounds got votes and are decided."""
        for request in dict.fromkeys(self._voted_on):
            if request.decides(now):  # also if an interruption came before its operation knew that
                request.inbox.put(request)
        self._voted_on.clear()

    def mend_walk(self, now: float) -> None:
        """An interruption has ended a walk: tear the connection in hand, and tell rounds that are decided."""
        if self._walk is not None:
            items, walk = self._walk
            index = len(items) - length_hint(walk) - 1
            if index >= 0:
                item = items[index]
                pipeline = self.by_fd[item[0]] if isinstance(item, tuple) else item
                if pipeline is not _ELSEWHERE:
                    self._tear(pipeline)
                    if walk is self._flight:  # requests not in the queue yet fail with the others; a release is owed
                        queue = pipeline.under_way
                        queue.extend([request for request in self._together()[0] if request not in queue])
            self._walk = None
        if self._voted_on:
            self._decide_rounds(now)
