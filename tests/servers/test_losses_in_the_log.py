"""A lost lease is logged, once, whoever finds it out: with its reason, its owner, and whether its body still ran."""

from __future__ import annotations

import logging
import re
import time
from typing import Any

import pytest

from redlock import LockLost, Masters
from tests.servers.look import all_up, each, elsewhere, eventually, lock_keys, logged, pause, resume, take
from tests.servers.process import run

TTL = 0.6
OWNER = "web-3/17"


@pytest.fixture
def quick(world, redlock_servers):
    with world.Masters(redlock_servers.urls, restart_guard=False, node_timeout=0.1, max_ttl=10, owner=OWNER) as masters:
        eventually(lambda: all_up(masters))
        yield masters


def losses(caplog) -> list[str]:
    return [record.getMessage() for record in logged(caplog) if "was lost" in record.getMessage()]


def the_only(caplog) -> str:
    """The record of the loss, and that there is no other one."""
    eventually(lambda: losses(caplog), 5)
    time.sleep(0.1)  # a second one would come now
    (text,) = losses(caplog)
    (record,) = (record for record in logged(caplog) if record.getMessage() == text)
    assert record.levelno == logging.WARNING
    assert record.name == "redlock"
    assert not re.search("[0-9a-f]{40}", text)  # who reads a token can release
    return text


def expires(lock, servers):
    take(lock)
    time.sleep(1.2 * TTL)


def is_released_too_late(lock, servers):
    expires(lock, servers)
    for late in (lock.lease.ensure, lock.release):
        with pytest.raises(LockLost):
            late()


def is_taken(lock, servers):
    """The renewer finds it out, unless the holder asks first."""
    take(lock)
    eventually(lambda: all(lock_keys(servers)))
    for key in lock_keys(servers)[0]:
        each(servers, "delete", key)
        each(servers, "set", key, "somebody", px=60_000)


def is_found_taken(lock, servers):
    is_taken(lock, servers)
    with pytest.raises(LockLost):
        lock.extend()


def is_released_and_gone(lock, servers):
    take(lock)
    eventually(lambda: all(lock_keys(servers)))
    for key in lock_keys(servers)[0]:
        each(servers, "delete", key)
    with pytest.raises(LockLost):
        lock.release()


def is_unreachable(lock, servers):
    lease = take(lock)
    pause(servers)
    assert lease.wait_lost(20)
    resume(servers)


def lasts_too_long(lock, servers):
    assert take(lock).wait_lost(5)


STAYS = {"auto_extend": False}  # it is not renewed


@pytest.mark.parametrize(
    ("happens", "options", "how", "ran"),
    [
        (expires, STAYS, "it expired", True),
        (is_released_too_late, STAYS, "it expired", True),
        (is_taken, {}, "somebody else holds it", True),
        (is_found_taken, STAYS, "somebody else holds it", True),
        (is_released_and_gone, STAYS, "it expired", False),
        (is_unreachable, {}, "it could not be renewed in time", True),
        (lasts_too_long, {"max_hold": 0.2}, "it was held for as long as it may be", True),
        (is_taken, {"shared": True}, "somebody else holds it", True),
    ],
)
def test_each_loss_is_logged_once(quick, redlock_servers, caplog, happens, options, how, ran):
    in_time = happens in (is_taken, is_found_taken, is_released_and_gone, is_unreachable)  # else it may be over first
    lock = quick.lock("job", ttl=3.0 if in_time else TTL, **options)
    happens(lock, redlock_servers)
    lease = lock.lease
    text = the_only(caplog)
    assert f"the lease on 'job' was lost: {how}" in text
    assert f"by {OWNER}" in text
    assert f"fencing token {lease.fence}" in text
    assert ("its body still ran" in text) == ran
    assert ("its body had ended" in text) != ran


@pytest.mark.parametrize("slot", [True, False])
def test_a_slot_and_several_names_are_one_lease(quick, redlock_servers, caplog, slot):
    """And it was held up to the end of its validity, not until somebody noticed."""
    lock = quick.slots("a", limit=1, ttl=TTL, **STAYS) if slot else quick.lock(["a", "b"], ttl=TTL, **STAYS)
    expires(lock, redlock_servers)
    text = the_only(caplog)
    assert ("'a#0'" if slot else "'a, b'") in text
    assert TTL / 2 <= float(text.partition("held for ")[2].split()[0]) <= TTL  # R7


def test_a_body_that_nobody_runs_any_more(redlock_servers, caplog):
    """Its thread has ended without a release (R15)."""
    with Masters(redlock_servers.urls, restart_guard=False, node_timeout=0.1) as masters:
        lock = masters.lock("job", ttl=TTL)
        elsewhere(lambda: take(lock))
        assert "its body had ended" in the_only(caplog)


@pytest.mark.parametrize(("by", "confirmed"), [("extend", False), ("release", True)])
def test_one_that_was_resumed_from_its_token(quick, redlock_servers, caplog, by, confirmed):
    """C9 and C11: also if nobody had confirmed here yet that it is ours, and `on_lost` hears of it as well."""
    first = quick.lock("job", ttl=3.0, auto_extend=False)
    lease = take(first)
    told: list[Any] = []
    lock = quick.lock("job", ttl=3.0, token=lease.token, fence=lease.fence, on_lost=told.append)
    if confirmed:
        lock.extend()
    eventually(lambda: all(lock_keys(redlock_servers)))
    each(redlock_servers, "set", "redlock:job", "somebody", px=60_000)
    with pytest.raises(LockLost):
        getattr(lock, by)()
    assert "somebody else holds it" in the_only(caplog)
    eventually(lambda: len(told) == 1)


def test_a_loss_that_was_found_right_before_the_masters_are_closed(world, redlock_servers, caplog):
    """C9: who closes them knows of it, and so do `on_lost` and the log."""
    for number in range(5):
        caplog.clear()
        told: list[Any] = []
        with world.Masters(redlock_servers.urls, restart_guard=False) as masters:
            eventually(lambda: all_up(masters))
            lock = masters.lock(f"job-{number}", ttl=10, on_lost=told.append)
            take(lock)
            eventually(lambda: all(f"redlock:job-{number}" in keys for keys in lock_keys(redlock_servers)))  # noqa: B023
            each(redlock_servers, "delete", f"redlock:job-{number}")
            with pytest.raises(LockLost):
                lock.release()
        eventually(lambda: len(losses(caplog)) == len(told) == 1, 5)  # noqa: B023


def test_the_term_of_a_leader(redlock_servers, caplog):
    with Masters(redlock_servers.urls, restart_guard=False, owner=OWNER) as masters:
        eventually(lambda: all_up(masters))
        election = masters.leader("shop", ttl=3.0)

        def lead(term):
            eventually(lambda: all(lock_keys(redlock_servers)))
            each(redlock_servers, "set", "redlock:shop", "somebody", px=60_000)
            assert term.wait_lost(5)
            election.stop()

        election.run(lead, signals=())
    text = the_only(caplog)
    assert "the lease on 'shop' was lost: somebody else holds it; held for" in text
    assert "its body still ran" in text


NO_LOGGING = """
import sys, time
from redlock import Masters
with Masters(sys.argv[1:], restart_guard=False) as masters:
    lock = masters.lock("job", ttl=1, auto_extend=False)
    lock.acquire()
    time.sleep(1.1)
    print(lock.lease.valid)
"""


def test_a_program_that_configures_no_logging_is_told_on_standard_error(redlock_servers):
    """By Python's handler of last resort: an application that wants something else configures `logging`."""
    done = run("-c", NO_LOGGING, *redlock_servers.urls)
    assert done.stdout == "False\n"
    assert done.stderr.startswith("the lease on 'job' was lost: it expired")
    assert done.stderr.count("\n") == 1


ENDS_RIGHT_AFTER = """
import sys, time
from redlock import Masters

masters = Masters(sys.argv[1:], restart_guard=False, node_timeout=10)
options = {"ttl": 40, "max_hold": 0.5, "bound": False}
locks = [masters.lock("first", on_lost=lambda _: time.sleep(1.0), **options), masters.lock("second", **options)]
for lease in [lock.acquire() for lock in locks]:
    assert lease.wait_lost(20)
"""


def test_a_program_that_ends_right_after_a_loss_has_it_in_the_log(redlock_servers):
    """R11: its thread is a daemon, which the interpreter stops wherever it is."""
    done = run("-c", ENDS_RIGHT_AFTER, *redlock_servers.urls)
    assert "the lease on 'second' was lost: it was held for as long as it may be" in done.stderr
