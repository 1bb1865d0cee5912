"""One operation on an event loop, and what a cancellation does to it: `redlock/_io/operation_async.py`."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import itertools
import socket
from typing import TYPE_CHECKING, Any
from unittest import mock

import pytest

from redlock import RedlockError
from redlock._core import wire
from redlock._core.effects import Send, Timeout, Wait
from redlock._io.operation_async import Operation
from tests.asyncio.virtual import (
    MASTERS,
    NODE_TIMEOUT,
    OTHER,
    START,
    Deployment,
    Fake,
    Question,
    Stuck,
    asks,
    run,
    stop_reading,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from redlock._core.effects import Op

TAKING = ("acquire", "fence", "extend", "repair")
ALL = tuple(range(MASTERS))


# -- scenes: what trouble there is, before the operation begins ------------------------------------------


def all_well(d: Deployment) -> None:
    pass


def held(d: Deployment) -> None:
    """By somebody else, and so we wait between attempts."""
    for fake in d.fakes:
        fake.keys["redlock:job"] = OTHER
    d.loop.call_later(0.3, given_back, d)


def given_back(d: Deployment) -> None:
    for fake in d.fakes:
        if fake.keys.get("redlock:job") == OTHER:
            del fake.keys["redlock:job"]


def greater_fence(d: Deployment) -> None:
    for fake in d.fakes:
        fake.fences["redlock:job"] = 2**51


def minority_mute(d: Deployment) -> None:
    d.mute(0, 1)


def majority_mute(d: Deployment) -> None:
    d.mute(0, 1, 2)


def minority_down(d: Deployment) -> None:
    d.hang_up(0)
    d.hang_up(1)


def scripts_forgotten(d: Deployment) -> None:
    for fake in d.fakes:
        fake.forgot = True


def back(d: Deployment, number: int) -> None:
    """One that had hung up."""
    d.fakes[number].connect()
    d.attach(number)


def key_missing(d: Deployment) -> None:
    for fake in d.fakes[:2]:
        fake.keys.pop("redlock:job", None)


SCENES = [all_well, greater_fence, minority_mute, majority_mute, minority_down, scripts_forgotten]


# -- cancelled at every effect ---------------------------------------------------------------------------


class Spy:
    """Cancels the task that runs an operation when that yields its ``at``-th effect."""

    def __init__(self, d: Deployment, lock: Any, at: int) -> None:
        self.count = 0
        self.struck_at: float | None = None
        self._d = d
        self._at = at
        self._runtime = lock._runtime
        self._run = lock._runtime.run

    def __enter__(self) -> None:
        self._runtime.run = self._spied

    def __exit__(self, *_: object) -> None:
        self._runtime.run = self._run

    async def _spied(self, op: Op[Any], *undo: Any) -> Any:
        self._task = asyncio.current_task()
        return await self._run(self._around(op), *undo)

    def _around(self, op: Op[Any]) -> Op[Any]:
        step: Callable[[Any], Any] = op.send
        argument: Any = None
        while True:
            try:
                effect = step(argument)
            except StopIteration as stop:
                return stop.value
            self.count += 1
            if self.count == self._at:
                self.struck_at = self._d.clock.now
                assert self._task is not None
                self._task.cancel()
            try:
                argument = yield effect
                step = op.send
            except GeneratorExit:
                op.close()
                raise
            except BaseException as error:  # noqa: BLE001 - as every driver does
                step, argument = op.throw, error


def released_everywhere(d: Deployment) -> None:
    """Whatever a master heard of a token that sets a key, it heard the release last (R10)."""
    for fake, connection in zip(d.fakes, d.connections.all, strict=True):
        for token, asked in fake.by_token().items():
            if connection.sock is not None and any(verb in TAKING for verb in asked):
                assert asked[-1] == "release", (token, asked)


async def cancelled_at(d: Deployment, at: int, what: str, scene: Callable[[Deployment], None]) -> bool:
    """Cancel ``what`` at its ``at``-th effect; False if there are not so many."""
    lock = d.masters.lock("job", ttl=10, timeout=1.0)
    spy = Spy(d, lock, at)

    async def work() -> None:
        if what != "acquire":
            assert await lock.acquire()
        scene(d)
        await d.quiet()  # the connections know who is down
        try:
            with spy, contextlib.suppress(RedlockError):
                await getattr(lock, what)()
        finally:
            late = 0.0 if spy.struck_at is None else d.clock.now - spy.struck_at
            assert late == 0, "the cleanup waits for something"
            if lock.owned():  # extended, or acquired without an effect to be cancelled at
                await lock.release()

    task = asyncio.create_task(work())
    try:
        await task
    except asyncio.CancelledError:
        assert spy.struck_at is not None
    else:
        assert spy.struck_at is None, "the cancellation was swallowed"
    assert not d.connections.operations
    await d.quiet()
    released_everywhere(d)
    return spy.struck_at is not None


@pytest.mark.parametrize("scene", [*SCENES, held])
def test_acquire_cancelled_at_every_effect(scene):
    assert effects("acquire", scene) >= 1


@pytest.mark.parametrize("scene", [*SCENES, key_missing])
def test_extend_cancelled_at_every_effect(scene):
    assert effects("extend", scene) >= 2


@pytest.mark.parametrize("scene", [*SCENES, key_missing])
def test_release_cancelled_at_every_effect(scene):
    assert effects("release", scene) >= 1


def effects(what: str, scene: Callable[[Deployment], None]) -> int:
    """Until there is no such effect any more; returns how many there were."""
    at = 1
    while True:

        async def once(d: Deployment, at: int = at) -> bool:
            struck = await cancelled_at(d, at, what, scene)
            if scene is held:
                await asyncio.sleep(0.3)  # until it is given back
            for number in (0, 1):
                if d.connections.all[number].sock is None:  # what it is owed is sent when it is back
                    back(d, number)
            await d.quiet()
            d.speak()
            await d.quiet()
            released_everywhere(d)
            return struck

        if not run(once):
            return at - 1
        at += 1


# -- cancelled in the moments between ---------------------------------------------------------------------


def after_reading(d: Deployment, number: int, action: Callable[[], object]) -> None:
    """Do ``action`` in the tick, and right after the callback, in which the ``number``-th answers are read."""
    seen = 0
    connections, read_ready = d.connections, d.connections.read_ready

    def counting(ready: Any, now: float) -> None:
        nonlocal seen
        seen += len(ready)
        read_ready(ready, now)

    def reading(fd: int) -> None:
        before = seen
        connections._readable(fd)
        if before < number <= seen:
            action()  # behind the step of the operation, in front of the wake-up of the task

    connections.read_ready = counting  # type: ignore[method-assign]
    epoll = connections._epoll
    for fd in [connection.fd for connection in connections.all] if epoll is None else [epoll.fileno()]:
        d.loop.add_reader(fd, reading, fd)


@pytest.mark.parametrize("apart", [True, False])
@pytest.mark.parametrize("answers", range(1, MASTERS + 1))
@pytest.mark.parametrize("what", ["acquire", "extend", "release"])
def test_cancelled_in_the_tick_of_an_answer(what, answers, apart):
    """With the third one the operation is over, and a grant is won that nobody has yet (R11).

    If they do not come ``apart`` it is over at the end of the tick, whichever of them was the moment.
    """
    left: list[float] = []

    async def scene(d):
        lock = d.masters.lock("job", ttl=10)

        async def work() -> None:
            if what != "acquire":
                await lock.acquire()
                await asyncio.sleep(1)  # the stragglers have answered
            after_reading(d, answers, task.cancel)
            if apart:
                d.mute(*ALL)
                for number, fake in enumerate(d.fakes):
                    d.loop.call_later((number + 1) / 100, fake.say)
            try:
                await getattr(lock, what)()
                await asyncio.sleep(1)  # for a cancellation that finds it over already
            finally:
                d.speak()
                if lock.owned():  # extended; or it came after all
                    left.append(lock.lease.remaining())
                    await lock.release()

        task = asyncio.create_task(work())
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.sleep(0.1)  # until all have said what they are to say
        return [list(fake.by_token().values()) for fake in d.fakes]

    for asked in run(scene):
        (verbs,) = asked
        released = verbs.index("release")
        assert verbs[:released] == ["acquire", "extend"][: 2 if what == "extend" else 1]
        assert set(verbs[released:]) == {"release"}
    if what == "extend":  # R13: it has what it had, or what it won
        extended = answers >= 3 or not apart
        assert (left[0] > 9) == extended


@pytest.mark.parametrize("used", [False, True])
def test_a_grant_that_its_caller_never_gets_is_not_kept_from_others(used):
    """R28 begins when `acquire` returns: nothing was done under that lock, and nothing of it is left (R11)."""

    async def scene(d):
        lock = d.masters.lock("job", ttl=10, hold_at_least=5)

        async def work() -> None:
            if not used:
                after_reading(d, MASTERS, task.cancel)
            async with lock:
                task.cancel()
                await asyncio.sleep(1)

        task = asyncio.create_task(work())
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.sleep(0.1)
        return [[heard.args for heard in fake.heard if heard.script == "release"] for fake in d.fakes]

    for ((_, *keeps),) in run(scene):
        assert keeps == (["5052"] if used else [])


def test_cancelled_before_the_answers_of_that_tick_are_read():
    async def scene(d):
        d.mute(*ALL)
        task = asyncio.create_task(d.masters.lock("job", ttl=10).acquire())
        await d.quiet()
        d.speak()  # it is in the sockets
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await d.quiet()
        return [list(fake.by_token().values()) for fake in d.fakes]

    assert run(scene) == [[["acquire", "release"]]] * MASTERS


def test_cancelled_before_anything_was_sent():
    """In the very tick in which it was started: nothing leaves at all, or both do."""

    async def scene(d):
        task = asyncio.create_task(d.masters.lock("job", ttl=10).acquire())
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await d.quiet()
        return [fake.heard for fake in d.fakes]

    assert run(scene) == [[]] * MASTERS


def test_cancelled_while_it_waits_for_the_connections():
    async def scene(d):
        driver = d.driver
        driver.ready.clear()
        driver._looks = itertools.repeat(1.0)  # somebody else has begun to connect
        task = asyncio.create_task(d.masters.lock("job", ttl=10).acquire())
        await d.quiet()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        driver.ready.set()
        await d.quiet()
        return [fake.heard for fake in d.fakes]

    assert run(scene) == [[]] * MASTERS


def test_cancelled_by_a_timeout():
    """`asyncio.timeout` runs out at the very moment at which the operation would have ended by itself."""

    async def scene(d):
        d.mute(0, 1, 2)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(NODE_TIMEOUT):
                await d.masters.lock("job", ttl=10).acquire()
        await d.quiet()
        return [list(fake.by_token().values()) for fake in d.fakes]

    assert run(scene) == [[["acquire", "release"]]] * MASTERS


def test_cancelled_again_and_again():
    async def scene(d):
        d.mute(*ALL)
        task = asyncio.create_task(d.masters.lock("job", ttl=10).acquire())
        await d.quiet()
        for _ in range(5):
            task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await d.quiet()
        return [list(fake.by_token().values()) for fake in d.fakes]

    assert run(scene) == [[["acquire", "release"]]] * MASTERS


# -- thrown away -------------------------------------------------------------------------------------------


async def begun(d: Deployment, what: str) -> Any:
    """A coroutine that is suspended in the middle of ``what``."""
    lock = d.masters.lock("job", ttl=10)
    if what != "acquire":
        await lock.acquire()
        await d.quiet()
    d.mute(*ALL)
    coroutine = getattr(lock, what)()
    coroutine.send(None)
    await d.quiet()
    return coroutine


@pytest.mark.parametrize("what", ["acquire", "release"])
def test_a_coroutine_that_is_closed_is_rolled_back(what):
    async def scene(d):
        coroutine = await begun(d, what)
        packets = [len(fake.theirs.sent) for fake in d.fakes]
        coroutine.close()
        assert [len(fake.theirs.sent) - before for fake, before in zip(d.fakes, packets, strict=True)] == [1] * 5
        await d.quiet()
        return [next(iter(fake.by_token().values()))[-1] for fake in d.fakes]

    assert run(scene) == ["release"] * MASTERS


def test_a_coroutine_that_is_closed_before_its_request_has_left():
    """In the tick in which it was written: both leave, in one packet and in order."""

    async def scene(d):
        other = d.masters.lock("other", ttl=10, bound=False)
        first = asyncio.ensure_future(other.acquire())
        await asyncio.sleep(0)  # an operation that is alone does not wait for the end of the tick
        before = [len(fake.theirs.sent) for fake in d.fakes]
        coroutine = d.masters.lock("job", ttl=10).acquire()
        coroutine.send(None)
        assert [len(fake.theirs.sent) for fake in d.fakes] == before
        coroutine.close()
        assert [len(fake.theirs.sent) - was for fake, was in zip(d.fakes, before, strict=True)] == [1] * MASTERS
        await first
        await other.release()
        await d.quiet()
        return [list(fake.by_token().values()) for fake in d.fakes]

    assert run(scene) == [[["acquire", "release"]] * 2] * MASTERS


def test_a_hold_of_nobody_in_particular_needs_no_task():
    """Anything may step its coroutine, as long as a loop runs: there is no task to end it, or to be cancelled."""

    async def scene(d):
        lock = d.masters.lock("job", ttl=10, bound=False, cancel_on_loss=False)
        stepped = asyncio.get_running_loop().create_future()

        def step(coroutine: Any) -> None:
            try:
                awaited = coroutine.send(None)
            except StopIteration as stop:
                stepped.set_result(stop.value)
            else:
                awaited.add_done_callback(lambda _: step(coroutine))

        d.loop.call_soon(step, lock.acquire())
        lease = await stepped
        assert lease.valid
        await lock.release()

    run(scene)


def test_an_operation_that_is_alone_has_left_when_its_coroutine_is_closed():
    async def scene(d):
        coroutine = d.masters.lock("job", ttl=10).acquire()
        coroutine.send(None)
        assert [len(fake.theirs.sent) for fake in d.fakes] == [1] * MASTERS
        coroutine.close()
        await d.quiet()
        return [list(fake.by_token().values()) for fake in d.fakes]

    assert run(scene) == [[["acquire", "release"]]] * MASTERS


@pytest.mark.parametrize("how", ["closed", "collected"])
@pytest.mark.parametrize("what", ["acquire", "release"])
def test_a_coroutine_that_outlives_its_loop_is_rolled_back(what, how):
    """The sockets are open as long as the masters are (R11).  No warning, as those are errors here."""
    fakes: list[Fake] = []
    kept: list[Any] = []

    async def scene(d):
        fakes.extend(d.fakes)
        kept.append(await begun(d, what))
        kept.append(d)
        for fake in d.fakes:
            d.loop.remove_reader(fake.sock)

    run(scene, tidy=False)
    coroutine, d = kept
    kept.clear()
    assert d.loop.is_closed()
    if how == "closed":
        coroutine.close()
    del coroutine
    gc.collect()
    for fake in fakes:
        fake.hear()
    assert [next(iter(fake.by_token().values()))[-1] for fake in fakes] == ["release"] * MASTERS
    assert not d.connections.operations
    d.driver.shut()
    for fake in fakes:
        fake.sock.close()
    gc.collect()


def test_a_coroutine_that_outlives_its_loop_while_a_master_does_not_read():
    """No loop will say that there is room again.  The look at the exit of the interpreter sends the rest."""

    async def scene(d):
        stop_reading(d, 0)
        # Not more: the kernels of the others have to take all of it before anybody reads.
        locks = [d.masters.lock(f"job-{number}", ttl=10) for number in range(100)]
        coroutines = [lock.acquire() for lock in locks]
        d.mute(1, 2, 3, 4)
        for coroutine in coroutines:
            coroutine.send(None)
        for fake in d.fakes:
            d.loop.remove_reader(fake.sock)
        return d, coroutines

    d, coroutines = run(scene, tidy=False)
    for coroutine in coroutines:
        coroutine.close()
    assert d.connections.all[0].stuck
    for fake in d.fakes[1:]:
        fake.hear()
        assert list(fake.by_token().values()) == [["acquire", "release"]] * 100
    slow = d.fakes[0]
    slow.reads = True
    for _ in range(1000):
        d.connections.look()
        slow.hear()
    assert list(slow.by_token().values()) == [["acquire", "release"]] * 100
    d.driver.shut()
    for fake in d.fakes:
        fake.sock.close()


def test_masters_that_are_dropped_send_what_is_to_be_rolled_back_first():
    """Without a tick in between: there may be none."""

    async def scene(d):
        d.mute(*ALL)
        task = asyncio.create_task(d.masters.lock("job", ttl=10).acquire())
        await d.quiet()
        d.driver.shut()
        with pytest.raises(RedlockError):
            await task
        await d.quiet()
        heard = [list(fake.by_token().values()) for fake in d.fakes]
        d.shut()
        return heard

    assert run(scene, tidy=False) == [[["acquire", "release"]]] * MASTERS


def test_a_coroutine_that_is_thrown_away_after_the_masters_were_closed():
    async def scene(d):
        coroutine = await begun(d, "acquire")
        await d.masters.close()
        await d.quiet()
        heard = [list(fake.by_token().values()) for fake in d.fakes]
        coroutine.close()
        d.shut()
        return heard

    assert run(scene, tidy=False) == [[["acquire", "release"]]] * MASTERS


def test_closing_the_masters_ends_what_is_under_way():
    """Each is rolled back, and told; `close` gives the masters `node_timeout` to confirm."""

    async def scene(d):
        d.mute(*ALL)
        tasks = [asyncio.create_task(d.masters.lock(f"job-{number}").acquire()) for number in range(3)]
        await d.quiet()
        began = d.clock.now
        await d.masters.close()
        lasted = d.clock.now - began
        results = await asyncio.gather(*tasks, return_exceptions=True)
        heard = [sorted(fake.by_token().values()) for fake in d.fakes]
        d.shut()
        return lasted, [type(result) for result in results], heard

    lasted, results, heard = run(scene, tidy=False)
    assert NODE_TIMEOUT <= lasted < NODE_TIMEOUT + 0.02
    assert results == [RedlockError] * 3
    assert heard == [[["acquire", "release"]] * 3] * MASTERS


# -- steps and alarms ----------------------------------------------------------------------------------------


def waits(until: float) -> Op[Any]:
    return (yield Wait(until))


async def outcome(d: Deployment, op: Op[Any]) -> Any:
    operation = Operation(op, d.connections)
    operation.start()
    return await operation.ended


def test_an_alarm_rings_in_time():
    async def scene(d):
        until = d.clock.now + 0.2
        event = await outcome(d, waits(until))
        return type(event), event.at - until

    kind, late = run(scene)
    assert kind is Timeout
    assert 0 <= late < 0.002


@pytest.fixture
def steps():
    """How many events there were, whenever an operation was stepped."""
    steps: list[int] = []
    step = Operation.step

    def counted(operation: Operation[Any]) -> None:
        steps.append(len(operation.events))
        step(operation)

    with mock.patch.object(Operation, "step", counted):
        yield steps


def test_who_asks_is_stepped_once_it_is_decided(steps):
    """Not for every answer: they are counted where they arrive.  What comes then is counted no more."""

    async def scene(d):
        d.mute(3, 4)
        question = Question(3)
        event = await outcome(d, asks(question, d.clock.now + 0.2))
        d.speak()
        await d.quiet()
        return event is question, sorted(question.answers), d.clock.now

    assert run(scene) == (True, [0, 1, 2], START)
    assert steps == [1]


def test_who_asks_is_stepped_at_its_time_if_it_is_not_decided(steps):
    """What has come until then is counted."""

    async def scene(d):
        d.mute(3, 4)
        question = Question(5)
        event = await outcome(d, asks(question, d.clock.now + 0.2))
        question.open = False  # a round does that itself, whatever ended it
        return event, sorted(question.answers)

    event, answers = run(scene)
    assert isinstance(event, Timeout)
    assert event.at - START == pytest.approx(0.2, abs=0.002)
    assert answers == [0, 1, 2]
    assert steps == []


def test_answers_that_wait_in_the_sockets_when_the_time_is_over_are_counted():
    """The loop has not come to them yet: there is no `Timeout` for who has been answered."""

    async def scene(d):
        d.mute(*ALL)
        question = Question(3)
        operation = Operation(asks(question, d.clock.now + 0.2), d.connections)
        operation.start()
        await d.quiet()
        d.clock.advance(0.2)
        d.speak()
        assert not question.answers
        operation.on_alarm()
        return operation.ended.result() is question, question.answers

    assert run(scene) == (True, [0, 1, 2])


def test_answers_are_counted_though_the_time_was_over_before_anybody_waited():
    """The caller took that time until then; the masters did not."""

    def op(d: Deployment, question: Question) -> Op[Any]:
        asking = asks(question, START + 0.2)
        yield next(asking)
        d.clock.advance(0.3)
        for fake in d.fakes:
            fake.hear()
        return (yield from asking)

    async def scene(d):
        question = Question(3)
        return await outcome(d, op(d, question)) is question, question.answers

    assert run(scene) == (True, [0, 1, 2])


def test_masters_that_are_down_are_no_events():
    """It is told of them while it sends, and looks itself at whether that decides (R2)."""

    async def scene(d):
        for number in (0, 1, 2):
            d.hang_up(number)
        await d.quiet()
        d.mute(3, 4)
        question = Question(4)
        event = await outcome(d, asks(question, d.clock.now + 0.2))
        result = type(event), question.failures, question.open
        for number in (0, 1, 2):
            back(d, number)
        return result

    kind, failures, still_open = run(scene)
    assert kind is Timeout
    assert len(failures) == 3
    assert not still_open  # the timeout closed it


def test_a_connection_that_breaks_decides_as_an_answer_does(steps):
    async def scene(d):
        d.mute(*ALL)
        question = Question(2)
        work = asyncio.ensure_future(outcome(d, asks(question, d.clock.now + 0.2)))
        await d.quiet()
        for number in (0, 1, 2):
            d.hang_up(number)
        result = await work is question, question.failures, d.clock.now
        for number in (0, 1, 2):
            back(d, number)
        return result

    assert run(scene) == (True, ["connection lost: the master closed the connection"] * 2, START)
    assert steps == [1]


def test_an_operation_that_forgot_its_question_is_told_no_more():
    """Of a `Send` that is not `open`, nobody counts anything."""

    def op() -> Op[Any]:
        question = Question(3)
        question.open = False
        yield question
        return (yield Wait(START + 0.2)), question

    async def scene(d):
        event, question = await outcome(d, op())
        return type(event), question.answers, all(connection.pipeline.idle for connection in d.connections.all)

    assert run(scene) == (Timeout, [], True)


@pytest.mark.parametrize("rate", [0.5, 2.0])
def test_the_clock_of_the_loop_need_not_be_ours(rate):
    """R5: it is ours that counts.  An alarm that is too early is set anew, and does not ring on and on."""

    async def scene(d):
        d.clock.rate = rate
        rounds, until = d.loop.selector.rounds, d.clock.now + 0.2
        event = await outcome(d, waits(until))
        return event.at - until, d.loop.selector.rounds - rounds

    late, rounds = run(scene)
    # A clock of the loop that is slow makes alarms late, and what is late is excused once.
    assert 0 <= late < (0.01 if rate > 1 else 0.7)
    assert rounds < 30


def test_a_time_that_has_passed_is_not_waited_for():
    async def scene(d):
        rounds = d.loop.timers
        event = await outcome(d, waits(d.clock.now))
        return type(event), d.loop.timers - rounds

    assert run(scene) == (Timeout, 0)


def test_waits_that_grow_share_one_alarm():
    def op(now: float) -> Op[int]:
        for count in range(50):
            question = Question(MASTERS)
            assert (yield from asks(question, now + 1.0 + count)) is question
        return 50

    async def scene(d):
        before = d.loop.timers
        assert await outcome(d, op(d.clock.now)) == 50
        return d.loop.timers - before

    assert run(scene) == 2  # the other one is a look whether the masters have answered


def test_what_an_operation_raises_goes_to_its_caller():
    def op() -> Op[None]:
        yield Wait(0.0)
        raise ZeroDivisionError

    async def scene(d):
        with pytest.raises(ZeroDivisionError):
            await outcome(d, op())

    run(scene)


def test_an_operation_on_masters_that_were_closed_decides_itself_how_to_unwind():
    seen: list[BaseException] = []

    def op() -> Op[str]:
        try:
            yield Send(wire.status("redlock:job"))
        except RedlockError as error:
            seen.append(error)
        return "unwound"

    async def scene(d):
        await d.masters.close()
        d.shut()
        return await outcome(d, op())

    assert run(scene, tidy=False) == "unwound"
    assert len(seen) == 1


def test_an_operation_that_wants_to_wait_though_it_was_interrupted_is_closed():
    """None of ours does; nobody would ever wake it."""
    closed: list[bool] = []

    def op() -> Op[None]:
        try:
            try:
                yield Wait(float("inf"))
            except ValueError:
                yield Wait(float("inf"))
        finally:
            closed.append(True)

    async def scene(d):
        operation = Operation(op(), d.connections)
        operation.start()
        assert not operation.over
        operation.interrupt(ValueError())
        assert operation.over
        operation.interrupt(ValueError())  # it is over: nothing happens
        operation.ended.cancel()

    run(scene)
    assert closed == [True]


@pytest.mark.parametrize("where", ["_end", "_ended"])
def test_a_signal_handler_that_raises_at_the_end_takes_no_result_away(monkeypatch, where):
    """R11: whoever waits for what was granted has to learn it, or nobody releases it."""
    real = getattr(Operation, where)
    raised: list[bool] = []

    def interrupted(operation, *result):
        if not raised:
            raised.append(True)
            raise TimeoutError
        real(operation, *result)

    monkeypatch.setattr(Operation, where, interrupted)

    def op() -> Op[str]:
        yield Wait(0.0)
        return "granted"

    async def scene(d):
        operation = Operation(op(), d.connections)
        with pytest.raises(TimeoutError):  # for whoever stepped it
            operation.start()
        assert operation.over
        return await operation.ended

    assert run(scene) == "granted"


def test_ctrl_c_inside_of_a_step_is_for_whoever_runs_the_loop():
    """As asyncio does with its own callbacks; and nothing of the operation is left."""
    left: list[Deployment] = []

    def op() -> Op[None]:
        yield Wait(0.0)
        yield from asks(Question(1), float("inf"))
        raise KeyboardInterrupt

    async def scene(d):
        left.append(d)
        operation = Operation(op(), d.connections)
        operation.start()
        with contextlib.suppress(KeyboardInterrupt):
            await operation.ended

    with pytest.raises(KeyboardInterrupt):
        run(scene, tidy=False)
    (d,) = left
    assert not d.connections.operations


# -- the world of these tests ----------------------------------------------------------------------------------


def test_a_test_that_hangs_says_so():
    async def scene(d):
        await asyncio.get_running_loop().create_future()

    with pytest.raises(Stuck):
        run(scene, tidy=False)


def test_a_pair_of_sockets_delivers_at_once():
    """What the jump of the clock relies on: what was sent can be read, without any time between."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.setblocking(False)
        ours.send(b"x")
        assert theirs.recv(1) == b"x"


def test_a_renewal_that_close_breaks_off_is_no_failure(caplog):
    """Also while close waits for what is owed, with the connections still open."""

    async def scene(d: Deployment) -> None:
        await d.masters.lock("job", ttl=0.9).acquire()
        other = d.masters.lock("other", ttl=5, bound=False)
        await other.acquire()
        d.mute(*ALL)
        await asyncio.sleep(0.25)
        releasing = asyncio.ensure_future(other.release())
        while len(d.connections.operations) < 2:  # the release, and the renewal of the first  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        await d.masters.close()
        with pytest.raises(RedlockError, match="closed"):
            await releasing
        d.shut()

    run(scene, tidy=False)
    assert not caplog.records
