"""One operation on an event loop, and what a cancellation does to it: `redlock/_io/host_async.py`."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import itertools
import socket
from typing import TYPE_CHECKING, Any

import pytest

from redlock import RedlockError
from redlock._core import wire
from redlock._core.effects import Send, Wait
from redlock._io.host_async import Operation
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
        fake.put("redlock:job", OTHER)
    d.loop.call_later(0.3, given_back, d)


def given_back(d: Deployment) -> None:
    for fake in d.fakes:
        if fake.keys.get("redlock:job") == OTHER:
            fake.put("redlock:job", None)


def greater_fence(d: Deployment) -> None:
    for fake in d.fakes:
        fake.put("{redlock:job}:fence", str(2**51))


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
        fake.put("redlock:job", None)


SCENES = [all_well, greater_fence, minority_mute, majority_mute, minority_down, scripts_forgotten]


# -- cancelled in any turn of the loop -------------------------------------------------------------------


def released_everywhere(d: Deployment) -> None:
    """Whatever a master heard of a token that sets a key, it heard the release last (R10)."""
    for fake, connection in zip(d.fakes, d.connections.all, strict=True):
        for token, asked in fake.by_token().items():
            if connection.sock is not None and any(verb in TAKING for verb in asked):
                assert asked[-1] == "release", (token, asked)


async def cancelled_in(d: Deployment, turn: int, times: int, what: str, scene: Callable[[Deployment], None]) -> bool:
    """Cancel ``what`` so many ``times`` when its ``turn`` begins; False if there are not so many."""
    lock = d.masters.lock("job", ttl=10, timeout=1.0)
    struck_at: list[float] = []

    def strike() -> None:
        struck_at.append(d.clock.now)
        for _ in range(times):
            task.cancel()

    async def work() -> None:
        if what != "acquire":
            assert await lock.acquire()
        scene(d)
        await d.quiet()  # the connections know who is down
        d.loop.selector.strike(turn, strike)
        try:
            with contextlib.suppress(RedlockError):
                await getattr(lock, what)()
        finally:
            d.loop.selector.strike(0, strike)
            assert not struck_at or d.clock.now == struck_at[0], "the cleanup waits for something"
            if lock.owned():  # extended, or acquired before it was cancelled
                await lock.release()

    task = asyncio.create_task(work())
    try:
        await task
    except asyncio.CancelledError:
        assert struck_at
    else:
        assert not struck_at, "the cancellation was swallowed"
    assert not d.host.operations
    if scene is held:
        await asyncio.sleep(0.3)  # until it is given back
    for number in (0, 1):
        if d.connections.all[number].sock is None:  # what it is owed is sent when it is back
            back(d, number)
    await d.quiet()
    d.speak()
    await d.quiet()
    released_everywhere(d)
    return bool(struck_at)


@pytest.mark.parametrize(("what", "times", "scene"), [
    *(("acquire", times, scene) for times in (1, 5) for scene in (*SCENES, held)),
    *((what, 1, scene) for what in ("extend", "release") for scene in (*SCENES, key_missing)),
])  # fmt: skip
def test_cancelled_in_any_turn(what, times, scene):
    """R11: once, or again and again; and by a timeout that runs out when it would have ended by itself."""
    turn = 1
    while run(lambda d: cancelled_in(d, turn, times, what, scene)):  # noqa: B023 - at once
        turn += 1
    assert turn > 1


# -- cancelled in the moments between ---------------------------------------------------------------------


def after_reading(d: Deployment, number: int, action: Callable[[], object]) -> None:
    """Do ``action`` in the tick, and right after the callback, in which the ``number``-th answers are read."""
    seen = 0
    host, connections, read_ready = d.host, d.connections, d.connections.read_ready

    def counting(ready: Any, now: float) -> None:
        nonlocal seen
        seen += len(ready)
        read_ready(ready, now)

    def reading(fd: int) -> None:
        before = seen
        host._readable(fd)
        if before < number <= seen:
            action()  # behind the step of the operation, in front of the wake-up of the task

    connections.read_ready = counting  # type: ignore[method-assign]
    epoll = host._epoll
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
        for fake in d.fakes:
            fake.put("redlock:job", None)
        return [[heard.args for heard in fake.heard if heard.script == "release"] for fake in d.fakes]

    for ((_, *keeps),) in run(scene):
        assert keeps == (["5052"] if used else [])


def test_cancelled_while_it_waits_for_the_connections():
    async def scene(d):
        driver = d.driver
        driver.ready.clear()
        driver._until_ready = itertools.repeat(1.0)  # somebody else has begun to connect
        task = asyncio.create_task(d.masters.lock("job", ttl=10).acquire())
        await d.quiet()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        driver.ready.set()
        await d.quiet()
        return [fake.heard for fake in d.fakes]

    assert run(scene) == [[]] * MASTERS


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


def packets(d: Deployment) -> list[int]:
    """How many each master was ever sent."""
    return [len(fake.theirs.sent) for fake in d.fakes]


@pytest.mark.parametrize("when", ["acquire", "release", "at once", "in the tick of others"])
def test_a_coroutine_that_is_closed_is_rolled_back(when):
    """In one packet, behind what it asked for."""

    async def scene(d):
        other = d.masters.lock("other", ttl=10, bound=False)
        first: asyncio.Future[Any] | None = None
        if when in ("acquire", "release"):
            coroutine = await begun(d, when)
        else:
            if when == "in the tick of others":
                first = asyncio.ensure_future(other.acquire())
            await asyncio.sleep(0)  # an operation that is alone does not wait for the end of the tick
            before = packets(d)
            coroutine = d.masters.lock("job", ttl=10).acquire()
            coroutine.send(None)
            assert (packets(d) == before) == bool(first)
        before = packets(d)
        coroutine.close()
        assert packets(d) == before  # the collector may do that in the middle of what the loop writes
        await asyncio.sleep(0)
        assert [now - was for now, was in zip(packets(d), before, strict=True)] == [1 + bool(first)] * MASTERS
        if first is not None:
            await first
            await other.release()
        await d.quiet()
        return [asked[-1] for fake in d.fakes for asked in fake.by_token().values()]

    assert set(run(scene)) == {"release"}


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
    assert not d.host.operations
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
    assert d.connections.all[0].backlog
    for fake in d.fakes[1:]:
        fake.hear()
        assert list(fake.by_token().values()) == [["acquire", "release"]] * 100
    slow = d.fakes[0]
    slow.reads = True
    for _ in range(1000):
        d.host.read_all()
        slow.hear()
    assert list(slow.by_token().values()) == [["acquire", "release"]] * 100
    d.driver.shut()
    for fake in d.fakes:
        fake.sock.close()


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
    operation = Operation(op, d.host)
    operation.start()
    return await operation.future


LOST = ["connection lost: the master closed the connection"]


@pytest.mark.parametrize(("mute", "down", "breaks", "need", "decides", "answers"), [
    pytest.param((3, 4), (), (), 3, True, [0, 1, 2], id="answers-decide"),
    pytest.param((3, 4), (), (), 5, False, [0, 1, 2], id="too-few-answers-in-time"),
    # It is told of them while it sends, and looks itself at whether that decides (R2).
    pytest.param((3, 4), (0, 1, 2), (), 4, False, [], id="masters-that-are-down-are-no-events"),
    pytest.param(ALL, (), (0, 1, 2), 2, True, [], id="connections-that-break-decide-as-answers-do"),
])  # fmt: skip
def test_who_asks_goes_on_once_it_is_decided_or_at_its_time(mute, down, breaks, need, decides, answers):
    """Not for every answer: they are counted where they arrive.  What comes then is counted no more."""

    async def scene(d):
        for number in down:
            d.hang_up(number)
        await d.quiet()
        d.mute(*mute)
        question = Question(need)
        work = asyncio.ensure_future(outcome(d, asks(question, d.clock.now + 0.2)))
        await d.quiet()
        for number in breaks:
            d.hang_up(number)
        event, ended_at = await work, d.clock.now
        assert not question.open
        for number in (*down, *breaks):
            back(d, number)
        d.speak()
        await d.quiet()
        return event is question, ended_at - START, sorted(question.answers), question.failures

    decided, took, answered, failures = run(scene)
    assert decided is decides
    assert took == pytest.approx(0.0 if decides else 0.2, abs=0.002)
    assert answered == answers
    assert len(failures) == len(down) or failures == LOST * need


def test_answers_that_wait_in_the_sockets_when_the_time_is_over_are_counted():
    """The loop has not come to them yet: there is no `Timeout` for who has been answered."""

    async def scene(d):
        d.mute(*ALL)
        question = Question(3)
        operation = Operation(asks(question, d.clock.now + 0.2), d.host)
        operation.start()
        await d.quiet()
        d.clock.advance(0.2)
        d.speak()
        assert not question.answers
        operation.on_alarm()
        return operation.future.result() is question, question.answers

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
        operation = Operation(op(), d.host)
        operation.start()
        assert not operation.over
        operation.interrupt(ValueError())
        assert operation.over
        operation.interrupt(ValueError())  # it is over: nothing happens
        operation.future.cancel()

    run(scene)
    assert closed == [True]


@pytest.mark.parametrize("where", ["before", "behind"])
def test_a_signal_handler_that_raises_at_the_end_takes_no_result_away(monkeypatch, where):
    """R11: whoever waits for what was granted has to learn it, or nobody releases it."""
    real = Operation._conclude
    raised: list[bool] = []

    def interrupted(operation, error):
        if where == "behind":
            real(operation, error)
        if not raised:
            raised.append(True)
            raise TimeoutError
        return real(operation, error)

    monkeypatch.setattr(Operation, "_conclude", interrupted)

    def op() -> Op[str]:
        yield Wait(0.0)
        return "granted"

    async def scene(d):
        operation = Operation(op(), d.host)
        with pytest.raises(TimeoutError):  # for whoever stepped it
            operation.start()
        assert operation.over
        return await operation.future

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
        operation = Operation(op(), d.host)
        operation.start()
        with contextlib.suppress(KeyboardInterrupt):
            await operation.future

    with pytest.raises(KeyboardInterrupt):
        run(scene, tidy=False)
    (d,) = left
    assert not d.host.operations


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
        while len(d.host.operations) < 2:  # the release, and the renewal of the first  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        await d.masters.close()
        with pytest.raises(RedlockError, match="closed"):
            await releasing
        d.shut()

    run(scene, tidy=False)
    assert not caplog.records
