"""The hot path and the slow one: both count the same, however the bytes are cut, and whatever interrupts them."""

from __future__ import annotations

from typing import Any, TypeVar

import pytest

from redlock._connect import NOTHING, parser
from redlock._core import wire
from redlock._core.effects import Send
from redlock._core.exchange import Exchange
from redlock._core.kernel.ballot import Ballot
from redlock._core.kernel.release import Claim
from redlock._core.outcomes import ErrorReply
from redlock._core.pipeline import Pipeline, SentAgain
from redlock._core.voters import Facts
from tests.core.resp import encoded
from tests.core.world import START, Master, World

S = TypeVar("S", bound=Send)

KEYS = wire.keys_for("redlock:", ["a"])
TOKEN = "0f" * 20
PROPOSAL = 7
MASTERS = 3
STORED = encoded([1, b"7"])
RELEASED = encoded([1, 0])


class Box(list[Send]):
    put = list[Send].append


def told(request: Send) -> Box:
    """What the inbox of ``request`` has got."""
    assert isinstance(request.inbox, Box)
    return request.inbox


class Wires(Exchange):
    """Connections that carry bytes, to and fro; and the slow path, in as few words as possible."""

    def __init__(self, **options: Any) -> None:
        self.settings = World(*[Master()] * MASTERS, **options).settings
        votes_from = self.settings.voters.votes_from
        super().__init__([Pipeline(master, 0.25) for master in range(MASTERS)], votes_from, lambda _: b"request")
        self.sent: list[list[bytes]] = [[] for _ in range(MASTERS)]
        self.arrived: list[list[bytes | BaseException]] = [[] for _ in range(MASTERS)]
        self.slow: list[tuple[str, int]] = []
        self.takes = 100  # bytes at once
        self._parsers = [parser() for _ in range(MASTERS)]
        for pipeline in self.pipelines:
            pipeline.connected(START)
            pipeline.plain = True
            pipeline.send, pipeline.recv = self._sender(pipeline.master), self._receiver(pipeline.master)
            self.by_fd[pipeline.master] = pipeline

    def _sender(self, master: int) -> Any:
        def send(data: bytes) -> int:
            self.sent[master].append(data)
            return min(self.takes, len(data))

        return send

    def _receiver(self, master: int) -> Any:
        def recv(_: int) -> bytes:
            if not self.arrived[master]:
                raise BlockingIOError
            data = self.arrived[master].pop(0)
            if isinstance(data, BaseException):
                raise data
            return data

        return recv

    def ballot(self) -> Ballot:
        return Ballot(self.settings, wire.acquire(KEYS, TOKEN, 10.0, PROPOSAL, 3600.0))

    def claim(self) -> Claim:
        return Claim(self.settings, wire.release(KEYS, TOKEN), owed_until=START + 20)

    def ask(self, request: S) -> S:
        self.submit(request, Box(), START)
        return request

    def read(self, *ready: tuple[int, Any], at: float = START + 0.1) -> None:
        """The masters that have something to say, and what."""
        for master, data in ready:
            self.arrived[master].append(data)
        self.read_ready([(master, 1) for master, _ in ready], at)

    def torn(self) -> list[int]:
        return [pipeline.master for pipeline in self.pipelines if not pipeline.plain]

    # -- the slow path -------------------------------------------------------------------------------

    def _tear(self, pipeline: Pipeline) -> None:
        pipeline.plain = False

    def _send_slowly(self, pipeline: Pipeline, requests: list[Send], data: bytes, now: float) -> None:
        [request] = requests
        self.slow.append(("send", pipeline.master))
        pipeline.submit(request, now)

    def _sent_a_part(self, pipeline: Pipeline, data: bytes, sent: int | OSError, now: float) -> None:
        assert pipeline.under_way, "it stands in the queue before the first byte leaves"
        self._tear(pipeline)
        self.slow.append(("rest", pipeline.master))

    def _read_slowly(self, fd: int, now: float) -> None:
        self.slow.append(("read", fd))
        if fd in self.by_fd:
            self._parse(self.by_fd[fd], self.by_fd[fd].recv(100), now)

    def _read_on(self, pipeline: Pipeline, data: bytes | OSError, now: float) -> None:
        self._tear(pipeline)
        self.slow.append(("rest of an answer", pipeline.master))
        if isinstance(data, bytes):
            self._parse(pipeline, data, now)

    def _parse(self, pipeline: Pipeline, data: bytes, now: float) -> None:
        parsed = self._parsers[pipeline.master]
        parsed.feed(data)
        while (value := parsed.gets()) is not NOTHING:
            pipeline.answered(value, now)
            pipeline.more()
        pipeline.plain = not parsed.has_data()


@pytest.mark.parametrize("data", [STORED[:-1], encoded([2, b"9"]), RELEASED, b"", BlockingIOError(), OSError("x")])
def test_all_else_is_left_to_the_slow_path(data: Any) -> None:
    wires = Wires()
    round_ = wires.ask(wires.ballot())
    wires._parse = lambda *_: None  # type: ignore[method-assign]
    wires.read((0, data), (1, STORED))
    assert wires.slow == [("rest of an answer", 0)]
    assert wires.torn() == [0]
    assert round_.tally.yes == 1, "the others go on"


def test_what_is_sent_again_is_never_taken_for_its_usual_answer() -> None:
    """It may have been replaced by the mere text of the script, whose answer says nothing of the lock."""
    wires = Wires()
    round_ = wires.ask(wires.ballot())
    wires.read((0, encoded(ErrorReply("NOSCRIPT x"))))
    [again] = wires.pipelines[0].under_way
    assert isinstance(again, SentAgain)
    wires.slow.clear()
    wires.read((0, STORED))
    assert wires.slow == [("rest of an answer", 0)]
    assert round_.tally.yes == 1


@pytest.mark.parametrize("together", [1, 2])
def test_a_quarantined_master_does_not_vote(together: int) -> None:
    """R21: and what becomes known of it counts at once, whichever thread or loop came to know it."""
    wires = Wires(guard=True)
    rounds = [wires.ask(wires.ballot()) for _ in range(together)]
    for master in (0, 1):
        wires.settings.voters.admit(master, Facts(f"restarted-{master}", 1), START)
    wires.read(*((master, STORED * together) for master in (0, 1, 2)))
    for round_ in rounds:
        assert [vote.outcome for vote in round_.tally.votes()] == ["quarantined", "quarantined", "pending"]
        assert not round_.tally.won
    assert {pipeline.heard_at for pipeline in wires.pipelines} == {START + 0.1}


@pytest.mark.parametrize("plain", [True, False])
def test_a_round_that_the_slow_path_ends_gets_no_more_votes(plain: bool) -> None:
    """Its operation may be looking at them already."""
    wires = Wires()
    round_ = wires.ask(wires.ballot())
    wires.pipelines[1].plain = plain
    wires.read((0, STORED), (1, encoded([2, b"9"]) if plain else STORED), (2, STORED))
    assert wires.slow == [("rest of an answer" if plain else "read", 1)]
    assert [vote.outcome for vote in round_.tally.votes()] == ["granted", "granted", "pending"]


def test_who_is_interrupted_while_sending_tears_the_connection_in_hand() -> None:
    wires = Wires()
    round_ = wires.ballot()
    send = wires.pipelines[1].send
    wires.pipelines[1].send = interrupt
    with pytest.raises(KeyboardInterrupt):
        wires.ask(round_)
    wires.pipelines[1].send = send
    assert [len(sent) for sent in wires.sent] == [1, 0, 0]
    wires.ask(wires.claim())
    assert wires.slow == [("send", 1)]
    assert wires.torn() == [1]


def test_who_is_interrupted_while_reading_tears_the_connection_in_hand_also_if_struck_again() -> None:
    wires = Wires()
    wires.ask(wires.ballot())
    with pytest.raises(KeyboardInterrupt):
        wires.read((0, STORED), (2, KeyboardInterrupt()), (1, STORED))
    with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(wires, "_tear", interrupt)
        wires.mend_walk(START)
    wires.mend_walk(START)
    assert wires.torn() == [2]


def test_a_round_that_was_decided_is_told_by_whoever_comes_next() -> None:
    """R11: the thread that counted was interrupted before it could."""
    wires = Wires()
    round_ = wires.ask(wires.ballot())
    with pytest.raises(KeyboardInterrupt):
        wires.read((0, STORED), (1, STORED), (2, KeyboardInterrupt()))
    assert not told(round_)
    wires.ask(wires.claim())
    assert told(round_) == [round_]


@pytest.mark.parametrize("plain", [True, False])
@pytest.mark.parametrize("struck", range(MASTERS))
def test_an_interrupted_flush_goes_on_where_it_was(struck: int, plain: bool) -> None:
    """R11: whoever left a request in the cork must not pay for the interruption of another thread."""
    wires = Wires()
    taken, given_back = wires.ballot(), wires.claim()
    for request in (taken, given_back):
        request.sent_at, request.inbox = START, Box()
        wires._put_into_cork(request, b"request", START, wires.pipelines)
    wires.pipelines[struck].plain = plain
    with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(wires.pipelines[struck], "send", interrupt)
        patch.setattr(wires, "_send_slowly", interrupt)
        wires.flush_cork(START)
    wires.flush_cork(START)
    assert [list(pipeline.under_way) for pipeline in wires.pipelines] == [[taken, given_back]] * MASTERS
    assert [sent for sent in wires.sent if sent] == [[b"requestrequest"]] * (MASTERS - 1)
    assert wires.torn() == [struck]


def interrupt(*_: Any) -> Any:
    raise KeyboardInterrupt


def test_several_answers_in_one_packet() -> None:
    """A late one, of a round that is decided, stands in front of those to other operations."""
    wires = Wires()
    late, first, second = (wires.ask(one) for one in (wires.ballot(), wires.claim(), wires.ballot()))
    late.open = False
    wires.read(*((master, STORED + RELEASED + STORED) for master in range(2)))
    assert not wires.slow
    assert (late.tally.yes, late.tally.late) == (0, 0b11)  # R37
    assert (first.tally.yes, second.tally.yes) == (2, 2)
    assert (told(first), told(second), told(late)) == ([first], [second], [])
