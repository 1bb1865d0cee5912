"""A following thread takes no lock, and leaves what it asks to the leading one: `redlock/_io/waiter.py`."""

from __future__ import annotations

import socket
import threading
from collections import deque
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from redlock import Lease, QuorumUnreachable, _clock
from redlock._core import wire
from redlock._core.effects import Turn
from redlock._io.driver_threads import RenewalOperation
from redlock._io.waiter import Waiter
from tests.asyncio.virtual import MASTERS, Question, asks
from tests.servers.interrupt import Interrupt
from tests.servers.look import eventually
from tests.servers.pairs import ALL, LONG, Follower, Pairs, never_impatient

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from redlock._io.connections_threads import Connections


def question(name: str, need: int = MASTERS) -> Question:
    asked = Question(need)
    asked.call = wire.status(f"redlock:{name}")
    return asked


def names(pairs: Pairs) -> list[list[str]]:
    """What the masters heard of."""
    return [[heard.name.removeprefix("redlock:") for heard in fake.heard] for fake in pairs.fakes]


def kill(pairs: Pairs, *numbers: int) -> None:
    for number in numbers:
        pairs.fakes[number].sock.close()
    pairs.read(*numbers)


# -- what it asks ----------------------------------------------------------------------------------------


def test_it_waits_for_no_lock(pairs):
    """The thread that holds it may be in a call of the kernel, in which all others run."""
    lock = pairs.masters.lock("job", ttl=10, bound=False)
    with pairs.connections.mutex:
        follower = Follower(pairs, lock.acquire)
    pairs.answer()
    pairs.read(0, 1)
    with pairs.connections.mutex:
        pairs.connections._read(pairs.connections.all[2], _clock.now())
        assert isinstance(follower.end(), Lease)
    releaser = Follower(pairs, lock.release)
    pairs.answer()
    pairs.read()
    assert releaser.end() is None
    assert pairs.nothing_left()


@pytest.mark.parametrize("leads", [True, False], ids=["it leads", "nobody does"])
def test_what_it_asked_goes_before_what_it_asks_when_it_leads(pairs, leads):
    """R10: a release stands behind its acquire."""
    waiter = Waiter(pairs.connections)
    pairs.connections.send(question("first"), waiter)
    assert pairs.connections.asked
    pairs.connections.leader = waiter if leads else None
    pairs.connections.send(question("second"), waiter)
    pairs.answer()
    assert names(pairs) == [["first", "second"]] * MASTERS


def test_what_it_asked_goes_before_what_the_renewer_asks(pairs):
    """R10: in the order in which they asked."""
    pairs.connections.send(question("first"), Waiter(pairs.connections))
    RenewalOperation(asks(question("second"), _clock.now() + LONG), pairs.driver, []).start()
    pairs.connections.send(question("third"), Waiter(pairs.connections))
    pairs.answer()
    assert names(pairs) == [["first", "second", "third"]] * MASTERS


def test_who_asks_leads_if_nobody_does(pairs):
    """It is about to wait: who asks next leaves that to it, and both are written together."""
    pairs.resign()
    first, second = Waiter(pairs.connections), Waiter(pairs.connections)
    pairs.connections.send(question("first"), first)
    assert pairs.connections.leader is first
    pairs.connections.send(question("second"), second)
    assert pairs.connections.leader is first
    assert pairs.connections.asked
    first.stop_waiting()  # it did not wait
    assert pairs.connections.leader is None
    pairs.answer()
    assert names(pairs) == [["first", "second"]] * MASTERS


def test_what_the_kernel_does_not_take_at_once_leaves_though_the_leader_sits_in_poll(pairs):
    """It has not asked to be told when there is room again; nobody else will be."""
    connections, leader = pairs.connections, Waiter(pairs.connections)
    follower = Follower(pairs, lambda: leader.wait(_clock.now() + LONG, None))
    pairs.resign()
    eventually(lambda: connections.polling)
    for fake in pairs.fakes:
        fake.theirs.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    large = "x" * 200_000
    connections.send(question(large), Waiter(connections))
    assert all(connection.stuck for connection in connections.all)

    def all_of_it_came() -> bool:
        for fake in pairs.fakes:
            fake.hear()
        return names(pairs) == [[large]] * MASTERS

    try:
        eventually(all_of_it_came)
    finally:
        leader.put(Turn(_clock.now()))
        connections.rouse(leader)
        follower.end()


def test_an_attempt_that_is_over_is_not_made(pairs):
    """R9: what takes it back is sent, and finds nothing."""
    lock = pairs.masters.lock("job", ttl=10)
    follower = Follower(pairs, lambda: lock.acquire(timeout=0))
    error = follower.end()
    assert isinstance(error, QuorumUnreachable)
    assert [vote.outcome for vote in error.votes] == ["timeout"] * MASTERS
    pairs.answer()
    assert [list(fake.by_token().values()) for fake in pairs.fakes] == [[["release"]]] * MASTERS
    assert pairs.nothing_left()


def test_a_release_is_sent_however_late(pairs):
    """R10."""
    lock = pairs.masters.lock("job", ttl=10, bound=False)
    follower = Follower(pairs, lock.acquire)
    pairs.answer()
    pairs.read()
    assert isinstance(follower.end(), Lease)
    releaser = Follower(pairs, lock.release)
    assert releaser.end() is None  # nobody has denied it
    assert all(fake.keys for fake in pairs.fakes)
    assert pairs.nothing_left()


def test_it_is_told_when_masters_that_are_down_decide(pairs):
    kill(pairs, 0, 1, 2)
    follower = Follower(pairs, lambda: pairs.masters.lock("job", ttl=10).acquire(timeout=0))
    pairs.answer(3, 4)
    error = follower.end()
    assert isinstance(error, QuorumUnreachable)
    assert [vote.outcome for vote in error.votes] == ["error"] * 3 + ["pending"] * 2, "and no timeout"
    assert pairs.nothing_left()


def test_so_is_who_has_come_to_lead_meanwhile(pairs):
    """It does not wait for answers to what is decided."""
    waiter, asked = Waiter(pairs.connections), question("job", need=3)
    pairs.connections.send(asked, waiter)
    kill(pairs, 0, 1, 2)
    pairs.connections._lead_waker.drain()  # of connections that came
    pairs.connections.leader = waiter
    began = _clock.now()
    assert waiter.wait(began + LONG, asked) is asked
    assert _clock.now() - began < LONG / 2
    assert len(asked.failures) == 3
    waiter.stop_waiting()


def test_what_was_asked_while_nobody_leads_is_sent(pairs):
    """By itself: it looks once more when it has asked."""

    class JustThen(type(pairs.connections.asked)):  # type: ignore[misc]
        def append(self, asked: Any) -> None:
            pairs.resign()  # it looked before that, and nobody has asked
            super().append(asked)

    pairs.connections.asked = JustThen()
    pairs.connections.send(question("job"), Waiter(pairs.connections))
    for fake in pairs.fakes:
        fake.hear()
    assert names(pairs) == [["job"]] * MASTERS


@pytest.mark.timeout(300)
@pytest.mark.parametrize("what", ["acquire", "release"])
def test_ctrl_c_at_every_line_of_who_writes_for_it(monkeypatch, what):
    """R10, R11: whoever comes next goes on where it was."""
    never_impatient(monkeypatch)
    at = 0
    while True:
        at += 1
        pairs = Pairs(node_timeout=3.0)
        lock = pairs.masters.lock("job", ttl=10, bound=False)
        follower = Follower(pairs, lock.acquire)
        if what == "release":
            pairs.answer()
            pairs.read()
            assert isinstance(follower.end(), Lease)
            follower = Follower(pairs, lock.release)
        ctrl_c = Interrupt(at)
        try:
            with ctrl_c.tracing():
                pairs.connections.flush()
        except KeyboardInterrupt:
            pass
        print(at, ctrl_c.where)
        pairs.answer()
        pairs.read()
        lease = follower.end()
        asked = [[heard.token for heard in fake.heard if heard.script == what] for fake in pairs.fakes]
        assert sum(map(bool, asked)) >= MASTERS - 1, "but for a connection that was torn"
        assert all(len(set(tokens)) <= 1 for tokens in asked)
        if what == "acquire":
            assert isinstance(lease, Lease)
            votes = [vote.outcome == "granted" for vote in lease.votes]
            assert all(pairs.fakes[number].keys == {"redlock:job": lease.token} for number in ALL if votes[number])
            releaser = Follower(pairs, lock.release)
            pairs.answer()
            pairs.read()
            assert releaser.end() is None
        assert pairs.nothing_left()
        pairs.close()
        if ctrl_c.left > 0:
            break  # it was over before line number `at`
    assert at > 50


# -- who leads next --------------------------------------------------------------------------------------


class Racing(dict[Waiter, None]):
    """The followers, and what one of them does when the thread that stopped leading has just looked at them."""

    def __init__(self, connections: Connections, then: Any, *, at_each: bool = False) -> None:
        super().__init__(connections.followers)
        self._connections, self._then, self._at_each = connections, then, at_each

    def _looked(self) -> None:
        if self._connections.leader is None:
            then, self._then = self._then, lambda: None
            then()

    def __bool__(self) -> bool:
        seen = len(self) > 0
        if not self._at_each:
            self._looked()
        return seen

    def __iter__(self) -> Iterator[Waiter]:
        seen = list(super().__iter__())
        if self._at_each:
            self._looked()
        return iter(seen)


def test_who_comes_when_the_leader_leaves_is_not_left_alone(pairs, monkeypatch):
    """It has seen a leader, who has seen no follower."""
    asked, waiter = question("job"), Waiter(pairs.connections)
    pairs.connections.send(asked, waiter)
    follow = waiter._follow
    comes, may = threading.Event(), threading.Event()

    def late() -> None:
        comes.set()
        assert may.wait(10)
        follow()

    def nobody_is_there() -> None:
        may.set()
        eventually(lambda: len(pairs.connections.followers) == 1)

    monkeypatch.setattr(waiter, "_follow", late)
    pairs.connections.followers = Racing(pairs.connections, nobody_is_there)
    thread = threading.Thread(target=lambda: waiter.wait(_clock.now() + LONG, asked))
    thread.start()
    assert comes.wait(10)
    pairs.resign()
    pairs.answer_until_over(thread)
    assert asked.answers == [*ALL]
    waiter.stop_waiting()


def test_whose_operation_is_over_does_not_come_to_lead(pairs):
    first, second = Waiter(pairs.connections), Waiter(pairs.connections)
    pairs.connections.followers.update(dict.fromkeys((first, second)))
    pairs.connections.followers = Racing(pairs.connections, first.stop_waiting, at_each=True)
    pairs.resign()
    assert pairs.connections.leader is second
    second.stop_waiting()
    assert pairs.connections.leader is None


def test_rather_one_who_has_to_wait_leads(pairs):
    served, waits = Waiter(pairs.connections), Waiter(pairs.connections)
    served.events.append(question("job"))
    pairs.connections.followers.update(dict.fromkeys((served, waits)))
    pairs.resign()
    assert pairs.connections.leader is waits
    waits.stop_waiting()
    assert pairs.connections.leader is served
    served.stop_waiting()


def followed_by(pairs: Pairs, works: list[Callable[[], Any]]) -> list[Follower]:
    """Threads that have all asked, and wait."""
    followers = [Follower(pairs, work) for work in works]
    eventually(lambda: len(pairs.connections.followers) == len(works))
    return followers


# -- one after the other ---------------------------------------------------------------------------------


def chain() -> Any:
    """As much of the connections as the chain needs."""
    return SimpleNamespace(reader=None, served=deque())


def asleep(connections: Any) -> Waiter:
    waiter = Waiter(connections)
    waiter.prepare_to_sleep()
    return waiter


def is_awake(waiter: Waiter) -> bool:
    return not waiter.wake()


def test_the_next_one_who_sleeps_is_woken():
    connections = chain()
    me, awake, over, first, second = (
        asleep(connections),
        Waiter(connections),
        asleep(connections),
        asleep(connections),
        asleep(connections),
    )
    for waiter in (me, awake, over, first, second):
        connections.served.append(waiter)
    over._signal = None
    me._wake_next()
    assert len(connections.served) == 5, "it does not have it"
    me.wakes_next = True
    me._wake_next()
    assert is_awake(first)
    assert not is_awake(second)
    assert len(connections.served) == 1


def test_who_is_served_while_somebody_reads_for_all_wakes_in_its_turn():
    connections = chain()
    waiter, other = asleep(connections), asleep(connections)
    connections.reader = Waiter(connections)
    waiter.put(question("job"))
    connections.reader = None
    other.put(question("job"))
    assert is_awake(other), "at once"
    assert list(connections.served) == [waiter]
    assert not is_awake(waiter)


def test_three_that_were_served_at_once(pairs, monkeypatch):
    """The thread that led wakes one, and that one wakes the next when its operation is over."""
    woken: list[Waiter] = []
    wake = Waiter.wake

    def noted(waiter: Waiter) -> bool:
        woken.append(waiter)
        return wake(waiter)

    monkeypatch.setattr(Waiter, "wake", noted)
    asked = [question(f"job-{number}", need=3) for number in range(3)]
    followers = followed_by(pairs, [partial(pairs.driver.run, asks(one, _clock.now() + LONG)) for one in asked])
    pairs.answer()
    pairs.read_at_once()
    assert not woken
    assert len(pairs.connections.served) == 3
    pairs.leader.wakes_next = True
    pairs.leader._wake_next()
    for follower, one in zip(followers, asked, strict=True):
        assert follower.end() is one
    assert len(woken) == len(set(woken)) == 3


def test_who_leads_lets_them_run_and_is_the_last(pairs):
    """What they ask next leaves with what it writes before it waits."""
    locks = [pairs.masters.lock(f"job-{number}", ttl=10, bound=False) for number in range(2)]

    def work(lock: Any) -> None:
        lock.acquire()
        lock.release()

    followers = followed_by(pairs, [partial(work, lock) for lock in locks])
    acquiring = set(pairs.connections.followers)
    pairs.answer()
    pairs.read_at_once()
    pairs.leader._let_others_ask(LONG)
    assert not acquiring.intersection(pairs.connections.followers)
    eventually(lambda: len(pairs.connections.asked) == 2)  # their releases
    pairs.answer()
    pairs.read()
    for follower in followers:
        follower.end()
    assert pairs.nothing_left()


def test_who_leads_and_has_no_answer_yet_lets_them_run(pairs):
    asked, unanswered = question("job", need=3), question("unsent")
    follower = Follower(pairs, lambda: pairs.driver.run(asks(asked, _clock.now() + LONG)))
    leads = threading.Thread(target=pairs.leader.wait, args=(_clock.now() + 2, unanswered))
    leads.start()
    pairs.answer()
    assert follower.end() is asked
    leads.join()


def test_who_stops_leading_wakes_the_next_one(pairs):
    """It has read for all, its own answer among them."""
    waiter = asleep(pairs.connections)
    pairs.connections.served.append(waiter)
    pairs.resign()
    assert is_awake(waiter)


def test_who_waits_for_other_threads_passes_it_on(pairs):
    """It was called for what it knew already."""
    quiet, other = Waiter(pairs.connections), asleep(pairs.connections)
    thread = threading.Thread(target=lambda: quiet.wait(_clock.now() + LONG, quiet=True))
    thread.start()
    eventually(lambda: quiet._signal is not None and quiet._signal.locked())
    pairs.connections.served.extend((quiet, other))
    pairs.leader.wakes_next = True
    pairs.leader._wake_next()
    eventually(lambda: not pairs.connections.served)
    assert is_awake(other)
    quiet.put(question("job"))
    thread.join(10)
    assert not thread.is_alive()


def test_a_renewer_that_leads_on_passes_it_on_before_it_works(pairs):
    """It may be busy with somebody's callback then."""
    driver = pairs.driver
    asked = question("job", need=3)
    follower = Follower(pairs, lambda: pairs.driver.run(asks(asked, _clock.now() + LONG)))
    RenewalOperation(asks(question("kept", need=3), _clock.now() + LONG), driver, []).start()
    pairs.answer()
    pairs.connections.leader, driver._awaits = driver.waiter, True
    driver._await_answers(_clock.now() + LONG)
    assert follower.end() is asked
    driver.work()
    driver.waiter.stop_waiting()


def test_whose_operation_is_over_is_not_called(pairs):
    """It was served before it slept: the chain would end with it."""
    waiter = asleep(pairs.connections)
    waiter.stop_waiting()
    assert is_awake(waiter)


def test_who_sleeps_again_wakes_the_next_one(pairs):
    """And by nobody who does not have it: those who run would become more and more."""
    first, second = question("first", need=3), question("second", need=3)
    one, other = Waiter(pairs.connections), asleep(pairs.connections)
    pairs.connections.send(first, one)

    def twice() -> None:
        assert one.wait(_clock.now() + LONG, first) is first
        pairs.connections.send(second, one)
        assert one.wait(_clock.now() + LONG, second) is second
        one.stop_waiting()

    thread = Follower(pairs, twice)
    pairs.answer()
    pairs.read_at_once()
    pairs.connections.served.append(other)
    pairs.leader.wakes_next = True
    pairs.leader._wake_next()
    eventually(lambda: not pairs.connections.served)
    assert is_awake(other)
    other.prepare_to_sleep()
    pairs.connections.served.append(other)
    pairs.answer()
    pairs.read()
    thread.end()
    assert not is_awake(other)
