"""A lease that one process hands over to another one (C11)."""

import pytest

from redlock import NotHeld
from tests.owners import witness
from tests.servers.interrupt import at_every_line
from tests.servers.look import each, eventually, lock_keys, nothing_left, take
from tests.servers.process import started

TTL = 10.0


def values(servers, key="redlock:job"):
    return [servers.client(master).get(key).decode() for master in range(5)]


TAKES_OVER = """
import sys
from redlock import Masters
handed, *urls = sys.argv[1:]
with Masters(urls, restart_guard=False, node_timeout=1) as masters, masters.resume(handed) as lease:
    print(lease.names, lease.fence, lease.owner, lease.valid, flush=True)
"""


@witness("R46")
def test_another_process_takes_it_over(world, redlock_servers, masters, others):
    """It releases it to the next one."""
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
