"""The `Exchange` of one client: its requests leave over links, and answers come back as bytes, in pieces."""

from __future__ import annotations

import random
from functools import partial
from typing import TYPE_CHECKING, Any

from redlock import _connect
from redlock._connect import NOTHING
from redlock._core.exchange import Exchange
from redlock._core.pipeline import Pipeline, request_of
from tests.core.resp import encoded

if TYPE_CHECKING:
    from redlock._core.effects import Send
    from tests.simulation.client import Client

PACKET = b"a request"  # what is sent is the last one in the queue


class ClientExchange(Exchange):
    def __init__(self, client: Client, masters: int) -> None:
        pipelines = [Pipeline(index, client.parameters.patience) for index in range(masters)]
        super().__init__(pipelines, client.voters.votes_from, lambda _: PACKET)
        self._client = client
        self._cuts = random.Random(f"cuts of {client.name} under {client.parameters.seed}")
        self._parsers = [_connect.parser()] * masters
        self._arrived = [b""] * masters  # the piece that is there
        for pipeline in self.pipelines:
            self.by_fd[pipeline.master] = pipeline
            pipeline.send, pipeline.recv = partial(self._send, pipeline), partial(self._recv, pipeline)

    def send(self, request: Send, to: list[int]) -> None:
        self._send_all([request], PACKET, request.sent_at, [self.pipelines[master] for master in to])

    def feed(self, master: int, value: Any, now: float) -> None:
        """An answer has arrived, and is read at once, piece by piece."""
        data = encoded(value)
        while data:
            size = self._cuts.choice((len(data), self._cuts.randint(1, len(data))))
            self._arrived[master], data = data[:size], data[size:]
            if self.pipelines[master].down is None:
                self.read_ready([(master, 0)], now)

    def connected(self, master: int) -> None:
        self._parsers[master] = _connect.parser()
        self.pipelines[master].connected(self._client.clock())
        self._see_whether_plain(self.pipelines[master])

    def _see_whether_plain(self, pipeline: Pipeline) -> None:
        pipeline.plain = pipeline.down is None and not self._parsers[pipeline.master].has_data()

    def _send(self, pipeline: Pipeline, data: bytes) -> int:
        self._client.write(pipeline.master, pipeline.under_way[-1], text=False)
        return len(data)

    def _recv(self, pipeline: Pipeline, _: int) -> bytes:
        return self._arrived[pipeline.master]

    # -- the slow path -------------------------------------------------------------------------------

    def _tear(self, pipeline: Pipeline) -> None:
        pipeline.plain = False

    def _send_slowly(self, pipeline: Pipeline, requests: list[Send], data: bytes, now: float) -> None:
        [request] = requests
        if pipeline.submit(request, now):
            self._send(pipeline, data)

    def _sent_a_part(self, pipeline: Pipeline, data: bytes, sent: int | OSError, now: float) -> None:
        raise AssertionError("links take everything")

    def _read_slowly(self, fd: int, now: float) -> None:
        self._read_on(self.pipelines[fd], self._arrived[fd], now)

    def _read_on(self, pipeline: Pipeline, data: bytes | OSError, now: float) -> None:
        self._tear(pipeline)
        assert isinstance(data, bytes)
        parser = self._parsers[pipeline.master]
        parser.feed(data)
        while (value := parser.gets()) is not NOTHING:
            request = request_of(pipeline.under_way[0])
            if pipeline.answered(value, now):
                self._client.write_more(pipeline.master, request)
        self._see_whether_plain(pipeline)
