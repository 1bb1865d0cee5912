"""Waiters of several processes are served in order (R42), on real servers."""

from pathlib import Path

import pytest

from redlock._core import wire
from redlock._core.fair import tickets
from tests.servers.look import in_line, script_calls

KEYS = wire.keys_for("redlock:", ["job"])
FENCE = "{redlock:job}:fence"


def test_a_free_name_costs_one_round_and_no_ticket(world, servers, masters):
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
