"""All clients agree on the masters, and can change them one at a time (R34)."""

from typing import Any

import pytest
import redis

from redlock import Masters, MastersAgree, MastersDisagree, QuorumUnreachable
from redlock._cli.check import main
from redlock.testing import LocalMasters
from tests.owners import witness
from tests.servers.look import eventually

pytestmark = witness("R34")

MAX_TTL = 3.0
OPTIONS: dict[str, Any] = {"max_ttl": MAX_TTL, "node_timeout": 0.4, "restart_guard": False}


@pytest.fixture(scope="module")
def ten():
    with LocalMasters(10) as servers:
        yield {f"lock-{number}": url for number, url in enumerate(servers.urls, 1)}


@pytest.fixture
def urls(ten, request):
    """The same servers, with nothing of another test."""
    return ten, f"{request.node.name}:"


def listed(urls, *numbers):
    return {f"lock-{number}": urls[f"lock-{number}"] for number in numbers}


def test_a_second_step_that_is_taken_too_early_is_refused(world, urls):
    servers, prefix = urls
    events: list[Any] = []
    refused_ones: list[Any] = []
    right = world.Masters(listed(servers, 1, 2, 3, 4, 5), prefix=prefix, observer=events.append, **OPTIONS)
    with (
        world.Masters(listed(servers, 1, 2, 3, 4, 5, 6), prefix=prefix, **OPTIONS) as ours_next,
        world.Masters(listed(servers, 2, 3, 4, 5, 6), prefix=prefix, observer=refused_ones.append, **OPTIONS) as early,
    ):
        with right.lock("job", ttl=2.4) as lease:
            ours_next.status("job")
            with pytest.raises(QuorumUnreachable, match="masters that are incompatible with ours"):
                early.lock("other", ttl=1.2).acquire(timeout=5)
            eventually(lambda: any(isinstance(event, MastersDisagree) for event in events), 30)
            told = next(event for event in events if isinstance(event, MastersDisagree))
            assert told.others == (tuple(sorted(listed(servers, 2, 3, 4, 5, 6))),)
            lease.ensure()
            with ours_next.lock("third", ttl=1.2):
                pass
        right.close()
        # As soon as the list of five is gone it works: an unreachable quorum is one more "not yet".
        eventually(lambda: early.lock("other", ttl=1.2).acquire(timeout=0) is not None, 30)
        five = tuple(f"lock-{number}" for number in range(1, 6))
        eventually(lambda: any(isinstance(event, MastersAgree) for event in refused_ones), 30)
        [refusal] = [event for event in refused_ones if isinstance(event, MastersDisagree)]
        assert (refusal.others, refusal.refused) == ((five,), True)
        assert [event.refused for event in events if isinstance(event, MastersDisagree)] == [False]


def test_without_names_it_is_a_warning(urls, caplog, capsys):
    """And no way begins there (`redlock-check --plan`)."""
    servers, prefix = urls
    address = list(servers.values())
    planned = ["--prefix", prefix, "--no-restart-guard", "--plan", ",".join(address[2:5]), *address[:3]]
    with Masters(address[:3], prefix=prefix, **OPTIONS) as one:
        one.status("job")
        eventually(lambda: main(planned) == 0, 30)  # clients connect in the background
        assert "Step 1 of 4" in capsys.readouterr().out
        with Masters(address[2:5], prefix=prefix, **OPTIONS) as other:
            with other.lock("job", ttl=1.2), one.lock("job", ttl=1.2):
                pass  # two hold it: that is what is warned of
            eventually(lambda: "two clients may hold one lock" in caplog.text, 30)
            eventually(lambda: about_the_fleet(one))
            eventually(lambda: main(planned) == 2, 30)
    assert capsys.readouterr().out.rpartition("REFUSED: ")[2].startswith("clients use masters that are incompatible")


def test_a_user_without_the_new_rights_keeps_its_votes(world, urls):
    """A rule of the version before."""
    servers, prefix = urls
    rule = (
        "on resetchannels >secret ~* &* +set +get +del +pexpire +pttl +eval +evalsha +script|load "
        "+publish +subscribe +unsubscribe +info +config|get"
    )
    with redis.Redis.from_url(servers["lock-1"]) as admin:
        admin.execute_command("ACL", "SETUSER", "before", *rule.split())
        mine = {"lock-1": servers["lock-1"].replace("redis://", "redis://before:secret@")}
        with world.Masters(mine, prefix=prefix, **OPTIONS) as masters, masters.lock("job", ttl=1.2) as lease:
            assert lease.valid
        admin.acl_deluser("before")


def test_clients_that_announce_nothing_are_seen_where_they_can_be(urls):
    """Those of versions before have no name in CLIENT LIST, and run scripts."""
    servers, prefix = urls
    three = listed(servers, 1, 2, 3)
    with Masters(three, prefix=prefix, **OPTIONS) as masters:
        masters.status("job")
        assert about_the_fleet(masters) == []
        with redis.Redis.from_url(servers["lock-2"]) as before:
            before.eval("return 1", 0)
            [finding] = about_the_fleet(masters)
            assert "1 connection without a name, from 127.0.0.1, runs scripts" in finding.message
            with redis.Redis.from_url(servers["lock-2"]) as admin:
                admin.execute_command("ACL", "SETUSER", "default", "-client|list")
                assert about_the_fleet(masters) == [], "who may not ask is told nothing of it"
                admin.execute_command("ACL", "SETUSER", "default", "+client|list")


def about_the_fleet(masters):
    return [finding for finding in masters.check(probe=False).findings if finding.code == "fleet"]


def test_a_name_that_was_given_stays(urls):
    servers, prefix = urls
    given = f"{servers['lock-1']}?client_name=billing"
    with Masters({"lock-1": given}, prefix=prefix, **OPTIONS) as masters, redis.Redis.from_url(given) as admin:
        masters.status("job")
        names = [client["name"] for client in admin.client_list() if client["cmd"].startswith("eval")]
        assert names.count("billing") == 1


def test_who_checks_takes_no_part_in_the_fleet(urls, capsys):
    """Its real lock is no client's: a wrong list is a finding, and not refused."""
    servers, prefix = urls
    with Masters(listed(servers, 1, 2, 3), prefix=prefix, **OPTIONS) as used:
        used.status("job")
        eventually(lambda: [len(one.known_to) for one in used.check(probe=False).fleet] == [3], 30)
        wrong = [f"{name}={url}" for name, url in listed(servers, 3, 4, 5).items()]
        assert main(["--prefix", prefix, "--no-restart-guard", *wrong]) == 1
        said = " ".join(capsys.readouterr().out.split())  # its lines are broken where the terminal ends
        assert "the masters that are given here are incompatible with those that clients use" in said
        assert "A real lock was acquired, extended and released" in said
        assert "are incompatible with ours" not in said
        assert [one.masters for one in used.check(probe=False).fleet] == [("lock-1", "lock-2", "lock-3")]
