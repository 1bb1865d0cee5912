"""A lease that one process hands over to another one (C11)."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest

from redlock import NotHeld
from tests.owners import witness
from tests.servers.interrupt import at_every_line
from tests.servers.look import all_up, each, eventually, lock_keys, nothing_left, take
from tests.servers.process import started

TTL = 10.0


def values(servers, key: str = "redlock:job") -> list[str]:
    return [servers.client(master).get(key).decode() for master in range(5)]


TAKES_OVER = """
import sys
from redlock import Masters
handed, *urls = sys.argv[1:]
with Masters(urls, restart_guard=False) as masters:
    with masters.resume(handed) as lease:
        print(lease.names, lease.fence, lease.owner, lease.valid, flush=True)
"""


@witness("R46")
def test_another_process_takes_it_over(world, redlock_servers, masters, others):
    """It releases it to the next one."""
    eventually(lambda: all_up(masters))
    lock = masters.lock(["a", "b"], ttl=TTL, owner="web-3")
    lease = take(lock)
    handed = lease.hand_over()
    assert (lease.valid, lease.lost, lease.wait_lost()) == (False, False, False)
    with pytest.raises(NotHeld):
        lock.release()
    assert others.lock("a", timeout=0).acquire() is None
    with started("-W", "error", "-c", TAKES_OVER, handed, *redlock_servers.urls) as process:
        assert process.ends() == 0, process.lines
    assert process.lines == [f"('a', 'b') {lease.fence} web-3 True"]
    eventually(lambda: nothing_left(redlock_servers))


def test_the_end_of_its_with_does_nothing_in_threads(redlock_servers, others):
    with others.lock("job", ttl=TTL) as lease:
        handed = lease.hand_over()
    assert others.status("job").token == lease.token
    with others.resume(handed):
        pass
    eventually(lambda: nothing_left(redlock_servers))


HANDS_OVER = """
import asyncio, sys
from redlock import AsyncMasters, Masters
how, *urls = sys.argv[1:]
if how == "threads":
    masters = Masters(urls, restart_guard=False)
    kept = masters.lock("job", ttl=10, bound=False)
    handed = kept.acquire().hand_over()
else:
    async def main():
        masters = AsyncMasters(urls, restart_guard=False)
        kept = masters.lock("job", ttl=10)
        return masters, kept, (await kept.acquire()).hand_over()
    masters, kept, handed = asyncio.run(main())
print(handed, flush=True)
"""


@pytest.mark.parametrize("how", ["threads", "asyncio"])
def test_the_end_of_its_process_releases_nothing(redlock_servers, others, how):
    """Not even what an interpreter catches up with when it exits; the masters are not closed."""
    with started("-W", "error::RuntimeWarning", "-c", HANDS_OVER, how, *redlock_servers.urls) as process:
        assert process.ends() == 0, process.lines
    (handed,) = (line for line in process.lines if line.startswith("{"))
    with others.resume(handed):
        eventually(lambda: all("redlock:job" in keys for keys in lock_keys(redlock_servers)))
    eventually(lambda: nothing_left(redlock_servers))


def test_a_reader_hands_over_beside_others(redlock_servers, masters, others):
    """R33: the text says that it is one."""
    eventually(lambda: all_up(masters))
    with others.lock("job", shared=True, ttl=TTL):
        giver = masters.lock("job", shared=True, ttl=TTL)
        handed = take(giver).hand_over()
        lock = others.resume(handed, bound=False)
        assert take(lock).shared
        assert masters.lock("job", timeout=0).acquire() is None
        lock.release()
    eventually(lambda: nothing_left(redlock_servers))


def test_what_is_left_of_its_hold_at_least_goes_with_it(redlock_servers, masters, others):
    """R28."""
    eventually(lambda: all_up(masters))
    giver = masters.lock("job", ttl=TTL, hold_at_least=8)
    lease = take(giver)
    handed = lease.hand_over()
    with others.resume(handed):
        pass
    eventually(lambda: values(redlock_servers) == [f"released:{lease.token}"] * 5)


def test_a_slot_is_handed_over_as_the_lock_that_it_is(redlock_servers, masters, others):
    """R32."""
    eventually(lambda: all_up(masters))
    slots = masters.slots("group", limit=2, ttl=TTL)
    lease = slots.acquire()
    handed = lease.hand_over()
    assert json.loads(handed)["names"] == [lease.name]
    lock = others.resume(handed)
    take(lock)
    assert others.slots("group", limit=2).status().free == 1
    lock.release()
    eventually(lambda: nothing_left(redlock_servers))


def test_a_waiter_of_its_process_gets_it_after_the_other_one(world, redlock_servers, masters, others):
    """R23: the line is not kept by a lease that went elsewhere."""
    eventually(lambda: all_up(masters))
    got: list[Any] = []

    def waits() -> None:
        lock = masters.lock("job", ttl=TTL, timeout=60)
        got.append(take(lock))
        lock.release()

    waiter = threading.Thread(target=waits)
    giver = masters.lock("job", ttl=TTL)
    lease = take(giver)
    waiter.start()
    handed = lease.hand_over()
    lock = others.resume(handed)
    take(lock)
    assert not got
    lock.release()
    waiter.join(60)
    assert got[0].fence > lease.fence
    eventually(lambda: nothing_left(redlock_servers))


def test_another_thread_hands_over_what_is_not_bound_alone(redlock_servers, masters):
    """C10."""
    for bound in (True, False):
        lock = masters.lock("job", ttl=TTL, bound=bound)
        lease = take(lock)
        found: list[Any] = []

        def hands_over() -> None:
            try:
                found.append(lease.hand_over())  # noqa: B023
            except NotHeld as error:
                found.append(error)  # noqa: B023

        thread = threading.Thread(target=hands_over)
        thread.start()
        thread.join()
        if bound:
            assert isinstance(found[0], NotHeld)
            lock.release()
        else:
            assert json.loads(found[0])["token"] == lease.token
    each(redlock_servers, "delete", "redlock:job")


def test_a_ctrl_c_at_any_line_of_it_keeps_nobody_waiting(redlock_servers, others):
    """P7: the lease is held yet, or its keys end with their TTL; and the line of this process goes on (R23)."""
    for interrupt in at_every_line(15):
        lock, handed = others.lock("job", ttl=TTL), None
        lease = take(lock)
        with interrupt.strikes():
            handed = lease.hand_over()
        if handed is not None:
            lock = others.resume(handed)
            take(lock)
        assert interrupt.struck == (handed is None)
        try:
            lock.release()
        except NotHeld:
            assert not lease.valid
            each(redlock_servers, "delete", "redlock:job")
        with others.lock("job", ttl=TTL, timeout=20):
            pass
