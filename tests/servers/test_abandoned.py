"""What nobody can give back any more is given back all the same (R15, R11): no name is blocked, nothing renewed for ever."""

from __future__ import annotations

import asyncio
import gc

import pytest

from redlock import AsyncMasters, LockReleased, Masters
from tests.servers.interrupt import Struck, at_every_opcode
from tests.servers.look import all_up, elsewhere, eventually, nothing_left


def turn(masters):
    """The fence of whoever comes next; NotAcquired if the name is blocked."""
    with masters.lock("job", ttl=30, timeout=5) as lease:
        return lease.fence


@pytest.mark.parametrize("bound", [True, False], ids=["bound", "not-bound"])
def test_a_signal_handler_that_raises_at_any_bytecode_of_a_with(redlock_servers, bound):
    """Between the grant and the body, and between the body and the release, stands no defence of a lock's."""
    with Masters(redlock_servers.urls, restart_guard=False, node_timeout=1.0) as masters:
        eventually(lambda: all_up(masters))
        leases = []

        def section(lock):
            with lock as lease:
                leases.append(lease)

        for strike in at_every_opcode(section):
            lock = masters.lock("job", ttl=30, bound=bound)
            with strike.strikes():
                section(lock)
            assert not lock.owned()
            fences = [elsewhere(lambda: turn(masters)), turn(masters)]
            assert fences == sorted({*fences, *(lease.fence for lease in leases)})[-2:]  # nobody entered again
            eventually(lambda: nothing_left(redlock_servers))


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")  # struck before its first step
def test_a_signal_handler_that_raises_at_any_bytecode_of_an_async_with(redlock_servers):
    async def main():
        async with AsyncMasters(redlock_servers.urls, restart_guard=False, node_timeout=1.0) as masters:

            async def section(lock):
                async with lock:
                    pass

            async def next_turn():
                async with masters.lock("job", ttl=30, timeout=5) as lease:
                    return lease.fence

            await next_turn()
            fence = 0
            for strike in at_every_opcode(section):
                lock = masters.lock("job", ttl=30)
                with strike.strikes():
                    await section(lock)
                assert not lock.owned()
                for fenced in (await asyncio.create_task(next_turn()), await next_turn()):
                    assert fenced > fence
                    fence = fenced

    asyncio.run(main())
    eventually(lambda: nothing_left(redlock_servers))


def enter(lock):
    """As a `with` whose frame was torn down: its end is looked up, it is entered, and nobody leaves."""
    leaving = type(lock).__exit__
    lease = lock.__enter__()
    assert leaving.entered.hold.lease is lease
    return lease


def test_what_is_held_by_hand_as_well_is_not_given_back(redlock_servers, redlock_masters):
    lock = redlock_masters.lock("job", ttl=1.0)
    lease = lock.acquire()
    assert enter(lock) is lease
    assert not lease.wait_lost(1.5)  # it is renewed, for the one that is left
    assert lease.valid
    lock.release()
    assert not lease.valid
    eventually(lambda: nothing_left(redlock_servers))


def test_what_was_given_back_for_somebody_is_observed(redlock_servers):
    seen: list[object] = []
    with Masters(redlock_servers.urls, restart_guard=False, observer=seen.append) as masters:
        lease = enter(masters.lock("job", ttl=30))
        eventually(lambda: nothing_left(redlock_servers))
        eventually(lambda: any(isinstance(event, LockReleased) for event in seen))
        assert (lease.valid, lease.lost) == (False, False)


def test_an_exception_that_somebody_keeps_keeps_no_lease(redlock_servers):
    """A future, a notebook and a debugger do: its traceback has the frames in which a signal handler raised it."""
    kept = []
    with Masters(redlock_servers.urls, restart_guard=False, node_timeout=1.0) as masters:
        eventually(lambda: all_up(masters))
        turn(masters)

        def section(lock):
            with lock:
                pass

        lock = masters.lock("job", ttl=30)
        leave = type(lock).__dict__["__exit__"].__wrapped__
        for strike in at_every_opcode(leave):
            try:
                with strike.tracing():
                    section(lock)
            except Struck as struck:
                kept.append(struck)
            strike.struck = strike.left <= 0
            turn(masters)
        eventually(lambda: nothing_left(redlock_servers))


# -- not bound: its owner is the object ------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"auto_extend": False}], ids=["renewed", "not-renewed"])
def test_a_lock_object_that_is_dropped_while_it_holds(redlock_servers, redlock_masters, options):
    lock = redlock_masters.lock("job", ttl=30, bound=False, **options)
    lease = lock.acquire()
    assert lease.valid
    del lock
    eventually(lambda: nothing_left(redlock_servers))
    assert not lease.lost
    with redlock_masters.lock("job", ttl=30, timeout=0):
        pass


def test_an_asynchronous_lock_object_that_is_dropped_while_it_holds(redlock_servers):
    async def main():
        async with AsyncMasters(redlock_servers.urls, restart_guard=False) as masters:
            lease = await masters.lock("job", ttl=30, bound=False).acquire()
            assert lease is not None
            async with masters.lock("job", ttl=30, timeout=5) as next_one:
                assert (next_one.fence or 0) > (lease.fence or 0)
            assert not lease.lost

    asyncio.run(main())
    eventually(lambda: nothing_left(redlock_servers))


def test_a_lock_object_that_somebody_is_inside_of_is_not_dropped(redlock_servers, redlock_masters):
    with redlock_masters.lock("job", ttl=0.9, bound=False) as lease:
        gc.collect()
        assert not lease.wait_lost(1.5)
        assert lease.valid
    eventually(lambda: nothing_left(redlock_servers))


def test_a_lease_that_was_handed_over_ends_with_the_object_that_took_it(redlock_servers, redlock_masters):
    first = redlock_masters.lock("job", ttl=30, auto_extend=False)
    lease = first.acquire()
    taken = redlock_masters.lock("job", ttl=30, token=lease.token, fence=lease.fence)
    taken.extend()
    del taken
    eventually(lambda: nothing_left(redlock_servers))


# -- very many holds -------------------------------------------------------------------------------------
