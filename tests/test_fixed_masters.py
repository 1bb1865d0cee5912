"""`FixedMasters` and the fixtures of them: what a program sees; in tasks as well, see `windows/`.  No server runs."""

from __future__ import annotations

import socket

import pytest

from redlock import Lease, LockLost, Masters, MultiLock, NotAcquired, NotExtended, QuorumUnreachable, RedlockError
from redlock.testing import FixedMasters
from tests.servers.look import eventually

FAR = 30.0  # seconds; nothing waits for so long
TTL = 6.0  # seconds, a third of which passes before a renewal; a busy machine may not run this process for seconds


def renewed(*leases):
    before = [lease.valid_until for lease in leases]
    eventually(lambda: all(lease.valid_until > then for lease, then in zip(leases, before, strict=True)))
    assert all(lease.valid for lease in leases)


def test_granted(redlock_granted):
    lock = redlock_granted.masters.lock("job", ttl=TTL)
    with lock as lease, Masters(redlock_granted.urls, confirm_expiry=True) as others:
        assert lease.fence > 0
        assert lock.extend() is lease
        with others.lock(["job", "other"], ttl=TTL) as recorded:  # `FixedMasters` grants one name to several owners
            renewed(lease, recorded)
    assert not lock.locked()
    assert list(redlock_granted.masters.held()) == []
    assert redlock_granted.masters.wait_until_free("job", timeout=FAR)
    with MultiLock("job", redlock_granted.masters, fencing=False) as lease:
        assert lease.fence is None


def test_the_text_of_no_error_prints_a_thousand_names(
    redlock_granted, redlock_refused, redlock_unreachable, redlock_lost
):
    """The log of a program that locks many names at once stays readable; `name` and `names` have them all."""

    def refused(call):
        with pytest.raises(RedlockError) as caught:
            call()
        assert len(caught.value.name) == 0 or len(caught.value.name.split(", ")) == len(names)
        return caught.value.message

    def texts():
        lock = redlock_granted.masters.lock(names)
        yield repr(lock)
        yield refused(lock.release)
        with lock as lease:
            yield repr(lease)
            yield refused(redlock_granted.masters.lock([*names[1:], "one more"]).acquire)
            yield refused(redlock_granted.masters.lock(names).release)
            yield refused(redlock_granted.masters.lock(names, max_hold=5).acquire)
            yield refused(lambda: lease.ensure(50))
        yield refused(lease.ensure)
        yield refused(redlock_refused.masters.lock(names, timeout=0).__enter__)
        yield refused(redlock_unreachable.masters.lock(names, timeout=0).__enter__)
        yield refused(redlock_lost.masters.resume(names, token="f" * 40).acquire)
        lock = redlock_lost.masters.lock(names)
        lock.acquire()
        yield refused(lock.extend)

    names = [f"account:{number}" for number in range(1000)]
    for text in texts():
        assert len(text) < 500
        assert "'account:0, account:1, account:2' and 997 more" in text
    names = names[:10]
    assert all(f"'{', '.join(names)}'" in text for text in texts())


def test_refused(redlock_refused):
    lock = redlock_refused.masters.lock("job")
    assert lock.acquire(blocking=False) is None
    assert lock.acquire(timeout=0.1) is None
    with pytest.raises(NotAcquired) as caught, redlock_refused.masters.lock("job", timeout=0):
        pass
    assert type(caught.value) is NotAcquired
    assert lock.locked()
    assert redlock_refused.masters.status("job").token == "somebody…"  # noqa: S105
    assert not redlock_refused.masters.wait_until_free("job", timeout=0)


@pytest.mark.parametrize("timeout", [0, FAR, -1])
def test_unreachable_at_once(redlock_unreachable, timeout):
    """Also for who waits for ever."""
    with pytest.raises(QuorumUnreachable, match="redlock_unreachable"):
        redlock_unreachable.masters.lock("job", timeout=timeout).acquire()


def test_lost_at_a_renewal(redlock_lost):
    told: list[Lease] = []
    lock = redlock_lost.masters.lock("job", ttl=TTL, on_lost=told.append)
    lease = lock.acquire()
    assert lease.valid
    assert lease.wait_lost(timeout=FAR)
    assert lease.loss().reason == "taken"
    eventually(lambda: told == [lease])  # by another thread, a moment later
    with pytest.raises(LockLost):
        lock.release()


def test_what_is_renewed_together_is_lost_or_kept_together(redlock_granted, redlock_lost):
    """Their renewals share requests."""
    kept, lost = (
        [fixed.masters.lock(f"job:{i}", ttl=TTL).acquire() for i in range(20)]
        for fixed in (redlock_granted, redlock_lost)
    )
    renewed(*kept)
    assert all(lease.wait_lost(timeout=FAR) and lease.loss().reason == "taken" for lease in lost)


@pytest.mark.parametrize("what", ["extend", "release"])
def test_lost_when_it_is_used(redlock_lost, what):
    """The default TTL: nothing is waited for."""
    lock = redlock_lost.masters.lock("job")
    assert lock.acquire().valid
    with pytest.raises((LockLost, NotExtended)) as caught:
        getattr(lock, what)()
    assert isinstance(caught.value, LockLost)


def test_nothing_is_left():
    fixed = FixedMasters("granted")
    with pytest.raises(RuntimeError, match="not started"):
        _ = fixed.urls
    urls: list[str] = []
    for _ in range(2):  # they may be started again
        with fixed, fixed.masters.lock("job"):
            urls = fixed.urls
            with pytest.raises(RuntimeError, match="already"):
                fixed.start()
    for url in urls:
        with pytest.raises(OSError, match=r".*"):
            socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2])), timeout=1)
    assert repr(fixed) == "<FixedMasters granted: no locks>"
    with pytest.raises(ValueError, match="must be one of"):
        FixedMasters("maybe")  # type: ignore[arg-type]
