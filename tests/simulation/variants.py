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
    ballots,
    extend as extending,
    fair,
    inspect,
    listing,
    quorum,
    release as releasing,
    renewals,
    slots as slotting,
    tickets,
    watch,
    wire,
)
from redlock._core.effects import Send
from redlock._core.extend_many import BatchExtension
from redlock._core.lease import LeaseState
from redlock._core.listing import scan
from redlock._core.mode import EXCLUSIVE, shared_by
from redlock._core.pipeline import Pipeline
from redlock._core.release import release_lost
from redlock._core.renewals import Renewal
from redlock._core.settings import LockSpec, MastersSettings
from redlock._core.watch import FreeLook, Watch
from tests.simulation import master
from tests.simulation.actor import Actor
from tests.simulation.client import Client
from tests.simulation.invariants import (
    C7,
    FREE,
    P1,
    P2,
    P3,
    P6,
    P7,
    P8,
    R12,
    R13,
    R15,
    R28,
    R28_END,
    R29,
    R32,
    R33,
    R36,
    R37,
    R41,
)
from tests.simulation.line import A_SECOND, IN_ORDER, LEFT
from tests.simulation.parameters import (
    Parameters,
    come_and_go,
    draw,
    guarded,
    household,
    in_order,
    periods,
    readers_and_writers,
    rivals,
    slots,
)
from tests.simulation.renewer import HeldBy
from tests.simulation.waits import APART, WOKEN

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


# -- slots -------------------------------------------------------------------------------------------


@variant(
    "a-counter-for-each-master",
    R32,
    drawn=slots,
    slots=2,
    clients=5,
    actors=2,
    masters=3,
    faults=(("cut", 0.6), ("isolate", 0.6)),
)
def _() -> list[Any]:
    """Each master admits two, whatever slot was asked for: three majorities need have no master in common (R32)."""
    count = """for i = 1, #KEYS do
  if i <= slots and redis.call('PTTL', key) ~= -2 then
    key = KEYS[i]
  end
end
local left, who = look(key)"""
    give_back = """for i, key in ipairs(KEYS) do
  for other = 0, 1 do
    local there = string.gsub(key, '%d$', other)
    if redis.call('GET', there) == token then
      key = there
    end
  end"""
    return [
        script(scripts.OCCUPY, ("local left, who = look(key)", count)),
        script(scripts.VACATE, ("for i, key in ipairs(KEYS) do", give_back)),
    ]


@variant("asks-for-one-slot-again-and-again", APART, drawn=slots, slots=3, eager=0.5, clients=5)
def _() -> list[Any]:
    """A refused client asks for the same slot again, and does not pause (R25, R32)."""
    correct = slotting.SlotTarget.refused

    def refused(target: slotting.SlotTarget, refusal: ballots.Refusal) -> ballots.Refusal | None:
        slot = target.slot
        outcome = correct(target, refusal)
        if refusal.kind != "held":
            return outcome
        target._ask(slot)
        return None

    return [mock.patch.object(slotting.SlotTarget, "refused", refused)]


@variant("votes-for-different-slots-add-up", R32, P1, drawn=slots, slots=3, clients=5, actors=2, masters=3, faults=())
def _() -> list[Any]:
    """An attempt for any of several slots counts what masters give, whichever slot it is (R1, R32)."""

    def given(ballot: slotting.SlotBallot, master: int) -> int | None:
        return ballot._asked[0] if ballot.tally.outcome(master) == "granted" else None

    return [mock.patch.object(slotting.SlotBallot, "given", given)]


@variant("slots-are-announced-one-by-one", WOKEN, drawn=slots, slots=2, eager=0.5)
def _() -> list[Any]:
    """A release is announced to those who wait for this slot, and to nobody who waits for any (R32)."""
    return [script(scripts.VACATE, ("[ARGV[2]] = ARGV[3 + i] .. ' ' .. token", ""))]


# -- who waits in order (R42) ------------------------------------------------------------------------


@variant("tickets-by-the-clock", IN_ORDER, drawn=in_order, skew=3.0)
def _() -> list[Any]:
    """A ticket has the number that the clock of its client shows, and masters take any number."""
    correct = fair.Ticket.look

    def look(ticket: fair.Ticket, settings: MastersSettings) -> Any:
        if not ticket.number:
            ticket.number, ticket._settled = settings.fences._wall_ns() // 1000, True
        return (yield from correct(ticket, settings))

    return [mock.patch.object(fair.Ticket, "look", look)]


@variant("tickets-that-are-not-settled", IN_ORDER, drawn=in_order, skew=3.0)
def _() -> list[Any]:
    """The first number that was proposed is the ticket, whoever has stored a greater one."""
    correct = fair.Ticket.look

    def look(ticket: fair.Ticket, settings: MastersSettings) -> Any:
        with mock.patch.object(fair, "_PROPOSALS", 1):
            steps = correct(ticket, settings)
            effect = next(steps)
        while True:
            event = yield effect
            try:
                effect = steps.send(event)
            except StopIteration as stop:
                ticket._settled = True
                return stop.value
            ticket._settled = True

    return [mock.patch.object(fair.Ticket, "look", look)]


@variant("dead-waiters-stay", A_SECOND, drawn=in_order, fair=1.0, slow=0.0, young=0.0, faults=(("crash", 0.6),))
def _() -> list[Any]:
    """The ticket of a waiter that has died stays for as long as others wait."""
    ended = "redis.call('ZRANGE', key, string.format('%.0f', -now), '(0', 'BYSCORE', 'LIMIT', 0, 1000),"
    return [script(one, (ended, "")) for one in (scripts.TICKET, scripts.ACQUIRE_FAIR)]


@variant("a-holder-jumps-the-queue", IN_ORDER, drawn=in_order)
def _() -> list[Any]:
    """A client that asks again is granted a free name although others wait in order."""
    return [script(scripts.ACQUIRE_FAIR, ("elseif turn then", "elseif false then"))]


@variant("others-jump-the-queue", IN_ORDER, drawn=in_order, fair=0.7)
def _() -> list[Any]:
    """A client that does not wait in order is granted a free name although others do."""
    return [script(scripts.ACQUIRE, ("elseif lined and #ARGV[4] < 17 then", "elseif false then"))]


@variant("tickets-outlive-their-operation", LEFT, drawn=in_order, fair=1.0, slow=0.0, young=0.0, faults=())
def _() -> list[Any]:
    """A waiter that gives up leaves its ticket to its time."""

    def leave(ticket: fair.Ticket, settings: MastersSettings) -> Send:
        return Send(tickets.stand(ticket._keys, ticket.token, ticket.number, settings.fence_ttl, new=False))

    return [mock.patch.object(fair.Ticket, "leave", leave)]


# -- readers and writers (R33) -----------------------------------------------------------------------


@variant("one-ttl-for-all-readers", P3, P7, P8, drawn=readers_and_writers, faults=(("crash", 0.6),))
def _() -> list[Any]:
    """A reader that renews renews them all: a crashed one stays as long as anybody reads."""
    once = "redis.call('ZADD', key, sign .. string.format('%.0f', now + ms), member)"
    everybody = """
  for _, other in ipairs(redis.call('ZRANGE', key, 0, -1)) do
    redis.call('ZADD', key, sign .. string.format('%.0f', now + ms), other)
  end
"""
    return [script(one, (once, once + everybody)) for one in (scripts.ACQUIRE_SHARED, scripts.EXTEND_SHARED)]


@variant("readers-fence-not-written", P2, drawn=readers_and_writers, skew=3599.0)
def _() -> list[Any]:
    """A reader takes the highest fence that it saw for its own, and no master stores it."""
    settled = "if proposal > fence then\n    for i = n + 1, #KEYS do\n      redis.call('SET', KEYS[i], ARGV[4], 'PX', ARGV[5])\n    end\n"
    return [script(scripts.ACQUIRE_SHARED, (settled, "if proposal > fence then\n"))]


@variant("renewal-that-revives", P7, P8, R12, R15, drawn=readers_and_writers)
def _() -> list[Any]:
    """An extension enters a reader that is not there any more."""
    gone = "if found ~= token and (found or not redis.call('ZSCORE', KEYS[i], token)) then"
    return [script(scripts.EXTEND_SHARED, (gone, "if found and found ~= token then"))]


@variant("a-writer-counts-no-readers", P1, P8, drawn=readers_and_writers)
def _() -> list[Any]:
    """A writer takes the name although somebody reads."""
    return [script(scripts.ACQUIRE, ("found = pttl > 0 and 'shared:'", "found = false"))]


@variant("readers-ignore-a-waiting-writer", R33, drawn=come_and_go)
def _() -> list[Any]:
    """New readers come in while a writer waits."""
    return [script(scripts.ACQUIRE_SHARED, ("if first < 0 then", "if false then"))]


@variant("rollback-lets-readers-in", R33, drawn=come_and_go)
def _() -> list[Any]:
    """A writer that waits leaves no mark where nobody reads, as where it has just taken back what it had got."""
    return [script(scripts.MARK, ("if not found then", "if not found and redis.call('ZCARD', KEYS[i]) > 0 then"))]


@variant("marks-only-what-readers-refused", R33, drawn=come_and_go)
def _() -> list[Any]:
    """After an attempt that failed for another reason, a writer that waits leaves no mark."""
    correct = acquiring.keep_new_readers_away

    def only_by_readers(*args: Any, by_readers: bool, **options: Any) -> Any:
        if by_readers:
            yield from correct(*args, by_readers=True, **options)

    return [mock.patch.object(acquiring, "keep_new_readers_away", only_by_readers)]


@variant("upgrade-in-place", P1, drawn=readers_and_writers)
def _() -> list[Any]:
    """A reader becomes the writer, whoever else reads."""
    correct = Actor._extend

    def upgrade(actor: Actor, hold: Any, spec: LockSpec, *others: bool) -> None:
        lease = hold.lease
        if hold is actor.hold and lease.valid:
            lease.mode = EXCLUSIVE._replace(extend=shared_by().extend)
        correct(actor, hold, spec, *others)

    return [mock.patch.object(Actor, "_extend", upgrade)]


@variant(
    "downgraded-when-answered", P1, drawn=readers_and_writers, clients=3, actors=2, names=1, slow=0.0,
    faults=(("cut", 0.2),),
)  # fmt: skip
def _() -> list[Any]:
    """The lease claims the name for itself until a majority has let readers in, and the rest of it later."""
    correct = extending.downgrade

    def late(settings: Any, spec: LockSpec, lease: LeaseState, now: float) -> Op[Any]:
        steps = correct(settings, spec, lease, now)
        effect = next(steps)
        lease.mode = EXCLUSIVE._replace(extend=shared_by().extend, repair=shared_by().repair)
        while True:
            try:
                effect = steps.send((yield effect))
            except StopIteration as stop:
                lease.mode = shared_by()
                return stop.value

    return [mock.patch("tests.simulation.actor.downgrade", late)]
