"""Taking again what one holds: the same lease, counted (R26), or an error instead of waiting for oneself (C5)."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from redlock import AsyncMasters, ConfigurationError, LockLost, Masters, NotHeld, WouldDeadlock
from tests.servers.look import all_up, each, elsewhere, eventually, lock_keys, nothing_left, script_calls, take


@pytest.fixture
def quiet(redlock_servers, masters):
    """Masters that are all up, and say no more than they are asked."""
    eventually(lambda: all_up(masters))
    with masters.lock("warm", ttl=10):
        pass
    eventually(lambda: nothing_left(redlock_servers))
    return masters


def test_the_same_lease_counted_without_a_word_to_the_masters(redlock_servers, quiet):
    one, two = quiet.lock("job", ttl=10), quiet.lock("job", ttl=20)
    lease = take(one)
    eventually(lambda: all(lock_keys(redlock_servers)))
    before = script_calls(redlock_servers)
    assert one.acquire() is lease
    assert two.acquire() is lease
    assert two.acquire(timeout=0) is lease
    assert one.acquire(blocking=False) is lease
    with two as again, one as and_again:
        assert again is and_again is lease
    assert one.owned()
    assert two.owned()
    assert two.lease is lease or two.lease is None  # what was granted last through it: nothing
    for lock in (two, one, one, two):  # in any order
        lock.release()
        assert lease.valid
    assert script_calls(redlock_servers) == before
    assert not two.owned()
    with pytest.raises(NotHeld):
        two.release()
    assert elsewhere(lambda: quiet.lock("job", ttl=10).acquire(timeout=0)) is None
    one.release()
    assert not lease.valid
    assert not lease.lost
    for lock in (one, two):
        with pytest.raises(NotHeld):
            lock.release()
    eventually(lambda: nothing_left(redlock_servers))


def test_the_first_object_may_be_the_first_to_leave(redlock_servers, quiet):
    one, two = quiet.lock("job", ttl=10), quiet.lock("job", ttl=10)
    lease = take(one)
    assert two.acquire() is lease
    one.release()
    assert not one.owned()
    with pytest.raises(NotHeld):
        one.extend()
    assert lease.valid
    assert two.extend() is lease
    two.release()
    assert not lease.valid
    eventually(lambda: nothing_left(redlock_servers))
    with one as new:
        assert new.fence > lease.fence


def test_several_names_in_any_order_are_the_same_ones(quiet):
    with quiet.lock(["a", "b"], ttl=10) as lease, quiet.lock(["b", "a"], ttl=10) as again:
        assert again is lease


def test_who_needs_no_fence_gets_the_lease_with_one(redlock_servers, quiet):
    """Also when it is extended, repaired on a master that lost it (R14), and released."""
    one, two = quiet.lock("job", ttl=10), quiet.lock("job", ttl=10, fencing=False)
    with one as lease, two as again:
        assert again is lease
        assert lease.fence is not None
        eventually(lambda: all(lock_keys(redlock_servers)))
        redlock_servers.client(1).delete("redlock:job")

        def repaired():
            two.extend()
            return redlock_servers.client(1).get("redlock:job")

        assert eventually(repaired) == lease.token.encode()
    eventually(lambda: nothing_left(redlock_servers))


def test_who_needs_a_fence_does_not_get_a_lease_without_one(quiet):
    with quiet.lock("job", ttl=10, fencing=False) as lease:
        with pytest.raises(ConfigurationError, match="without a fencing token"):
            quiet.lock("job", ttl=10).acquire()
        assert lease.valid


# -- what the second one asks for --------------------------------------------------------------------


def test_less_validity_than_is_asked_for_would_be_waiting_for_oneself(quiet):
    """R26: it was handed over in silence, with a tenth of a second left."""
    with quiet.lock("job", ttl=10, auto_extend=False) as lease:
        asks = quiet.lock("job", ttl=30, min_validity=25)
        for enter in (asks.acquire, asks.__enter__):
            with pytest.raises(WouldDeadlock, match=r"for 9\.\d+ s yet; min_validity is 25 s"):
                enter()
        assert not asks.owned()
        assert lease.valid
        with quiet.lock("job", ttl=30, min_validity=5):
            pass
        with quiet.lock("job", ttl=30):  # who asks for nothing gets what there is
            pass
        again = quiet.lock("job", ttl=30)
        again.acquire()
        again.extend()
        with asks as more:
            assert more is lease
        again.release()


def test_a_shorter_max_hold_than_that_of_the_lease_is_refused(quiet):
    with quiet.lock("job", ttl=10, max_hold=60), quiet.lock("job", ttl=10, max_hold=100), quiet.lock("job", ttl=10):
        with pytest.raises(ConfigurationError, match=r"with max_hold=60.* asks for max_hold=5: give both"):
            quiet.lock("job", ttl=10, max_hold=5).acquire()
        with quiet.lock("job", ttl=10, max_hold=60):
            pass
    with quiet.lock("job", ttl=10), pytest.raises(ConfigurationError, match="max_hold=None"):
        quiet.lock("job", ttl=10, max_hold=60).acquire()


def test_each_that_is_inside_is_told_of_the_loss_once(redlock_servers, quiet):
    """C9: also the ones that entered again, but not one that has left."""
    told: list[Any] = []

    def tells(name):
        return lambda lease: told.append((name, lease.token))

    def fails(lease):
        told.append(("fails", lease.token))
        raise ZeroDivisionError

    outer = quiet.lock("job", ttl=1.0, on_lost=tells("outer"))
    inner, left = (quiet.lock("job", ttl=1.0, on_lost=tells(name)) for name in ("inner", "left"))
    failing = quiet.lock("job", ttl=1.0, on_lost=fails)
    lease = take(outer)
    for lock in (inner, failing, left, inner):
        assert lock.acquire() is lease
    left.release()
    eventually(lambda: all(lock_keys(redlock_servers)))
    each(redlock_servers, "delete", "redlock:job")
    eventually(lambda: len(told) >= 3)
    time.sleep(0.05)
    assert told == [("outer", lease.token), ("inner", lease.token), ("fails", lease.token)]
    for lock in (inner, inner, failing, outer):
        with pytest.raises(LockLost):
            lock.release()


# -- loss --------------------------------------------------------------------------------------------


def test_very_many_holds_and_one_through_other_masters(world, redlock_servers, quiet):
    """What they have in common is the context, and it must not forget the one for the other."""
    many = [quiet.lock(f"many-{number}", ttl=30) for number in range(150)]
    for lock in many:
        assert lock.acquire()
    with world.Masters(redlock_servers.urls, restart_guard=False) as others:
        with others.lock("other", ttl=10):
            pass
        with quiet.lock("not-bound", ttl=10, bound=False):
            pass
        for lock in many[::50]:
            with quiet.lock(lock.lease.name, timeout=0) as lease:
                assert lease is lock.lease
    for lock in many:
        lock.release()


def test_what_is_lost_is_not_entered_again_and_each_level_is_told(world, redlock_servers, quiet):
    told: list[Any] = []
    one = quiet.lock("job", ttl=10, on_lost=told.append)
    two = quiet.lock("job", ttl=10, on_lost=told.append)
    old = take(one)
    assert two.acquire() is old
    eventually(lambda: all(lock_keys(redlock_servers)))
    each(redlock_servers, "delete", "redlock:job")
    with pytest.raises(LockLost):
        two.extend()
    eventually(lambda: told)
    new = one.acquire(timeout=5)
    assert new is not None
    assert new is not old
    assert new.fence > old.fence
    with pytest.raises(LockLost) as caught:  # of the level in which it is: the old one is two's
        two.release()
    assert caught.value.reason == "expired"
    assert new.valid
    one.release()  # the latest first
    assert not new.lost
    with pytest.raises(LockLost):
        one.release()
    with pytest.raises(NotHeld):
        one.release()
    time.sleep(0.05)
    assert [lease.token for lease in told] == [old.token]  # once, by whoever acquired it (C9)
    eventually(lambda: nothing_left(redlock_servers))


def test_one_that_ran_out_is_not_entered_again(world, redlock_servers, quiet):
    lock = quiet.lock("job", ttl=0.8, auto_extend=False)
    lease = take(lock)
    assert lease.wait_lost(5)
    assert lock.acquire(timeout=5) is not lease
    lock.release()
    with pytest.raises(LockLost):
        lock.release()


# -- waiting for oneself (C5) ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("held", "wanted"), [(["a", "b"], "a"), ("a", ["a", "b"]), (["a", "b"], ["b", "c"]), (["a", "b", "c"], ["c", "a"])]
)
def test_some_of_the_names_one_holds_would_be_waiting_for_oneself(redlock_servers, world, quiet, held, wanted):
    lock = quiet.lock(wanted, ttl=10)
    with quiet.lock(held, ttl=10) as lease:
        eventually(lambda: all(lock_keys(redlock_servers)))
        before = script_calls(redlock_servers)
        for options in ({}, {"timeout": 0}, {"blocking": False}):
            with pytest.raises(WouldDeadlock, match=f"this {world.holder} holds") as caught:
                lock.acquire(**options)
            assert caught.value.name == (wanted if isinstance(wanted, str) else ", ".join(wanted))
        with pytest.raises(WouldDeadlock), lock:
            pass
        assert script_calls(redlock_servers) == before
        assert lease.valid
        assert not lock.owned()
        # Others only have to wait.
        assert elsewhere(lambda: quiet.lock(wanted, ttl=10).acquire(timeout=0.05)) is None
    with lock:
        pass


def test_other_names_are_no_reason(quiet):
    with quiet.lock(["a", "b"], ttl=10), quiet.lock(["c", "d"], ttl=10), quiet.lock("e", ttl=10):
        pass


def test_a_lease_that_is_lost_is_no_reason(redlock_servers, quiet):
    lock = quiet.lock("job", ttl=10)
    take(lock)
    eventually(lambda: all(lock_keys(redlock_servers)))
    each(redlock_servers, "delete", "redlock:job")
    with pytest.raises(LockLost):
        lock.extend()
    with quiet.lock(["job", "more"], ttl=10, timeout=5):
        pass
    with pytest.raises(LockLost):
        lock.release()


# -- without an owner --------------------------------------------------------------------------------


def test_what_belongs_to_nobody_is_not_entered_again(redlock_servers, world, quiet):
    lock = quiet.lock("job", ttl=10, bound=False)
    lease = take(lock)
    eventually(lambda: all(lock_keys(redlock_servers)))
    before = script_calls(redlock_servers)
    assert lock.acquire(timeout=0) is None
    assert quiet.lock("job", ttl=10).acquire(blocking=False) is None
    assert quiet.lock(["job", "more"], ttl=10).acquire(blocking=False) is None
    assert script_calls(redlock_servers) == before
    assert lock.owned()
    assert elsewhere(lock.release) is None  # whoever does it
    assert not lease.valid
    with quiet.lock("job", ttl=10):
        assert lock.acquire(timeout=0) is None  # nor does it enter what belongs to us


# -- `Masters` in coroutines: a mistake, and no way around the lock ----------------------------------------


def test_a_second_task_of_the_thread_does_not_enter(redlock_servers):
    inside: list[int] = []

    async def section(masters):
        with masters.lock("job", ttl=10, timeout=1) as lease:
            inside.append(len(inside))
            await asyncio.sleep(0.1)
            with masters.lock("job", ttl=10) as again:
                assert again is lease

    async def main():
        with Masters(redlock_servers.urls, restart_guard=False) as masters:
            return await asyncio.gather(section(masters), section(masters), return_exceptions=True)

    first, second = asyncio.run(main())
    assert first is None  # and it may enter again
    assert isinstance(second, WouldDeadlock)
    assert "use AsyncMasters" in str(second)
    assert inside == [0]


def test_what_is_held_around_the_loop_its_tasks_do_not_enter(redlock_servers):
    """Two of them would be in the section at once."""
    with Masters(redlock_servers.urls, restart_guard=False) as masters, masters.lock("job", ttl=10) as lease:

        async def main():
            masters.lock("job", ttl=10).acquire()

        with pytest.raises(WouldDeadlock, match="use AsyncMasters"):
            asyncio.run(main())
        assert lease.valid


def test_what_a_task_holds_a_plain_function_of_its_loop_does_not_enter(redlock_servers):
    """A callback of the loop runs in no task."""
    said = []

    async def main():
        with Masters(redlock_servers.urls, restart_guard=False) as masters:
            lock = masters.lock("job", ttl=10)

            def callback():
                with pytest.raises(WouldDeadlock) as caught:
                    lock.acquire(blocking=False)
                said.append(caught.value)

            with lock:
                asyncio.get_running_loop().call_soon(callback)
                await asyncio.sleep(0.05)

    asyncio.run(main())
    assert said


def test_what_a_task_starts_is_another_one(redlock_servers):
    async def main():
        async with AsyncMasters(redlock_servers.urls, restart_guard=False) as masters:
            lock = masters.lock("job", ttl=10)
            async with lock as lease, lock as again:
                assert again is lease
                assert await asyncio.create_task(lock.acquire(timeout=0.01)) is None

    asyncio.run(main())
