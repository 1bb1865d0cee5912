"""Broken locks, by name: what the simulation must be able to see.

Each breaks one rule by patching one small thing in the core, in a script or in the driver, and says
which invariants fit.  A simulation that is green for one of these would prove nothing by being green.
"""

from __future__ import annotations

import math
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any
from unittest import mock

from redlock import scripts
from redlock._core import acquire as acquiring, extend as extending, quorum, wire
from redlock._core.effects import Send
from redlock._core.electorate import Electorate, Facts
from redlock._core.extend import Extension
from redlock._core.lease import LeaseState
from redlock._core.pipeline import Pipeline
from redlock._core.release import Denials
from redlock._core.rounds import Round
from redlock._core.terms import Plan, Terms
from tests.simulation import master
from tests.simulation.client import Client
from tests.simulation.invariants import LIVE, P1, P2, P3, P5, P7, P8, R7, R12

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from redlock._core.effects import Op
    from redlock._core.quorum import Tally


@dataclass(frozen=True)
class Variant:
    """One way to get it wrong.  ``fixed``: parameters that let it show soon."""

    name: str
    why: str
    expected: frozenset[str]
    patches: Callable[[], list[Any]]
    fixed: dict[str, Any] = field(default_factory=dict)

    @contextmanager
    def applied(self) -> Iterator[None]:
        with ExitStack() as stack:
            for patch in self.patches():
                stack.enter_context(patch)
            yield


def variant(name: str, *expected: str, **fixed: Any) -> Callable[[Callable[[], list[Any]]], None]:
    def add(patches: Callable[[], list[Any]]) -> None:
        why = (patches.__doc__ or "").strip()
        VARIANTS[name] = Variant(name, why, frozenset(expected), patches, fixed)

    return add


VARIANTS: dict[str, Variant] = {}


def script(which: scripts.Script, *changes: tuple[str, str]) -> Any:
    """A script with another text; the change must match, or the variant would not be broken."""
    text = which.text
    for old, new in changes:
        assert old in text, f"{which.name}.lua has no {old!r} any more"
        text = text.replace(old, new)
    return mock.patch.dict(master.REPLACED, {which.name: text})


# -- the majority and time ---------------------------------------------------------------------------


@variant("minority", P1)
def _() -> list[Any]:
    """Half of the masters are enough (R1)."""
    return [mock.patch.object(quorum, "majority", lambda masters: max(1, masters // 2))]


@variant("no-drift", P1, spread=1.0, drift_factor=0.1, eager=0.03, faults=())
def _() -> list[Any]:
    """Clocks are taken to run at one rate (R6)."""
    return [mock.patch.object(quorum, "drift", return_value=0.0)]


@variant("validity-not-checked", R7, min_validity=0.8, faults=(("pause", 0.5),))
def _() -> list[Any]:
    """A majority is enough, however late it came (R7)."""
    return [
        mock.patch.object(Plan, "min_validity", property(lambda plan: -math.inf, lambda plan, value: None))
    ]


@variant("wall-clock", P1, R12, skew=30.0, fence_ttl=3600.0, faults=(("wall", 0.5),))
def _() -> list[Any]:
    """Validity is measured on a clock that somebody sets (R5)."""
    return [
        mock.patch.object(Client, "clock", lambda c: c._offset + c._rate * c.world.now + c.skew),
        mock.patch.object(Client, "true_time", lambda c, clock: (clock - c._offset - c.skew) / c._rate),
    ]


@variant(
    "shortening-forgotten",
    P1,
    masters=3,
    names=1,
    ttl=8.0,
    max_ttl=20.0,
    node_timeout=0.4,
    delay=0.02,
    eager=0.03,
    faults=(("isolate", 0.8),),
)
def _() -> list[Any]:
    """An extension to a shorter TTL counts only once it is answered (C6)."""
    return [mock.patch.object(LeaseState, "_extension_begins", return_value=0)]


# -- rollback and release ----------------------------------------------------------------------------


@variant("no-rollback", P7)
def _() -> list[Any]:
    """A failed attempt leaves its keys to their TTL (R9)."""

    def rollback(plan: Plan, token: str, round_: Round) -> Op[None]:
        yield from ()

    return [mock.patch.object(acquiring, "rollback", rollback)]


@variant("rollback-only-where-granted", P7)
def _() -> list[Any]:
    """A failed attempt is not released on the masters that were silent (R9)."""

    def rollback(plan: Plan, token: str, round_: Round) -> Op[None]:
        granted = frozenset(m for m in round_.reached() if round_.tally.outcome(m) == "granted")
        release = Send(wire.release(plan.keys, token), to=granted)
        release.owed_until = round_.request.sent_at + 2 * plan.ttl
        release.open = False
        yield release

    return [mock.patch.object(acquiring, "rollback", rollback)]


@variant("release-not-owed", P7, faults=(("snap", 1.0), ("refuse", 0.5)))
def _() -> list[Any]:
    """A release that a broken connection swallowed is not sent again (R10)."""
    return [mock.patch.object(Pipeline, "due", return_value=())]


@variant("one-token", P8)
def _() -> list[Any]:
    """One token for all attempts of a call: a late release of one removes the key of the next (R8)."""
    correct = acquiring.acquire

    def acquire(terms: Terms, *rest: Any) -> Any:
        token = terms.token()
        return correct(replace(terms, token=lambda: token), *rest)

    return [mock.patch.object(acquiring, "acquire", acquire)]


@variant("release-without-owner-check", P8)
def _() -> list[Any]:
    """Whoever releases, the key is removed (P8)."""
    return [script(scripts.RELEASE, ("if found == token then", "if found then"))]


# -- extension ---------------------------------------------------------------------------------------


@variant("extension-resurrects", R12, P1)
def _() -> list[Any]:
    """An extension sets keys that are gone, and a lease that has ended is valid again (R12)."""

    def extend(terms: Terms, plan: Plan, lease: LeaseState, ttl: float, now: float) -> Op[Extension]:
        round_ = Round(terms, Send(wire.extend(plan.keys, lease.token, ttl, terms.fence_ttl)), Denials().read)
        number = lease._extension_begins(math.inf, ttl)
        yield from round_.ask(end="settled")
        if not round_.tally.won:
            return Extension("unanswered", round_.tally)
        lease._lost = None
        valid_until = quorum.valid_until(round_.request.sent_at, ttl, terms.drift_factor)
        lease._extended(valid_until, ttl, round_.tally.votes, number)
        lease._extension_ends()
        return Extension("kept", round_.tally)

    return [
        mock.patch.object(extending, "extend", extend),
        script(
            scripts.EXTEND,
            ("if found ~= token then", "if found and found ~= token then"),
            ("redis.call('PEXPIRE', KEYS[i], ARGV[3])", "redis.call('SET', KEYS[i], token, 'PX', ARGV[3])"),
        ),
    ]


# -- fencing -----------------------------------------------------------------------------------------

# Proposals that the wall clock does not keep apart: all but one client go by the highest seen.
_SKEWED: dict[str, Any] = {
    "skew": 30.0,
    "fence_ttl": 3600.0,
    "clients": 4,
    "names": 1,
    "faults": (("cut", 0.2),),
}


@variant("fence-not-written-back", P2, **_SKEWED)
def _() -> list[Any]:
    """A fence greater than all that were seen, which no majority has stored (R17)."""

    def second_round(
        terms: Terms, plan: Plan, token: str, first: Round, proposal: int
    ) -> Op[tuple[int, float, Tally]]:
        yield from ()
        terms.fences.learn(proposal)
        return proposal, first.request.sent_at, first.tally

    return [mock.patch.object(acquiring, "second_round", second_round)]


@variant("equal-fence", P2, **_SKEWED)
def _() -> list[Any]:
    """A master takes a fence equal to its own for a greater one (R18)."""
    return [
        script(scripts.ACQUIRE, ("if proposal > fence then", "if proposal >= fence then")),
        script(scripts.FENCE, ("if proposal <= fence then", "if proposal < fence then")),
    ]


# -- restarted masters -------------------------------------------------------------------------------

_FORGETFUL = (("amnesia", 0.5),)


@variant("no-restart-guard", P5, P1, guard=True)
def _() -> list[Any]:
    """A master votes as soon as it is back, whatever it has forgotten (R21)."""
    return [mock.patch.object(Electorate, "objection", return_value=None)]


@variant("uptime-not-rounded", P5, P1, guard=True, faults=_FORGETFUL)
def _() -> list[Any]:
    """An uptime of one second is taken for one second, and it was hardly more than nothing (R21)."""

    def latest_start(self: Electorate, master: int, before: Facts | None, facts: Facts, at: float) -> float:
        return -math.inf if facts.durable else at - float(facts.uptime or 0)

    return [mock.patch.object(Electorate, "_latest_start", latest_start)]


# -- what no variant of the lock can show, so the world itself is broken -------------------------------


@variant("keys-that-stay", P3, faults=(("crash", 0.5),))
def _() -> list[Any]:
    """Masters forget to expire keys."""
    return [mock.patch.object(master.Keyspace, "find", lambda keyspace, name: keyspace.keys.get(name))]


@variant("never-connected-again", LIVE, faults=(("snap", 1.0),))
def _() -> list[Any]:
    """A second handshake is ignored."""
    correct = Pipeline.connected

    def connected(pipeline: Pipeline[Any]) -> None:
        if pipeline.heard_at == -math.inf:
            correct(pipeline)

    return [mock.patch.object(Pipeline, "connected", connected)]
