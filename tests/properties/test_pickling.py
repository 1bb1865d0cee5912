"""Errors and events go from process to process, and into logs, whatever is in them."""

from __future__ import annotations

import copy
import pickle
from dataclasses import fields
from typing import get_args

from hypothesis import given, strategies as st

import redlock
from redlock.errors import Outcome, Reason, Vote
from tests.core.test_errors import CLASSES
from tests.properties.profile import PROPERTY

seconds = st.floats(0, 1e9)
votes = st.lists(
    st.builds(
        Vote,
        st.from_regex(r"[a-z0-9.-]{1,20}:[0-9]{1,5}", fullmatch=True),
        st.sampled_from(get_args(Outcome)),
        st.none() | seconds,
        st.text(max_size=30),
    ),
    max_size=5,
).map(tuple)
made_of = {
    "name": st.text(max_size=20), "token": st.text(max_size=20), "fence": st.none() | st.integers(1, 2**53),
    "attempts": st.integers(0, 99), "seconds": seconds, "held": seconds, "remaining": seconds,
    "quarantined": seconds | st.just(float("inf")), "votes": votes, "settled": votes, "master": st.text(max_size=20),
    "failed": st.lists(st.builds(redlock.FailedAttempt, st.just("held"), seconds, votes), max_size=3).map(tuple),
    "renewed": st.booleans(), "waiter": st.integers(1, 99), "bare_majority": seconds, "guard": seconds, "rate": st.floats(-1, 1),
}  # fmt: skip
KINDS = get_args(redlock.Event)


def strategy_of(kind):
    more = {
        redlock.LeaseLost: {"reason": st.sampled_from(get_args(Reason))},
        redlock.MasterDown: {"reason": st.text(max_size=30)},
        redlock.MastersDisagree: {
            "masters": st.tuples(st.text(max_size=5)),
            "others": st.tuples(st.tuples(st.text(max_size=5))),
            "refused": st.booleans(),
        },
        redlock.LockRefused: {"kind": st.sampled_from(["held", "unreachable", "slow"])},
    }
    known = made_of | more.get(kind, {})
    return st.builds(kind, **{field.name: known[field.name] for field in fields(kind)})


events = st.one_of([strategy_of(kind) for kind in KINDS])


@PROPERTY
@given(events, st.integers(0, pickle.HIGHEST_PROTOCOL))
def test_events(event, protocol):
    again = pickle.loads(pickle.dumps(event, protocol))  # noqa: S301 - our own
    assert again == event
    assert type(again) is type(event)
    assert copy.deepcopy(event) == event
    assert hash(again) == hash(event)
    assert repr(again) == repr(event)


@PROPERTY
@given(
    st.sampled_from(CLASSES),
    st.text(st.characters(exclude_categories=("Cc", "Zl", "Zp"), codec="utf-8"), min_size=1, max_size=40),
    st.text(max_size=20),
    votes,
    st.integers(0, pickle.HIGHEST_PROTOCOL),
)
def test_errors(kind, message, name, given_votes, protocol):
    error = kind(message, name=name, votes=given_votes)
    again = pickle.loads(pickle.dumps(error, protocol))  # noqa: S301 - our own
    assert (type(again), str(again), again.name, again.votes) == (kind, str(error), name, given_votes)
    lines = str(error).split("\n")
    assert len(lines) == 1 + len(given_votes)  # a reason can forge none
    for line, vote in zip(lines[1:], given_votes, strict=True):
        assert line.isprintable()
        assert line.split()[:2] == [vote.master, vote.outcome + ":" * (vote.latency is None and bool(vote.reason))]
