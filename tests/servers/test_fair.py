"""Waiters of several processes are served in order (R42), on real servers."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from redlock import ConfigurationError, Masters, NotAcquired
from redlock._core import tickets, wire
from tests.servers.commands import environment
from tests.servers.look import all_up, eventually, in_line, in_time, script_calls, take
from tests.servers.waiter import NEVER, Waiting

KEYS = wire.keys_for("redlock:", ["job"])
FENCE = "{redlock:job}:fence"
# One second of a master, the look before it, and a slow machine.
A_SECOND = tickets.LIFE + 1.0


@pytest.fixture
def clients(redlock_servers):
    """Five processes, as it were."""
    found = [Masters(redlock_servers.urls, restart_guard=False, node_timeout=3) for _ in range(5)]
    eventually(lambda: all(map(all_up, found)))
    yield found
    for one in found:
        one.close()


def line(servers, clients, **options) -> list[Waiting]:
    """One waiter of each, in this order."""
    waiting = []
    for number, one in enumerate(clients, start=1):
        waiting.append(Waiting(one.lock("job", fair=True, **options)))
        eventually(lambda number=number: in_line(servers) == [number] * 5)
    return waiting


def test_a_free_name_costs_one_round_and_no_ticket(world, servers, masters):
    eventually(lambda: all_up(masters))
    before = script_calls(servers)
    with masters.lock("job", fair=True) as lease:
        assert [now - then for now, then in zip(script_calls(servers), before, strict=True)] == [1] * 5
        assert isinstance(lease, world.Lease)
        assert not any(in_line(servers))
    with masters.lock("job", fair=True) as again:
        assert again.fence > lease.fence
    with masters.lock("job") as plain:  # nobody stands there: the zero in front goes
        assert plain.fence > again.fence
    assert {servers.client(i).get(FENCE) for i in range(5)} == {str(plain.fence).encode()}


def test_in_the_order_in_which_they_came(servers, masters, clients, watch):
    with masters.lock("job"):
        waiting = line(servers, clients)
        time.sleep(2 * tickets.LIFE)  # they are renewed
        eventually(lambda: in_line(servers) == [5] * 5)
    for one in waiting:
        one.end()
    if watch.overslept < tickets.LIFE / 2:  # else one of them may have lost its place
        assert [one.at for one in waiting] == sorted(one.at for one in waiting)
    by_time = sorted(waiting, key=lambda one: one.at)
    assert by_time == sorted(waiting, key=lambda one: one.outcome.fence)
    assert not any(in_line(servers))


def test_nobody_else_is_granted_it_while_somebody_waits_in_order(world, servers, masters, watch):
    call = tickets.stand(KEYS, "somebody", 1_700_000_000_000_000, 60.0, new=False)
    began = 0.0

    def scene():
        nonlocal began
        yield
        for i in range(5):
            servers.client(i).eval(call.script.text, len(call.keys), *call.keys, *call.args)
        began = time.monotonic()
        for shared in (False, True):  # if it comes too late it is granted, and given back
            with pytest.raises(NotAcquired, match="who wait in order"), masters.lock("job", shared=shared, timeout=0):
                pass
        with pytest.raises(NotAcquired, match="the turn of somebody"), masters.lock("job", fair=True, timeout=0):
            pass

    eventually(lambda: all_up(masters))
    in_time(scene, tickets.LIFE)
    with masters.lock("job", retry=NEVER):  # it is woken by the end of that ticket
        assert time.monotonic() - began < A_SECOND + watch.late
    assert not any(in_line(servers))


@pytest.mark.parametrize(
    ("proposal", "answer"), [(1, [2, b"1700000000000000"]), (2_000_000_000_000_000, [1, b"2000000000000000"])]
)
def test_a_client_of_version_0_1_sees_no_tickets_and_reads_the_same_fence(servers, proposal, answer):
    """It may go first, and its fence is greater all the same."""
    master, script = servers.client(0), Path(__file__).with_name("version_0_1") / "acquire.lua"
    call = tickets.stand(KEYS, "somebody", 1_700_000_000_000_000, 60.0, new=True)
    assert master.eval(call.script.text, len(call.keys), *call.keys, *call.args)[:3] == [1, b"1700000000000000", 0]
    assert master.get(FENCE) == b"01700000000000000"
    assert master.eval(script.read_text(), 2, *KEYS.locks, *KEYS.fences, "1", "t", "1000", proposal, "60000") == answer


def test_a_waiter_that_has_died_costs_a_second_once(servers, clients, watch):
    holder = clients[0].lock("job", bound=False)
    take(holder)
    dead = (
        f"from redlock import Masters; Masters({servers.urls!r}, restart_guard=False).lock('job', fair=True).acquire()"
    )
    processes = []
    for number in (1, 2):
        processes.append(subprocess.Popen([sys.executable, "-c", dead], env=environment()))
        eventually(lambda number=number: in_line(servers) == [number] * 5)
    waiting = []
    for number, one in enumerate(clients[1:4], start=3):
        waiting.append(Waiting(one.lock("job", fair=True, retry=NEVER)))
        eventually(lambda number=number: in_line(servers) == [number] * 5)
    for process in processes:
        process.send_signal(signal.SIGKILL)
        process.wait()
    released = time.monotonic()
    holder.release()
    for one in waiting:
        one.end()
    assert waiting[0].at - released < A_SECOND + watch.late
    assert waiting[2].at - waiting[0].at < tickets.LIFE / 2 + watch.late  # the others do not pay for them again


@pytest.mark.parametrize(("options", "why"), [
    ({"fair": 1}, "fair=1"), ({"shared": True}, "readers enter together"),
    ({"fencing": False}, "that of proposed fencing tokens"), ({"token": "a" * 40}, "does not wait"),
])  # fmt: skip
def test_where_it_means_nothing_it_is_refused(world, masters, options, why):
    with pytest.raises(ConfigurationError, match=why):
        masters.lock("job", **({"fair": True} | options))
    with pytest.raises(ConfigurationError, match="there is no order"):
        masters.slots("job", limit=2, fair=True)
