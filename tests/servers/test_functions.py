"""The function library on real servers: users who may run no Lua of their own (R44)."""

from pathlib import Path

import pytest
import redis

from redlock import scripts
from redlock._core import wire
from redlock._health import rights
from redlock.testing import LocalMasters
from tests.owners import witness
from tests.servers.look import eventually, nothing_left, take
from tests.servers.one import with_functions

RULE = rights.rule("redlock:", listing=True, functions=True).split()
RUN = {"cmdstat_eval", "cmdstat_evalsha", "cmdstat_script|load"}


@pytest.fixture(scope="module", params=with_functions(), ids=lambda path: Path(path).name)
def loaded(request):
    with LocalMasters(3, server=request.param) as servers:
        yield servers


@pytest.fixture
def servers(loaded):
    loaded.reset()
    for client in map(loaded.client, range(3)):
        client.config_set("maxmemory", 0)
        client.function_load(scripts.library()[0], replace=True)
        client.execute_command("ACL", "SETUSER", "locks", "reset", "on", ">secret", *RULE)
        client.config_resetstat()
        client.acl_log_reset()
    return loaded


def as_locks(servers):
    return [url.replace("redis://", "redis://locks:secret@") for url in servers.urls]


@witness("R44")
def test_a_user_who_may_run_no_script_does_all_that_there_is(world, servers):
    with (
        world.Masters(as_locks(servers), restart_guard=False) as masters,
        world.Masters(as_locks(servers), restart_guard=False) as others,
    ):
        lock = masters.lock(["job", "other"], ttl=10.0)
        lease = take(lock)
        lock.extend()
        assert others.lock("job").acquire(timeout=0) is None
        assert masters.status("job").token == lease.token
        assert next(iter(masters.watch("job"))).token == lease.token
        assert {status.name for status in masters.held()} == {"job", "other"}
        text = lease.hand_over()
        with others.resume(text) as resumed:
            assert resumed.token == lease.token
        for kind in (
            masters.lock("reads", shared=True, ttl=10.0), masters.lock("fair", fair=True, ttl=10.0),
            masters.lock("least", hold_at_least=0.1, ttl=10.0), masters.slots("slots", limit=2, ttl=10.0),
        ):  # fmt: skip
            take(kind)
            kind.release()
        election = masters.leader("chief", ttl=10.0)
        for _ in election.terms():
            election.stop()
    with (
        world.Masters(as_locks(servers), restart_guard=False, confirm_expiry=True) as masters,
        masters.lock("recorded") as lease,
    ):
        assert lease.valid
    eventually(lambda: nothing_left(servers), 60)
    for client in map(servers.client, range(3)):
        assert not RUN & client.info("commandstats").keys()
        assert {entry["object"] for entry in client.acl_log()} <= {"client|setinfo"}


def test_a_check_says_of_a_mixed_set_what_is_missing_where(world, servers):
    servers.client(1).function_load(scripts.library()[0].replace("return '", "return 'x"), replace=True)
    servers.client(2).function_flush()
    servers.client(0).execute_command("ACL", "SETUSER", "locks", "+eval", "+keys", "+acl|dryrun")
    with world.Masters(as_locks(servers), restart_guard=False) as masters:
        take(masters.lock("job"))  # by the library of this version, whatever its text
        health = masters.check(probe=False)
    found = [{one.code: one for one in master.findings if one.code != "no-persistence"} for master in health.masters]
    assert [set(one) for one in found] == [{"more-rights-than-needed"}, {"functions"}, {"functions"}]
    assert "no client needs: +eval +keys" in found[0]["more-rights-than-needed"].message
    assert "is another one, x" in found[1]["functions"].message
    assert found[2]["functions"].level == "critical"


def test_a_full_master_does_by_functions_what_it_does_by_scripts(servers):
    keys, client = wire.keys_for("redlock:", ["job"]), servers.client(0)
    client.set("redlock:job", "held", px=60_000)
    calls = {
        "acquire": wire.acquire(wire.keys_for("redlock:", ["free"]), "free", 10.0, 5, 60.0),
        "extend": wire.extend(keys, "held", 10.0, 60.0), "status": wire.status(keys.locks[0]),
        "renew": wire.renew([(keys, "held", 10.0)], 60.0), "release": wire.release(keys, "held"),
    }  # fmt: skip
    said: dict[tuple[str, str], object] = {}
    client.config_set("maxmemory", 1)
    for way in ("words_with_text", "words_as_function"):
        client.config_set("maxmemory", 0)
        client.set("redlock:job", "held", px=60_000)
        client.config_set("maxmemory", 1)
        for name, call in calls.items():
            try:
                said[name, way] = type(client.execute_command(*getattr(call, way)))
            except redis.RedisError as error:
                said[name, way] = str(error)[:20]
    for name in calls:
        assert said[name, "words_with_text"] == said[name, "words_as_function"], said
