"""The order of one connection, and what is owed when it breaks (R10)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, strategies as st

from redlock._core import wire
from redlock._core.effects import Send
from redlock._core.outcomes import Failure
from redlock._core.pipeline import Pipeline, Queued, SentAgain, request_of
from redlock._core.refusals import ErrorReply
from tests.core.world import PROPERTY

KEYS = wire.keys_for("redlock:", ["a"])
TOKEN = "0f" * 20
BROKEN = Failure("error", "connection lost")
NOSCRIPT = ErrorReply("NOSCRIPT No matching script.")


class Asked(Send):
    """It remembers what it was told, and says what it was told to: that it ``decides``, or not, and what it ``asks`` for."""

    __slots__ = ("asks", "decides", "heard_late", "told")

    def __init__(self, call: wire.Call, owed_until: float | None = None) -> None:
        super().__init__(call, owed_until=owed_until)
        self.told: list[tuple[int, Any, float]] = []
        self.heard_late: list[tuple[int, Any, float]] = []
        self.decides = True
        self.asks: tuple[Send, ...] = ()

    def voted(self, master: int, at: float) -> bool:
        return self.answered(master, "usual", at)

    def answered(self, master: int, value: Any, at: float) -> bool:
        self.told.append((master, value, at))
        self.more += self.asks
        return self.decides

    def late(self, master: int, value: Any, at: float) -> None:
        self.heard_late.append((master, value, at))
        self.more += self.asks

    def failed(self, master: int, failure: Failure, at: float) -> bool:
        return self.answered(master, failure, at)


def acquire(token: str = TOKEN) -> Asked:
    request = Asked(wire.acquire(KEYS, token, 10.0, 1, 3600.0))
    request.open = True
    return request


def release(token: str = TOKEN, owed_until: float = 100.0) -> Asked:
    return Asked(wire.release(KEYS, token), owed_until)


class Box(list[Send]):
    put = list[Send].append


def connected(patience: float = 0.25) -> Pipeline:
    pipeline = Pipeline(3, patience)
    pipeline.connected(0.0)
    return pipeline


def submit(pipeline: Pipeline, request: Send, at: float, box: Box | None = None) -> bool:
    """Whether the connection is to write it."""
    request.sent_at, request.inbox = at, Box() if box is None else box
    return pipeline.submit(request, at)


def answer(pipeline: Pipeline, value: object, at: float) -> Send:
    """Whose answer it was."""
    queued = pipeline.under_way[0]
    pipeline.answered(value, at)
    return request_of(queued)


def as_text(queued: Queued) -> bool:
    return isinstance(queued, SentAgain) and queued.text


def test_answers_belong_to_requests_in_their_order() -> None:
    pipeline = connected()
    first, second, third = acquire("1"), acquire("2"), release("1")
    boxes = [Box(), Box(), Box()]
    for number, request in enumerate([first, second, third]):
        assert submit(pipeline, request, 0.0, boxes[number])
    for number, request in enumerate([first, second, third]):
        request.open = True
        assert not pipeline.answered([number], 0.1 + number)
        assert request.told == [(3, [number], 0.1 + number)]
        assert boxes[number] == [request]
    assert pipeline.idle


def test_nobody_is_told_before_it_is_decided() -> None:
    pipeline = connected()
    request, box = acquire(), Box()
    submit(pipeline, request, 0.0, box)
    submit(pipeline, request, 0.0, box)
    request.decides = False
    pipeline.answered([1], 0.1)
    assert not box
    request.decides = True
    pipeline.answered([2], 0.2)
    assert box == [request]
    assert [value for _, value, _ in request.told] == [[1], [2]]


class Driver:
    """Writes what it is told to, and forgets nothing: what a pipeline is judged by."""

    def __init__(self) -> None:
        self.pipeline = connected()
        self.written: list[Asked] = []  # and not answered
        self.settled: set[Send] = set()
        self.releases: set[Send] = set()
        self.at = 0.0

    def submit(self, request: Asked) -> None:
        if submit(self.pipeline, request, self.at):
            self.written.append(request)
        elif request.open:
            assert not request.told[-1][1].sent

    def acquire(self) -> None:
        self.submit(acquire())

    def release(self) -> None:
        request = release()
        self.releases.add(request)
        self.submit(request)

    def _answer(self, value: object, *, final: bool) -> None:
        if not self.written:
            return
        request = self.written.pop(0)
        text = as_text(self.pipeline.under_way[0])
        assert self.pipeline.answered(value, self.at) == isinstance(value, ErrorReply)
        again = self.pipeline.more()
        if again:
            assert [(request_of(queued), as_text(queued)) for queued in again] == [(request, True)]
            self.written.append(request)
        elif final or (text and value is NOSCRIPT):
            self.settled.add(request)

    def answer(self) -> None:
        self._answer([1, 0], final=True)

    def noscript(self) -> None:
        self._answer(NOSCRIPT, final=False)

    def passing(self) -> None:
        self._answer(ErrorReply("LOADING x"), final=False)

    def lose(self) -> None:
        assert [request_of(queued) for queued in self.pipeline.under_way] == self.written
        self.pipeline.broken(BROKEN, self.at)
        for request in self.written:
            if request.open:
                assert request.told[-1] == (3, BROKEN, self.at)
        self.written.clear()

    def connect(self) -> None:
        if self.pipeline.down is not None:
            self.pipeline.connected(self.at)
        due = (queued.request for queued in self.pipeline.due(self.at))
        self.written.extend(request for request in due if isinstance(request, Asked))


@PROPERTY
@given(st.lists(st.sampled_from(["acquire", "release", "answer", "noscript", "passing", "lose", "connect"])))
def test_no_answer_goes_astray_and_no_release_is_forgotten(steps: list[str]) -> None:
    """Whatever happens: an answer belongs to the oldest request, and a release is under way, owed or done."""
    driver = Driver()
    for step in steps:
        driver.at += 0.001
        getattr(driver, step)()
    driver.connect()
    assert driver.releases <= {*driver.written, *driver.settled}


def test_while_it_connects_nothing_is_sent() -> None:
    pipeline, request = Pipeline(0, 0.25), acquire()
    assert not submit(pipeline, request, 0.0)
    [(_, failure, _)] = request.told
    assert (failure.outcome, failure.sent) == ("error", False)
    assert pipeline.idle


def test_when_it_breaks_what_wasunder_way_fails_and_may_have_arrived() -> None:
    pipeline = connected()
    first, second = acquire("1"), acquire("2")
    submit(pipeline, first, 0.0)
    submit(pipeline, second, 0.0)
    why = Failure("timeout", "reset", configuration=True)  # `sent`, so it has to be rolled back
    pipeline.broken(why, 0.2)
    assert first.told == second.told == [(3, why, 0.2)]
    # what comes now is not even sent, and says why
    third = acquire()
    assert not submit(pipeline, third, 0.3)
    assert third.told == [(3, Failure("timeout", "reset", sent=False, configuration=True), 0.3)]
    assert pipeline.idle


# -- a connection that was idle ----------------------------------------------------------------------


def test_what_met_a_connection_that_was_idle_is_asked_again_over_the_new_one() -> None:
    """A proxy closed it while our process stood still: the master is well."""
    pipeline, box = connected(), Box()
    request = acquire()
    submit(pipeline, request, 3.0, box)
    pipeline.broken(BROKEN, 3.01)
    later = acquire("2")
    assert not submit(pipeline, later, 3.02)
    assert request.told == later.told == []  # neither has failed
    pipeline.connected(3.05)
    assert [queued.request for queued in pipeline.due(3.05)] == [request, later]
    assert pipeline.due(3.06) == []
    pipeline.answered([1, b"1"], 3.07)
    assert request.told == [(3, [1, b"1"], 3.07)]
    assert box == [request]


def test_that_nothing_was_under_way_makes_no_difference() -> None:
    """Somebody else saw the connection break before we asked."""
    pipeline, request = connected(), acquire()
    pipeline.broken(BROKEN, 3.0)
    assert not submit(pipeline, request, 3.01)
    pipeline.connected(3.05)
    assert [queued.request for queued in pipeline.due(3.05)] == [request]


def test_behind_what_is_owed() -> None:
    pipeline, request, before = connected(), acquire("2"), release("1")
    submit(pipeline, before, 3.0)
    submit(pipeline, request, 3.0)
    pipeline.broken(BROKEN, 3.01)
    pipeline.connected(3.05)
    assert [queued.request for queued in pipeline.due(3.05)] == [before, request]


def test_an_attempt_that_is_over_is_not_made_again() -> None:
    """Its rollback is owed, and finds nothing behind it (R10)."""
    pipeline, request, rollback = connected(), acquire(), release()
    submit(pipeline, request, 3.0)
    pipeline.broken(BROKEN, 3.01)
    request.open = False
    submit(pipeline, rollback, 3.25)
    pipeline.connected(3.3)
    assert [queued.request for queued in pipeline.due(3.3)] == [rollback]


def test_a_release_that_somebody_awaits_is_neither_failed_nor_sent_twice() -> None:
    pipeline, request = connected(), release()
    request.open = True
    submit(pipeline, request, 3.0)
    pipeline.broken(BROKEN, 3.01)
    assert request.told == []
    pipeline.connected(3.05)
    assert [queued.request for queued in pipeline.due(3.05)] == [request]
    assert pipeline.due(3.05) == []


@pytest.mark.parametrize("written", [True, False], ids=["written", "not written"])
def test_without_a_new_connection_it_fails(written: bool) -> None:
    pipeline, request, box = connected(), acquire(), Box()
    if written:
        submit(pipeline, request, 3.0, box)
    pipeline.broken(BROKEN, 3.01)
    if not written:
        submit(pipeline, request, 3.02, box)
    refused = Failure("error", "refused", sent=False)
    pipeline.unreachable(refused, 3.03)
    # What was written may have arrived, and has to be rolled back there.
    assert request.told == [(3, refused._replace(sent=written), 3.03)]
    assert box == [request]
    # And nothing waits any more.
    late = acquire()
    assert not submit(pipeline, late, 3.04)
    assert late.told == [(3, refused, 3.04)]
    pipeline.connected(3.1)
    assert pipeline.due(3.1) == []


def test_a_connection_that_was_in_use_fails_what_was_under_way() -> None:
    """Its master is gone, or does not stand what it is asked."""
    pipeline, request = connected(), acquire()
    submit(pipeline, acquire("1"), 3.0)
    pipeline.answered([1, b"0"], 3.01)
    submit(pipeline, request, 3.02)
    pipeline.broken(BROKEN, 3.03)
    assert request.told == [(3, BROKEN, 3.03)]


def test_it_is_asked_again_only_once() -> None:
    pipeline, request = connected(), acquire()
    submit(pipeline, request, 3.0)
    pipeline.broken(BROKEN, 3.01)
    pipeline.connected(3.05)
    pipeline.due(3.05)
    pipeline.broken(BROKEN, 3.06)
    assert request.told == [(3, BROKEN, 3.06)]


def test_nothing_waits_for_a_connection_that_will_never_be() -> None:
    """The masters were closed."""
    pipeline, request = connected(), acquire()
    submit(pipeline, request, 3.0)
    pipeline.broken(BROKEN, 3.01, for_good=True)
    assert request.told == [(3, BROKEN, 3.01)]


def test_what_would_answer_something_else_the_second_time_is_not_asked_again() -> None:
    """A fence that was stored is not greater than itself (R18)."""
    pipeline, request = connected(), Asked(wire.fence(KEYS, TOKEN, 5, 60.0))
    request.open = True
    submit(pipeline, request, 3.0)
    pipeline.broken(BROKEN, 3.01)
    assert request.told == [(3, BROKEN, 3.01)]


# -- what is owed ------------------------------------------------------------------------------------


def test_a_release_that_the_connection_swallowed_is_sent_again_first() -> None:
    pipeline = connected()
    taken, given_back = acquire(), release()
    submit(pipeline, taken, 0.0)
    submit(pipeline, given_back, 0.1)
    pipeline.broken(BROKEN, 0.2)
    assert pipeline.owes
    assert not pipeline.idle
    assert pipeline.due(0.3) == []  # not before there is a connection
    pipeline.connected(0.3)
    assert [queued.request for queued in pipeline.due(0.4)] == [given_back]  # and never the acquire
    assert pipeline.due(0.4) == []  # once
    assert pipeline.owes
    pipeline.answered([1, 0], 0.5)
    assert not pipeline.owes
    assert pipeline.idle


def test_it_is_owed_again_if_that_connection_breaks_as_well() -> None:
    pipeline = connected()
    request = release()
    submit(pipeline, request, 0.0)
    for at in (1.0, 2.0, 3.0):
        pipeline.broken(BROKEN, at)
        pipeline.connected(0.3)
        assert [queued.request for queued in pipeline.due(at + 0.5)] == [request]


def test_releases_while_it_is_down_are_owed_in_their_order() -> None:
    pipeline = connected()
    requests = [release(str(number)) for number in range(4)]
    submit(pipeline, requests[0], 0.0)
    pipeline.broken(BROKEN, 0.1)
    for request in requests[1:]:
        assert not submit(pipeline, request, 0.2)
    pipeline.connected(0.3)
    assert [queued.request for queued in pipeline.due(0.4)] == requests


@pytest.mark.parametrize(("at", "sent"), [(9.9, True), (10.0, False), (11.0, False)])
def test_it_is_owed_until_the_key_must_have_expired(at: float, sent: bool) -> None:
    pipeline = connected()
    submit(pipeline, release(owed_until=10.0), 0.0)
    pipeline.broken(BROKEN, 0.1)
    pipeline.connected(0.3)
    assert len(pipeline.due(at)) == sent
    assert pipeline.idle != sent


def test_a_master_that_stays_down_does_not_pile_up_debts() -> None:
    """An outage of hours with clients that keep trying (C1): what has expired is of no use to anybody,
    and at exit nobody should wait for it."""
    pipeline = Pipeline(0, 0.25)
    for at in range(10_000):
        submit(pipeline, release(str(at), owed_until=at + 20.0), float(at))
    assert len(pipeline._owed) < 100
    assert pipeline.due(10_018.0) == []
    assert len(pipeline._owed) == 1
    assert pipeline.owes
    pipeline.due(10_019.0)  # nobody submits anything any more
    assert not pipeline.owes
    assert pipeline.idle


def test_what_has_expired_when_it_is_given_back_is_not_owed() -> None:
    """A lease that was lost long ago, on a master that is down."""
    pipeline = Pipeline(0, 0.25)
    assert not submit(pipeline, release(owed_until=10.0), 10.0)
    assert pipeline.idle


@pytest.mark.parametrize(
    ("text", "again"),
    [
        ("BUSY Redis is busy", True),
        ("LOADING Redis is loading", True),
        ("MISCONF disk", True),
        ("NOREPLICAS not enough", True),
        ("READONLY replica", True),
        ("OOM full", True),
        ("WRONGTYPE no", False),
        ("ERR no", False),
    ],
)
def test_what_a_master_cannot_do_now_is_owed(text: str, again: bool) -> None:
    pipeline = connected()
    request = release()
    request.open = True
    submit(pipeline, request, 0.0)
    answer(pipeline, ErrorReply(text), 0.1)
    [(_, failure, _)] = request.told  # whoever counts is told at once
    assert text in failure.reason
    assert pipeline.owes == again
    assert [queued.request for queued in pipeline.due(0.2)] == [request] * again


def test_what_a_master_does_not_permit_is_asked_again_later_and_later() -> None:
    """P7: it can be reached, and may be given the rights back while the key lives."""
    pipeline = connected(patience=0.25)
    request = release(owed_until=10.0)
    submit(pipeline, request, 0.0)
    now, asked = 0.0, 0
    while not pipeline.idle:
        answer(pipeline, ErrorReply("NOPERM no"), now)
        due: list[Any] = []
        while not (due or pipeline.idle):
            now += 1 / 1024
            due = pipeline.due(now)
        asked += len(due)
    assert asked == 9
    assert 9.9 < now < 10.1


def test_without_rights_for_long_few_of_many_releases_are_asked_again() -> None:
    """Or a user who may do nothing there would cost more than one who may."""
    pipeline = connected()
    for _ in range(1000):
        submit(pipeline, release(owed_until=10.0), 0.0)
        answer(pipeline, ErrorReply("NOPERM no"), 0.1)
    assert 10 < len(pipeline.due(5.0)) < 100


class Until:
    """A `Doubt` that remains for so many answers."""

    def __init__(self, answers: int) -> None:
        self.left = answers

    def remains(self, master: int, value: Any) -> bool:
        self.left -= 1
        return self.left >= 0


def test_a_release_in_doubt_is_asked_again_later_and_later() -> None:
    """R10: what sets the key may be on its way over another connection."""
    pipeline = connected(patience=0.25)
    request = release(owed_until=100.0)
    request.open = True
    request.doubt = Until(8)
    submit(pipeline, request, 0.0)
    now, pauses = 0.0, []
    while True:
        more = pipeline.answered([0, b""], now)
        assert pipeline.owes == more
        if not more:
            break
        asked = now
        while not pipeline.due(now):
            now += 1 / 1024
        pauses.append(round(now - asked, 2))
        request.open = False  # whoever counts has been told of the first answer
    assert pauses == [0.06, 0.12, 0.25, 0.5, 1.0, 2.0, 2.0, 2.0]
    assert len(request.told) == 1
    assert pipeline.idle


def test_nor_is_it_asked_for_longer_than_the_key_can_live() -> None:
    pipeline = connected(patience=0.25)
    request = release(owed_until=10.0)
    request.doubt = Until(9)
    submit(pipeline, request, 0.0)
    assert pipeline.answered([0, b""], 9.99)
    assert not pipeline.due(10.1)
    assert pipeline.idle


# -- what an answer asks for -------------------------------------------------------------------------


@pytest.mark.parametrize("open_", [True, False])
def test_what_an_answer_asks_for_stands_behind_what_was_written_before(open_: bool) -> None:
    """R14: and in front of what is written later, a release for example."""
    pipeline = connected()
    first, second = acquire("1"), acquire("2")
    first.open = open_
    submit(pipeline, first, 0.0)
    submit(pipeline, second, 0.0)
    wanted = [
        Send(wire.repair(KEYS, token, 10.0, 1, 60.0), only_if=only_if)
        for token, only_if in (("a", lambda: True), ("b", None))
    ]
    first.asks = (wanted[0], Send(wire.repair(KEYS, "no", 10.0, 1, 60.0), only_if=lambda: False), wanted[1])
    assert pipeline.answered([0, b""], 0.1)
    all_queued = pipeline.more()
    assert [(queued, as_text(queued), request_of(queued).sent_at) for queued in all_queued] == [
        (one, False, 0.1) for one in wanted
    ]
    assert not pipeline.more()
    assert [request_of(queued) for queued in pipeline.under_way] == [second, *wanted]


def test_it_asks_for_nothing_that_is_not_wanted_any_more() -> None:
    pipeline = connected()
    request = acquire()
    submit(pipeline, request, 0.0)
    request.asks = (Send(wire.repair(KEYS, "t", 10.0, 1, 60.0), only_if=lambda: False),)
    assert not pipeline.answered([0, b""], 0.1)
    assert not pipeline.more()
    assert pipeline.idle


def test_what_one_master_is_to_be_asked_is_not_left_to_another() -> None:
    """A Ctrl-C came between its answer and what was to follow: that connection is closed, the request lives on."""
    pipeline = connected()
    request = acquire()
    submit(pipeline, request, 0.0)
    request.more = (Send(wire.repair(KEYS, "t", 10.0, 1, 60.0)),)
    assert not pipeline.answered([0, b""], 0.1)
    assert pipeline.idle


def test_a_repair_that_an_answer_asked_for_is_sent_as_text_where_the_script_is_not_known() -> None:
    """A master that forgot its keys has forgotten its scripts."""
    pipeline, ended = connected(), [False, True]
    request = acquire()
    submit(pipeline, request, 0.0)
    one = Send(wire.repair(KEYS, "t", 10.0, 1, 60.0), only_if=lambda: not ended[0])
    request.asks = (one,)
    pipeline.answered([0, b""], 0.1)
    pipeline.more()
    assert pipeline.answered(NOSCRIPT, 0.2)
    assert [(request_of(queued), as_text(queued)) for queued in pipeline.more()] == [(one, True)]


def test_an_acquire_that_a_master_could_not_do_is_not_tried_again() -> None:
    pipeline = connected()
    request = acquire()
    submit(pipeline, request, 0.0)
    answer(pipeline, ErrorReply("LOADING x"), 0.1)
    assert request.told
    assert pipeline.idle


def test_nobody_is_told_of_an_answer_to_a_round_that_is_decided() -> None:
    pipeline = connected()
    request = acquire()
    submit(pipeline, request, 0.0)
    request.open = False
    assert answer(pipeline, [1, b"1"], 0.1) is request
    assert not request.told


def test_nor_is_anybody_of_a_connection_that_breaks() -> None:
    pipeline = connected()
    request, box = acquire(), Box()
    submit(pipeline, request, 0.0, box)
    request.open = False
    pipeline.broken(BROKEN, 0.1)
    assert not request.told
    assert not box


# -- forgotten scripts -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("open_", "owed"), [pytest.param(True, None, id="somebody-counts"), pytest.param(False, 100.0, id="owed")]
)
def test_the_text_is_sent_once(open_: bool, owed: float | None) -> None:
    pipeline = connected()
    request = acquire() if owed is None else release(owed_until=owed)
    request.open = open_
    box = Box()
    submit(pipeline, request, 0.0, box)
    assert pipeline.answered(NOSCRIPT, 0.1)
    assert not box
    [queued] = pipeline.more()
    assert (request_of(queued), as_text(queued)) == (request, True)
    request.open = True
    # the answer to the text is the answer; a second NOSCRIPT is one too
    assert pipeline.answered(NOSCRIPT, 0.2)
    assert not pipeline.more()
    [(_, failure, _)] = request.told
    assert "NOSCRIPT" in failure.reason


@pytest.mark.parametrize(
    "request_",
    [
        pytest.param(Send(wire.acquire(KEYS, "t", 10.0, 1, 60.0)), id="an-acquire-whose-attempt-is-over"),
        pytest.param(
            Send(wire.repair(KEYS, "t", 10.0, 1, 60.0), only_if=lambda: False), id="a-repair-of-a-lease-that-has-ended"
        ),
    ],
)
def test_behind_its_release_only_the_text_is_sent(request_: Send) -> None:
    """It would leave a key there; but a master that always answers last has to learn it some time (R14)."""
    pipeline = connected()
    submit(pipeline, request_, 0.0)
    pipeline.answered(NOSCRIPT, 0.1)
    [queued] = pipeline.more()
    call = request_of(queued).call
    assert (call.script, call.keys, call.args[0]) == (request_.call.script, (), "0")
    pipeline.answered(NOSCRIPT, 0.2)
    assert not pipeline.more()
    assert pipeline.idle


@pytest.mark.parametrize(
    "request_",
    [
        pytest.param(Send(wire.repair(KEYS, "t", 10.0, 1, 60.0), only_if=lambda: True), id="a-repair"),
        pytest.param(Send(wire.extend(KEYS, "t", 10.0, 60.0)), id="an-extension-that-is-decided"),
    ],
)
def test_what_nobody_counts_is_sent_again_where_it_can_leave_nothing(request_: Send) -> None:
    pipeline = connected()
    submit(pipeline, request_, 0.0)
    pipeline.answered(NOSCRIPT, 0.1)
    assert [request_of(queued) for queued in pipeline.more()] == [request_]


def test_the_text_stands_behind_what_was_sent_in_between() -> None:
    pipeline = connected()
    first, second = acquire("1"), acquire("2")
    submit(pipeline, first, 0.0)
    submit(pipeline, second, 0.0)
    pipeline.answered(NOSCRIPT, 0.1)
    assert answer(pipeline, [1, b"2"], 0.2) is second
    assert answer(pipeline, [1, b"1"], 0.2) is first


def test_an_owed_release_starts_from_the_beginning_on_a_new_connection() -> None:
    """The new process may know the script, or may not: the first word is its name again."""
    pipeline = connected()
    submit(pipeline, release(), 0.0)
    pipeline.answered(NOSCRIPT, 0.1)
    pipeline.broken(BROKEN, 0.2)
    assert not pipeline.more()  # that was for the old one
    pipeline.connected(0.3)
    [queued] = pipeline.due(0.3)
    assert not queued.text
    pipeline.answered(NOSCRIPT, 0.4)
    assert pipeline.more()


# -- a frozen master ---------------------------------------------------------------------------------


def test_a_silent_master_is_sent_nothing_new_but_releases() -> None:
    pipeline = connected(patience=0.25)
    taken = acquire()
    submit(pipeline, taken, 0.0)
    assert submit(pipeline, acquire("2"), 0.25)  # not overdue yet
    refused = acquire("3")
    assert not submit(pipeline, refused, 0.26)
    [(_, failure, _)] = refused.told
    assert (failure.outcome, failure.sent) == ("timeout", False)  # nothing to roll back there
    assert "0.26 s" in failure.reason
    given_back = release()
    assert submit(pipeline, given_back, 0.3)
    # it thaws: everything in order, and it is asked again
    answered = [answer(pipeline, [1, b"0"], 0.4) for _ in range(3)]
    assert answered[0] is taken
    assert answered[2] is given_back
    assert submit(pipeline, acquire("4"), 0.4)


def test_silence_counts_from_the_oldest_request_that_has_no_answer() -> None:
    pipeline = connected(patience=0.25)
    submit(pipeline, acquire("1"), 0.0)
    submit(pipeline, acquire("2"), 0.2)
    pipeline.answered([1, b"0"], 0.21)
    assert submit(pipeline, acquire("3"), 0.4)
    assert not submit(pipeline, acquire("4"), 0.46)
    # the text of a forgotten script is a new question
    again = connected(patience=0.25)
    submit(again, acquire("1"), 0.0)
    again.answered(NOSCRIPT, 0.2)
    assert submit(again, acquire("2"), 0.4)
    # nothing under way: no silence, however long ago the last answer was
    idle = connected(patience=0.25)
    assert submit(idle, acquire("5"), 1e6)


def test_a_new_connection_is_not_blamed_for_the_old_one() -> None:
    pipeline = connected(patience=0.25)
    submit(pipeline, release(), 0.0)
    pipeline.broken(BROKEN, 50.0)
    pipeline.connected(0.3)
    assert len(pipeline.due(60.0)) == 1
    assert submit(pipeline, acquire(), 60.1)


def test_an_answer_to_nothing_is_no_sign_of_life() -> None:
    """Whatever this connection carries cannot be trusted: the driver has to drop it."""
    pipeline = connected()
    submit(pipeline, acquire(), 0.0)
    pipeline.answered([1, b"0"], 0.1)
    with pytest.raises(ConnectionAbortedError):
        pipeline.answered([1, b"0"], 0.2)


def test_one_long_debt_does_not_keep_all_the_others() -> None:
    pipeline = Pipeline(0, 0.25)
    submit(pipeline, release("long", owed_until=1e6), 0.0)
    for at in range(10_000):
        submit(pipeline, release(str(at), owed_until=at + 20.0), float(at))
    assert len(pipeline._owed) < 100


def test_nor_are_they_sent() -> None:
    pipeline = Pipeline(0, 0.25)
    submit(pipeline, release("long", owed_until=1e6), 0.0)
    submit(pipeline, release("short", owed_until=20.0), 0.0)
    pipeline.connected(0.3)
    assert [e.request.call.args[0] for e in pipeline.due(50.0)] == ["long"]


def test_an_answer_that_cannot_be_ours_fails_with_all_that_was_asked_there() -> None:
    """P1: another process reads from the same socket.  What is torn for it fails, and a release is owed (R10)."""

    class Doubting(Asked):
        __slots__ = ()

        def answered(self, master: int, value: Any, at: float) -> bool:
            if not isinstance(value, Failure):
                raise ConnectionAbortedError("nobody here has proposed it")
            return super().answered(master, value, at)

    pipeline = Pipeline(0, 1.0)
    pipeline.connected(0.0)
    first, second = Doubting(acquire().call), release()
    first.open = True
    submit(pipeline, first, 0.0)
    submit(pipeline, second, 0.0)
    with pytest.raises(ConnectionAbortedError, match="nobody here"):
        pipeline.answered([1, b"1"], 0.5)
    pipeline.broken(BROKEN, 0.5)
    assert first.told == [(0, BROKEN, 0.5)]
    pipeline.connected(0.6)
    assert [owed.request for owed in pipeline.due(0.6)] == [second]


def test_what_was_asked_and_what_is_owed_is_nothing_to_a_forked_child() -> None:
    pipeline = Pipeline(0, 1.0)
    asked, owed, late = acquire(), release(), acquire()
    submit(pipeline, owed, 0.0)  # it is down
    pipeline.connected(0.0)
    submit(pipeline, asked, 0.0)
    pipeline.disown()
    assert pipeline.idle
    assert not pipeline.owes
    assert asked.told == []
    submit(pipeline, late, 1.0)
    [(_, failure, _)] = late.told
    assert "forked" in failure.reason
