"""What leaves in which packet, and who is told of which answer: `redlock/_io/connections_async.py`."""

from __future__ import annotations

import asyncio
import math
import socket
import types
from typing import TYPE_CHECKING, Any

import pytest

from redlock._core.refusals import ErrorReply
from redlock._core.subscriptions import Subscription
from redlock._core.voters import Facts
from redlock.errors import NotAcquired, QuorumUnreachable
from tests.asyncio.virtual import (
    MASTERS,
    NODE_TIMEOUT,
    OTHER,
    Deployment,
    read_again,
    run,
    stop_reading,
)
from tests.core.resp import encoded

if TYPE_CHECKING:
    from collections.abc import Coroutine, Generator

    from redlock._io.report import Reports

TASKS = 10


def sends(d: Deployment) -> list[int]:
    """How many packets each master was sent since this was asked last."""
    counts = [len(fake.theirs.sent) for fake in d.fakes]
    for fake in d.fakes:
        fake.theirs.sent.clear()
    return counts


async def take(d: Deployment, count: int = TASKS) -> list[Any]:
    """A lock for each of so many tasks, which begin in one tick."""
    locks = [d.masters.lock(f"job-{number}", ttl=10, bound=False) for number in range(count)]

    async def one(lock: Any) -> Any:
        await lock.acquire(timeout=0)
        return lock

    return await asyncio.gather(*map(one, locks))


async def both(d: Deployment, count: int = TASKS) -> None:
    async def one(number: int) -> None:
        async with d.masters.lock(f"job-{number}", ttl=10):
            pass

    await asyncio.gather(*map(one, range(count)))


def greater_fences(d: Deployment) -> None:
    for fake in d.fakes:
        for number in range(TASKS):
            fake.fences[f"redlock:job-{number}"] = 2**51


# -- one packet ----------------------------------------------------------------------------------------


def test_what_tasks_ask_for_in_one_tick_leaves_in_one_packet():
    """But for the first of them, which did not know of the others: it does not wait for the end of the tick."""

    async def scene(d):
        await both(d)
        return sends(d), [len(fake.heard) for fake in d.fakes]

    packets, heard = run(scene)
    assert packets == [2 + 2] * MASTERS, "all acquires, then all releases"
    assert heard == [2 * TASKS] * MASTERS


def test_masters_begin_before_everybody_in_a_tick_has_asked():
    """After some twenty requests; in the same order for all of them."""
    many = 10 * TASKS

    async def scene(d):
        coroutines = [d.masters.lock(f"job-{number}", ttl=10).acquire() for number in range(many)]
        for coroutine in coroutines:
            coroutine.send(None)
        for fake in d.fakes:  # in the middle of the tick
            fake.hear()
        early = [[heard.name for heard in fake.heard] for fake in d.fakes]
        packets = sends(d)
        for coroutine in coroutines:
            coroutine.close()
        await d.quiet()
        return early, packets

    early, packets = run(scene)
    assert early == [[f"redlock:job-{number}" for number in range(len(early[0]))]] * MASTERS
    assert many / 2 < len(early[0]) < many, "the rest waits for the end of the tick"
    assert packets == [packets[0]] * MASTERS
    assert TASKS < len(early[0]) / packets[0] < 4 * TASKS


def test_what_is_stepped_by_answers_in_one_tick_leaves_in_one_packet():
    """All second rounds begin in the callback that reads the decisive answers (R17)."""

    async def scene(d):
        greater_fences(d)
        await both(d)
        return sends(d), d.fakes[0].heard

    packets, heard = run(scene)
    assert packets == [2 + 1 + 2] * MASTERS  # nobody is the first when all of them are under way
    assert [call.script for call in heard] == ["acquire"] * TASKS + ["fence"] * TASKS + ["release"] * TASKS


def test_the_rollbacks_of_tasks_that_are_cancelled_in_one_tick_leave_in_one_packet():
    async def scene(d):
        d.mute(*range(MASTERS))
        work = asyncio.gather(*(d.masters.lock(f"job-{number}").acquire() for number in range(TASKS)))
        await d.quiet()
        sends(d)
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work
        await d.quiet()
        return sends(d)

    assert run(scene) == [1] * MASTERS


def test_one_operation_alone_is_one_packet_to_each_master():
    async def scene(d):
        await both(d, 1)
        return sends(d)

    assert run(scene) == [2] * MASTERS


# -- answers -------------------------------------------------------------------------------------------


@types.coroutine
def counted(coro: Coroutine[Any, Any, Any], resumed: list[str]) -> Generator[Any, Any, Any]:
    """``coro``, and a note of every time that its task was woken."""
    inside = coro.__await__()
    argument = None
    while True:
        try:
            effect = inside.send(argument)
        except StopIteration as stop:
            return stop.value
        argument = yield effect
        resumed.append(repr(effect))


@pytest.mark.parametrize("trouble", ["none", "second round", "held"])
def test_a_task_is_woken_once(trouble):
    """Not for every answer, round or attempt: that is what operations without a task are for."""

    async def scene(d):
        if trouble == "second round":
            greater_fences(d)
        lock = d.masters.lock("job-0", ttl=10)
        woken: list[str] = []
        if trouble == "held":
            for fake in d.fakes:
                fake.keys["redlock:job-0"] = OTHER
            assert await counted(lock.acquire(timeout=2.0), woken) is None
            assert len(d.fakes[0].heard) > 4, "several attempts"
            return woken
        assert await counted(lock.acquire(), woken)
        await lock.release()
        return woken

    assert len(run(scene)) == 1


@pytest.mark.parametrize("length", [1, 7, None])
def test_answers_belong_to_questions_in_their_order(length):
    """However they are cut into packets."""

    async def scene(d):
        for fake in d.fakes:
            for number in range(TASKS):
                fake.keys[f"redlock:job-{number}"] = f"holder-{number}"
        d.mute(*range(MASTERS))
        ended: list[int] = []

        async def one(number: int) -> str:
            with pytest.raises(NotAcquired) as refused:
                async with d.masters.lock(f"job-{number}", ttl=10, timeout=0):
                    pass
            ended.append(number)
            return str(refused.value)

        work = asyncio.gather(*map(one, range(TASKS)))
        await d.quiet()
        while any(fake.unsaid for fake in d.fakes):
            for fake in d.fakes:
                fake.say(length)
            await asyncio.sleep(0)
        d.speak()
        refusals = await work
        for fake in d.fakes:
            fake.keys.clear()
        return ended, refusals

    ended, refusals = run(scene)
    assert ended == list(range(TASKS))
    for number, refusal in enumerate(refusals):
        assert f"held by holder-{number} for" in refusal


def test_a_script_that_was_forgotten_is_sent_as_text():
    async def scene(d):
        for fake in d.fakes:
            fake.forgot = True
        async with d.masters.lock("job", ttl=10):
            pass
        return [(call.script, call.text) for call in d.fakes[0].heard]

    assert run(scene) == [("acquire", False), ("acquire", True), ("release", False)]


# -- announcements -------------------------------------------------------------------------------------


class Announcers:
    """The other connections of three masters, a majority, and a subscription on a channel."""

    def __init__(self, d: Deployment) -> None:
        self.subscription = Subscription(["redlock:job"], MASTERS)
        (self.channel,) = (channel.encode() for channel in self.subscription.channels)
        self._d = d
        self._theirs: list[socket.socket] = []
        d.connections.subscriptions.add(self.subscription)

    def connect(self) -> None:
        self.hang_up()
        for subscriber in self._d.connections.subscribers[:3]:
            ours, theirs = socket.socketpair()
            ours.setblocking(False)
            self._theirs.append(theirs)
            self._d.connections.keep(ours)
            self._d.connections.attach(subscriber, ours, None, self._d.clock.now)

    async def say(self, *values: Any, then: bytes = b"") -> None:
        """In one packet each."""
        for theirs in self._theirs:
            theirs.sendall(b"".join(map(encoded, values)) + then)
        await self._d.quiet()

    def hang_up(self) -> None:
        while self._theirs:
            self._theirs.pop().close()

    async def end(self) -> None:
        self.hang_up()
        await self._d.quiet()
        self._d.connections.subscriptions.remove(self.subscription, self._d.clock.now)


def test_what_was_announced_just_before_the_connection_broke_is_heard():
    """R24.  In the same packet, and so in the same look at it."""

    async def scene(d):
        masters = Announcers(d)
        masters.connect()
        await masters.say([b"subscribe", masters.channel, 1])
        looked, masters.subscription.look = masters.subscription.look, False
        await masters.say([b"message", masters.channel, b"token"], then=b"nonsense\r\n")
        released = masters.subscription.released
        assert not any(subscriber.sock for subscriber in d.connections.subscribers)
        await masters.end()
        return looked, released

    assert run(scene) == (True, 1)


def test_what_a_broken_connection_confirmed_is_not_taken_for_a_confirmation_of_the_next_one():
    """R24: subscribe first, then look; who looks before it is told of releases may miss one."""

    async def scene(d):
        masters = Announcers(d)
        masters.connect()
        await masters.say([b"subscribe", masters.channel, 1], then=b"nonsense\r\n")
        assert not any(subscriber.sock for subscriber in d.connections.subscribers)
        masters.subscription.look = False
        masters.connect()
        await masters.say([b"message", b"another channel", b"token"])
        early, masters.subscription.look = masters.subscription.look, False
        await masters.say([b"subscribe", masters.channel, 1])
        in_time = masters.subscription.look
        await masters.end()
        return early, in_time

    assert run(scene) == (False, True)


# -- a master that does not read -----------------------------------------------------------------------


def test_what_the_kernel_does_not_take_waits_and_keeps_its_order():
    async def scene(d):
        stop_reading(d, 0)
        connection, fake = d.connections.all[0], d.fakes[0]
        locks = await take(d, 200)
        assert connection.stuck
        assert connection.backlog
        await asyncio.gather(*(release(lock) for lock in locks[:100]))
        packets = len(fake.theirs.sent)
        rounds = d.loop.selector.rounds
        await asyncio.sleep(0.2)
        assert d.loop.selector.rounds - rounds < 5, "a full socket must not keep the loop busy"
        assert len(fake.theirs.sent) == packets
        read_again(d, 0)
        await d.drained(0)
        assert not connection.stuck
        for lock in locks[100:]:
            await lock.release()
        return [(call.script, call.name) for call in fake.heard]

    async def release(lock: Any) -> None:
        await lock.release()

    names = [f"redlock:job-{number}" for number in range(200)]
    assert run(scene) == [("acquire", name) for name in names] + [("release", name) for name in names]


def test_a_rollback_stands_behind_the_half_of_its_acquire_that_the_kernel_has_not_taken():
    """R10, R11."""

    async def scene(d):
        d.mute(1, 2, 3, 4)
        stop_reading(d, 0)
        tasks = [asyncio.create_task(d.masters.lock(f"job-{i}", ttl=10).acquire()) for i in range(100)]
        await d.quiet()
        assert d.connections.all[0].stuck
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert all(task.cancelled() for task in tasks)
        read_again(d, 0)
        await d.drained(0)
        return list(d.fakes[0].by_token().values())

    assert run(scene) == [["acquire", "release"]] * 100


# -- a master that lost the key, and says so after the majority (R14) ------------------------------------


async def extend_unheard(d: Deployment, count: int) -> list[Any]:
    """Of so many locks; the last master has lost their keys, and what it says of that is not read yet."""
    locks = await take(d, count)
    d.fakes[4].keys.clear()
    d.fakes[4].heard.clear()
    d.mute(4)
    for lock in locks:
        await lock.extend()
    await d.quiet()
    sends(d)
    return locks


def test_what_late_answers_ask_for_leaves_in_one_packet():
    async def scene(d):
        locks = await extend_unheard(d, TASKS)
        d.speak()
        await d.quiet()
        packets = sends(d)
        keys = dict(d.fakes[4].keys)
        heard = [(call.script, call.text) for call in d.fakes[4].heard]
        for lock in locks:
            await lock.release()
        await d.quiet()
        return packets, len(keys), heard

    assert run(scene) == ([0, 0, 0, 0, 1], TASKS, [("extend", False)] * TASKS + [("repair", False)] * TASKS)


@pytest.mark.parametrize(
    ("first", "then"), [("answer", ["extend", "repair", "release"]), ("release", ["extend", "release"])]
)
def test_the_release_is_the_last_one_whichever_comes_first(first, then):
    """P7, R10: the lease is over, or its release goes where the key was given back."""

    async def scene(d):
        [lock] = await extend_unheard(d, 1)
        token = lock.lease.token
        if first == "answer":
            d.speak()
            await d.quiet()
        await lock.release()
        d.speak()
        await d.quiet()
        return d.fakes[4].by_token()[token]

    assert run(scene) == then


def test_the_text_goes_only_to_who_has_forgotten_it():
    """A master that forgot its keys has mostly forgotten its scripts as well."""

    async def scene(d):
        d.fakes[4].forgot = True
        [lock] = await extend_unheard(d, 1)
        d.fakes[4].forgot = True
        d.speak()
        await d.quiet()
        heard = [(call.script, call.text) for call in d.fakes[4].heard]
        await lock.release()
        await d.quiet()
        return heard

    assert run(scene) == [("extend", False), ("repair", False), ("repair", True)]


# -- what is left --------------------------------------------------------------------------------------


def test_timers_do_not_pile_up():
    """asyncio keeps a cancelled timer until its time has come, or until most of many are cancelled."""

    async def scene(d):
        most = 0
        for _ in range(1000):
            await both(d, 1)
            most = max(most, len(d.loop.scheduled))
        return most, d.loop.timers

    most, timers = run(scene)
    assert most <= 3
    assert timers <= 3, "one alarm for all operations, the renewer's, and a look whether the masters have answered"


def test_many_that_wait_for_long_do_not_leave_their_alarms_behind():
    async def scene(d):
        holder = d.masters.lock("job", ttl=10)
        await holder.acquire()
        waiting = [asyncio.ensure_future(d.masters.lock("job", ttl=10).acquire(timeout=3600)) for _ in range(500)]
        await asyncio.sleep(0)
        for task in waiting:
            task.cancel()
        await asyncio.wait(waiting)
        await holder.release()
        left = len(d.loop.pending)
        await asyncio.sleep(3600)
        return left

    assert run(scene) <= 102


def test_an_operation_that_ends_at_once_needs_no_alarm_for_each_answer():
    async def scene(d):
        before = d.loop.timers
        lock = d.masters.lock("job", ttl=10)
        greater_fences(d)
        await lock.acquire()
        acquired = d.loop.timers - before
        await lock.release()
        return acquired

    assert run(scene) == 2  # its own, and that of the background: for the lease, and to see which masters answer


@pytest.mark.parametrize("held", [False, True])
def test_idle_it_does_nothing(held):
    """Connected, also while a lease is held: the loop sleeps."""

    async def scene(d):
        lock = d.masters.lock("job", ttl=10)
        await lock.acquire()
        if not held:
            await lock.release()
        await d.quiet()
        before = d.loop.selector.rounds
        await asyncio.sleep(0.3)
        rounds = d.loop.selector.rounds - before
        if held:
            await lock.release()
        return rounds

    assert run(scene) <= 3


def test_a_master_that_is_silent_costs_nothing_while_one_waits():
    async def scene(d):
        d.mute(0, 1, 2)
        work = asyncio.create_task(d.masters.lock("job", ttl=10).acquire(blocking=False))
        await d.quiet()
        before, began = d.loop.selector.rounds, d.clock.now
        with pytest.raises(QuorumUnreachable):
            await work
        return d.loop.selector.rounds - before, d.clock.now - began

    rounds, lasted = run(scene)
    assert rounds <= 3
    assert lasted == pytest.approx(NODE_TIMEOUT, abs=0.002)


def test_a_debt_is_paid_when_the_master_can_do_it_again():
    """R10: it is looked at ten times a second, and not at all once it is paid."""

    async def scene(d):
        lock = d.masters.lock("job", ttl=10)
        await lock.acquire()
        d.fakes[0].error = ErrorReply("BUSY Redis is busy running a script.")
        await lock.release()
        await asyncio.sleep(0.35)
        assert 3 <= d.fakes[0].by_token()[lock.lease.token].count("release") <= 5
        d.fakes[0].error = None
        await asyncio.sleep(0.15)
        assert not d.connections.owe()
        before = d.loop.selector.rounds
        await asyncio.sleep(1.0)
        return d.loop.selector.rounds - before

    assert run(scene) <= 3


def test_a_release_that_a_broken_connection_swallowed_is_the_first_on_the_next_one():
    async def scene(d):
        lock = d.masters.lock("job", ttl=10)
        await lock.acquire()
        d.hang_up(0)
        await lock.release()
        await d.quiet()
        assert d.connections.all[0].sock is None
        assert d.connections.owe()
        d.fakes[0].connect()
        d.attach(0)
        await d.quiet()
        return d.fakes[0].by_token()[lock.lease.token]

    assert run(scene) == ["acquire", "release"]


def test_a_burst_that_takes_longer_than_node_timeout_to_begin_is_answered_meanwhile():
    """Masters are processes of their own: they answer while our loop is still writing, and nobody reads."""

    async def scene(d):
        async def one(number: int) -> None:
            d.clock.advance(NODE_TIMEOUT / 100)
            for fake in d.fakes:
                fake.hear()
            lock = d.masters.lock(f"job-{number}", ttl=10, auto_extend=False)
            assert await lock.acquire(blocking=False) is not None
            await lock.release()

        await asyncio.gather(*map(one, range(400)))

    run(scene)


class Told:
    """An observer of masters that come up."""

    def __init__(self) -> None:
        self.up: list[tuple[str, float]] = []

    def hear(self, reports: Reports) -> list[tuple[str, float]]:
        """Of which masters ``reports`` say that they are up, and when their votes count."""
        self.up.clear()
        observer: Any = self
        for _, _, tell in reports:
            if tell is not None:
                tell(observer)
        return self.up.copy()

    def master_up(self, master: str, quarantined: float) -> None:
        self.up.append((master, quarantined))

    def master_down(self, master: str, reason: str) -> None:
        pass


def test_what_one_master_says_may_change_the_votes_of_others_and_is_told():
    """C16: the second address of a server, whichever was connected first."""

    async def scene(d: Deployment) -> None:
        told = Told()
        for number in (0, 1):
            d.hang_up(number)
        await d.quiet()
        for number in (1, 0):
            d.fakes[number].connect()
            d.loop.add_reader(d.fakes[number].sock, d.fakes[number].hear)
            d.connections.keep(d.fakes[number].theirs)
            d.clock.advance(1.0)
            reports = d.connections.attach(
                d.connections.all[number], d.fakes[number].theirs, Facts("the same", 10**6), d.clock.now
            )
            if number:
                assert told.hear(reports) == [("fake-1:6379", 0.0)]
            else:
                assert told.hear(reports) == [("fake-0:6379", 0.0), ("fake-1:6379", math.inf)]
                assert "master fake-1:6379 is the same server as fake-0:6379" in reports[1][1]

    run(scene)
