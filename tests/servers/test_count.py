"""The leading thread counts for all: `redlock/_io/waiter.py`."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING, Any

import pytest

from redlock import Lease, Masters, QuorumUnreachable, _clock
from redlock._core import wire
from redlock._core.ballots import Ballot
from redlock._core.effects import Timeout
from redlock._core.release import Claim
from redlock._core.voters import Facts
from redlock._io.driver_threads import Driver, RenewalOperation
from redlock._io.waiter import Waiter
from tests.asyncio.virtual import MASTERS, Question, asks
from tests.servers.interrupt import Interrupt
from tests.servers.look import eventually
from tests.servers.pairs import ALL, LONG, Follower, Pairs, never_impatient

if TYPE_CHECKING:
    from redlock._core.effects import Op


class Watched(Question):
    """Knows in which thread it was told what."""

    def __init__(self, need: int) -> None:
        super().__init__(need)
        self.threads: set[int] = set()

    def _counted(self) -> bool:
        self.threads.add(threading.get_ident())
        return super()._counted()


class Slow(Question):
    """Counting the deciding answer takes until `go`."""

    def __init__(self, need: int) -> None:
        super().__init__(need)
        self.counting, self.go = threading.Event(), threading.Event()

    def _counted(self) -> bool:
        if len(self.answers) == self._need:
            self.counting.set()
            assert self.go.wait(10)
        return super()._counted()


class RenewalWithResult(RenewalOperation):
    """An operation of a renewer, and what it returned."""

    __slots__ = ("result",)

    def __init__(self, op: Op[Any], driver: Driver) -> None:
        super().__init__(op, driver, [])  # of no lease
        self.result: Any = None

    def _ended(self, result: Any) -> None:
        self.result = result
        super()._ended(result)


@pytest.fixture
def driver(pairs):
    return pairs.driver


def kept(driver: Driver, op: Op[Any]) -> RenewalWithResult:
    """It has sent, and waits."""
    operation = RenewalWithResult(op, driver)
    operation.start()
    driver._connections.flush()
    return operation


def is_over(operation: RenewalWithResult, driver: Driver) -> bool:
    """After some more work of the thread that renews."""
    driver.work()
    driver._connections.flush()
    return operation.over


# -- who is told, and when -------------------------------------------------------------------------------


def test_who_leads_counts_for_who_follows(pairs):
    question = Watched(3)
    follower = Follower(pairs, lambda: pairs.driver.run(asks(question, _clock.now() + LONG)))
    pairs.answer()
    pairs.read()
    assert follower.end() is question
    assert question.answers == [0, 1, 2]
    assert question.threads == {threading.get_ident()}


def test_nobody_is_woken_before_it_is_decided(pairs, monkeypatch):
    woken: list[Any] = []
    wake = Waiter.wake

    def noted(waiter: Waiter) -> None:
        woken.append(waiter)
        wake(waiter)

    monkeypatch.setattr(Waiter, "wake", noted)
    question = Question(3)
    follower = Follower(pairs, lambda: pairs.driver.run(asks(question, _clock.now() + LONG)))
    pairs.answer()
    pairs.read(0, 1)
    assert question.answers == [0, 1]
    assert not woken
    pairs.read(2)
    pairs.read(3, 4)
    assert follower.end() is question
    assert len(woken) == 1


def test_the_renewer_is_not_rung_for_before_it_is_decided(pairs, driver, monkeypatch):
    rung: list[int] = []
    question = Question(3)
    monkeypatch.setattr(driver, "call_at", lambda: rung.append(len(question.answers)))
    operation = kept(driver, asks(question, _clock.now() + LONG))
    pairs.answer()
    pairs.read()
    assert rung == [3]
    driver.work()
    assert operation.result is question
    assert question.answers == [0, 1, 2]


def test_a_grant_that_somebody_else_counted(pairs):
    """Its votes are those that decided it; and what it takes to release it is there."""
    lock = pairs.masters.lock("job", ttl=10, bound=False)
    follower = Follower(pairs, lock.acquire)
    pairs.answer()
    pairs.read(3, 1, 0, 2)
    lease = follower.end()
    assert isinstance(lease, Lease)
    assert [vote.outcome for vote in lease.votes] == ["granted", "granted", "pending", "granted", "pending"]
    assert all(fake.keys == {"redlock:job": lease.token} for fake in pairs.fakes)
    releaser = Follower(pairs, lock.release)
    pairs.answer()
    pairs.read()
    assert releaser.end() is None
    assert pairs.nothing_left()


# -- the last moment -------------------------------------------------------------------------------------


class LastMoment:
    """Another thread that counts the deciding answer, and has not told anybody yet, when ``method`` of ``host``
    is called, or has just returned if ``after``: the mutex is its own until it has.
    """

    def __init__(self, monkeypatch, pairs: Pairs, question: Slow, host: Any, method: str, *, after: bool) -> None:
        self._reader = threading.Thread(target=pairs.read)
        self._timer = threading.Timer(0.1, question.go.set)
        self._question = question
        original = getattr(host, method)

        def patched(*args: Any, **options: Any) -> Any:
            if not after:
                self._begin()
            result = original(*args, **options)
            if after:
                self._begin()
            return result

        monkeypatch.setattr(host, method, patched)

    def _begin(self) -> None:
        if self._reader.ident is None:
            self._reader.start()
            assert self._question.counting.wait(10)
            self._timer.start()

    def join(self) -> None:
        self._timer.join()
        self._reader.join()


def test_who_is_decided_in_the_last_moment_gets_no_timeout(pairs, monkeypatch):
    """Its time is over, and the deciding answer is being counted."""
    question, waiter = Slow(3), Waiter(pairs.connections)
    pairs.connections.send(question, waiter)
    pairs.answer()
    moment = LastMoment(monkeypatch, pairs, question, waiter, "_join", after=True)
    assert waiter.wait(_clock.now(), question) is question
    moment.join()
    assert not waiter.events


@pytest.mark.parametrize("until", [0.0, 0.05], ids=["passed", "rings"])
def test_nor_does_what_the_renewer_does(pairs, driver, monkeypatch, until):
    question = Slow(3)
    moment = LastMoment(monkeypatch, pairs, question, driver, "last_look", after=False)
    op = asks(question, _clock.now() + until)
    next(op)  # which is done here, so that it is answered before it waits
    operation = RenewalWithResult(op, driver)
    driver.send(question, operation)
    pairs.answer()
    operation.start()
    eventually(lambda: is_over(operation, driver))
    moment.join()
    assert operation.result is question


def test_after_a_timeout_nobody_counts(pairs):
    question, waiter = Question(3), Waiter(pairs.connections)
    pairs.connections.send(question, waiter)
    pairs.answer()
    pairs.read(0, 1)
    event = waiter.wait(_clock.now(), question)
    assert isinstance(event, Timeout)
    pairs.read()
    assert question.answers == [0, 1]
    assert not waiter.events
    assert all(connection.pipeline.idle for connection in pairs.connections.all)


@pytest.mark.parametrize("until", [0.0, 0.05], ids=["passed", "rings"])
def test_nor_for_what_the_renewer_does(pairs, driver, until):
    question = Question(3)
    operation = kept(driver, asks(question, _clock.now() + until))
    pairs.answer()
    eventually(lambda: is_over(operation, driver))
    assert isinstance(operation.result, Timeout)
    pairs.read()
    assert not question.answers
    assert not operation.events


def test_a_wait_that_closes_nothing_leaves_its_question_open(pairs):
    """As one between two attempts: it is no business of the last one."""
    question, waiter = Question(3), Waiter(pairs.connections)
    pairs.connections.send(question, waiter)
    assert isinstance(waiter.wait(_clock.now()), Timeout)
    pairs.answer()
    pairs.read()
    assert waiter.wait(_clock.now()) is question


def test_votes_that_come_after_the_time_change_nothing(pairs):
    """R3, R9: what its refusal says stays, however late they are counted, and they are taken back."""
    lock = pairs.masters.lock("job", ttl=10)
    follower = Follower(pairs, lambda: lock.acquire(timeout=0))
    pairs.answer(0, 1)
    pairs.read()
    error = follower.end()
    assert isinstance(error, QuorumUnreachable)
    votes = [vote.outcome for vote in error.votes]
    assert votes == ["granted", "granted", "timeout", "timeout", "timeout"]
    pairs.answer()
    pairs.read()
    assert [vote.outcome for vote in error.votes] == votes
    assert [list(fake.by_token().values()) for fake in pairs.fakes] == [[["acquire", "release"]]] * MASTERS
    assert pairs.nothing_left()


# -- Ctrl-C in the thread that counts --------------------------------------------------------------------


@contextlib.contextmanager
def interrupted(monkeypatch, inbox: type[Any]):
    """Between counting and waking, once."""
    struck: list[Any] = []
    put = inbox.put

    def strike(self: Any, event: Any) -> None:
        if not struck:
            struck.append(event)
            raise KeyboardInterrupt
        put(self, event)

    monkeypatch.setattr(inbox, "put", strike)
    with pytest.raises(KeyboardInterrupt):
        yield
    assert struck


def test_a_round_whose_end_nobody_was_told_of_is_not_lost(pairs, monkeypatch):
    """R11: it costs whoever follows time, at most `node_timeout`, and no vote."""
    lock = pairs.masters.lock("job", ttl=10, bound=False)
    follower = Follower(pairs, lock.acquire)
    pairs.answer()
    with interrupted(monkeypatch, Waiter):
        pairs.read()
    pairs.resign()
    lease = follower.end()
    assert isinstance(lease, Lease)
    assert [vote.outcome for vote in lease.votes] == ["granted"] * 3 + ["pending"] * 2
    assert all(fake.keys == {"redlock:job": lease.token} for fake in pairs.fakes)
    assert len(pairs.fakes[0].heard) == 1, "the first attempt"
    releaser = threading.Thread(target=lock.release)
    releaser.start()
    pairs.answer_until_over(releaser)
    assert pairs.nothing_left()


@pytest.mark.parametrize("until", [0.0, 0.05], ids=["passed", "rings"])
def test_nor_is_a_renewal(pairs, driver, monkeypatch, until):
    for fake in pairs.fakes:
        fake.keys["redlock:job"] = "token"
    claim = Claim(
        pairs.masters._runtime.deployment.settings, wire.extend(wire.keys_for("redlock:", ["job"]), "token", 10.0, 60.0)
    )
    op = claim.ask(_clock.now() + until)
    next(op)  # as above
    operation = RenewalWithResult(op, driver)
    driver.send(claim, operation)
    pairs.answer()
    with interrupted(monkeypatch, RenewalOperation):
        pairs.read()
    ended_at = claim.ended_at
    assert ended_at is not None
    operation.start()
    eventually(lambda: is_over(operation, driver))
    assert operation.result == ended_at
    assert claim.tally.won
    for fake in pairs.fakes:
        fake.keys.clear()


def test_a_fence_that_was_read_and_not_counted_makes_no_majority(monkeypatch):
    """R17, R21: that master restarted, and may have forgotten the greater fence that another one shows."""
    with Masters([f"redis://fake-{number}:6379" for number in ALL]) as masters:
        settings = masters._runtime.deployment.settings
        for number in ALL:
            settings.voters.admit(number, Facts(f"run-{number}", 0 if number == 0 else 10**6), _clock.now())
        proposal = settings.fences.propose()
        keys = wire.keys_for("redlock:", ["job"])
        ballot = Ballot(settings, wire.acquire(keys, "token", 10.0, proposal, 3600.0), proposal)
        stored, greater = [1, b"%d" % proposal], [2, b"%d" % (proposal + 1)]
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(Ballot, "_overrule", interrupt)
            ballot.answered(0, stored, _clock.now())
        for number, answer in ((1, stored), (2, stored), (3, greater)):
            ballot.answered(number, answer, _clock.now())
        assert ballot.tally.won
        assert not ballot.stored
        assert ballot.highest == proposal + 1


def interrupt(*_: Any) -> None:
    raise KeyboardInterrupt


@pytest.mark.timeout(300)
def test_ctrl_c_at_every_line_of_who_counts(monkeypatch):
    """R11: wherever it strikes the leading thread, a following one pays with no vote too few or too many, and no wait."""
    never_impatient(monkeypatch)
    at, struck = 0, 0
    while True:
        at += 1
        pairs = Pairs(LONG / 2)
        lock = pairs.masters.lock("job", ttl=2 * LONG, bound=False)
        began = _clock.now()
        follower = Follower(pairs, lock.acquire)
        own = Question(MASTERS)  # whose answers stand behind those to the follower
        pairs.connections.send(own, pairs.leader)
        pairs.answer()
        ctrl_c = Interrupt(at)
        try:
            with ctrl_c.tracing():
                assert pairs.leader.wait(_clock.now() + LONG, own) is own
        except KeyboardInterrupt:
            struck += 1
        print(at, ctrl_c.where)
        pairs.resign()
        lease = follower.end()
        assert isinstance(lease, Lease)
        assert _clock.now() - began < LONG / 2
        granted = [number for number, vote in enumerate(lease.votes) if vote.outcome == "granted"]
        assert len(granted) >= 3
        assert all(fake.keys == {"redlock:job": lease.token} for fake in pairs.fakes)
        acquired = [[heard.token for heard in fake.heard if heard.script == "acquire"] for fake in pairs.fakes]
        assert acquired == [[lease.token]] * MASTERS, "the first attempt"
        releaser = threading.Thread(target=lock.release)
        releaser.start()
        pairs.answer_until_over(releaser)
        assert pairs.nothing_left()
        pairs.close()
        if ctrl_c.left > 0:
            break  # it was over before line number `at`
    assert struck > 100
