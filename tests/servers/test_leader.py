"""Elections in threads and in tasks (R31).  What candidates do to each other, and in which order: `scenes/test_leader.py`."""

import asyncio
import gc
import os
import signal

import pytest

import redlock
from redlock import AsyncMasters, AsyncTerm, ConfigurationError, LockLost, RedlockError, WouldDeadlock
from tests.owners import witness
from tests.servers.look import Doing, eventually, nothing_left

pytestmark = witness("R31")

TTL = 2.0


@pytest.fixture
def masters(world, redlock_servers):
    with world.Masters(redlock_servers.urls, restart_guard=False, owner="this") as masters:
        yield masters


@pytest.fixture
def others(world, redlock_servers):
    with world.Masters(redlock_servers.urls, restart_guard=False, owner="other") as others:
        yield others


@pytest.fixture(autouse=True)
def _as_before(redlock_servers):
    """No key, no thread and no signal handler is left; the threads are looked for by another fixture."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)}
    yield
    gc.collect()
    eventually(lambda: nothing_left(redlock_servers))
    assert handlers == {number: signal.getsignal(number) for number in handlers}


in_threads = pytest.mark.parametrize("world", ["threads"], indirect=True)


def until_told(term):
    term.wait_stop()


# -- terms, in both worlds -----------------------------------------------------------------------------


def test_each_term_has_a_greater_number(masters):
    election = masters.leader("beat", ttl=TTL)
    numbers = []
    for term in election.terms():
        with term:
            assert election.term is term
            assert term.valid
            assert not term.should_stop
            assert (term.name, term.owner) == ("beat", "this")
            assert 0 < term.remaining() <= TTL
            assert election.status().fence >= term.number
            assert election.status().owner == "this"
            numbers.append(term.number)
        assert election.term is None
        assert not masters.status("beat").token
        if len(numbers) == 3:
            election.stop()
    assert numbers == sorted(set(numbers))


def test_ensure_may_leave_the_body(masters):
    election = masters.leader("beat", ttl=TTL)
    numbers = []
    for term in election.terms():
        with term:
            numbers.append(term.number)
            if len(numbers) == 2:
                election.stop()
            term.ensure(at_least=1000.0)
    assert len(numbers) == 2


def test_a_loop_that_is_left_gives_the_term_back(masters, redlock_servers):
    """Although a variable still has the term, and an exception the frame."""
    election = masters.leader("beat", ttl=30)
    for term in election.terms():  # noqa: B007
        break
    eventually(lambda: not term.valid)
    assert term.should_stop
    assert term.remaining() == 0
    assert election.term is None
    with pytest.raises(LockLost, match="loop was left"):
        term.ensure()
    with pytest.raises(RedlockError, match="inside the loop"), term:
        pytest.fail("it is over")
    with pytest.raises(ValueError, match="before the body") as kept:
        for again in masters.leader("beat", ttl=30).terms():
            raise ValueError(f"before the body of {again}")
    assert "before the body" in str(kept.value)
    gc.collect()
    eventually(lambda: nothing_left(redlock_servers))


@in_threads
def test_a_term_has_one_body(masters):
    election = masters.leader("beat", ttl=30)
    for term in election.terms():
        with term, pytest.raises(RedlockError, match="entered already"), term:
            pytest.fail("it has a body")
        with pytest.raises(RedlockError, match="entered already"), term:
            pytest.fail("it had a body")
        break

    def lead(term):
        with pytest.raises(RedlockError, match="entered already"), term:
            pytest.fail("this is the body")
        assert term.valid
        election.stop()

    eventually(lambda: election.term is None)
    election.run(lead)


@in_threads
def test_a_lock_of_the_name_would_wait_for_its_own_term(masters, others):
    """C5, and the reverse.  The locks of others, and those of another thread or task, wait."""
    election = masters.leader("beat", ttl=30)
    second = masters.leader("beat", ttl=30)

    def lead(_):
        for lock in (masters.lock("beat"), masters.lock(["beat", "a"]), masters.lock("beat", shared=True)):
            with pytest.raises(WouldDeadlock, match="leads 'beat'"):
                lock.acquire(timeout=0)
        with pytest.raises(WouldDeadlock):
            second.run(until_told)
        assert others.lock("beat").acquire(timeout=0) is None
        election.stop()

    election.run(lead)
    with masters.lock("beat"):  # it leads no more
        pass
    with masters.lock(["a", "beat"]):
        with pytest.raises(WouldDeadlock, match="its election would wait"):
            second.run(until_told)
        with pytest.raises(WouldDeadlock, match="its election would wait"):
            next(iter(second.terms()))
        waits = Doing(lambda: second.run(until_told))  # in another thread it waits
        second.stop()
        assert waits.end() is None


@in_threads
def test_the_loss_of_the_same_name_under_another_prefix_is_an_error(world, masters, redlock_servers):
    with world.Masters(redlock_servers.urls, restart_guard=False, prefix="other:") as foreign:
        lock = foreign.lock("beat", ttl=TTL)

        def lead(_):
            with lock as lease:
                lease.ensure(at_least=1000.0)

        with pytest.raises(LockLost, match="1000 s are needed"):
            masters.leader("beat", ttl=30).run(lead)


# -- run ---------------------------------------------------------------------------------------------


@in_threads
def test_one_object_is_one_candidate(masters):
    election = masters.leader("beat")
    for term in election.terms():
        with term:
            with pytest.raises(RedlockError, match="runs already"):
                election.run(until_told)
            election.stop()


@in_threads
def test_wrong_arguments(world, masters):
    async def of_the_other_world(term):
        pass

    election = masters.leader("beat")
    for arguments in (
        {"lead": 3},
        {"lead": None},
        {"lead": of_the_other_world},
        {"lead": until_told, "on_new_leader": "log"},
        {"lead": until_told, "on_error": "ignore"},
        {"lead": until_told, "signals": (signal.SIGKILL,)},
        {"lead": until_told, "signals": ("TERM",)},
        {"lead": until_told, "on_stopped": 3},
    ):
        with pytest.raises(ConfigurationError):
            election.run(**arguments)
    for term in election.terms():
        with term:
            for wrong in (float("nan"), "5", True):
                with pytest.raises(ConfigurationError, match="timeout="):
                    term.wait_stop(wrong)
                with pytest.raises(ConfigurationError, match="timeout="):
                    term.wait_lost(wrong)
            assert not term.wait_stop(-1)
        break


# -- signals -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("first", [signal.SIGINT, signal.SIGTERM])
@in_threads
def test_a_signal_stops_it_and_a_second_one_does_what_it_did(masters, first):
    """It tells the body.  If that goes on, a second Ctrl-C raises KeyboardInterrupt in it."""
    stopped: list[redlock.Term] = []

    def lead(term):
        signal.raise_signal(first)
        assert term.should_stop
        assert term.wait_stop(20)
        for _ in range(2):
            signal.raise_signal(signal.SIGINT)
        pytest.fail("a second Ctrl-C is a KeyboardInterrupt")

    with pytest.raises(KeyboardInterrupt):
        masters.leader("beat", ttl=30).run(lead, on_stopped=stopped.append)
    assert len(stopped) == 1
    assert not masters.status("beat").token


@in_threads
def test_only_the_signals_that_were_asked_for_and_a_handler_of_the_body_stays(masters):
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGUSR1)

    def lead(_):
        assert signal.getsignal(signal.SIGTERM) is before[0]
        signal.raise_signal(signal.SIGUSR1)
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)

    try:
        masters.leader("beat").run(lead, signals=(signal.SIGUSR1,))
        assert signal.getsignal(signal.SIGUSR1) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGUSR1, before[1])


@in_threads
def test_a_forked_child_has_nothing_of_it(masters):
    """It does not lead, gives nothing back, and a SIGTERM ends it as any other process."""
    codes = []
    stopped: list[redlock.Term] = []
    pid = os.getpid()

    def lead(term):
        for ends in (
            lambda: (term.should_stop, term.valid, term.lost) == (True, False, False),
            lambda: signal.raise_signal(signal.SIGTERM),
        ):
            child = os.fork()
            if not child:
                if not ends():
                    os._exit(7)
                return  # from the body, in the child
            codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        eventually(lambda: masters.status("beat").token == term.lease.token)  # no child has given it back
        election.stop()

    election = masters.leader("beat", ttl=30)
    try:
        election.run(lead, on_stopped=stopped.append)
    finally:
        if os.getpid() != pid:
            os._exit(len(stopped))  # it comes out of `run`, and campaigns no more
    assert len(stopped) == 1
    assert codes == [0, -signal.SIGTERM]  # and in the child nobody was told


# -- in tasks: how a body is cancelled, and what else is not ---------------------------------------------


@pytest.fixture
def ours(redlock_servers):
    return AsyncMasters(redlock_servers.urls, restart_guard=False, owner="this")


@pytest.fixture
def theirs(redlock_servers):
    return AsyncMasters(redlock_servers.urls, restart_guard=False, owner="other")


async def for_ever(_=None):
    await asyncio.sleep(1000)


async def until(condition):
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110 - whatever it is about
            await asyncio.sleep(0.005)


async def test_a_signal_stops_it(ours):
    election = ours.leader("beat", ttl=30)
    cancelled = []

    async def lead(_):
        signal.raise_signal(signal.SIGTERM)
        try:
            await for_ever()
        except asyncio.CancelledError:
            cancelled.append(True)
            raise

    await election.run(lead)
    assert cancelled == [True]


async def test_a_cancellation_from_outside_goes_on_though_the_election_is_stopped_at_the_same_time(ours):
    """C13; the lock is given back before."""
    election = ours.leader("beat", ttl=30)
    run = asyncio.create_task(election.run(for_ever))
    await until(lambda: election.term)
    run.cancel()
    election.stop()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert not (await ours.status("beat")).token


async def test_a_run_that_is_cancelled_ends_also_if_its_body_swallows_that(ours):
    """Else it would campaign again, and whoever has cancelled it would wait for ever (C13)."""
    for on_error, late in (("raise", None), ("retry", ValueError("late"))):
        led: list[AsyncTerm] = []

        async def lead(term, late=late, led=led):
            led.append(term)
            try:
                await for_ever()
            except asyncio.CancelledError:
                if late is not None:
                    raise late from None

        election = ours.leader("boss", ttl=30)
        run = asyncio.create_task(election.run(lead, on_error=on_error))
        await until(lambda led=led: led)
        run.cancel()
        done, _ = await asyncio.wait([run], timeout=5)
        election.stop()
        with pytest.raises(asyncio.CancelledError if late is None else ValueError):
            await run
        assert done
        assert len(led) == 1


async def test_what_the_body_raises_when_it_is_cancelled_goes_on(ours):
    election = ours.leader("beat", ttl=30)

    async def lead(_):
        election.stop()
        try:
            await for_ever()
        finally:
            raise ValueError("while it cleaned up")

    with pytest.raises(ValueError, match="cleaned up"):
        await election.run(lead)


async def test_what_was_cancelled_inside_of_the_body_is_an_error_of_it(ours, caplog):
    """Nobody has cancelled us."""
    election = ours.leader("beat", ttl=30)
    numbers = []

    async def lead(term):
        numbers.append(term.number)
        if len(numbers) == 2:
            election.stop()
        cancelled = asyncio.get_running_loop().create_future()
        cancelled.cancel()
        await cancelled

    await election.run(lead, on_error="retry")
    assert len(numbers) == 2
    assert "leading 'beat' failed; trying again" in caplog.text
    with pytest.raises(asyncio.CancelledError):
        await ours.leader("beat").run(lead)


async def test_a_run_that_is_thrown_away_gives_the_term_back(ours, theirs):
    """Its election is still there, and must not keep the lease."""
    election = ours.leader("beat", ttl=30)
    task = asyncio.create_task(election.run(for_ever))
    await until(lambda: election.term)
    coroutine = task.get_coro()
    assert coroutine is not None
    coroutine.close()
    del coroutine
    gc.collect()
    async for term in theirs.leader("beat", ttl=30).terms():  # long before the TTL
        async with term:
            pass
        break
    assert election.term is None
    task.cancel()
    await asyncio.wait([task])
    task.exception()


async def test_a_body_that_raises_generatorexit_is_told_of_as_any_other(ours, theirs):
    """It is no coroutine that is thrown away: what awaits its end may wait, too."""
    told = []

    async def lead(term):
        raise GeneratorExit

    async def on_stopped(term):
        told.append((await theirs.status("beat")).token == term.lease.token)

    with pytest.raises(GeneratorExit):
        await ours.leader("beat", ttl=30).run(lead, on_stopped=on_stopped)
    assert told == [True]
    async with theirs.lock("beat", ttl=10, timeout=5):  # given back
        pass
