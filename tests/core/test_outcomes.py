"""One table says what each outcome of a vote means (R3, C2): a new one is added there, and all that counts goes by it."""

from __future__ import annotations

import inspect as python
import re
from pathlib import Path
from typing import Any, get_args

import pytest

from redlock import Vote
from redlock._core import inspect, readings
from redlock._core.wire import Seen
from redlock._lock.refused import is_locked
from redlock.errors import OUTCOMES, Outcome, Part, QuorumUnreachable, Unheard, unheard
from tests.core.world import tally_of

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize("outcome", sorted({*get_args(Outcome), *OUTCOMES}))
def test_every_outcome_is_known_wherever_somebody_reads_of_them(outcome: str) -> None:
    """In the places that are written by hand."""
    rule = re.search(r"^- \*\*R3\*\* .*?(?=^- |^$)", (DOCS / "rules.md").read_text(), re.MULTILINE | re.DOTALL)
    assert rule is not None
    assert outcome in get_args(Outcome)
    assert outcome in OUTCOMES
    assert f"``{outcome}``" in (python.getdoc(Vote) or "")
    assert f"`{outcome}`" in rule[0]
    assert re.search(rf"^\| `{outcome}\b", (DOCS / "reference" / "errors.md").read_text(), re.MULTILINE)


def test_what_is_unheard_is_so_in_the_table() -> None:
    """A `Failure` is no answer: its outcomes are those of masters that took no part, and may have the request."""
    assert {outcome for outcome in OUTCOMES if OUTCOMES[outcome] == ("absent", False)} == set(get_args(Unheard))


@pytest.fixture(params=["asleep", "timeout"])
def absent(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """One that is added, and one that is there: what counts must treat them alike."""
    monkeypatch.setitem(OUTCOMES, request.param, Part("absent", heard=False))
    return request.param


def test_three_masters_of_five_that_load_are_an_outage(absent: Any) -> None:
    """C2: counted as refusals they would be told as "somebody else has it"."""
    tally = tally_of("held", "held", absent, absent, absent)
    assert tally.unreachable
    assert readings.outage(tally)
    assert readings.perhaps_denied(tally)
    assert not tally.denied
    assert readings.explain(tally) == "at least 3 of 5 masters did not vote, and a majority is 3"
    assert readings.in_the_way(tally) == [0, 1, 2, 3, 4]  # once it has loaded, it may grant


def test_a_status_does_not_count_them(absent: Any) -> None:
    tally = tally_of("held", absent, absent)
    seen = {0: Seen("t", 5.0, 7, ()), 1: Seen("t", 5.0, 7, ()), 2: Seen("t", 5.0, 7, ())}
    status = inspect.status_of("job", seen, tally)
    assert (status.token, status.remaining) == (None, 0.0)
    with pytest.raises(QuorumUnreachable, match="2 of 3 masters did not vote"):
        is_locked(status, tally)
    with pytest.raises(QuorumUnreachable, match="2 of 3 masters did not vote"):
        inspect.known(status, tally)


def test_a_release_that_they_did_not_confirm_may_not_have_arrived(absent: Any) -> None:
    votes = tally_of("granted", absent, "quarantined", absent, "held").votes()
    assert [vote.master for vote in unheard(votes)] == ["m1", "m3"]  # who is quarantined has heard it


def test_who_answers_and_is_not_counted_does_so_for_a_while_whatever_is_released() -> None:
    tally = tally_of("held", "quarantined", "quarantined")
    assert tally.unreachable
    assert readings.in_the_way(tally) == [0]


def test_who_said_nothing_yet_is_not_absent() -> None:
    tally = tally_of("held", size=3)
    votes = tally.votes()
    assert not tally.unreachable
    assert [OUTCOMES[vote.outcome].took for vote in votes] == ["voted", "nothing yet", "nothing yet"]
    assert [vote.master for vote in unheard(votes)] == ["m1", "m2"]
