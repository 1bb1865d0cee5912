"""What a client tells of its attempts."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from chaos.clients.votes import MOST, WRITES, Votes
from chaos.clients.work import Held, Worker
from chaos.history import now
from chaos.scenarios import SCENARIOS
from redlock import LeaseExtended, LockAcquired, LockRefused, Vote

VOTES = (Vote("master-1", "granted", 0.001), Vote("master-2", "timeout"))


@pytest.mark.parametrize("attempts", [0, 1])
def test_what_one_in_front_has_met_is_no_attempt(attempts):
    """C2.  Its votes are old: the replay would find somebody else's grant among them."""
    written = []
    WRITES.set(lambda *what, **more: written.append((what, more["votes"])))
    Votes().hear(LockRefused("a", "unreachable", attempts, 0.5, VOTES))
    assert written == [(("attempt", "fail"), [["master-1", "granted", 0.001], ["master-2", "timeout"]])] * attempts


def test_a_grant_that_was_renewed_before_its_holder_came_to_it_is_told_as_it_was(tmp_path):
    """Else it would count on more time than masters gave (R6), and a renewal would be missing."""
    lines, votes, began, made = [], Votes(), now(), cast("Any", Worker)
    record = SimpleNamespace(process="c", write=lambda op, *_, **more: lines.append((op, more["valid_until"] - began)))
    world, settings = SimpleNamespace(can_cancel=False), SCENARIOS["kill"].with_seed(7)
    worker = made("1", world, settings, None, record, tmp_path, {}, votes, None, None)
    WRITES.set(record.write)
    for token in map(str, range(3000)):  # of acquires that were cancelled after their grant: nobody asks for these
        votes.hear(LockAcquired("a", token, 1, 1, 0.5, VOTES, settled=VOTES))
    assert [len(votes.granted), len(votes.settled), len(votes._of)] == [MOST] * 3
    votes.hear(LockAcquired("a", "t", 1, 1, 0.5, VOTES, remaining=100.0))
    votes.hear(LeaseExtended("a", "t", 1, 200.0, VOTES))
    worker._got(Held(None, SimpleNamespace(name="a", token="t", fence=1, shared=False, valid_until=began + 200.0)))
    assert lines == [("acquire", pytest.approx(100.0, abs=50.0)), ("extend", pytest.approx(200.0))]
