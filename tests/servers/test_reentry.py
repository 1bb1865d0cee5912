"""Taking again what one holds: the same lease, counted (R26), or an error instead of waiting for oneself (C5)."""

import asyncio
import contextlib
import contextvars
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from redlock import ConfigurationError, NotHeld, WouldDeadlock
from tests.owners import witness
from tests.servers.look import elsewhere, eventually, lock_keys, nothing_left, script_calls, take

pytestmark = witness("R26")


@pytest.fixture
def quiet(redlock_servers, masters):
    """Masters that are all up, and say no more than they are asked."""
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
            with pytest.raises(WouldDeadlock, match=r"for another [5-9]\.\d+ s; min_validity is 25 s"):
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


async def test_a_second_task_of_the_thread_does_not_enter(redlock_masters):
    inside: list[int] = []
    refused = asyncio.Event()

    async def section():
        with redlock_masters.lock("job", ttl=10, timeout=1) as lease:
            inside.append(len(inside))
            await refused.wait()
            with redlock_masters.lock("job", ttl=10) as again:
                assert again is lease

    first, second = (asyncio.create_task(section()) for _ in range(2))
    second.add_done_callback(lambda _: refused.set())
    with pytest.raises(WouldDeadlock, match="use AsyncMasters"):
        await second
    await first  # and it may enter again
    assert inside == [0]


def test_what_is_held_around_the_loop_its_tasks_do_not_enter(redlock_masters):
    """Two of them would be in the section at once."""

    async def enter():
        redlock_masters.lock("job", ttl=10).acquire()

    with redlock_masters.lock("job", ttl=10) as lease:
        with pytest.raises(WouldDeadlock, match="use AsyncMasters"):
            asyncio.run(enter())
        assert lease.valid


async def test_what_a_task_starts_is_another_one(async_masters):
    lock = async_masters.lock("job", ttl=10)
    async with lock as lease, lock as again:
        assert again is lease
        assert await asyncio.create_task(lock.acquire(timeout=0.01)) is None


async def test_a_cell_of_a_notebook_takes_what_an_earlier_cell_has(redlock_masters):
    """Each cell is a task of its own, and the earlier one has ended: there is no other task to wait for."""
    lock = redlock_masters.lock("job", ttl=10)

    async def cell(code):
        return code()

    await asyncio.create_task(cell(lock.acquire))
    with pytest.raises(WouldDeadlock, match=r"that has ended holds 'job'.* release it through the lock") as caught:
        await asyncio.create_task(cell(redlock_masters.lock("job", ttl=10).acquire))
    assert "AsyncMasters" not in str(caught.value)
    await asyncio.create_task(cell(lock.release))  # what it says
    await asyncio.create_task(cell(lock.acquire))
    lock.release()


# -- threads that serve one request after the other: each request holds for itself (R15) ---------------


SHORT: dict[str, Any] = {"ttl": 3, "timeout": 10}  # for a machine that may stand still for a second or two


@contextlib.contextmanager
def section(masters, seen):
    with masters.lock("invoice:42", **SHORT) as lease:
        seen.append(lease.fence)
        yield lease


# -- generators in pools ---------------------------------------------------------------------------------


def test_a_generator_that_was_entered_in_a_thread_that_has_ended_keeps_its_lease(redlock_servers, redlock_masters):
    """R15: a thread of a pool idles out, and the request goes on."""
    held = section(redlock_masters, [])
    lease = elsewhere(held.__enter__)
    until = lease.valid_until + SHORT["ttl"]
    eventually(lambda: lease.valid_until > until)
    assert lease.valid
    assert not elsewhere(lambda: held.__exit__(None, None, None))
    assert (lease.valid, lease.lost) == (False, False)
    eventually(lambda: nothing_left(redlock_servers))


def test_calls_with_contexts_of_their_own_in_one_thread_wait_for_each_other(redlock_servers, redlock_masters):
    seen: list[int] = []
    with ThreadPoolExecutor(1) as pool:

        def call(work, *args):
            return pool.submit(contextvars.copy_context().run, work, *args)

        first, second = section(redlock_masters, seen), section(redlock_masters, seen)
        call(first.__enter__).result()
        entering = call(second.__enter__)
        assert redlock_masters.lock("invoice:42", ttl=3).acquire(timeout=0.2) is None
        assert not entering.done()
        assert not elsewhere(lambda: first.__exit__(None, None, None))  # the thread that entered is waiting
        entering.result()
        call(second.__exit__, None, None, None).result()
    assert len(set(seen)) == 2
    eventually(lambda: nothing_left(redlock_servers))


def test_what_a_suspended_generator_holds_is_not_the_next_caller_s(redlock_masters):
    """Neither to release, nor to extend, nor to be told that it owns it."""
    lock = redlock_masters.lock("invoice:42", **SHORT)

    def items():
        with lock as lease:
            yield lease

    generator = items()
    contextvars.copy_context().run(next, generator)
    assert not lock.owned()
    with pytest.raises(RuntimeError, match="does not hold"):
        lock.release()
    with pytest.raises(RuntimeError, match="does not hold"):
        lock.extend()
    assert lock.lease is not None
    assert lock.lease.valid
    generator.close()
    assert not lock.lease.valid


# -- what shares a context enters again ------------------------------------------------------------------


@pytest.mark.parametrize("how", ["with", "acquire"])
def test_a_copy_of_the_context_enters_again_if_it_was_made_meanwhile(redlock_servers, redlock_masters, how):
    lock = redlock_masters.lock("invoice:42", **SHORT)
    before = contextvars.copy_context()
    with contextlib.ExitStack() as stack:
        if how == "with":
            lease = stack.enter_context(lock)
        else:
            lease = lock.acquire()
            stack.callback(lock.release)
        again = redlock_masters.lock("invoice:42", **SHORT)
        copied = contextvars.copy_context()
        assert copied.run(again.acquire) is lease
        copied.run(again.release)
        assert before.run(again.acquire, timeout=0.05) is None
        # As threads may inherit contexts: only the thread that entered enters again.
        assert elsewhere(lambda: copied.run(again.acquire, timeout=0.05)) is None
        assert lease.valid
    eventually(lambda: nothing_left(redlock_servers))


def test_what_was_acquired_by_hand_is_its_thread_s_in_every_context(redlock_servers, redlock_masters):
    """C10: as the cells of a notebook do, which may have a context each."""
    lock = redlock_masters.lock("invoice:42", **SHORT)
    assert contextvars.copy_context().run(lock.acquire)
    assert lock.owned()
    lock.extend()
    contextvars.copy_context().run(lock.release)
    eventually(lambda: nothing_left(redlock_servers))
