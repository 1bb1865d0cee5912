"""One operation on an event loop, and what a cancellation does to it: `redlock/_io/host_async.py`."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import itertools
from typing import TYPE_CHECKING, Any

import pytest

from redlock import RedlockError
from redlock._core.effects import Wait
from redlock._io.host_async import Operation
from tests.asyncio.virtual import MASTERS, Deployment, Fake, Question, asks, run, virtual

if TYPE_CHECKING:
    from redlock._core.effects import Op

ALL = tuple(range(MASTERS))


def test_a_grant_that_its_caller_never_gets_is_not_kept_from_others():
    """R28 begins when `acquire` returns: nothing was done under that lock, and nothing of it is left (R11)."""
    for turn in itertools.count(1):

        async def scene(d):
            used: list[bool] = []

            async def work() -> None:
                async with d.masters.lock("job", ttl=10, hold_at_least=5):
                    used.append(True)
                    await asyncio.sleep(1)

            task = asyncio.create_task(work())
            d.loop.selector.strike(turn, task.cancel)  # noqa: B023 - at once
            with pytest.raises(asyncio.CancelledError):
                await task
            await asyncio.sleep(0.1)
            for fake in d.fakes:
                fake.put("redlock:job", None)
            return used, {heard.args[1:] for fake in d.fakes for heard in fake.heard if heard.script == "release"}

        used, keeps = run(scene)
        assert keeps <= {("5052",) if used else ()}
        if used:
            break
    assert turn > 3


@virtual
async def test_cancelled_while_it_waits_for_the_connections(d):
    driver = d.driver
    driver.ready.clear()
    driver._until_ready = itertools.repeat(1.0)  # another task has begun to connect
    task = asyncio.create_task(d.masters.lock("job", ttl=10).acquire())
    await d.quiet()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    driver.ready.set()
    await d.quiet()
    assert [fake.heard for fake in d.fakes] == [[]] * MASTERS


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
@virtual
async def test_a_coroutine_that_is_closed_is_rolled_back(d, when):
    """In one packet, behind what it asked for."""
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
    assert {asked[-1] for fake in d.fakes for asked in fake.by_token().values()} == {"release"}


@virtual
async def test_a_hold_of_nobody_in_particular_needs_no_task(d):
    """Anything may step its coroutine, as long as a loop runs: there is no task to end it, or to be cancelled."""
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


def waits(until: float) -> Op[Any]:
    return (yield Wait(until))


@pytest.mark.parametrize("need", [3, 6])
@virtual
async def test_answers_that_wait_in_the_sockets_when_the_time_is_over_are_counted(d, need):
    """The loop has not come to them yet: there is no `Timeout` for who has been answered.  What comes then is not counted."""
    d.mute(*ALL)
    question = Question(need)
    operation = Operation(asks(question, d.clock.now + 0.2), d.host)
    operation.start()
    await d.quiet()
    d.clock.advance(0.2)
    d.speak()
    assert not question.answers
    operation.on_alarm()
    assert (operation.future.result() is question) == (need == 3)
    assert (question.open, question.answers) == (False, [0, 1, 2, 3, 4][:need])


@pytest.mark.parametrize("rate", [0.5, 2.0])
@virtual
async def test_the_clock_of_the_loop_need_not_be_ours(d, rate):
    """R5: it is ours that counts.  An alarm that is too early is set anew, and does not ring on and on."""
    d.clock.rate = rate
    rounds, until = d.loop.selector.rounds, d.clock.now + 0.2
    operation = Operation(waits(until), d.host)
    operation.start()
    # A clock of the loop that is slow makes alarms late, and what is late is excused once.
    assert 0 <= (await operation.future).at - until < (0.01 if rate > 1 else 0.7)
    assert d.loop.selector.rounds - rounds < 30


@virtual
async def test_an_operation_that_wants_to_wait_though_it_was_interrupted_is_closed(d):
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

    operation = Operation(op(), d.host)
    operation.start()
    assert not operation.over
    operation.interrupt(ValueError())
    assert operation.over
    operation.interrupt(ValueError())  # the operation has ended: nothing happens
    operation.future.cancel()
    assert closed == [True]


@pytest.mark.parametrize("where", ["before", "behind"])
@virtual
async def test_a_signal_handler_that_raises_at_the_end_takes_no_result_away(d, monkeypatch, where):
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

    operation = Operation(op(), d.host)
    with pytest.raises(TimeoutError):  # in the caller that stepped it
        operation.start()
    assert operation.over
    assert await operation.future == "granted"


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


@virtual(tidy=False)
async def test_a_renewal_that_close_breaks_off_is_no_failure(d, caplog):
    """Also while close waits for what is owed, with the connections still open."""
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
    await d.quiet()
    assert not caplog.records
