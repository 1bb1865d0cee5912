"""A list of locks (R29): what is in it, what masters that fail do to it, and how it streams."""

import itertools
import json
import re
import tracemalloc

import pytest

import redlock
from redlock._core import wire
from redlock._core.fair import tickets
from redlock._health import rights
from redlock.testing import LocalMasters
from tests.owners import witness
from tests.servers.commands import CHECK, run
from tests.servers.look import all_up, each, eventually, kill, take
from tests.servers.waiter import Waiting

pytestmark = witness("R29")

FIVE = range(5)


def names(masters, *match):
    return sorted(status.name for status in masters.held(*match))


@pytest.fixture
def locks(masters):
    eventually(lambda: all_up(masters))  # each is asked for what it has
    return masters.held


def put(servers, key, value="somebody", *, on=FIVE, px=30_000):
    for i in on:
        servers.client(i).set(key, value, px=px)


def test_each_lock_is_there_once_with_what_its_status_says(redlock_servers, masters, locks):
    assert list(locks()) == []
    with masters.lock("a", owner="web-3", ttl=10) as a, masters.lock(["b", "{tag}:c"], owner="", ttl=20) as b:
        eventually(lambda: all(vote.outcome == "held" for name in "ab" for vote in masters.status(name).votes))
        found = {status.name: status for status in locks()}
        assert sorted(found) == ["a", "b", "{tag}:c"]
        assert (found["a"].token, found["a"].owner, found["a"].fence) == (a.token, "web-3", a.fence)
        assert {found[name].token for name in b.names} == {b.token}
        assert found["b"].fence == b.fence
        assert 5 < found["a"].remaining <= 10  # renewed at a third of the TTL, however slow the machine is
        assert 10 < found["b"].remaining <= 20
        assert [vote.outcome for vote in found["a"].votes] == ["held"] * 5
    assert list(locks()) == []


def test_the_pattern_is_for_names(redlock_servers, masters, locks):
    for name in ("invoice:1", "invoice:2", "job", "x*y"):
        put(redlock_servers, f"redlock:{name}")
    assert names(masters, "*") == ["invoice:1", "invoice:2", "job", "x*y"]
    assert names(masters, "invoice:*") == ["invoice:1", "invoice:2"]
    assert names(masters, "invoice:[2-9]") == ["invoice:2"]
    assert names(masters, "jo?") == ["job"]
    assert names(masters, "x\\*y") == ["x*y"]
    assert names(masters, "redlock:*") == []


@pytest.mark.parametrize("prefix", ["p*:", "a[b]?\\"])
def test_the_prefix_is_no_pattern(world, redlock_servers, prefix):
    for key in (f"{prefix}job", "pq:other", "abc:other"):
        put(redlock_servers, key)
    with world.Masters(redlock_servers.urls, restart_guard=False, prefix=prefix) as masters:
        assert names(masters) == ["job"]


@pytest.mark.parametrize("prefix", ["redlock:", ""])
def test_what_is_no_lock_is_left_out(world, redlock_servers, prefix):
    """Fences, announcements, other types, other prefixes, and what is no name."""
    with world.Masters(redlock_servers.urls, restart_guard=False, prefix=prefix) as masters:
        for name in ("plain", "{tag}", "{tag}:more", "a{}b", "}odd{"):
            with masters.lock(name, ttl=10):
                pass
        for i in FIVE:
            client = redlock_servers.client(i)
            client.hset(f"{prefix}hash", "a", "b")
            client.zadd(f"{prefix}readers", {"a": 1})
            client.set(prefix.encode() + b"\xff", "x")
            client.set(f"{prefix}{'x' * 513}", "x")
            client.set(f"redlock-max-ttl:{prefix}", "60000")
            client.set("redlock-max-ttl:other:", "60000")
            call = tickets.stand(wire.keys_for(prefix, ["{tag}"]), "waiter", 2**50, 60.0, new=False)
            client.eval(call.script.text, len(call.keys), *call.keys, *call.args)
        put(redlock_servers, f"{prefix}job")
        assert names(masters) == ["job"]


def test_a_lock_without_expiry_of_somebody_else_is_there(redlock_servers, locks):
    put(redlock_servers, "redlock:job", "x" * 1000, px=None)
    (found,) = locks()
    assert (found.remaining, found.owner, found.token) == (float("inf"), "", "xxxxxxxx…")


def test_a_name_whose_key_is_no_lock_on_some_masters_does_not_end_the_list(redlock_servers, locks):
    put(redlock_servers, "redlock:job")
    put(redlock_servers, "redlock:odd", on=[0, 1])
    for i in (2, 3, 4):
        redlock_servers.client(i).lpush("redlock:odd", "x")
    found = {status.name: status for status in locks()}
    assert sorted(found) == ["job", "odd"]
    assert [vote.outcome for vote in found["odd"].votes] == ["held", "held", "error", "error", "error"]
    assert "WRONGTYPE" in found["odd"].votes[2].reason


# -- many --------------------------------------------------------------------------------------------


def fill(servers, number, other=0):
    for i in FIVE:
        with servers.client(i).pipeline(transaction=False) as pipe:
            for n in range(number):
                pipe.set(f"redlock:job {n}", f"token {n}", px=600_000)
            for n in range(other):
                pipe.set(f"else:{n}", "x")
            pipe.execute()


def test_it_begins_to_tell_before_it_has_seen_all(redlock_servers):
    """And holds names, not statuses."""
    fill(redlock_servers, 2000)
    with redlock.Masters(redlock_servers.urls, restart_guard=False, node_timeout=3) as masters:
        calls = [scans(redlock_servers.client(i)) for i in FIVE]
        found = masters.held()
        assert len(list(itertools.islice(found, 10))) == 10
        assert sum(scans(redlock_servers.client(i)) for i in FIVE) - sum(calls) <= 2
        peaks = []
        for consume in (lambda: sum(1 for _ in found), lambda: len(list(masters.held()))):
            tracemalloc.start()
            try:
                assert consume() >= 1990
                peaks.append(tracemalloc.get_traced_memory()[1])
            finally:
                tracemalloc.stop()
    assert peaks[0] < 0.75 * peaks[1]  # of statuses with their votes


def scans(client):
    stats = client.info("commandstats")
    return int(stats.get("cmdstat_scan", {"calls": 0})["calls"])


def test_no_master_is_held_up(redlock_servers):
    """A step looks at some hundred keys, however many there are."""
    fill(redlock_servers, 100, 5_000)
    each(redlock_servers, "config_resetstat")
    with redlock.Masters(redlock_servers.urls, restart_guard=False, node_timeout=3) as masters:
        eventually(lambda: all_up(masters))
        assert sum(1 for _ in masters.held()) == 100
    assert all(scans(redlock_servers.client(i)) >= 5_000 / 1000 for i in FIVE)


# -- redlock-check --held ---------------------------------------------------------------------------

HOSTILE = "\x1b]0;title\x07\x1b[2J\x9b31m\r\nforged  granted\u202e"


def check(servers, *options):
    return run([*CHECK, "--no-restart-guard", *options], servers.urls)


def test_the_command_shows_a_table(redlock_servers, masters):
    for name in ("b", "a"):
        put(redlock_servers, f"redlock:{name}", f"{'0a1b2c3d' * 5}:web-{name}/7", px=59_000)
    put(redlock_servers, "redlock:other", "theirs", px=None)
    put(redlock_servers, "redlock:rest", "x", on=[1])

    def shows():
        done = check(redlock_servers, "--held")
        assert done.returncode == 0, done.stderr
        said = re.sub(r"[34] of 5", "5 of 5", re.sub(r"\d+\.\d s", "# s", done.stdout))  # one may be late
        lines = [line.split() for line in said.splitlines()]
        assert lines == [
            ["NAME", "OWNER", "ENDS", "IN", "MASTERS", "WAIT"],
            ["a", "web-a/7", "#", "s", "5", "of", "5", "0"],
            ["b", "web-b/7", "#", "s", "5", "of", "5", "0"],
            ["other", "(token", "theirs)", "never", "5", "of", "5", "0"],
            ["rest", "(no", "majority)", "-", "1", "of", "5", "0"],
            [],
            ["4", "locks"],
        ]
        return True

    eventually(shows)  # the only master that has "rest" may be late


def test_how_many_wait_for_each(redlock_servers, masters, others):
    """R40: each process that waits or watches counts, and a right that is missing says so and no more."""
    held = others.lock("job", ttl=50)
    take(held)
    waiting = Waiting(masters.lock("job", ttl=50), timeout=30)
    eventually(lambda: masters.status("job").waiters == 1)
    eventually(
        lambda: (
            [lock["waiters"] for lock in json.loads(check(redlock_servers, "--held", "--json").stdout)["locks"]] == [1]
        )
    )
    each(redlock_servers, "execute_command", "ACL SETUSER", "default", "-pubsub|numsub")
    assert masters.status("job").waiters is None
    assert masters.status("job").token == held.lease.token
    each(redlock_servers, "execute_command", "ACL SETUSER", "default", "+@all")
    held.release()
    assert waiting.end() is not None


@pytest.mark.parametrize(("options", "names", "total"), [
    (["--held=a*", "--limit", "1"], ["a1"], 2),
    (["--limit=2", "--held"], ["a1", "a2"], 3),
    (["--held", "z*"], [], 0),
])  # fmt: skip
def test_json_pattern_and_limit(redlock_servers, options, names, total):
    for name in ("b1", "a2", "a1"):
        put(redlock_servers, f"redlock:{name}", f"{'0' * 40}:web", px=600_000)
    done = check(redlock_servers, *options, "--json")
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert (said["schema"], said["size"], said["total"]) == (1, 5, total)
    assert [lock["name"] for lock in said["locks"]] == names
    for lock in said["locks"]:
        assert (lock["owner"], lock["token"]) == ("web", f"{'0' * 40}:web")
        assert 3 <= lock["masters"] <= 5  # on a busy machine one may be late
        assert 500 < lock["remaining_s"] <= 600


@pytest.mark.parametrize("options", [["--held"], ["--held", "--json"]])
def test_what_strangers_wrote_breaks_no_terminal(redlock_servers, options):
    put(redlock_servers, f"redlock:job {HOSTILE}", f"{'0' * 40}:{HOSTILE}")
    put(redlock_servers, "redlock:other", HOSTILE)
    done = check(redlock_servers, *options)
    assert done.returncode == 0
    assert all(line.isprintable() for line in done.stdout.split("\n")), done.stdout
    assert not any(line.startswith("forged") for line in done.stdout.split("\n"))
    if options == ["--held"]:
        assert len(done.stdout.splitlines()) == 5


def test_masters_that_do_not_vote_yet_show_what_they_have():
    """In their first minute, or right after a restart: what that means is said, and it is a warning."""
    with LocalMasters(5) as young:
        put(young, "redlock:job", f"{'0' * 40}:web", px=600_000)
        look = [*CHECK, "--max-ttl", "60", "--node-timeout", "2", "--held"]
        done = run(look, young.urls)
        assert (done.returncode, done.stderr) == (1, "")
        assert re.search(r"^job +web +\d+\.\d s +[345] of 5 +0$", done.stdout, re.MULTILINE), done.stdout
        assert "5 of 5 masters were started a short while ago and do not vote yet: 127.0.0.1:" in done.stdout
        assert "Locks that they have forgotten may still be held, and are not in this list." in done.stdout
        done = run([*look, "--json"], young.urls)
        said = json.loads(done.stdout)
        assert (done.returncode, said["total"], len(said["not_voting"])) == (1, 1, 5)
        assert all(0 < seconds <= 61 for seconds in said["not_voting"].values())
        kill(young, 3)
        done = run(look, young.urls)
        assert (done.returncode, done.stdout) == (2, "")
        assert "cannot list the locks" in done.stderr


@pytest.mark.parametrize(("more", "says"), [
    (["+scan"], None), ([], "ACL SETUSER user +scan, on each master"), (["-@all"], "not permitted"),
])  # fmt: skip
def test_the_command_says_what_to_grant(redlock_servers, more, says):
    rule = rights.rule("redlock:").split()
    each(redlock_servers, "execute_command", "ACL", "SETUSER", "lister", "on", ">pw", *rule, *more)
    done = run(
        [*CHECK, "--no-restart-guard", "--held"], [f"redis://lister:pw@127.0.0.1:{p}" for p in redlock_servers.ports]
    )
    each(redlock_servers, "execute_command", "ACL", "DELUSER", "lister")
    assert done.returncode == (0 if says is None else 2), done.stderr
    assert says is None or says in done.stderr
    assert ("redlock-check --acl --held prints the rule" in done.stderr) is (says is not None)
    assert ("+scan" in done.stderr) is (more == [])
