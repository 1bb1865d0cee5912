"""Each rule about a lease that is held, once, on real servers.  The scenes of the same subject prove it."""

import asyncio
import signal
import time

import pytest

from redlock import AsyncMasters, LockLost
from tests.owners import witness
from tests.servers.look import all_up, each, eventually, lock_keys, nothing_left, pause, resume, take
from tests.servers.process import started


@witness("R13")
def test_masters_that_hang_take_nothing_away_before_the_end(masters, servers):
    eventually(lambda: all_up(masters))
    lease = take(masters.lock("job", ttl=6.0))
    pause(servers)
    time.sleep(0.5)
    assert lease.valid
    assert lease.wait_lost(60)
    resume(servers)
    assert lease.loss().reason == "unreachable"


@witness("R14")
def test_a_key_that_a_minority_has_lost_is_given_back(masters, servers):
    eventually(lambda: all_up(masters))
    lock = masters.lock("job", ttl=4.0)
    take(lock)
    eventually(lambda: all(lock_keys(servers)))
    each(servers, "delete", "redlock:job", masters=2)
    eventually(lambda: all(lock_keys(servers)))
    lock.release()
    eventually(lambda: nothing_left(servers))


@witness("R28")
def test_a_release_before_its_time_keeps_the_name_taken(masters, others):
    lock = masters.lock("job", ttl=30.0, hold_at_least=5.0)
    began = time.monotonic()
    take(lock)
    lock.release()
    other = others.lock("job", ttl=10.0)
    take(other, timeout=60)
    assert time.monotonic() - began > 5.0
    other.release()


@witness("R36")
def test_after_a_loss_the_name_stays_taken_for_the_guard(masters, others):
    lock = masters.lock("job", ttl=20.0, guard=5.0, max_hold=0.5)
    began = time.monotonic()
    assert take(lock).wait_lost(60)
    other = others.lock("job", ttl=10.0)
    take(other, timeout=60)
    assert time.monotonic() - began > 5.0
    other.release()


STOPPED = """
import asyncio, os, signal, sys
from redlock import AsyncMasters, Masters
options = {"restart_guard": False, "node_timeout": 0.5}

def look(lease):
    print("up", flush=True)
    os.kill(os.getpid(), signal.SIGSTOP)
    print(f"{lease.valid} {lease.lost}\\n", end="", flush=True)  # in one write, beside a log

def threads():
    look(Masters(sys.argv[2:], **options).lock("job", ttl=1.5).acquire())

async def tasks():
    look(await AsyncMasters(sys.argv[2:], **options).lock("job", ttl=1.5).acquire())

threads() if sys.argv[1] == "threads" else asyncio.run(tasks())
"""


@witness("P6")
@pytest.mark.parametrize("kind", ["threads", "asyncio"])
def test_after_sigstop_beyond_the_ttl_the_first_look_says_lost(redlock_servers, kind):
    with started("-c", STOPPED, kind, *redlock_servers.urls) as process:
        process.says("up")
        time.sleep(3.0)
        process.popen.send_signal(signal.SIGCONT)
        process.says("False True")
        process.ends()


@witness("C13")
def test_a_body_is_cancelled_when_its_lease_is_lost(redlock_servers):
    async def main():
        async with AsyncMasters(redlock_servers.urls, restart_guard=False) as masters:
            async with masters.lock("job", ttl=1.5, auto_extend=False):
                await asyncio.sleep(100)

    with pytest.raises(LockLost) as caught:
        asyncio.run(main())
    assert isinstance(caught.value.__cause__, asyncio.CancelledError)
