"""R21, R22, P5: a master that restarted and may have forgotten does not vote until it cannot matter."""

from typing import Any

import pytest

from redlock import QuorumUnreachable
from redlock.testing import LocalMasters
from tests.owners import witness
from tests.servers.look import all_up, eventually, restart, take

pytestmark = witness("P5", "R21", "R22")

TTL = 3.0
OPTIONS: dict[str, Any] = {"max_ttl": TTL, "node_timeout": 0.6}
PATIENT = {"max_ttl": 60.0, "node_timeout": 5.0}  # longer than it may take to start three, and to write to the disk


def test_restarted_empty_it_may_not_give_away_what_it_forgot(world):
    """A majority has no key any more.  The lease has ended all the same before another client has the name."""
    with (
        LocalMasters(3) as servers,
        world.Masters(servers.urls, **OPTIONS) as one,
        world.Masters(servers.urls, **OPTIONS) as two,
    ):
        for masters in (one, two):
            eventually(lambda: all_up(masters))  # noqa: B023 - up for longer than `max_ttl`, they may vote
        lease = take(one.lock("job", ttl=TTL, auto_extend=False), timeout=60)
        for index in (0, 1):
            servers.restart(index, keep_data=False)
        with two.lock("job", ttl=TTL, timeout=60):
            assert not lease.valid


def test_a_master_that_forgets_nothing_votes_at_once(world):
    """Exempt: append-only file with appendfsync always; and it does keep what it was told."""
    with LocalMasters(3, persistence="always") as servers, world.Masters(servers.urls, **PATIENT) as masters:
        lock = masters.lock("job", ttl=60)
        lease = take(lock, timeout=0)
        restart(servers, 3)
        eventually(lambda: masters.status("job").token == lease.token)
        lock.release()


@pytest.mark.parametrize("how", [
    pytest.param({"persistence": "everysec"}, id="everysec"),
    pytest.param({"persistence": "always", "config": {"no-appendfsync-on-rewrite": "yes"}},
        id="not-while-it-is-rewritten"),
])  # fmt: skip
def test_nearly_always_is_not_exempt(world, how):
    with LocalMasters(3, **how) as servers, world.Masters(servers.urls, **PATIENT) as masters:
        with pytest.raises(QuorumUnreachable, match="quarantined"):
            masters.lock("job").acquire(timeout=0)


def test_one_that_was_a_replica_for_a_moment_may_not_give_away_what_it_forgot(world):
    """A has the lock on 2, 3 and 4.  REPLICAOF gives 4 the data of 1, which has none of it, and 4 keeps its run_id."""
    with LocalMasters(5, persistence="always") as servers:
        for i in (0, 4):
            servers.kill(i)
        with world.Masters(servers.urls, **PATIENT) as one:
            lease = take(one.lock("job", ttl=60.0, auto_extend=False))
        for i in (0, 4):
            servers.restart(i)
        became = servers.client(3)
        run_id = became.info("server")["run_id"]
        with world.Masters(servers.urls, **PATIENT) as two:
            eventually(lambda: all_up(two))
            became.replicaof("127.0.0.1", servers.ports[0])
            eventually(lambda: became.info("replication")["master_link_status"] == "up")
            with two.lock("another"):
                pass  # whoever asks a replica hears of it
            became.replicaof("NO", "ONE")
            assert became.info("server")["run_id"] == run_id
            with world.Masters(servers.urls, **PATIENT) as three:  # it was not there before
                for masters in (two, three):
                    assert masters.lock("job").acquire(timeout=1.0) is None
                    eventually(lambda: "another master_replid" in masters.status("job").votes[3].reason)  # noqa: B023
        assert became.get("redlock:job") != lease.token.encode()


def test_info_that_is_granted_later_counts_from_the_next_connection_on_as_the_vote_says(world, redlock_servers):
    """A client asks once for each connection (R21); ``CLIENT KILL`` is the way without a restart of the program."""
    client = redlock_servers.client(0)
    rights = {"enabled": True, "passwords": ["+x"], "keys": ["*"], "channels": ["*"]}
    client.acl_setuser("blind", commands=["+@all", "-info"], **rights)
    try:
        with world.Masters(
            [f"redis://blind:x@127.0.0.1:{redlock_servers.ports[0]}"], max_ttl=1.0, prefix="blind:"
        ) as masters:
            lock = masters.lock("job", ttl=1.0)
            with pytest.raises(QuorumUnreachable, match=r"grant \+info .*end its connections \(CLIENT KILL USER"):
                lock.acquire()
            client.acl_setuser("blind", commands=["+@all"], **rights)
            with pytest.raises(QuorumUnreachable, match=r"grant \+info"):
                lock.acquire()
            client.execute_command("CLIENT", "KILL", "USER", "blind")
            eventually(lambda: lock.acquire(timeout=0) is not None)
            lock.release()
    finally:
        client.acl_deluser("blind")
