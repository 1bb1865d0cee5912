"""What leaves in which packet, and who is told of which answer: `redlock/_io/host_async.py`."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest

from tests.asyncio.virtual import MASTERS, NODE_TIMEOUT, Deployment, virtual

TASKS = 10


def sends(d: Deployment) -> list[int]:
    """How many packets each master was sent since this was asked last."""
    counts = [len(fake.theirs.sent) for fake in d.fakes]
    for fake in d.fakes:
        fake.theirs.sent.clear()
    return counts


async def take(d: Deployment, count: int = TASKS) -> list[Any]:
    """A lock for each of so many tasks, which begin in one tick."""
    locks = [d.masters.lock(f"job-{number}", ttl=10, bound=False) for number in range(count)]

    async def one(lock: Any) -> Any:
        await lock.acquire(timeout=0)
        return lock

    return await asyncio.gather(*map(one, locks))


async def both(d: Deployment, count: int = TASKS) -> None:
    async def one(number: int) -> None:
        async with d.masters.lock(f"job-{number}", ttl=10):
            pass

    await asyncio.gather(*map(one, range(count)))


@virtual
async def test_what_tasks_ask_for_in_one_tick_leaves_in_one_packet(d):
    """But for the first of them, which did not know of the others: it does not wait for the end of the tick."""
    await both(d)
    packets, heard = sends(d), [len(fake.heard) for fake in d.fakes]
    assert packets == [1 + 2 + 2] * MASTERS, (
        "TIME once, for the connection is new (R43); all acquires, then all releases"
    )
    assert heard == [2 * TASKS] * MASTERS


@virtual
async def test_the_rollbacks_of_tasks_that_are_cancelled_in_one_tick_leave_in_one_packet(d):
    d.mute(*range(MASTERS))
    work = asyncio.gather(*(d.masters.lock(f"job-{number}").acquire() for number in range(TASKS)))
    await d.quiet()
    sends(d)
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
    await d.quiet()
    assert sends(d) == [1] * MASTERS


@virtual
async def test_what_the_kernel_does_not_take_waits_and_keeps_its_order(d):
    names = [f"redlock:job-{number}" for number in range(200)]
    connection, fake = d.connections.all[0], d.fakes[0]
    fake.theirs.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    fake.reads = False
    d.loop.remove_reader(fake.sock)
    locks = await take(d, 200)
    assert connection.backlog
    await asyncio.gather(*(lock.release() for lock in locks[:50]))
    fake.reads = True
    fake.hear()  # there is room, and no operation has looked yet (R10)
    fake.reads = False
    await asyncio.gather(*(lock.release() for lock in locks[50:100]))
    packets = len(fake.theirs.sent)
    rounds = d.loop.selector.rounds
    await asyncio.sleep(0.2)
    assert d.loop.selector.rounds - rounds < 5, "a full socket must not keep the loop busy"
    assert len(fake.theirs.sent) == packets
    fake.reads = True
    d.loop.add_reader(fake.sock, fake.hear)
    while connection.backlog:  # noqa: ASYNC110 - one tick after the other
        await asyncio.sleep(0)
    await d.quiet()
    for lock in locks[100:]:
        await lock.release()
    assert [(call.script, call.name) for call in fake.heard] == [
        (verb, name) for verb in ("acquire", "release") for name in names
    ]


@virtual
async def test_timers_do_not_pile_up(d):
    """asyncio keeps a cancelled timer until its time has come, or until most of many are cancelled."""
    most = 0
    for _ in range(1000):
        await both(d, 1)
        most = max(most, len(d.loop.scheduled))
    assert most <= 3
    assert d.loop.timers <= 3, (
        "one alarm for all operations, the renewer's, and a look whether the masters have answered"
    )


@virtual
async def test_many_that_wait_for_long_do_not_leave_their_alarms_behind(d):
    holder = d.masters.lock("job", ttl=10)
    await holder.acquire()
    waiting = [asyncio.ensure_future(d.masters.lock("job", ttl=10).acquire(timeout=3600)) for _ in range(500)]
    await asyncio.sleep(0)
    for task in waiting:
        task.cancel()
    await asyncio.wait(waiting)
    await holder.release()
    left = len(d.loop.pending)
    await asyncio.sleep(3600)
    assert left <= 102


@pytest.mark.parametrize("held", [False, True])
@virtual
async def test_idle_it_does_nothing(d, held):
    """Connected, also while a lease is held: the loop sleeps."""
    lock = d.masters.lock("job", ttl=10)
    await lock.acquire()
    if not held:
        await lock.release()
    await d.quiet()
    before = d.loop.selector.rounds
    await asyncio.sleep(0.3)
    rounds = d.loop.selector.rounds - before
    if held:
        await lock.release()
    assert rounds <= 3


@virtual
async def test_a_burst_that_takes_longer_than_node_timeout_to_begin_is_answered_meanwhile(d):
    """Masters are processes of their own: they answer while our loop is still writing, and nobody reads."""

    async def one(number: int) -> None:
        d.clock.advance(NODE_TIMEOUT / 100)
        for fake in d.fakes:
            fake.hear()
        lock = d.masters.lock(f"job-{number}", ttl=10, auto_extend=False)
        assert await lock.acquire(blocking=False) is not None
        await lock.release()

    await asyncio.gather(*map(one, range(400)))
