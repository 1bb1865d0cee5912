"""Many readers or one writer (R33), on real servers."""

import subprocess
import threading

import pytest

import redlock
from redlock import ConfigurationError, LockLost, NotAcquired, NotExtended, NotHeld, WouldDeadlock
from redlock._core import wire
from redlock._health import rights
from tests.owners import witness
from tests.servers.commands import CHECK, NO_WAIT, RUN, environment, run
from tests.servers.look import at_once, each, elsewhere, eventually, nothing_left, take

pytestmark = witness("R33")

KEY = "redlock:job"
NEW = "--no-restart-guard"


def refused(lock, **options):
    with pytest.raises(NotAcquired) as caught, lock:
        pass
    assert lock.acquire(blocking=False, **options) is None
    return caught.value.message


def readers_on(servers):
    """The tokens that each master has as readers; none where somebody has it alone."""
    clients = [servers.client(i) for i in range(5)]
    found = [client.zrange(KEY, 0, -1, withscores=True) if client.type(KEY) == b"zset" else [] for client in clients]
    return [{token.decode() for token, score in members if score > 0} for members in found]


def test_readers_hold_it_together_and_no_writer_does(world, redlock_servers, masters, others):
    with masters.lock("job", shared=True, ttl=10) as one, others.lock("job", shared=True, ttl=10) as two:
        assert isinstance(one, world.Lease)
        assert one.valid
        assert two.valid
        assert one.shared
        assert one.fence < two.fence  # a fresh one for each grant, of readers, too
        with world.Masters(redlock_servers.urls, restart_guard=False) as third:
            assert "held by readers" in refused(third.lock("job", timeout=0.0))
            status = third.status("job")
        assert (status.token, set(status.shared)) == (None, {one.token, two.token})
        assert set(status.readers) == {one.owner}
        assert 5 < status.remaining <= 10
        assert masters.lock("job").locked()
    with others.lock("job") as writer:
        assert not writer.shared
        assert writer.fence > two.fence
        assert "held by" in refused(masters.lock("job", shared=True, timeout=0.0))
    eventually(lambda: nothing_left(redlock_servers))


def test_the_mark_of_a_writer_keeps_no_lease_from_its_key(redlock_servers, masters):
    """R14: the next extension gives the key back to a master that lost it, also if a writer waits there."""
    lock = masters.lock("job", ttl=30)
    lease = take(lock)
    client = redlock_servers.client(2)
    eventually(lambda: client.exists(KEY))
    client.delete(KEY)
    client.zadd(KEY, {"waits": -2e12})
    client.pexpire(KEY, 60_000)
    eventually(lambda: lock.extend() and client.type(KEY) == b"string")
    assert client.get(KEY).decode() == lease.token
    lock.release()


def test_who_lost_it_is_not_told_that_somebody_waits(redlock_servers, masters):
    """Nobody has taken it: it expired."""
    lock = masters.lock("job", ttl=30)
    take(lock)
    eventually(lambda: all(KEY in keys for keys in redlock_servers.keys()))
    each(redlock_servers, "delete", KEY)
    each(redlock_servers, "zadd", KEY, {"waits": -2e12})
    each(redlock_servers, "pexpire", KEY, 60_000)
    with pytest.raises(LockLost) as caught:
        lock.release()
    assert caught.value.reason == "expired"


def test_a_downgrade_lets_readers_in_and_no_writer(world, redlock_servers, masters, others):
    lock = masters.lock("job", ttl=10)
    lease = take(lock)
    fence = lease.fence
    assert others.lock("job", shared=True).acquire(timeout=0.0) is None
    lease.downgrade()
    assert lease.shared
    assert (lease.valid, lease.fence) == (True, fence)
    reader = others.lock("job", shared=True)
    assert (take(reader, timeout=0.0).fence or 0) > (fence or 0)
    with world.Masters(redlock_servers.urls, restart_guard=False) as third:
        assert third.lock("job").acquire(timeout=0.0) is None
    lease.downgrade()  # nothing changes
    lock.extend()
    lock.release()
    reader.release()
    eventually(lambda: nothing_left(redlock_servers))
    with pytest.raises(LockLost, match="it was released"):
        lease.downgrade()


def test_a_downgraded_lease_is_renewed_and_heals_where_it_did_not_arrive(redlock_servers, masters):
    lock = masters.lock("job", ttl=6)
    lease = take(lock)
    eventually(lambda: lock.extend() and all(KEY in keys for keys in redlock_servers.keys()))
    redlock_servers.pause(0)
    lease.downgrade()
    redlock_servers.resume(0)
    eventually(lambda: all(lease.token in readers for readers in readers_on(redlock_servers)[1:]))
    eventually(lambda: lease.token in readers_on(redlock_servers)[0])
    until = lease.valid_until
    eventually(lambda: lease.valid_until > until)
    lock.release()
    eventually(lambda: nothing_left(redlock_servers))


def test_full_masters_extend_and_downgrade(redlock_servers, masters):
    """They refuse only what a script writes first; else the key would be gone, and its place among readers refused."""
    lock = masters.lock("job", ttl=30)
    lease = take(lock)
    eventually(lambda: lock.extend() and all(KEY in keys for keys in redlock_servers.keys()))
    each(redlock_servers, "config_set", "maxmemory", "1")
    try:
        lease.downgrade()
        lock.extend()
    finally:
        each(redlock_servers, "config_set", "maxmemory", "0")
    eventually(lambda: all(lease.token in readers for readers in readers_on(redlock_servers)))
    lock.release()


def test_who_entered_it_twice_cannot_downgrade_it(masters):
    with masters.lock("job"), masters.lock("job") as inner:
        with pytest.raises(WouldDeadlock, match="entered more than once"):
            inner.downgrade()
        assert not inner.shared
    with (
        masters.lock("job", ttl=10, hold_at_least=0.2) as lease,
        pytest.raises(ConfigurationError, match="hold_at_least"),
    ):
        lease.downgrade()


def test_who_has_a_slot_has_it_alone(masters):
    with masters.slots("job", limit=2) as lease, pytest.raises(ConfigurationError, match="is a slot"):
        lease.downgrade()


def resumed(masters, lease, **options):
    return masters.resume("job", ttl=10, token=lease.token, fence=lease.fence, **options)


def test_a_reader_that_is_handed_over_without_shared_is_told_that_it_is_one(redlock_servers, masters, others):
    given = take(lock := masters.lock("job", shared=True, ttl=10))
    eventually(lambda: lock.extend() and all(KEY in keys for keys in redlock_servers.keys()))  # else: lost
    for _ in range(2):
        with pytest.raises(ConfigurationError, match=r"the token of 'job' belongs to a reader: .*shared=True"):
            resumed(others, given).acquire()
    assert given.valid
    taken = resumed(others, given, shared=True)
    take(taken)
    assert (taken.lease.shared, taken.lease.valid) == (True, True)
    taken.release()
    eventually(lambda: nothing_left(redlock_servers))


def test_a_writer_that_is_handed_over_with_shared_is_no_reader(redlock_servers, masters, others):
    """Else readers would come in while its first owner still counts on having it alone."""
    lock = masters.lock("job", ttl=10)
    given = take(lock)
    taken = resumed(others, given, shared=True)
    for _ in range(2):
        with pytest.raises(ConfigurationError, match=r"the token of 'job' holds it exclusively: .*downgrade"):
            taken.acquire()
    assert taken.lease is None
    assert readers_on(redlock_servers) == [set()] * 5
    assert others.lock("job", shared=True).acquire(timeout=0.0) is None
    lock.extend()  # it has lost nothing
    taken = resumed(others, given)
    take(taken)
    taken.lease.downgrade()
    assert taken.lease.shared
    taken.release()
    eventually(lambda: nothing_left(redlock_servers))


def test_what_was_downgraded_where_it_was_handed_over_to_is_not_lost_for_being_a_reader(masters, others):
    """Its first owner keeps what it has until its time is over, and does not say that it gave back what it had not."""
    lock = masters.lock("job", ttl=10, auto_extend=False)
    given = take(lock)
    taken = resumed(others, given)
    take(taken)
    taken.lease.downgrade()
    with pytest.raises(NotExtended, match="it is one of the readers now"):
        lock.extend()
    assert given.valid
    with pytest.raises(LockLost, match="it is one of the readers now"):
        lock.release()
    taken.extend()
    taken.release()


def test_a_repair_leaves_alone_a_reader_that_stays_longer(redlock_servers):
    """R14, C11: it may have been extended where it was handed over, and a repair of before comes late."""
    client, keys = redlock_servers.client(0), wire.keys_for("redlock:", ["read"])
    for ttl in (20.0, 5.0):
        call = wire.repair_shared(keys, "token", ttl, 5, 60.0)
        assert client.eval(call.script.text, len(call.keys), *call.keys, *call.args) == [1]
    seconds, _ = client.time()
    assert client.zscore("redlock:read", "token") > 1000 * (seconds + 6)
    assert client.pttl("redlock:read") > 6000


def test_somebody_else_cannot_downgrade_it(masters):
    with masters.lock("job") as lease:
        assert isinstance(elsewhere(lease.downgrade), NotHeld)
        assert not lease.shared


def test_readers_wait_in_one_line_and_enter_together(masters, others):
    writer = others.lock("job", bound=False)
    take(writer)
    inside, go = threading.Barrier(4), []

    def read():
        with masters.lock("job", shared=True, timeout=60):
            inside.wait(30)  # all of them at one time
            go.append(True)

    threading.Timer(0.2, writer.release).start()
    at_once([read] * 4)
    assert len(go) == 4


def test_several_names_are_all_shared(redlock_servers, masters, others):
    with masters.lock(["a", "b"], shared=True) as lease, others.lock(["b", "c"], shared=True):
        assert lease.names == ("a", "b")
        assert others.lock("a").acquire(timeout=0.0) is None
        assert set(masters.status("b").shared) > {lease.token}
    eventually(lambda: nothing_left(redlock_servers))


def test_without_fencing_a_reader_has_none(redlock_servers, masters):
    with masters.lock("job", shared=True, fencing=False) as lease:
        assert lease.fence is None
    assert not any("{redlock:job}:fence" in keys for keys in redlock_servers.keys("*"))


def test_more_readers_than_allowed_are_refused(masters, others):
    with masters.lock("job", shared=True):
        few = others.lock("job", shared=True, max_readers=1, timeout=0.0)
        assert "as many readers as it may have (max_readers)" in refused(few)
        with others.lock("job", shared=True, max_readers=2):
            pass


@pytest.mark.parametrize("lacks", ["+z", "+zadd", "+zrange", "+pexpire"])
def test_who_may_not_read_may_write(world, redlock_servers, others, lacks):
    """An ACL of the version before names no command of sorted sets: its users go on, and readers are told what they lack.

    A downgrade that is refused claims no more than the shared lock, and lets nobody in.  No set stays without an expiry:
    the name would never be free again.
    """
    before = [word for word in rights.rule("redlock:").split() if not word.startswith(lacks)]
    each(redlock_servers, "execute_command", "ACL", "SETUSER", "before", "reset", "on", ">secret", *before)
    try:
        urls = [f"redis://before:secret@127.0.0.1:{port}" for port in redlock_servers.ports]
        with world.Masters(urls, restart_guard=False) as masters:
            with masters.lock("job", ttl=10) as lease:
                with pytest.raises(NotExtended, match="NOPERM"):
                    lease.downgrade()
                assert lease.shared
                assert lease.valid
                assert others.lock("job", timeout=0.0).acquire() is None
            with pytest.raises(redlock.QuorumUnreachable, match="NOPERM"):
                masters.lock("job", shared=True, timeout=0.0).acquire()
            for meets in (masters.lock("job", timeout=0.0).acquire, lambda: masters.status("job")):
                if lacks in ("+z", "+zrange"):  # not: something that is not a lock has this key
                    with others.lock("job", shared=True), pytest.raises(redlock.QuorumUnreachable, match="NOPERM"):
                        meets()
    finally:
        each(redlock_servers, "acl_deluser", "before")
    assert others.lock("job", timeout=5.0).acquire()


# -- others, who know nothing of readers -------------------------------------------------------------

COMPARE_AND_DELETE = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end"


def test_a_lock_of_others_keeps_readers_away(redlock_servers, masters):
    each(redlock_servers, "set", KEY, "theirs", px=30_000, masters=3)
    assert "held by theirs" in refused(masters.lock("job", shared=True, timeout=0.0))


def test_readers_keep_others_away(redlock_servers, masters):
    """``SET NX`` sees a key; an owner-checked delete is refused by its type, and changes nothing."""
    lock = masters.lock("job", shared=True, ttl=30)
    lease = take(lock)
    eventually(lambda: lock.extend() and all(lease.token in readers for readers in readers_on(redlock_servers)))
    for i in range(5):
        client = redlock_servers.client(i)
        assert not client.set(KEY, "theirs", nx=True, px=1000)
        with pytest.raises(Exception, match="WRONGTYPE"):
            client.eval(COMPARE_AND_DELETE, 1, KEY, lease.token)
    assert all(lease.token in readers for readers in readers_on(redlock_servers))
    assert lock.extend().valid
    lock.release()
    eventually(lambda: nothing_left(redlock_servers))
    assert all(redlock_servers.client(i).set(KEY, "theirs", nx=True, px=1000) for i in range(5))


def test_a_set_of_others_is_not_touched(redlock_servers, masters):
    """One without an expiry is not one of readers."""
    each(redlock_servers, "zadd", KEY, {"alice": 1, "bob": 2e12})
    for shared in (True, False):
        with pytest.raises(redlock.QuorumUnreachable, match="WRONGTYPE"):
            masters.lock("job", shared=shared, timeout=0.0).acquire()
    assert all(redlock_servers.client(i).zcard(KEY) == 2 for i in range(5))


# -- commands ----------------------------------------------------------------------------------------


def test_redlock_run_shared(redlock_servers):
    urls = redlock_servers.urls
    command = [*RUN, "job", NEW, "--shared", "--owner", "batch", "--", "sleep", "60"]
    first = subprocess.Popen(command, env=environment(urls))
    try:
        eventually(lambda: any("redlock:job" in keys for keys in redlock_servers.keys()))
        eventually(lambda: run([*RUN, "job", NEW, "--shared", "--wait", "20", "--", "true"], urls).returncode == 0)
        done = run([*RUN, "job", NEW, *NO_WAIT, "--verbose", "--", "true"], urls)
        assert done.returncode == 75
        assert "held shared by 1 (batch)" in done.stderr
        listed = run([*CHECK, "--held", NEW], urls)
        assert "batch, shared" in listed.stdout
    finally:
        first.terminate()
        first.wait(30)
    eventually(lambda: nothing_left(redlock_servers))
