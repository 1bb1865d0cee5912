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
from redlock._core import (
    acquire as acquiring,
    extend as extending,
    inspect,
    listing,
    quorum,
    release as releasing,
    renewals,
    watch,
    wire,
)
from redlock._core.effects import Send
from redlock._core.extend_many import BatchExtension
from redlock._core.lease import LeaseState
from redlock._core.listing import scan
from redlock._core.pipeline import Pipeline
from redlock._core.release import release_lost
from redlock._core.renewals import Renewal
from redlock._core.settings import LockSpec, MastersSettings
from redlock._core.watch import FreeLook, Watch
from tests.simulation import master
from tests.simulation.client import Client
from tests.simulation.invariants import (
    C7,
    FREE,
    P1,
    P6,
    P7,
    R12,
    R13,
    R15,
    R28,
    R28_END,
    R29,
    R36,
    R37,
    R41,
)
from tests.simulation.parameters import (
    Parameters,
    draw,
    guarded,
    household,
    periods,
    rivals,
)
from tests.simulation.renewer import HeldBy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from redlock._core.effects import Op
    from redlock._core.extend import Extension
    from redlock._core.inspect import LockStatus, Look
    from redlock._core.rounds import Round
    from tests.simulation.client import Task


@dataclass(frozen=True)
class Variant:
    """One way to get it wrong.  ``fixed``: parameters that let it show soon, beside those of ``drawn``."""

    name: str
    why: str
    expected: frozenset[str]
    patches: Callable[[], list[Any]]
    fixed: dict[str, Any] = field(default_factory=dict)
    drawn: Callable[..., Parameters] = draw

    def parameters(self, seed: int) -> Parameters:
        return self.drawn(seed, **self.fixed)

    @contextmanager
    def applied(self) -> Iterator[None]:
        with ExitStack() as stack:
            for patch in self.patches():
                stack.enter_context(patch)
            yield


def variant(
    name: str, *expected: str, drawn: Callable[..., Parameters] = draw, **fixed: Any
) -> Callable[[Callable[[], list[Any]]], None]:
    def add(patches: Callable[[], list[Any]]) -> None:
        why = (patches.__doc__ or "").strip()
        VARIANTS[name] = Variant(name, why, frozenset(expected), patches, fixed, drawn)

    return add


VARIANTS: dict[str, Variant] = {}


def script(which: scripts.Script, *changes: tuple[str, str]) -> Any:
    """A script with another text; the change must match, or the variant would not be broken."""
    text = which.text
    for old, new in changes:
        assert old in text, f"{which.name}.lua has no {old!r} any more"
        text = text.replace(old, new)
    return mock.patch.dict(master.REPLACED, {which.name: text})


# -- keeping -----------------------------------------------------------------------------------------

_KEPT: dict[str, Any] = {"keep": 0.8}
_NEVER = 1e9  # later than any run lasts


@variant("lost-told-late", P6, **_KEPT)
def _() -> list[Any]:
    """No alarm at the end of the time: the next renewal finds that the lease is lost (P6)."""

    def due(renewal: Renewal) -> float:
        if renewal.over:
            return -math.inf
        if renewal._pause is None:
            renewal._pause = renewals._pause(renewal.lease.ttl, renewal.settings.random())
        return min(renewal._since + renewal._pause, renewal._max_hold_at)

    return [mock.patch.object(Renewal, "due", property(due))]


@variant("told-twice", P6, **_KEPT)
def _() -> list[Any]:
    """Each look that finds the lease lost tells its holder, although it was told before (C9)."""
    return [mock.patch.object(Renewal, "report_loss", lambda renewal: renewal.held_by.notify_lost(None))]


@variant("told-after-release", P6, **_KEPT)
def _() -> list[Any]:
    """A lease that was released is lost when its time is up (C8, C9)."""

    def lost(lease: LeaseState) -> bool:
        if lease._lost is None and lease.clock() >= lease.valid_until:
            lease._lost = lease._late
        return lease._lost is not None

    def due(renewal: Renewal) -> float:
        return renewals.OVER if renewal.lease.lost else renewal.lease.valid_until

    return [
        mock.patch.object(LeaseState, "lost", property(lost)),
        mock.patch.object(LeaseState, "over", property(lambda lease: lease.lost)),
        mock.patch.object(Renewal, "next_action", return_value="nothing"),
        mock.patch.object(Renewal, "due", property(due)),
    ]


@variant(
    "renewer-after-release", R15, masters=5, clients=3, names=1, ttl=4.0, max_ttl=4.0, node_timeout=1.0, delay=0.1,
    fence_ttl=3600.0, guard=False, faults=(("amnesia", 0.6),), **_KEPT
)  # fmt: skip
def _() -> list[Any]:
    """What the renewer has in hand is written, whatever was written meanwhile (R14)."""
    correct = Client.perform

    def perform(client: Client, request: Send, task: Task) -> BaseException | None:
        request.only_if = None
        return correct(client, request, task)

    return [mock.patch.object(Client, "perform", perform)]


@variant(
    "late-repair-after-release", R15, masters=5, clients=3, names=1, ttl=4.0, max_ttl=4.0, node_timeout=1.0, delay=0.1,
    fence_ttl=3600.0, guard=False, faults=(("amnesia", 0.6), ("freeze", 0.6)), **_KEPT
)  # fmt: skip
def _() -> list[Any]:
    """A master that says after the majority that it has no key gets it, whatever has become of the lease (R14)."""
    correct = Pipeline._follow

    def follow(pipeline: Pipeline, request: Send, *rest: Any) -> None:
        for one in request.more:
            one.only_if = None
        correct(pipeline, request, *rest)

    return [mock.patch.object(Pipeline, "_follow", follow)]


@variant("never-made-whole", R37, drawn=rivals)
def _() -> list[Any]:
    """A grant is left on the majority that granted it (R37)."""
    return [mock.patch.object(renewals, "lacking", return_value=[])]


class _Unasked(extending.Repair):
    """A repair that is written whatever was written meanwhile."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.only_if = lambda: True


@variant(
    "made-whole-when-it-is-over", R15, drawn=rivals, clients=8, ttl=8.0, max_ttl=16.0, node_timeout=1.0,
    patience=2.0, delay=0.2, eager=0.03,
)  # fmt: skip
def _() -> list[Any]:
    """What is to make a lease whole is written, whatever has become of the lease (R37)."""
    return [mock.patch.object(extending, "Repair", _Unasked)]


@variant("repairs-counted-as-votes", R12, P1, faults=(("amnesia", 0.6),), guard=False, **_KEPT)
def _() -> list[Any]:
    """A master that gets the key back has extended it (R14, R37)."""
    correct = extending.Extending.read

    def read(claim: Any, master: int, value: Any) -> Any:
        missing = len(claim.missing)
        outcome = correct(claim, master, value)
        return outcome if len(claim.missing) == missing else ("granted", "")

    return [mock.patch.object(extending.Extending, "read", read)]


@variant("lost-and-released-at-once", R36, drawn=guarded)
def _() -> list[Any]:
    """A client that finds a lease lost releases it, whatever its holder has under way (R36)."""
    return [mock.patch.object(LeaseState, "guards", False)]


@variant("valid-while-it-guards", R36, P1, drawn=guarded, ttl=4.0, max_ttl=8.0, after=2.0)
def _() -> list[Any]:
    """A lease is valid for as long as masters keep its keys (R36)."""
    correct = quorum.valid_until
    return [mock.patch.object(quorum, "valid_until", lambda sent_at, ttl, factor: correct(sent_at, ttl + 2.0, factor))]


@variant("guard-beyond-max-ttl", P7, drawn=guarded, ttl=4.0, max_ttl=8.0, after=6.0)
def _() -> list[Any]:
    """Keys live longer than a master that has forgotten them is kept from voting (R21, R36)."""
    return []


@variant("keys-without-a-guard", P1, drawn=guarded, ttl=4.0, max_ttl=8.0, after=4.0, masters=3, faults=(("step", 3.0),))
def _() -> list[Any]:
    """Masters keep keys for the TTL alone, and their clocks step by up to the guard (R36)."""
    return [mock.patch.object(LockSpec, "guard", property(lambda spec: 0.0, lambda spec, value: None))]


@variant("released-lease-renewed", R15, R12, **_KEPT)
def _() -> list[Any]:
    """Nobody tells the renewer of a release (R15)."""

    def over(lease: LeaseState) -> bool:
        return lease.lost or lease.clock() >= lease.valid_until

    return [
        mock.patch.object(LeaseState, "over", property(over)),
        mock.patch.object(LeaseState, "extendable", lambda lease, now: not over(lease)),
    ]


@variant("renewer-outlives-owner", R15, deserted=0.5, **_KEPT)
def _() -> list[Any]:
    """A lease is renewed for as long as the process lives, whoever owned it (R15)."""
    return [mock.patch.object(HeldBy, "presence", return_value="here")]


@variant("abandoned-lease-runs-out", R15, deserted=0.5, abandoned=1.0, **_KEPT)
def _() -> list[Any]:
    """What nobody can release any more stays for its TTL (R15)."""
    correct = HeldBy.presence
    return [mock.patch.object(HeldBy, "presence", lambda held_by: "here" if correct(held_by) == "here" else "gone")]


@variant("renewal-gives-up", R13, **_KEPT)
def _() -> list[Any]:
    """A renewal that too few have answered is taken for a loss (R13)."""
    return [mock.patch.object(LeaseState, "unanswered", lambda lease: lease.lose("unreachable"))]


@variant("renewal-not-tried-again", R13, **_KEPT)
def _() -> list[Any]:
    """A renewal that too few have answered was the last one (R13)."""
    correct = Renewal.conclude

    def conclude(renewal: Renewal, extension: Extension, spread: float) -> None:
        if extension.kind == "unanswered":
            extension = extension._replace(at=_NEVER)
        correct(renewal, extension, spread)

    return [mock.patch.object(Renewal, "conclude", conclude)]


@variant("renewal-without-pause", R13, faults=(("isolate", 0.6), ("snap", 0.6)), **_KEPT)
def _() -> list[Any]:
    """A renewal that too few have answered is tried again at once (R13)."""
    return [mock.patch.object(renewals, "_RETRY", 1 / 2000)]


_TOGETHER: dict[str, Any] = {
    "drawn": household, "masters": 5, "guard": False, "faults": (("amnesia", 0.6), ("freeze", 0.6)),
}  # fmt: skip


@variant("answers-of-others", R12, R13, **_TOGETHER)
def _() -> list[Any]:
    """In a round for many, what a master says of one lease is taken for what it says of the next (R12)."""
    correct = wire.read_renew

    def read_renew(value: Any, leases: int) -> Any:
        return {(index + 1) % leases: answer for index, answer in correct(value, leases).items()}

    return [mock.patch.object(wire, "read_renew", read_renew)]


@variant("one-answer-for-all", R12, **_TOGETHER)
def _() -> list[Any]:
    """In a round for many, a master that still has one of the leases has them all (R12)."""
    correct = wire.read_renew

    def read_renew(value: Any, leases: int) -> Any:
        others = correct(value, leases)
        return others if len(others) == leases else {}

    return [mock.patch.object(wire, "read_renew", read_renew)]


@variant("denied-one-denied-all", R13, **_TOGETHER)
def _() -> list[Any]:
    """In a round for many, a lease that is lost takes the others with it (R13)."""
    correct = BatchExtension._detach

    def detach(batch: BatchExtension, index: int) -> None:
        correct(batch, index)
        for member in batch.asked:
            member.lease.lose("expired")

    return [mock.patch.object(BatchExtension, "_detach", detach)]


@variant("alone-and-forgotten", R13, **_TOGETHER)
def _() -> list[Any]:
    """A lease that is not extended in a round for many is not tried again by itself (R13)."""

    def detach(renewal: Renewal) -> None:
        renewal._since = _NEVER

    return [mock.patch.object(Renewal, "detach", detach)]


@variant("max-hold-ignored", C7, limited=0.5, **_KEPT)
def _() -> list[Any]:
    """A lease is kept for as long as it is used (C7)."""
    correct = Renewal.__init__

    def init(renewal: Renewal, settings: Any, spec: LockSpec, *args: Any) -> None:
        correct(renewal, settings, spec._replace(max_hold=None), *args)

    return [mock.patch.object(Renewal, "__init__", init)]


@variant("max-hold-keeps-the-keys", P7, limited=0.5, deserted=0.5, faults=(), **_KEPT)
def _() -> list[Any]:
    """A lease that was held for as long as it may be is lost, and its keys stay (C7)."""

    def give_up(renewal: Renewal) -> Op[dict[Renewal, Extension]]:
        request = release_lost(renewal.settings, renewal.spec, renewal.lease)
        request.to = frozenset()
        yield request
        return {}

    return [mock.patch.object(Renewal, "give_up", give_up)]


# -- at least for so long (R28) ----------------------------------------------------------------------

_PERIODS: dict[str, Any] = {"drawn": periods, "faults": ()}


@variant("released-at-once", R28, **_PERIODS)
def _() -> list[Any]:
    """A release deletes the key, however short the job was (R28)."""
    return [mock.patch.object(LeaseState, "kept", 0.0)]


@variant("kept-without-drift", R28, spread=1.0, drift_factor=0.1, clients=5, names=1, **_PERIODS)
def _() -> list[Any]:
    """What is left of the time is counted by a master's clock as if that ran like ours (R28)."""
    return [mock.patch.object(releasing, "quorum", mock.Mock(drift=mock.Mock(return_value=0.0)))]


@variant("kept-longer-than-the-key", R28_END, **_PERIODS)
def _() -> list[Any]:
    """A release lengthens the life of a key (R28)."""
    return [script(scripts.RELEASE, ("if left < 0 or left > keep then", "if true then"))]


@variant("held-by-what-is-left", R28, drawn=periods, min_validity=0.02, faults=(("pause", 4.0),))
def _() -> list[Any]:
    """A grant of which little is left counts, and its holder may die (R28)."""
    return [mock.patch.object(quorum, "enough_to_hold", return_value=0.0)]


@variant("rollback-keeps", R28_END, **_PERIODS)
def _() -> list[Any]:
    """What a failed attempt takes back stays for as long as a grant would have (R28)."""

    def rollback(spec: LockSpec, token: str, round_: Round) -> Op[None]:
        call = wire.release(spec.keys, token, spec.hold_at_least)
        yield Send(call, to=round_.reached(), owed_until=round_.sent_at + 2 * spec.ttl)

    return [mock.patch.object(acquiring, "rollback", rollback)]


@variant("free-where-one-says-so", FREE, looks=0.8, **_PERIODS)
def _() -> list[Any]:
    """A name is free as soon as one master has no holder for it."""
    return [mock.patch.object(FreeLook, "free", property(lambda look: look._free() > 0))]


@variant("watched-free-where-one-says-so", FREE, watches=0.8, **_PERIODS)
def _() -> list[Any]:
    """A watcher takes a name for free as soon as one master has no holder for it (R41)."""

    def status_of(name: str, seen: dict[int, wire.Seen], tally: quorum.Tally) -> LockStatus:
        status = inspect.status_of(name, seen, tally)
        return replace(status, token=None) if any(not one.holder for one in seen.values()) else status

    def is_news(self: Watch, status: LockStatus, look: Look) -> bool:
        self._last, before = (status.token,), self._last
        return before != self._last

    return [mock.patch.object(watch, "status_of", status_of), mock.patch.object(Watch, "_is_news", is_news)]


@variant("watched-forgetfully", R41, watches=0.8, **_PERIODS)
def _() -> list[Any]:
    """A watcher is told what it was told before (R41)."""
    return [mock.patch.object(Watch, "_is_news", return_value=True)]


@variant("listed-from-the-first-master", R29, looks=0.8, **_PERIODS)
def _() -> list[Any]:
    """What one master has is all that there is (R29)."""
    return [mock.patch.object(listing, "scan", _only_the_first)]


def _only_the_first(settings: Any, master: int, *step: Any) -> Any:
    found, tally = yield from scan(settings, master, *step)
    return (found._replace(keys=[]) if found is not None and master else found), tally


@variant("given-back-at-once", R28, keep=1.0, deserted=1.0, abandoned=1.0, **_PERIODS)
def _() -> list[Any]:
    """What the renewer gives back, because nobody else can, is deleted (R28)."""

    def release_lost(settings: MastersSettings, spec: LockSpec, lease: LeaseState) -> Send:
        return Send(wire.release(spec.keys, lease.token), to=lease.asked, owed_until=lease.keys_until)

    return [mock.patch.object(releasing, "release_lost", release_lost)]
