"""A lost lease is logged, once, whoever finds it out: with its reason, its owner, and whether its body still ran."""

from __future__ import annotations

import logging
import re
import time
from typing import Any

import pytest

from redlock import LockLost
from tests.servers.look import all_up, each, eventually, lock_keys, logged, take
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


def test_one_that_was_resumed_from_its_token(quick, redlock_servers, caplog):
    """C9 and C11: `on_lost` hears of it as well."""
    first = quick.lock("job", ttl=3.0, auto_extend=False)
    lease = take(first)
    told: list[Any] = []
    lock = quick.resume("job", ttl=3.0, token=lease.token, fence=lease.fence, on_lost=told.append)
    take(lock)
    eventually(lambda: all(lock_keys(redlock_servers)))
    each(redlock_servers, "set", "redlock:job", "somebody", px=60_000)
    with pytest.raises(LockLost):
        lock.release()
    assert "another client holds it" in the_only(caplog)
    eventually(lambda: len(told) == 1)


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
    assert "the lease on 'second' was lost: max_hold was reached" in done.stderr
