"""Broken locks, by name: what the simulation must be able to see.

Each breaks one rule by patching one small thing in the core, in a script or in the driver, and says
which invariants fit.  A simulation that is green for one of these would prove nothing by being green.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from unittest import mock

from redlock import scripts
from redlock._core import (
    acquire as acquiring,
    ballots,
    extend as extending,
    fair,
    slots as slotting,
    tickets,
)
from redlock._core.effects import Send
from redlock._core.mode import EXCLUSIVE, shared_by
from tests.simulation import master
from tests.simulation.actor import Actor
from tests.simulation.invariants import (
    P1,
    P2,
    P3,
    P7,
    P8,
    R12,
    R15,
    R32,
    R33,
)
from tests.simulation.line import A_SECOND, IN_ORDER, LEFT
from tests.simulation.parameters import (
    Parameters,
    come_and_go,
    draw,
    in_order,
    readers_and_writers,
    slots,
)
from tests.simulation.waits import APART, WOKEN

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from redlock._core.effects import Op
    from redlock._core.lease import LeaseState
    from redlock._core.settings import LockSpec, MastersSettings


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
