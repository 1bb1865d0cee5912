"""All clients agree on the masters, and can change them one at a time (R34).  ``-s`` shows the timeline."""

from __future__ import annotations

import time
from typing import Any

import pytest
import redis

from redlock import MastersDisagree, QuorumUnreachable
from redlock.testing import LocalMasters
from tests.servers.look import eventually

MAX_TTL = 1.5
OPTIONS: dict[str, Any] = {"max_ttl": MAX_TTL, "node_timeout": 0.4, "restart_guard": False}
BEGAN = time.monotonic()


def said(*what):
    print(f"{time.monotonic() - BEGAN:7.2f} s ", *what)


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
    right = world.Masters(listed(servers, 1, 2, 3, 4, 5), prefix=prefix, observer=events.append, **OPTIONS)
    with (
        world.Masters(listed(servers, 1, 2, 3, 4, 5, 6), prefix=prefix, **OPTIONS) as ours_next,
        world.Masters(listed(servers, 2, 3, 4, 5, 6), prefix=prefix, **OPTIONS) as early,
    ):
        with right.lock("job", ttl=1.2) as lease:
            ours_next.status("job")
            with pytest.raises(QuorumUnreachable, match="masters that do not go with ours") as refused:
                early.lock("other", ttl=1.2).acquire(timeout=5)
            said(refused.value)
            eventually(lambda: any(isinstance(event, MastersDisagree) for event in events), 30)
            told = next(event for event in events if isinstance(event, MastersDisagree))
            assert told.others == (tuple(sorted(listed(servers, 2, 3, 4, 5, 6))),)
            lease.ensure()
            with ours_next.lock("third", ttl=1.2):
                pass
        right.close()
        # As soon as the list of five is gone it works: an unreachable quorum is one more "not yet".
        eventually(lambda: early.lock("other", ttl=1.2).acquire(timeout=0) is not None, 30)


def test_without_names_it_is_a_warning(world, urls, caplog):
    servers, prefix = urls
    address = list(servers.values())
    with (
        world.Masters(address[:5], prefix=prefix, **OPTIONS) as one,
        world.Masters(address[4:9], prefix=prefix, **OPTIONS) as other,
    ):
        one.status("job")
        with other.lock("job", ttl=1.2), one.lock("job", ttl=1.2):
            pass  # two hold it: that is what is warned of
        eventually(lambda: "do not go together" in caplog.text, 30)
        (finding,) = [finding for finding in other.check(probe=False).findings if finding.code == "fleet"]
        said(finding.message)
        assert finding.level == "warning"


def test_who_ignores_it_writes_nothing(world, urls):
    servers, prefix = urls
    with world.Masters(listed(servers, 1, 2, 3), prefix=prefix, agreement="ignore", **OPTIONS) as masters:
        with masters.lock("job", ttl=1.2):
            pass
        assert masters.check(probe=False).fleet == ()


def test_a_user_without_the_new_rights_keeps_its_votes(world, urls):
    """A rule of the version before."""
    servers, prefix = urls
    rule = (
        "on resetchannels >secret ~* &* +set +get +del +pexpire +pttl +eval +evalsha +script|load "
        "+publish +subscribe +unsubscribe +info +config|get"
    )
    three = {name: url for name, url in servers.items() if name in ("lock-1", "lock-2", "lock-3")}
    for url in three.values():
        with redis.Redis.from_url(url) as admin:
            admin.execute_command("ACL", "SETUSER", "before", *rule.split())
    mine = {name: url.replace("redis://", "redis://before:secret@") for name, url in three.items()}
    with world.Masters(mine, prefix=prefix, **OPTIONS) as masters, masters.lock("job", ttl=1.2) as lease:
        assert {vote.outcome for vote in lease.votes} <= {"granted", "pending"}
    for url in three.values():
        with redis.Redis.from_url(url) as admin:
            admin.acl_deluser("before")
