"""What is left when a ``with`` is: its own lease and no other, whichever thread or task leaves it."""

import contextlib
import gc
import inspect
import sys
import time
import weakref

import pytest
from tenacity.wait import wait_fixed

from redlock import AsyncMasters, Masters, NotHeld
from tests.servers.interrupt import Interrupt, at_every_opcode
from tests.servers.look import all_up, elsewhere, eventually, nothing_left, take
from tests.servers.process import soon

TTL = 2.0


# -- threads ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bound", [True, False], ids=["bound", "not-bound"])
def test_a_generator_whose_lease_was_lost_leaves_the_next_holder_alone(redlock_servers, redlock_masters, bound):
    """P8: it is closed by the thread that drops it, inside of a ``with`` of its own."""
    lock = redlock_masters.lock("job", ttl=TTL, auto_extend=False, bound=bound, timeout=5)

    def items():
        with lock:
            yield 1

    for begin in (next, lambda generator: elsewhere(lambda: next(generator))):
        generator = items()
        begin(generator)
        assert lock.lease is not None
        assert lock.lease.wait_lost(5)
        with lock as lease:

            def there():
                token = lease.token.encode()
                return sum(redlock_servers.client(i).get("redlock:job") == token for i in range(5))

            # However slow the machine is.  What a master missed of the acquire, an extension brings to it (R14).
            eventually(lambda: lock.extend(60).valid and there() == 5)
            generator.close()
            assert lease.valid
            assert lock.owned()
            # What took keys away has reached three masters before this has the answers of three (R10).
            redlock_masters.status("job")
            assert there() == 5
    eventually(lambda: nothing_left(redlock_servers))


def test_a_generator_that_is_dropped_in_another_thread_gives_it_back(redlock_servers, redlock_masters):
    """P7: the thread that entered goes on, and would have it renewed."""
    lock = redlock_masters.lock("job", ttl=10)

    def items():
        with lock:
            yield 1

    generators = [items()]
    next(generators[0])
    assert lock.owned()
    elsewhere(generators.clear)
    assert not lock.owned()
    eventually(lambda: nothing_left(redlock_servers))


def deep(depth, function):
    """Call ``function`` that many frames below the caller."""
    return deep(depth - 1, function) if depth else function()


@pytest.mark.parametrize("bound", [True, False], ids=["bound", "not-bound"])
def test_a_release_where_the_stack_is_full(redlock_servers, redlock_masters, bound):
    """P7: at one depth there was no room for the request, nor for the one that was to make up for it."""
    refused = 0
    for room in range(4, 40):
        lock = redlock_masters.lock("job", ttl=60, bound=bound, timeout=20)
        lock.acquire()
        frames = len(inspect.stack(0))
        try:
            deep(sys.getrecursionlimit() - frames - room, lambda lock=lock: type(lock).release(lock))
        except RecursionError:
            refused += 1
        if lock.owned():  # it had not even begun
            with contextlib.suppress(NotHeld):  # or the thread in the background gives it back at this moment
                lock.release()
        eventually(lambda: nothing_left(redlock_servers))
    assert 2 < refused < 36


async def test_an_async_release_where_the_stack_is_full(redlock_servers):
    async with AsyncMasters(redlock_servers.urls, restart_guard=False, node_timeout=1.0) as masters:

        async def deep(depth, lock):
            await (deep(depth - 1, lock) if depth else lock.release())

        refused = 0
        for room in range(4, 40):
            lock = masters.lock("job", ttl=60, timeout=20)
            await lock.acquire()
            try:
                await deep(sys.getrecursionlimit() - len(inspect.stack(0)) - room, lock)
            except RecursionError:
                refused += 1
            if lock.owned():
                await lock.release()
            await soon(lambda: nothing_left(redlock_servers))
        assert 2 < refused < 36


# -- what nobody can give back any more is given back all the same -------------------------------------


def turn(masters):
    """The fence of whoever comes next; NotAcquired if the name is blocked."""
    with masters.lock("job", ttl=30, timeout=20) as lease:
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


def test_the_names_of_an_interrupted_with_are_free_for_a_try_at_once(redlock_servers, redlock_masters):
    """Also before its renewer has had time to notice: whoever comes back notices, and does not enter it again (R15)."""
    lease = enter(redlock_masters.lock("job", ttl=30))
    again = redlock_masters.lock("job", ttl=30)
    assert (take(again, blocking=False).fence or 0) > (lease.fence or 0)
    again.release()
    eventually(lambda: nothing_left(redlock_servers))


def enter(lock):
    """As a `with` whose frame was torn down: its end is looked up, it is entered, and nobody leaves."""
    with_exit = type(lock).__exit__
    lease = lock.__enter__()
    assert with_exit.entered.hold.lease is lease
    return lease


def test_what_is_held_by_hand_as_well_is_not_given_back(redlock_servers, redlock_masters):
    lock = redlock_masters.lock("job", ttl=4)
    lease = lock.acquire()
    until = lease.valid_until
    assert enter(lock) is lease
    eventually(lambda: lease.valid_until > until)  # it is renewed, for the one that is left
    lock.release()
    assert not lease.valid
    eventually(lambda: nothing_left(redlock_servers))


# -- not bound: its owner is the object ------------------------------------------------------------------


def test_a_lock_object_that_somebody_is_inside_of_is_not_dropped(redlock_servers, redlock_masters):
    with redlock_masters.lock("job", ttl=3, bound=False) as lease:
        gc.collect()
        assert not lease.wait_lost(4)
        assert lease.valid
    eventually(lambda: nothing_left(redlock_servers))


# -- the collector clears weak references first, and lets code of the program run afterwards -----------


class Cycle:
    """Only the collector gets rid of it."""

    def __init__(self, content=None):
        self.me = self
        self.content = content


def stays(lease, others):
    """What happens to ``lease`` within the time in which its renewer would do it."""
    lock = others.lock("job", ttl=1)
    until = time.monotonic() + 0.3
    while time.monotonic() < until:
        if not lease.valid:
            return ["it ended"]
        if lock.acquire(blocking=False):
            lock.release()
            return ["somebody else was in"]
        time.sleep(0.005)
    return ["it stayed"]


@pytest.mark.parametrize("bound", [True, False], ids=["bound", "not-bound"])
def test_a_generator_in_a_cycle_is_inside_of_its_with_until_it_has_ended(
    redlock_servers, redlock_masters, others, bound
):
    lock = redlock_masters.lock("job", ttl=30, bound=bound)
    found: list[str] = []

    def items():
        with lock as lease:
            try:
                yield 1
            finally:
                found.extend(stays(lease, others))

    cycle = Cycle(items())
    next(cycle.content)
    del cycle
    gc.collect()
    assert found == ["it stayed"]
    eventually(lambda: nothing_left(redlock_servers))


def test_a_stack_in_a_cycle_that_nobody_closes(redlock_servers, redlock_masters):
    """Nobody leaves, so its renewer does: also if that looks in the middle of the collection."""
    cycle = Cycle(contextlib.ExitStack())
    cycle.content.enter_context(redlock_masters.lock("job", ttl=30))
    weakref.finalize(cycle, time.sleep, 0.1)  # it has time to look
    del cycle
    gc.collect()
    eventually(lambda: nothing_left(redlock_servers))


# -- a second Ctrl-C, in what tells that a statement is torn: Python swallows what is raised there ------


def torn(interrupt, stack):
    """Nobody leaves ``stack``, whose last reference is the list; Ctrl-C comes meanwhile."""
    with interrupt.tracing():
        stack.clear()


@pytest.mark.parametrize("bound", [True, False], ids=["bound", "not-bound"])
def test_a_second_ctrl_c_while_a_torn_with_goes_keeps_no_lease(redlock_masters, others, monkeypatch, bound):
    monkeypatch.setattr(sys, "unraisablehook", lambda _: None)
    at = 1
    while True:
        interrupt = Interrupt(at)
        stack = [contextlib.ExitStack()]
        stack[0].enter_context(redlock_masters.lock("job", ttl=60, auto_extend=False, bound=bound))
        torn(interrupt, stack)
        print(interrupt.at, interrupt.where)
        with others.lock("job", ttl=10, timeout=10, retry=wait_fixed(0.02)):  # it would be free after its TTL
            pass
        if interrupt.left <= 0:
            at += 1
        elif at > 5:
            break
        # Else another thread looked at the lock just then, and was the last one to have it: once more.
