"""What an observer is told, and what is logged: once each, not once an attempt (C1)."""

import asyncio
import logging

import pytest

from redlock import (
    ConfigurationError,
    LeaseExtended,
    LeaseLost,
    LockAcquired,
    LockLost,
    LockRefused,
    LockReleased,
    MasterDown,
    MasterUp,
    QuorumBack,
    QuorumLost,
    QuorumUnreachable,
    WaitBegan,
    WaitEnded,
)
from tests.servers.look import all_up, each, eventually, kill, logged, restart, take
from tests.servers.waiter import Waiting

TTL = 3.0  # and a `node_timeout` of a third: this machine may stand still for a second


@pytest.fixture
def seen():
    return []


@pytest.fixture
def watched(world, redlock_servers, seen):
    urls = redlock_servers.urls
    with world.Masters(urls, restart_guard=False, node_timeout=1.0, observer=seen.append) as masters:
        eventually(lambda: all_up(masters) and len(seen) == 5)  # the background may be about to tell
        yield masters


def kinds(seen):
    return [type(event) for event in seen]


def test_the_life_of_a_lease(watched, seen):
    assert sorted(event.master for event in seen) == sorted(event.master for event in set(seen))
    assert set(kinds(seen)) == {MasterUp}
    assert len(seen) == 5
    seen.clear()
    lock = watched.lock("job", ttl=TTL)
    lease = take(lock)
    token = lease.token
    lock.extend()
    eventually(lambda: kinds(seen).count(LeaseExtended) > 1)  # renewed
    lock.release()
    acquired, extended, *renewed, released = seen
    assert (acquired.name, acquired.token, acquired.fence, acquired.attempts) == ("job", token, lease.fence, 1)
    assert 0 < acquired.seconds < TTL
    assert len(acquired.votes) == 5
    assert isinstance(acquired, LockAcquired)
    assert isinstance(extended, LeaseExtended)
    assert renewed
    assert set(kinds(renewed)) == {LeaseExtended}
    assert released == LockReleased("job", token, lease.fence, released.held, released.votes)
    assert sum(vote.outcome == "granted" for vote in released.votes) >= 3
    assert {vote.outcome for vote in released.votes} <= {"granted", "pending"}
    assert TTL / 6 < released.held < TTL + acquired.seconds + 5
    assert {event.owner for event in (acquired, extended, *renewed, released)} == {lease.owner}


def test_refused_and_lost(watched, seen, redlock_servers):
    seen.clear()
    each(redlock_servers, "set", "redlock:job", "somebody", px=60_000)
    each(redlock_servers, "rpush", "redlock:a list", "no", "lock")
    assert watched.lock("job", ttl=TTL).acquire(timeout=0) is None
    with pytest.raises(QuorumUnreachable):
        watched.lock("a list", ttl=TTL).acquire(timeout=0)
    assert kinds(seen) == [LockRefused] * 2, "and the quorum is not gone"
    told = [(refused.name, refused.kind, refused.attempts) for refused in seen]
    assert told == [("job", "held", 1), ("a list", "unusable", 1)]
    seen.clear()
    lock = watched.lock("other", ttl=TTL, auto_extend=False)
    lease = take(lock)
    assert lease.wait_lost(60)
    with pytest.raises(LockLost):
        lock.release()
    eventually(lambda: len(seen) == 2)
    assert seen[1] == LeaseLost("other", lease.token, lease.fence, "expired", seen[1].held)
    assert TTL / 2 <= seen[1].held < TTL  # it ended when its time was over, not when somebody noticed


def test_who_waits_is_told_until_the_wait_ends(watched, others, seen):
    """R40: granted, refused or cancelled; an acquire that does not wait has no such event."""
    held = others.lock("job", ttl=30)
    take(held)
    seen.clear()
    assert watched.lock("job", ttl=TTL).acquire(timeout=0) is None
    assert kinds(seen) == [LockRefused]
    assert watched.lock("job", ttl=TTL).acquire(timeout=1.0) is None
    waits = [event for event in seen if isinstance(event, WaitBegan | WaitEnded)]
    assert waits == [WaitBegan("job", waits[0].waiter), WaitEnded("job", waits[0].waiter)]
    seen.clear()
    waiting = [Waiting(watched.lock("job", ttl=TTL)) for _ in range(2)]
    eventually(lambda: kinds(seen).count(WaitBegan) == 2)
    assert kinds(seen).count(WaitEnded) == 0
    held.release()
    for one in waiting:
        assert one.end() is not None
    began = {event.waiter for event in seen if isinstance(event, WaitBegan)}
    assert {event.waiter for event in seen if isinstance(event, WaitEnded)} == began
    assert len(began) == 2


def test_an_outage_is_told_once(watched, seen, redlock_servers, caplog):
    caplog.set_level(logging.INFO, logger="redlock")
    caplog.clear()
    seen.clear()
    kill(redlock_servers, 3)
    with pytest.raises(QuorumUnreachable):
        watched.lock("job", ttl=TTL).acquire(timeout=1.0)
    eventually(lambda: kinds(seen).count(MasterDown) == 3)
    assert kinds(seen).count(QuorumLost) == 1
    (refused,) = (event for event in seen if isinstance(event, LockRefused))
    assert refused.kind == "unreachable"
    assert refused.attempts > 1
    restart(redlock_servers, 3)
    eventually(lambda: all_up(watched) and kinds(seen).count(MasterUp) == 3)
    with watched.lock("job", ttl=TTL):
        pass
    assert kinds(seen).count(QuorumBack) == 1
    assert kinds(seen).count(MasterUp) == 3
    texts = [record.getMessage() for record in caplog.records if record.name == "redlock"]
    assert sum("no quorum: at least 3 of 5 masters did not vote" in text for text in texts) == 1
    assert sum("the quorum is back" in text for text in texts) == 1
    assert sum("is down" in text for text in texts) == 3
    assert sum("is back" in text and "master" in text for text in texts) == 3


def test_a_quarantined_master_is_told(world, redlock_servers, seen, caplog):
    """R21, R22."""
    caplog.set_level(logging.INFO, logger="redlock")
    redlock_servers.restart(0)
    with world.Masters(redlock_servers.urls[:1], node_timeout=1.0, observer=seen.append) as masters:
        with pytest.raises(QuorumUnreachable, match="quarantined"):
            masters.lock("job", ttl=TTL).acquire(timeout=0)
    (up,) = (event for event in seen if isinstance(event, MasterUp))
    assert 50 < up.quarantined <= 61
    assert "its vote counts in" in caplog.text


@pytest.mark.parametrize("error", [ZeroDivisionError, asyncio.CancelledError])  # that of a task it has asked
def test_an_observer_that_raises_breaks_nothing(world, redlock_servers, caplog, error):
    def broken(event):
        raise error("mine")

    with world.Masters(redlock_servers.urls, restart_guard=False, observer=broken) as masters:
        eventually(lambda: all_up(masters))
        with masters.lock("job", ttl=10) as lease:
            assert lease.valid
    assert f"{error.__name__}: mine" in caplog.text
    assert len(logged(caplog)) == 7, "five masters, the grant and the release"
    with pytest.raises(ConfigurationError, match="observer"):
        world.Masters(redlock_servers.urls, observer=5)
