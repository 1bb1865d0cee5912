"""Who looks at names takes nothing, and believes a majority (R24, R29, R41)."""

from __future__ import annotations

from functools import partial

from tests.bench import scene
from tests.owners import proves


@scene()
def test_a_name_is_not_free_because_a_minority_has_lost_its_key(at):
    lock, _ = yield from at.held("job", ttl=10.0, then=0.1)
    at.put("redlock:job", None, masters=[1, 3])
    assert not (yield partial(at.masters.wait_until_free, "job", timeout=0))
    yield lock.release
    assert (yield partial(at.masters.wait_until_free, "job", timeout=0))


@proves("R41")
@scene()
def test_a_watcher_is_told_of_each_holder_once_and_of_a_free_name_when_it_is_free(at):
    told: list[tuple[float, str]] = []
    statuses = at.masters.watch("job")

    def watches():
        while len(told) < 3:
            status = yield partial(next if at.threads else anext, statuses)
            told.append((at.now, status.owner if status.token else "free"))

    job = yield at.begin(watches())
    yield from at.until(lambda: told)
    lock, lease = yield from at.held("job", ttl=10.0, owner="holder")
    yield from at.until(lambda: len(told) == 2)
    at.put("redlock:job", None, masters=[1, 3])
    yield at.sleep(30.0)
    assert lease.valid
    yield lock.release
    yield from at.until(lambda: at.over(job))
    assert [what for _, what in told] == ["free", "holder", "free"]
    assert at.exactly(told[2][0])


@proves("R29")
@scene()
def test_a_list_has_each_lock_once_whichever_masters_have_its_key(at):
    locks = {name: at.masters.lock(name, ttl=60.0) for name in ("a", "b", "c")}
    for lock in locks.values():
        yield lock.acquire
    yield at.sleep(0.1)
    at.put("redlock:b", None, masters=[0, 4])
    statuses, found = at.masters.held(), []
    while (status := (yield partial(next if at.threads else anext, statuses, None))) is not None:
        found.append((status.name, status.token))
    assert sorted(found) == [(name, lock.lease.token) for name, lock in locks.items()]
    for lock in locks.values():
        yield lock.release
