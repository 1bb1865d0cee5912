"""The errors: what they are instances of, that they survive pickling, and what they say."""

from __future__ import annotations

import copy
import inspect
from dataclasses import FrozenInstanceError
from typing import Any

import pytest

from redlock import errors
from redlock.errors import LockLost, LockUnavailable, NotAcquired, NotExtended, QuorumUnreachable, RedlockError, Vote
from tests.owners import proves

pytestmark = proves("C18")

VOTES = (
    Vote("redis-a:6379", "granted", 0.0012),
    Vote("redis-bb:6379", "held", 0.002, "by ann for 2.000 s"),
    Vote("c:6379", "timeout", None, "no answer within 0.25 s"),
)
CLASSES = [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, RedlockError)]


def test_what_is_different_is_not_caught_together() -> None:
    """An extension that was not answered is no loss, a loss is no timeout, and busy and broken stand side by side."""
    assert not issubclass(LockLost, (TimeoutError, ValueError, RuntimeError))
    assert not issubclass(NotExtended, (LockUnavailable, LockLost))
    for one, other in ((NotAcquired, QuorumUnreachable), (QuorumUnreachable, NotAcquired)):
        assert issubclass(one, LockUnavailable)
        assert not issubclass(one, (other, TimeoutError, OSError))
    assert not hasattr(QuorumUnreachable("too few"), "kind")


def made(kind: type[RedlockError]) -> RedlockError:
    more: dict[str, Any] = {LockLost: {"reason": "taken"}, NotAcquired: {"kind": "nobody"}}.get(kind, {})
    error = kind("it went wrong", name="a, b", votes=list(VOTES), **more)
    error.add_note("while paying")
    return error


def test_a_subclass_of_the_user_survives_as_well() -> None:
    class Late(NotAcquired):
        pass

    again = copy.copy(Late("too late", name="a"))
    assert (type(again), again.name) == (Late, "a")


@pytest.mark.parametrize("kind", CLASSES)
def test_every_master_has_a_line_of_its_own(kind: type[RedlockError]) -> None:
    lines = str(made(kind)).splitlines()
    assert lines == [
        "it went wrong",
        "  redis-a:6379   granted after 1.2 ms",
        "  redis-bb:6379  held after 2.0 ms: by ann for 2.000 s",
        "  c:6379         timeout: no answer within 0.25 s",
    ]
    assert [str(vote).split() for vote in VOTES] == [line.split() for line in lines[1:]]  # each by itself


@pytest.mark.parametrize(("reason", "shown"), [
    ("by Zoë, 鍵", "by Zoë, 鍵"),
    ("a\tb", "a\\tb"),
    ("\x1b[31m", "\\x1b[31m"),
    ("\u2028", "\\u2028"),
    ("\u202e", "\\u202e"),
    ("\ud800", "\\ud800"),
    ("\0", "\\x00"),
    ("C:\\x", "C:\\x"),
], ids=ascii)  # fmt: skip
def test_what_cannot_be_printed_is_escaped(reason: str, shown: str) -> None:
    vote = Vote("a:1", "error", None, reason)
    assert str(vote) == f"a:1  error: {shown}"
    assert vote.reason == reason  # what a program gets is what came


def test_votes_can_be_any_sequence_and_do_not_change_afterwards() -> None:
    votes = list(VOTES)
    error = NotAcquired("x", votes=votes)
    votes.clear()
    assert error.votes == VOTES
    with pytest.raises(FrozenInstanceError):
        error.votes[0].outcome = "held"  # type: ignore[misc]
