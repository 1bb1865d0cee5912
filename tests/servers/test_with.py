"""What is left when a ``with`` is: its own lease and no other, whichever thread or task leaves it."""

from __future__ import annotations

import contextlib

import pytest

from redlock import LockLost, NotHeld, RedlockError
from tests.servers.look import elsewhere, eventually, nothing_left

TTL = 0.8


def test_threads_that_take_turns_at_entering_and_leaving(redlock_servers, masters):
    lock = masters.lock("job", ttl=10, bound=False)
    lock.__enter__()
    assert elsewhere(lambda: lock.__exit__(None, None, None)) is None
    assert not lock.owned()
    elsewhere(lock.__enter__)
    assert lock.owned()
    lock.__exit__(None, None, None)
    assert not lock.owned()
    eventually(lambda: nothing_left(redlock_servers))


def test_leaving_what_was_lost_leaves_the_next_holder_alone(masters):
    """P8: where it is not bound, and another thread does it."""
    lock = masters.lock("job", ttl=TTL, auto_extend=False, bound=False, timeout=5)
    elsewhere(lock.__enter__)
    assert lock.lease.wait_lost(5)
    lease = lock.__enter__()
    assert isinstance(elsewhere(lambda: lock.__exit__(None, None, None)), LockLost)
    assert lease.valid
    assert lock.owned()
    lock.__exit__(None, None, None)


def test_a_body_that_has_released_it(masters):
    """What it raises is what it raised."""
    lock = masters.lock("job", ttl=10)
    with pytest.raises(ZeroDivisionError) as caught, lock:
        lock.release()
        raise ZeroDivisionError
    assert "does not hold" in caught.value.__notes__[0]
    with pytest.raises(NotHeld), lock:
        lock.release()


@pytest.mark.parametrize("fails", [True, False])
def test_a_body_whose_masters_are_closed(world, redlock_servers, fails):
    with world.Masters(redlock_servers.urls, restart_guard=False) as masters:
        with pytest.raises(ZeroDivisionError if fails else RedlockError) as caught, masters.lock("job", ttl=1):
            masters.close()
            if fails:
                raise ZeroDivisionError
        assert "closed" in (caught.value.__notes__[0] if fails else str(caught.value))
    eventually(lambda: nothing_left(redlock_servers))  # nothing renews it


# -- threads ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bound", [True, False], ids=["bound", "not-bound"])
@pytest.mark.parametrize("stack", [False, True], ids=["statement", "stack"])
def test_a_generator_whose_lease_was_lost_leaves_the_next_holder_alone(redlock_servers, redlock_masters, bound, stack):
    """P8: it is closed by the thread that drops it, inside of a ``with`` of its own."""
    lock = redlock_masters.lock("job", ttl=TTL, auto_extend=False, bound=bound, timeout=5)

    def items():
        if stack:
            with contextlib.ExitStack() as entered:
                entered.enter_context(lock)
                yield 1
        else:
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
