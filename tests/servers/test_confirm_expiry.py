"""An expiry is confirmed by more than one clock, on real servers (R35).  `simulation/` proves what it is worth."""

import json
from typing import Any

import pytest

from redlock import ConfigurationError, Masters, NotAcquired, QuorumUnreachable
from redlock._core import wire
from redlock._health import rights
from tests.owners import witness
from tests.servers.commands import CHECK, NO_WAIT, RUN, run
from tests.servers.look import all_up, each, eventually, logged, take

pytestmark = witness("R35")


@pytest.fixture
def masters(world, redlock_servers):
    with world.Masters(redlock_servers.urls, restart_guard=False, confirm_expiry=True) as masters:
        eventually(lambda: all_up(masters))
        yield masters


def on_record(servers):
    """What each master has on record of the name ``job``: a mark and a token."""
    (key,) = wire.keys_for("redlock:", ["job"], records=True).grants
    found = [(servers.client(i).get(key) or b"").decode().split() for i in range(5)]
    return [(one[0], one[3]) if one else None for one in found]


def test_a_lock_is_on_record_with_its_last_renewal_until_the_release(masters, redlock_servers):
    lock = masters.lock("job", ttl=3.0)
    with lock as lease:
        eventually(lambda: {one and one[1] for one in on_record(redlock_servers)} == {lease.token})
        with lock as again:
            assert again.token == lease.token
        assert lock.extend().valid
        eventually(lambda: len(set(on_record(redlock_servers)) - {("0", lease.token)}) == 1)
        before = set(on_record(redlock_servers))
        eventually(lambda: len(set(on_record(redlock_servers)) - before) == 1)  # by the renewer
        assert lease.valid
    eventually(lambda: on_record(redlock_servers) == [None] * 5)
    with lock as lease:
        assert lease.fence is not None


def test_what_is_said_of_a_name_in_doubt(redlock_servers):
    each(redlock_servers, "set", "redlock:job", f"expired:{'a' * 40}", px=60_000)
    with Masters(redlock_servers.urls, restart_guard=False) as without:
        eventually(lambda: all_up(without))
        with pytest.raises(NotAcquired, match="its last lease may still be valid, so no client gets it for up"):
            without.lock("job", timeout=0).__enter__()
        assert [status.in_doubt for status in without.held()] == [True]
    command = [*CHECK, "--held", "--no-restart-guard"]
    assert json.loads(run([*command, "--json"], redlock_servers.urls).stdout)["locks"][0]["in_doubt"]
    assert "(no client: in doubt)" in run(command, redlock_servers.urls).stdout
    command = [*RUN, "--no-restart-guard", "--confirm-expiry", *NO_WAIT, "job", "--", "true"]
    done = run(command, redlock_servers.urls)
    assert done.returncode == 75
    assert "the last lease on 'job' may still be valid" in done.stderr


# -- rights --------------------------------------------------------------------------------------------------------------


@pytest.fixture
def locker(redlock_servers):
    """Makes a user of the first master, with the rule but for these words."""

    def user(*without, more=()):
        rule = [word for word in rights.rule("redlock:").split() if word not in without]
        each(redlock_servers, "execute_command", "ACL", "SETUSER", "locker", "reset", "on", ">pw", *rule, *more)
        return [url.replace("redis://", "redis://locker:pw@") for url in redlock_servers.urls]

    yield user
    each(redlock_servers, "execute_command", "ACL", "DELUSER", "locker")


def test_who_may_use_some_names_alone_locks_those(locker):
    urls = locker("~redlock:*", "~{redlock:*", more=["~redlock:mine:*", "~{redlock:mine:*"])
    with Masters(urls, restart_guard=False, confirm_expiry=True) as masters:
        for name in ("mine:job", "mine:a{b}"):
            with masters.lock(name) as lease:
                assert lease.valid
        with pytest.raises(QuorumUnreachable, match="NOPERM"):
            masters.lock("theirs").acquire()


def test_without_the_keys_of_records_no_master_votes_and_the_reason_says_what_to_grant(locker):
    urls = locker("~{redlock:*", more=["~{redlock:*}:fence"])
    with Masters(urls, restart_guard=False) as masters, masters.lock("job") as lease:
        assert lease.valid, "who does without needs none of them"
    with Masters(urls, restart_guard=False, confirm_expiry=True) as masters:
        with pytest.raises(QuorumUnreachable) as caught:
            masters.lock("job").acquire()
        assert "not permitted" in caught.value.votes[0].reason
        assert "keeps records at keys like {redlock:NAME}:grant: grant those too" in caught.value.votes[0].reason
        assert masters.check().masters[0].rights_missing == ("~{redlock:*",)
    done = run([*CHECK, "--no-restart-guard", "--confirm-expiry", "--json"], urls)
    master = json.loads(done.stdout)["masters"][0]
    assert master["rights_missing"] == ["~{redlock:*"]
    assert not master["votes"]
    assert json.loads(run([*CHECK, "--no-restart-guard", "--json"], urls).stdout)["masters"][0]["votes"]


@pytest.mark.parametrize(("size", "says"), [
    (1, "adds nothing with one master"), (2, "adds nothing with two masters"), (3, ""), (4, "they survive one wrong clock"),
    (5, ""),
])  # fmt: skip
def test_with_so_many_masters_nothing_is_gained(redlock_servers, caplog, size, says):
    Masters(redlock_servers.urls[:size], confirm_expiry=True).close()
    said = [record.getMessage() for record in logged(caplog) if "confirm_expiry" in record.getMessage()]
    assert len(said) == (says != "")
    assert says in "".join(said)


# -- mixed fleets --------------------------------------------------------------------------------------------------------


def mixed(masters):
    found = [
        one.code for master in masters.check(probe=False).masters for one in master.findings if one.level == "critical"
    ]
    return set(found)


@pytest.mark.parametrize("first", [True, False])
def test_clients_with_it_and_without_it_are_found_and_told_once(redlock_servers, request, caplog, first):
    """As clients with different max_ttl are (R21): from both sides, and for two max_ttl after the last one."""
    options: dict[str, Any] = {
        "restart_guard": False, "max_ttl": 1.5, "node_timeout": 0.2, "prefix": f"{request.node.name}:", "fence_ttl": 10.0,
    }  # fmt: skip
    with Masters(redlock_servers.urls, confirm_expiry=first, **options) as one:
        eventually(lambda: all_up(one))
        assert mixed(one) == set()
        with Masters(redlock_servers.urls, confirm_expiry=not first, **options) as other:
            eventually(lambda: all_up(other))
            eventually(lambda: sum("confirm_expiry" in record.getMessage() for record in logged(caplog)) == 2)
            assert mixed(one) == mixed(other) == {"confirm-expiry"}
            health = one.check(probe=False)
            assert health.status == "WARNING", "locks work"
            assert "with a wrong clock two clients may hold one lock" in health.summary
        eventually(lambda: mixed(one) == set())
    said = sorted(record.getMessage() for record in logged(caplog) if "confirm_expiry" in record.getMessage())
    assert [text.partition(":")[0] for text in said] == [
        "clients of these masters do without confirm_expiry, and this one has it",
        "clients of these masters have confirm_expiry=True, and this one does without",
    ]


def test_who_only_looks_or_checks_does_not_count(redlock_servers, request):
    options: dict[str, Any] = {"restart_guard": False, "prefix": f"{request.node.name}:"}
    with Masters(redlock_servers.urls, confirm_expiry=True, **options) as masters:
        eventually(lambda: all_up(masters))
        for more in (["--no-restart-guard"], ["--held"], ["--no-restart-guard", "--confirm-expiry"]):
            run([*CHECK, "--prefix", options["prefix"], *more], redlock_servers.urls)
        assert mixed(masters) == set()


# -- clients without it --------------------------------------------------------------------------------------------------


@pytest.fixture
def without(world, redlock_servers):
    with world.Masters(redlock_servers.urls, restart_guard=False) as masters:
        eventually(lambda: all_up(masters))
        yield masters


@pytest.mark.parametrize("fencing", [True, False])
def test_a_lease_on_record_is_not_handed_to_a_client_without_it(masters, without, redlock_servers, fencing):
    """Its extensions would not be on record, and masters would say that it is over."""
    lock = masters.lock("job", ttl=30.0, auto_extend=False)
    lease = take(lock)
    eventually(lambda: on_record(redlock_servers) == [("0", lease.token)] * 5)
    resumed = without.resume("job", ttl=10.0, token=lease.token, fence=lease.fence if fencing else None)
    with pytest.raises(ConfigurationError, match="'job' is on record: resume it on masters with confirm_expiry=True"):
        resumed.acquire()
    assert all(redlock_servers.client(i).pttl("redlock:job") > 15_000 for i in range(5)), "nothing was changed"
    assert lock.extend().valid
    lock.release()


def test_the_other_way_round_it_is_on_record_from_then_on(masters, without, redlock_servers):
    lock = without.lock("job", ttl=30.0, auto_extend=False)
    lease = take(lock)
    with pytest.raises(ConfigurationError, match="fence=None"):
        masters.resume("job", ttl=30.0, token=lease.token)
    resumed = [
        one.resume("job", ttl=30.0, token=lease.token, fence=lease.fence, bound=False) for one in (without, masters)
    ]
    for one in resumed:
        assert take(one).valid
    eventually(lambda: {one and one[0][0] for one in on_record(redlock_servers)} == {"r"})
    lock.release()
