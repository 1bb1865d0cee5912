"""All clients agree on the masters, and can change them one at a time (R34).  ``-s`` shows the timeline."""

from __future__ import annotations

import threading
import time
from functools import partial
from typing import Any, ClassVar

import pytest
import redis

from redlock import Masters, MastersAgree, MastersDisagree, MultiLock, QuorumUnreachable
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


class Worker(threading.Thread):
    """Takes one lock again and again, with the list of the day, and looks whether anybody else has it."""

    inside: ClassVar[list[object]] = []
    fences: ClassVar[list[int]] = []

    def __init__(self, masters, prefix):
        super().__init__(daemon=True)
        self.masters = Masters(masters, prefix=prefix, **OPTIONS)
        self.prefix = prefix
        self.next = None
        self.over = False
        self.failures = []
        self.grants, self.longest, self.latest = 0, 0.0, time.monotonic()

    def run(self):
        while not self.over:
            if self.next is not None:
                before, self.masters, self.next = self.masters, Masters(self.next, prefix=self.prefix, **OPTIONS), None
                before.close()
            try:
                with self.masters.lock("work", ttl=1.2, timeout=20) as lease:
                    self.inside.append(self)
                    self.fences.append(lease.fence or 0)
                    time.sleep(0.01)
                    if self.inside != [self]:
                        self.failures.append("not alone")
                    self.inside.remove(self)
            except Exception as error:  # noqa: BLE001 - the test tells it
                self.failures.append(repr(error))
            now = time.monotonic()
            self.longest, self.latest = max(self.longest, now - self.latest), now
            self.grants += 1
        self.masters.close()


def change(urls, workers, names, prefix, lease_holder):
    """One step: all clients get the list, one after the other; a lease goes on with it."""
    for worker in workers:
        worker.next = listed(urls, *names)
        eventually(lambda worker=worker: worker.next is None, 30)
    masters, lock = lease_holder
    after = Masters(listed(urls, *names), prefix=prefix, **OPTIONS)
    lease = lock.lease
    resumed = MultiLock("long", after, token=lease.token, fence=lease.fence, ttl=1.4)
    resumed.extend()
    masters.close()
    return after, resumed


def only(masters, names):
    found = masters.check(probe=False).fleet
    return [set(one.masters) for one in found] == [{f"lock-{number}" for number in names}]


def test_all_masters_are_replaced_one_by_one_under_load(urls):
    servers, prefix = urls
    names = [1, 2, 3, 4, 5]
    Worker.inside, Worker.fences = [], []
    workers = [Worker(listed(servers, *names), prefix) for _ in range(3)]
    holder = Masters(listed(servers, *names), prefix=prefix, **OPTIONS)
    long = holder.lock("long", ttl=1.4, bound=False)
    first = long.acquire()
    assert first is not None
    current = holder, long
    for worker in workers:
        worker.start()
    for old, new in zip(range(1, 6), range(6, 11), strict=True):
        for step, after in (("add", [*range(old, new), new]), ("remove", [*range(old + 1, new), new])):
            current = change(servers, workers, after, prefix, current)
            said(f"{step} lock-{new if step == 'add' else old}: all clients have {after}")
            eventually(partial(only, current[0], after), 30)
            lease = current[1].lease
            assert lease is not None
            assert lease.valid, "the lease was lost"
            names = after
    grants = sum(worker.grants for worker in workers)
    for worker in workers:
        worker.over = True
    for worker in workers:
        worker.join(30)
    said(f"{grants} grants, the lease lived, the longest pause {max(worker.longest for worker in workers):.2f} s")
    assert [worker.failures for worker in workers] == [[], [], []]
    assert Worker.fences == sorted(set(Worker.fences))
    lease = current[1].lease
    assert lease is not None
    assert lease.token == first.token
    current[1].release()
    current[0].close()
    assert names == [6, 7, 8, 9, 10]


def test_a_second_step_that_is_taken_too_early_is_refused(world, urls):
    servers, prefix = urls
    events: list[Any] = []
    refused_ones: list[Any] = []
    right = world.Masters(listed(servers, 1, 2, 3, 4, 5), prefix=prefix, observer=events.append, **OPTIONS)
    with (
        world.Masters(listed(servers, 1, 2, 3, 4, 5, 6), prefix=prefix, **OPTIONS) as ours_next,
        world.Masters(listed(servers, 2, 3, 4, 5, 6), prefix=prefix, observer=refused_ones.append, **OPTIONS) as early,
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
        five = tuple(f"lock-{number}" for number in range(1, 6))
        eventually(lambda: any(isinstance(event, MastersAgree) for event in refused_ones), 30)
        [refusal] = [event for event in refused_ones if isinstance(event, MastersDisagree)]
        assert (refusal.others, refusal.refused) == ((five,), True)
        assert [event.refused for event in events if isinstance(event, MastersDisagree)] == [False]


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
        assert "two clients may hold one lock" in finding.message


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
    with world.Masters(mine, prefix=prefix, **OPTIONS) as masters:

        def all_vote():
            with masters.lock("job", ttl=1.2) as lease:
                return {vote.outcome for vote in lease.votes} <= {"granted", "pending"}

        eventually(all_vote, 30)  # the third one may still be connecting
    for url in three.values():
        with redis.Redis.from_url(url) as admin:
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
            said(finding.message)
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
