"""The end of `Masters`, and of a process: how long it takes, and who waits for whom (R11)."""

from __future__ import annotations

from functools import partial

from tenacity.wait import wait_fixed

from tests.bench import scene
from tests.bench.library import Patch

PREEMPTED = Patch("redlock._io.host_threads", "waiter.poke()  #", "__import__('time').sleep(0.02), waiter.poke()  #")


@scene()
def test_close_does_not_wait_for_a_master_that_hangs_while_connecting(at):
    at.freeze([0])
    yield from at.takes("job", ttl=10.0)
    began = at.now
    yield at.masters.close
    assert at.exactly(began)
    at.thaw([0])


@scene()
def test_a_second_close_waits_for_the_first(at):
    lock, _ = yield from at.held("job", ttl=10.0, then=0.1)
    at.freeze([0])  # so that there is something to wait for
    yield lock.release
    began = at.now
    first = yield at.begin(at.masters.close)
    yield at.sleep(0.05)
    assert not at.over(first)
    yield at.masters.close
    assert at.exactly(began + 0.25)
    at.play.closed(at.client)  # no thread and no descriptor is left
    yield from at.until(lambda: at.over(first), 0.05)
    at.thaw([0])


@scene(worlds=["threads"])
def test_a_release_under_way_is_waited_for(at):
    """P7: it is over when the masters have answered, and not because its `Masters` are."""
    lock, _ = yield from at.held("job", ttl=10.0, bound=False, then=0.1)
    at.freeze(3)
    releases = yield at.begin(lock.release)
    yield at.sleep(0.05)
    closes = yield at.begin(at.masters.close)
    yield at.sleep(0.1)
    assert not at.over(releases)
    assert not at.over(closes)
    at.thaw(3)
    yield from at.until(lambda: at.over(closes), 0.05)
    assert at.over(releases)
    assert at.keys() == 0


@scene(worlds=["threads"], patches=(PREEMPTED,))
def test_an_operation_is_refused_at_once_although_the_one_that_led_has_just_ended(at):
    """It must not be given the lead, for a thread that leads reads until there is an event for it."""
    at.put("redlock:job", "another")
    ended: list[float] = []

    def waits(call):
        yield from at.raises(at.errors.RedlockError, call)
        ended.append(at.now)

    for call in (partial(at.masters.wait_until_free, "job"), at.masters.lock("job", retry=wait_fixed(1000)).acquire):
        yield at.begin(waits(call))
        yield at.sleep(0.1)
    began = at.now
    yield at.masters.close
    assert [one - began < 0.05 for one in ended] == [True, True]


@scene(node_timeout=20.0)
def test_the_keys_of_an_acquire_are_given_back_at_once(at):
    """P7: `close` may be over before the round is."""
    yield from at.takes("other", ttl=60.0)
    at.freeze(3)
    acquires = yield at.begin(at.raises(at.errors.RedlockError, at.masters.lock("job", ttl=60.0).acquire))
    yield from at.until(lambda: at.keys() == 2)
    closes = yield at.begin(at.masters.close)
    yield from at.until(lambda: at.keys() == 0, 0.05)
    assert not at.over(closes)
    at.thaw(3)
    yield from at.until(lambda: at.over(acquires) and at.over(closes), 0.05)


@scene(worlds=["threads"])
def test_an_observer_that_closes_masters_while_they_are_closed_does_not_wait_for_itself(at):
    """The observer is called in a thread, and `close` waits for that thread."""
    closed: list[float] = []

    def observe(event):
        at.client._observe(event)
        if type(event).__name__ == "LeaseLost":
            at.client.system.sleep(0.5)
            masters.close()
            closed.append(at.now)

    masters = at.client.make(observer=observe)
    lock = masters.lock("job", ttl=10.0, max_hold=1.0)
    lease = yield lock.acquire
    yield at.sleep(1.2)
    assert lease.lost
    began = at.now
    yield masters.close
    assert at.exactly(began + 0.3)
    assert len(closed) == 1


@scene(worlds=["threads"])
def test_an_interpreter_that_exits_waits_for_a_silent_master_for_node_timeout_at_most(at):
    lock, _ = yield from at.held("job", ttl=10.0, then=0.1)
    at.freeze([0])
    yield lock.release
    began = at.now
    yield from reversed(at.client.at_exit)
    assert at.exactly(began + 0.25)
    at.thaw([0])
