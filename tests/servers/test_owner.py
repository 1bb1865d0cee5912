"""Who has a lock, as far as its token says (R27): a hint for people, never a proof."""

import os
import re

import pytest

import redlock
from redlock import NotAcquired
from redlock._io import process
from tests.owners import witness
from tests.servers.commands import NO_WAIT, RUN, run
from tests.servers.look import eventually, nothing_left, take

pytestmark = witness("R27")

HERE = f"{os.uname().nodename[:50]}/{os.getpid()}"


def tokens(servers, name="job"):
    return {keys[f"redlock:{name}"][0] for keys in servers.keys() if keys and f"redlock:{name}" in keys}


@pytest.mark.parametrize(("masters_owner", "lock_owner", "owner"), [
    (None, None, HERE), ("web-3", None, "web-3"), ("web-3", "request 7: Zoë", "request 7: Zoë"), ("web-3", "", ""),
], ids=["host-and-pid", "masters", "lock", "lock-none"])  # fmt: skip
def test_it_is_part_of_the_token_and_shown(world, redlock_servers, masters_owner, lock_owner, owner):
    with world.Masters(redlock_servers.urls, restart_guard=False, owner=masters_owner) as masters:
        lock = masters.lock("job", owner=lock_owner)
        lease = take(lock)
        assert lease.owner == owner
        assert re.fullmatch("[0-9a-f]{40}", lease.token.partition(":")[0])
        assert lease.token[40:] == (f":{owner}" if owner else "")
        assert tokens(redlock_servers) == {lease.token}
        status = masters.status("job")
        assert (status.token, status.owner) == (lease.token, owner)
        assert lock.extend().token == lease.token
        lock.release()
        assert masters.status("job").owner == ""
    eventually(lambda: nothing_left(redlock_servers))


# -- others on the same masters ----------------------------------------------------------------------


@pytest.mark.parametrize("host", ["h" * 64, "é" * 40, "a\x1b[31mb", "\udcff"])
def test_whatever_the_host_is_called_it_fits(host, monkeypatch):
    monkeypatch.setattr(os, "uname", lambda: os.uname_result(("Linux", host, "", "", "")))
    owner = process.name()
    assert redlock.options.owner(owner) == owner
    assert owner.endswith(f"/{os.getpid()}")


RELEASE = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end"


def theirs(servers, token, key="redlock:job"):
    """SET NX PX on each master, as redsync, pottery and our version before do; how many granted."""
    return sum(bool(servers.client(i).set(key, token, nx=True, px=30_000)) for i in range(5))


def give_back(servers, token, key="redlock:job"):
    return sum(servers.client(i).eval(RELEASE, 1, key, token) for i in range(5))


def test_other_clients_and_we_exclude_each_other(redlock_servers, world):
    token = "xZ4rQyYzq9xkfTCkJ8cVbA=="  # noqa: S105 - as redsync makes them
    with world.Masters(redlock_servers.urls, restart_guard=False, owner="web-3") as masters:
        assert theirs(redlock_servers, token) == 5
        assert masters.lock("job").acquire(timeout=0) is None
        status = masters.status("job")
        assert (status.token, status.owner) == ("xZ4rQyYz…", "")
        assert tokens(redlock_servers) == {token}
        assert give_back(redlock_servers, token) == 5
        lock = masters.lock("job")
        lease = take(lock)
        eventually(lambda: len([keys for keys in redlock_servers.keys() if keys and "redlock:job" in keys]) == 5)
        assert theirs(redlock_servers, token) == 0
        assert give_back(redlock_servers, token) == 0
        assert tokens(redlock_servers) == {lease.token}
        lock.release()
        eventually(lambda: nothing_left(redlock_servers))
        assert theirs(redlock_servers, token) == 5


HOSTILE = "\x1b]0;title\x07\x1b[2J\r\nforged  granted"


@pytest.mark.parametrize("token", [HOSTILE, f"{'0a1b2c3d' * 5}:{HOSTILE}"], ids=["theirs", "like-ours"])
def test_what_a_stranger_wrote_is_printed_safely(redlock_servers, masters, token):
    assert theirs(redlock_servers, token) == 5
    assert masters.status("job").owner == ""
    with pytest.raises(NotAcquired) as caught, masters.lock("job", timeout=0.0):
        pass
    assert all(vote.reason.isprintable() for vote in caught.value.votes)  # in JSON and in spans as well
    status = masters.status("job")
    assert all(text.isprintable() for text in (status.token, repr(status), *(vote.reason for vote in status.votes)))
    assert all(line.isprintable() for line in str(caught.value).split("\n"))
    assert "forged" not in [line.split()[0] for line in str(caught.value).split("\n")]
    done = run([*RUN, "job", "--no-restart-guard", *NO_WAIT, "--", "true"], redlock_servers.urls)
    assert done.returncode == 75
    assert all(line.isprintable() for line in done.stderr.splitlines()), done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_redlock_run_is_named_after_its_process_and_not_after_one_around_it(redlock_servers):
    inner = [*RUN, "other", "--no-restart-guard", "--", "sh", "-c", 'echo "$REDLOCK_OWNER"']
    done = run([*RUN, "job", "--no-restart-guard", "--owner", "outer", "--", *inner], redlock_servers.urls)
    said = done.stdout.strip()
    assert re.fullmatch(r".*/\d+", said), done
    assert said.rpartition("/")[0] == HERE.rpartition("/")[0]
