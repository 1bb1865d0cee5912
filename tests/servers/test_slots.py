"""Slots on real servers: at most k (R32)."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from redlock import LockLost, Masters, NotAcquired, NotHeld, QuorumUnreachable, WouldDeadlock
from tests.owners import witness
from tests.servers.look import each

pytestmark = witness("R32")

PATIENCE = 30.0


def test_no_more_than_the_limit(masters, others):
    first = masters.slots("import", limit=3, bound=False)
    second = others.slots("import", limit=3, bound=False)
    leases = [slots.acquire(timeout=0) for slots in (first, second, second)]
    assert sorted(lease.slot for lease in leases) == [0, 1, 2]
    assert sorted(lease.name for lease in leases) == ["import#0", "import#1", "import#2"]
    assert first.acquire(blocking=False) is None
    assert second.acquire(timeout=0) is None
    second.release()
    assert first.acquire(timeout=0) is not None


def test_a_slot_is_the_lock_of_its_name(masters, others):
    with masters.slots("import", limit=1) as lease:
        assert lease.name == "import#0"
        assert others.status("import#0").token == lease.token
        assert others.lock("import#0").acquire(timeout=0) is None
        assert others.lock("import").acquire(timeout=0) is not None, "the group itself is no lock"
    with others.lock("import#0"):
        assert masters.slots("import", limit=1).acquire(timeout=0) is None


def test_entering_again_gives_the_same_slot(masters):
    slots = masters.slots("import", limit=2)
    with slots as outer, masters.slots("import", limit=2) as inner, masters.lock(outer.name) as as_lock:
        assert outer is inner is as_lock
        assert slots.status().free == 1
    assert slots.status().free == 2
    with pytest.raises(NotHeld):
        slots.release()


def test_who_has_a_slot_as_a_lock_enters_it_as_that_slot(masters, others):
    """Its number is asked for, so it is there (R26).  The last to leave tells the waiters for a slot."""
    with masters.lock("import#1") as lease:
        assert lease.slot is None
        with masters.slots("import", limit=3) as again:
            assert (again.token, again.slot, again.name) == (lease.token, 1, "import#1")
            assert masters.slots("import", limit=3).status().free == 2
        with others.slots("import", limit=1) as other:  # it has no such slot
            assert other.slot == 0


def test_who_reads_a_slot_does_not_enter_it_as_that_slot(masters):
    with masters.lock("import#1", shared=True), pytest.raises(WouldDeadlock, match="holds 'import#1' shared"):
        masters.slots("import", limit=3).acquire()


def test_a_lock_on_several_names_of_which_one_is_a_slot_that_is_held(masters):
    with masters.slots("import", limit=1), pytest.raises(WouldDeadlock):
        masters.lock(["import#0", "other"]).acquire()


def test_a_reader_of_one_slot_leaves_the_others_to_whoever_asks(masters, others):
    """A slot is a lock as any other, so it may be read.  Which one is asked for first is drawn."""
    with others.lock("import#1", shared=True, bound=False):
        for _ in range(8):
            slots = masters.slots("import", limit=2, bound=False)
            assert slots.acquire(timeout=0).slot == 0
            slots.release()
        with masters.slots("import", limit=2) as lease:
            assert lease.slot == 0
            for _ in range(8):
                with (
                    pytest.raises(NotAcquired, match="all 2 slots are taken"),
                    others.slots("import", limit=2, timeout=0),
                ):
                    pass
    with (
        others.lock("import#0", shared=True, bound=False),
        pytest.raises(NotAcquired, match=r"held after .*: by readers for \d"),
        masters.slots("import", limit=1, timeout=0),
    ):
        pass


def test_who_waits_to_have_a_slot_as_a_lock_keeps_nobody_from_it(redlock_servers, masters):
    """The mark of a writer that waits holds nothing (R33)."""
    each(redlock_servers, "zadd", "redlock:import#0", {"a writer's mark": -(2**42)})
    each(redlock_servers, "pexpire", "redlock:import#0", 60_000)
    with masters.slots("import", limit=1, timeout=0) as lease:
        assert lease.slot == 0


def test_a_slot_with_something_strange_at_its_key_is_one_less(redlock_servers, masters, others):
    """Nobody can have that one.  If there is no other one, it is an error that waiting does not cure (C1)."""
    each(redlock_servers, "rpush", "redlock:import#1", "a list")
    for _ in range(8):
        with masters.slots("import", limit=2, timeout=0) as lease:
            assert lease.slot == 0
            assert others.slots("import", limit=2).acquire(timeout=0) is None
    each(redlock_servers, "rpush", "redlock:import#0", "a list")
    with pytest.raises(QuorumUnreachable, match="something that is not a lock has this key"):
        masters.slots("import", limit=2).acquire(timeout=PATIENCE)


def test_a_lease_of_a_slot_that_readers_have_by_now_says_so_at_its_release(redlock_servers, masters, others):
    slots = masters.slots("import", limit=1)
    slots.acquire()
    each(redlock_servers, "delete", "redlock:import#0")
    with others.lock("import#0", shared=True), pytest.raises(LockLost, match="another client holds it") as lost:
        slots.release()
    assert lost.value.reason == "taken"


def test_the_first_slot_of_a_new_process_is_asked_for_in_one_trip(world, redlock_servers):
    """A master that did not know the script would answer too late: the lease would lack its key there."""
    each(redlock_servers, "script_flush")
    each(redlock_servers, "config_resetstat")
    with world.Masters(redlock_servers.urls, restart_guard=False) as masters, masters.slots("import", limit=3):
        pass
    assert not any("errorstat_NOSCRIPT" in redlock_servers.client(i).info("errorstats") for i in range(5))


def test_status(masters, others):
    slots = masters.slots("import", limit=3)
    assert (slots.status().free, slots.status().holders, slots.limit) == (3, (), 3)
    with slots as lease:
        status = others.slots("import", limit=3).status()
        assert status.free == 2
        assert [(slot.name, slot.token) for slot in status.holders] == [(lease.name, lease.token)]
        assert not slots.locked()
        assert masters.slots("import", limit=1).locked() == (lease.slot == 0)


def test_tries_at_once_in_one_process_do_not_stand_in_each_others_way(redlock_servers):
    """C3: all slots are free, so each of as many tries gets one, also while another one is under way.

    It waits for that one for `node_timeout` at most, which is long here, so that a busy machine changes nothing.
    """
    with Masters(redlock_servers.urls, restart_guard=False, node_timeout=9.0) as masters:
        for turn in range(20):
            _as_many_tries_as_slots(masters.slots(f"import-{turn}", limit=4, bound=False))


def _as_many_tries_as_slots(slots):
    start = threading.Barrier(4)

    def attempt():
        start.wait(PATIENCE)
        return slots.acquire(blocking=False)

    with ThreadPoolExecutor(4) as pool:
        leases = [future.result(PATIENCE) for future in [pool.submit(attempt) for _ in range(4)]]
    assert {lease.slot for lease in leases if lease is not None} == {0, 1, 2, 3}


def test_a_refusal_says_how_many_slots_there_are(masters, others):
    with (
        masters.slots("import", limit=1, ttl=20),
        pytest.raises(NotAcquired) as refused,
        others.slots("import", limit=1, timeout=0),
    ):
        pass
    assert "'import' not acquired in 1 attempt: the only slot is taken" in str(refused.value)
    assert refused.value.name == "import"


def test_a_slot_without_a_fence_is_kept_for_its_time(redlock_servers, masters, others):
    """R28: by the last release, as any lock."""
    with masters.slots("import", limit=2, ttl=60, hold_at_least=60, fencing=False) as lease:
        assert lease.fence is None
        assert not any(key.endswith(b":fence") for key in redlock_servers.client(0).keys())
    slots = others.slots("import", limit=2)
    assert [slot.released for slot in slots.status().holders] == [True]
    assert slots.acquire(timeout=0).slot == 1 - lease.slot
