"""What the observer of a run sees: who holds a key of a real master, each reader by itself (R33)."""

from __future__ import annotations

from chaos.backends.local import held
from redlock import Masters
from tests.servers.look import eventually

TTL = 30.0


def seen(servers, i=0):
    keys = servers.keys("redlock:*")[i]
    return sorted((key, token, left > 0 and left <= TTL * 1000) for key, token, left in held(servers.client(i), keys))


def test_readers_are_seen_one_by_one(redlock_servers):
    urls = redlock_servers.urls
    with Masters(urls, restart_guard=False) as masters, Masters(urls, restart_guard=False) as others:
        one = masters.lock("a", shared=True, ttl=TTL, fencing=False).acquire()
        two = others.lock("a", shared=True, ttl=TTL, fencing=False).acquire()
        alone = masters.lock("b", ttl=TTL, fencing=False).acquire()
        assert one is not None
        assert two is not None
        assert alone is not None
        expected = sorted(
            [("redlock:a", one.token, True), ("redlock:a", two.token, True), ("redlock:b", alone.token, True)]
        )
        eventually(lambda: [seen(redlock_servers, i) for i in range(len(urls))] == [expected] * len(urls))


def test_who_has_ended_is_not_there_and_a_mark_holds_nothing(redlock_servers):
    client = redlock_servers.client(0)
    seconds, _ = client.time()
    client.zadd(
        "redlock:a", {"ended": seconds * 1000 - 1, "mark": -(seconds * 1000 + 5000), "reads": seconds * 1000 + 20_000}
    )
    client.pexpire("redlock:a", 20_000)
    assert seen(redlock_servers) == [("redlock:a", "reads", True)]
    client.zrem("redlock:a", "reads")
    assert seen(redlock_servers) == [("redlock:a", "<zset>", True)], "a key that nobody holds is left behind"


def test_a_set_without_expiry_is_told(redlock_servers):
    client = redlock_servers.client(0)
    seconds, _ = client.time()
    client.zadd("redlock:a", {"reads": seconds * 1000 + 20_000})
    assert ("redlock:a", "<zset>", False) in seen(redlock_servers)
