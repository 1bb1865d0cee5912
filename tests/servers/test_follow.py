"""How threads wait, and one of them leads: `redlock/_io/waiter.py`.

Most of it needs no servers: masters of a few lines each on pairs of sockets, and no background.  Nobody reads but whom the
test has read: it is itself the thread that leads.
"""

import contextlib
import math
import socket
import threading
from typing import Any

import pytest

from redlock import Lease, Masters, QuorumUnreachable
from redlock._core import wire
from redlock._core.effects import Turn
from redlock._core.kernel.ballot import Ballot
from redlock._core.voters import Facts
from redlock._io import waiter as threads_that_wait
from redlock._io.driver_threads import RenewalOperation
from redlock._io.waiter import Waiter
from redlock._system import clock as system_clock
from tests.asyncio.virtual import MASTERS, Clock, Fake, Question, asks
from tests.servers.look import Doing, eventually

NODE_TIMEOUT = 1.5  # some wait for its end; the others must not come near it on a slow machine
LONG = 60.0  # nobody waits for so long: it is there so that no test relies on a short time
NEVER = math.inf
ALL = range(MASTERS)


class Pairs:
    """`Masters` whose connections lead to fakes, and a `leader` that is the test itself."""

    def __init__(self, node_timeout):
        urls = [f"redis://fake-{number}:6379" for number in ALL]
        self.fakes = [Fake() for _ in ALL]
        self.masters = Masters(urls, restart_guard=False, node_timeout=node_timeout)
        self.driver = self.masters._runtime.driver()
        self.driver._ready = True  # no thread of its own
        self.host, self.connections = self.driver.host, self.driver._connections
        for number in ALL:
            self.attach(number)
        self.leader = Waiter(self.host)
        self.host.leader = self.leader

    def attach(self, number):
        with self.host.mutex:
            fake = self.fakes[number]
            self.connections.attach(
                self.connections.all[number], fake.theirs, Facts(f"run-{number}", 10**6), system_clock.now()
            )

    def answer(self, *numbers):
        """Those, or all of them, hear what was sent to them, and answer."""
        self.host.flush()
        for number in numbers or ALL:
            with contextlib.suppress(OSError):  # it was hung up on
                self.fakes[number].hear()

    def read(self, *numbers):
        """As who leads does it."""
        for number in numbers or ALL:
            with self.host.mutex:
                self.connections.read(self.connections.all[number], system_clock.now())

    def resign(self):
        self.leader.stop_waiting()

    def nothing_left(self):
        """Once those that were hung up on are connected again."""
        for number in ALL:
            if self.connections.all[number].sock is None:
                self.fakes[number].sock.close()
                self.fakes[number].connect()
                self.attach(number)
        self.answer()
        self.read()
        return not any(fake.keys for fake in self.fakes) and not self.connections.owe()

    def close(self):
        self.leader.stop_waiting()
        self.answer()
        self.masters.close()
        for fake in self.fakes:
            fake.sock.close()


def follow(pairs, work):
    """Do ``work`` in another thread while the test leads; on return that waits for masters."""
    follower = Doing(work)
    eventually(lambda: pairs.host.followers or follower.over)
    return follower


@pytest.fixture
def pairs(monkeypatch):
    """`Masters` without servers and threads, led by the test.  Each thread relies on the others for ever: what was lost shows."""
    for patience in ("_PATIENCE", "_MOST_PATIENCE", "_LET_RUN"):
        monkeypatch.setattr(threads_that_wait, patience, LONG)
    pairs = Pairs(NODE_TIMEOUT)
    yield pairs
    pairs.close()


def question(name, need=MASTERS) -> Question:
    asked = Question(need)
    asked.call = wire.status(f"redlock:{name}")
    return asked


def names(pairs):
    """What the masters heard of."""
    return [[heard.name.removeprefix("redlock:") for heard in fake.heard] for fake in pairs.fakes]


# -- what it asks ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("leads", [True, False], ids=["it leads", "nobody does"])
def test_what_it_asked_goes_before_what_it_asks_when_it_leads(pairs, leads):
    """R10: a release stands behind its acquire."""
    waiter = Waiter(pairs.host)
    waiter.send(question("first"))
    assert pairs.host.asked
    pairs.host.leader = waiter if leads else None
    waiter.send(question("second"))
    pairs.answer()
    assert names(pairs) == [["first", "second"]] * MASTERS


def test_what_it_asked_goes_before_what_the_renewer_asks(pairs):
    """R10: in the order in which they asked."""
    Waiter(pairs.host).send(question("first"))
    RenewalOperation(asks(question("second"), NEVER), pairs.driver, []).start()
    Waiter(pairs.host).send(question("third"))
    pairs.answer()
    assert names(pairs) == [["first", "second", "third"]] * MASTERS


def test_what_the_kernel_does_not_take_at_once_leaves_though_the_leader_sits_in_poll(pairs):
    """It has not asked to be told when there is room again; nobody else will be."""
    host, leader = pairs.host, Waiter(pairs.host)
    pairs.answer()
    pairs.read()
    host.lead_waker.read(0.0)  # of connections that came: nothing else ends its poll()
    follower = follow(pairs, lambda: leader.wait(NEVER, None))
    pairs.resign()
    eventually(lambda: host.polling)
    for fake in pairs.fakes:
        fake.theirs.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    large = "x" * 200_000
    Waiter(host).send(question(large))
    assert all(connection.backlog for connection in pairs.connections.all)

    def all_of_it_came():
        for fake in pairs.fakes:
            fake.hear()
        return names(pairs) == [[large]] * MASTERS

    try:
        eventually(all_of_it_came)
    finally:
        leader.put(Turn(0.0))
        leader.wake()
        follower.end()


def test_an_attempt_that_is_over_is_not_made(pairs):
    """R9: what takes it back is sent, and finds nothing."""
    lock = pairs.masters.lock("job", ttl=10)
    follower = follow(pairs, lambda: lock.acquire(timeout=0))
    error = follower.end()
    assert isinstance(error, QuorumUnreachable)
    assert [vote.outcome for vote in error.votes] == ["timeout"] * MASTERS
    pairs.answer()
    assert [list(fake.by_token().values()) for fake in pairs.fakes] == [[["release"]]] * MASTERS
    assert pairs.nothing_left()


def test_a_release_is_sent_however_late(pairs):
    """R10."""
    lock = pairs.masters.lock("job", ttl=10, bound=False)
    follower = follow(pairs, lock.acquire)
    pairs.answer()
    pairs.read()
    assert isinstance(follower.end(), Lease)
    assert follow(pairs, lock.release).end() is None  # nobody has denied it
    assert all(fake.keys for fake in pairs.fakes)
    assert pairs.nothing_left()


def test_what_was_asked_while_nobody_leads_is_sent(pairs):
    """By itself: it looks once more when it has asked."""

    class JustThen(type(pairs.host.asked)):  # type: ignore[misc]
        def append(self, asked):
            pairs.resign()  # it looked before that, and nobody has asked
            super().append(asked)

    pairs.host.asked = JustThen()
    Waiter(pairs.host).send(question("job"))
    for fake in pairs.fakes:
        fake.hear()
    assert names(pairs) == [["job"]] * MASTERS


def test_a_renewer_that_leads_on_passes_it_on_before_it_works(pairs):
    """It may be busy with somebody's callback then."""
    driver = pairs.driver
    asked = question("job", need=3)
    follower = follow(pairs, lambda: pairs.driver.run(asks(asked, NEVER)))
    RenewalOperation(asks(question("kept", need=3), NEVER), driver, []).start()
    pairs.answer()
    pairs.host.leader, driver._awaits = driver.waiter, True
    driver._await_answers(NEVER)
    assert follower.end() is asked
    driver.work()
    driver.waiter.stop_waiting()


# -- who leads next --------------------------------------------------------------------------------------


class Slow(Question):
    """Counting the deciding answer takes until `go`."""

    def __init__(self, need):
        super().__init__(need)
        self.counting, self.go = threading.Event(), threading.Event()

    def _counted(self):
        if len(self.answers) == self._need:
            self.counting.set()
            assert self.go.wait(10)
        return super()._counted()


class RenewalWithResult(RenewalOperation):
    """An operation of a renewer that keeps no lease, and what it returned."""

    result: Any = None


@pytest.fixture
def clock(monkeypatch):
    """It stands still."""
    clock = Clock()
    monkeypatch.setattr(system_clock, "now", clock)
    return clock


# -- the last moment -------------------------------------------------------------------------------------


class LastMoment:
    """Another thread that counts the deciding answer, and has not told anybody yet, when ``method`` of ``host``
    is called, or has just returned if ``after``: the mutex is its own until it has.
    """

    def __init__(self, monkeypatch, pairs, question, host, method, *, after):
        self._reader = threading.Thread(target=pairs.read)
        self._question = question
        original = getattr(host, method)

        def patched(*args, **options):
            if not after:
                self._begin()
            result = original(*args, **options)
            if after:
                self._begin()
            return result

        monkeypatch.setattr(host, method, patched)
        close = pairs.host.close_round
        # It needs the mutex, and has it when the answer is counted.

        def closes(request):
            question.go.set()
            close(request)

        monkeypatch.setattr(pairs.host, "close_round", closes)

    def _begin(self):
        if self._reader.ident is None:
            self._reader.start()
            assert self._question.counting.wait(10)

    def join(self):
        self._reader.join()


def test_who_is_decided_in_the_last_moment_gets_no_timeout(pairs, monkeypatch):
    """Its time is over, and the deciding answer is being counted."""
    question, waiter = Slow(3), Waiter(pairs.host)
    waiter.send(question)
    pairs.answer()
    moment = LastMoment(monkeypatch, pairs, question, waiter, "_join", after=True)
    assert waiter.wait(0.0, question) is question
    moment.join()
    assert not waiter.events


@pytest.mark.parametrize("until", [0.0, 0.05], ids=["passed", "rings"])
def test_nor_does_what_the_renewer_does(clock, pairs, monkeypatch, until):
    driver = pairs.driver
    question = Slow(3)
    moment = LastMoment(monkeypatch, pairs, question, driver, "read_and_close", after=False)
    op = asks(question, clock() + until)
    next(op)  # which is done here, so that it is answered before it waits
    operation = RenewalWithResult(op, driver, [])
    driver.send(question, operation)
    pairs.answer()
    operation.start()
    clock.advance(until)

    def over():
        driver.work()
        driver.host.flush()
        return operation.over

    eventually(over)
    moment.join()
    assert operation.result is question


# -- Ctrl-C in the thread that counts --------------------------------------------------------------------


def test_a_fence_that_was_read_and_not_counted_makes_no_majority(monkeypatch):
    """R17, R21: that master restarted, and may have forgotten the greater fence that another one shows."""
    with Masters([f"redis://fake-{number}:6379" for number in ALL]) as masters:
        settings = masters._runtime.deployment.settings
        for number in ALL:
            settings.voters.admit(number, Facts(f"run-{number}", 0 if number == 0 else 10**6), 0.0)
        proposal = settings.fences.propose()
        keys = wire.keys_for("redlock:", ["job"])
        ballot = Ballot(settings, wire.acquire(keys, "token", 10.0, proposal, 3600.0))
        stored, greater = [1, b"%d" % proposal], [2, b"%d" % (proposal + 1)]
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(Ballot, "_overrule", interrupt)
            ballot.answered(0, stored, 0.0)
        for number, answer in ((1, stored), (2, stored), (3, greater)):
            ballot.answered(number, answer, 0.0)
        assert ballot.tally.won
        lock = masters.lock("job")
        assert ballot.next_round(lock._spec, "token") is not None
        assert ballot.highest == proposal + 2


def interrupt(*_):
    raise KeyboardInterrupt
