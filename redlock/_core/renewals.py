"""Keeps leases while their holders work: when to extend one, when to give it up, when to report it (R13, R15).

Nothing here waits.  The renewer asks the `Schedule` which leases are due.  `tasks` makes operations for them, like any
other operation, and one for many leases.  So one thread, or one timer of a loop, keeps any number of leases.

When a lease is due (R15): when a third of its TTL has passed, or up to a fifth of that earlier, at random.  That time
is rounded down to a step of a 32nd of the TTL, where it meets other leases of the same client: they leave in one
packet, and wake the renewer once.  Each client has a phase of its own, so that clients do not meet.  Leases that were
extended together get the same pause, and stay together until one ends, leaves (`extend_many.py`), or is tried again
sooner.  A large ``drift_factor`` may leave little of the TTL (`_REMAINING_OF_VALIDITY`).  If too few masters answered,
the next try is after a twentieth of the TTL, while the lease is valid.  A TTL that the holder itself has extended to
applies from then on.  While an extension is under way, a lease is due at its end: a loss by time needs no answer.

Also considered: a thread, a task or a long-lived generator for each lease (there may be 10,000); a pause of its own for
each (leases part at every extension, and a client with a hundred leases asks for ten at a time); a batch as an object
of its own (a second place of a lease, to be kept true at every release, loss and extension).
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

from redlock._core import attributes
from redlock._core.abandon import abandon
from redlock._core.extend_many import MOST, renew
from redlock._core.kernel import validity
from redlock._core.kernel.extension import Extension, extend
from redlock._core.kernel.release import release_lost
from redlock._core.whole import AGAIN, lacking, listen, make_whole

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from redlock._core.effects import Op
    from redlock._core.lease import LeaseState
    from redlock._core.settings import LockSpec, MastersSettings

OVER = -math.inf  # `due` of a lease that has ended: it is only to be reported
RENEWALS = 3  # in the time of one TTL, so that two may fail (R15)
_SPREAD = 0.2  # a pause is shorter by up to this part, at random: leases granted at once are due at different times
_STEP = 1 / 32  # of the TTL: leases are due at such steps only, so that many of them meet in one packet
_RETRY = 1 / 20  # of the TTL: the pause after an extension that too few masters answered
_REMAINING = 1 - 1 / RENEWALS  # of the TTL: what is left when a lease is due at the latest ...
# ... but no more than this of the validity, or the lease would be due again at once.  More than `_REMAINING`.
_REMAINING_OF_VALIDITY = RENEWALS / (RENEWALS + 1)
_MOST_REMAINING = 1 - (1 - _SPREAD) / RENEWALS + _STEP  # of the TTL: the most that is left when a lease is due
_STEPS_TO_WHOLE = 4  # moments in a `node_timeout` at which masters get the keys that they lack, of many leases together
_SOON = 0.05  # seconds after which a lease that may be abandoned is looked at again
_NO_RENEWAL = math.inf  # the pause of a lease that is not to be extended, or is being extended just now

# An operation for one or several leases.  It returns how their extensions ended.
Task: TypeAlias = "Op[dict[Renewal, Extension]]"
# Whether a lease still has a holder (R15).  "gone": its thread or task has ended, and the lease runs out (P3).
# "abandoned": its `with` or its lock object is gone, so the renewer gives it back.  "perhaps": the garbage collector is
# about to free these, and runs finalizers first, perhaps inside of the `with`.
Presence: TypeAlias = Literal["here", "gone", "abandoned", "perhaps"]


class HeldBy(Protocol):
    """The holder of a lease, as its renewal sees it: a `Hold`."""

    def presence(self) -> Presence: ...

    def notify_lost(self, on_lost: Callable[[Any], object] | None) -> object:
        """The lease is lost.  Called once, and never after a release (C9)."""


class Renewal:
    """Keeps one lease, as the `LockSpec` of its lock says."""

    # Class attributes: most leases are released before any of these is set.
    refused = False  # a master refused to extend it together with others: it is always extended by itself
    moment: float | None = None  # its place in its `Schedule`
    _pause: float | None = None  # computed when first needed
    _max_hold_at = math.inf
    _tried_for = math.nan  # the end of the lease that an extension in vain has not moved
    _again = math.inf  # when to look again whether it was abandoned
    _detached = False  # it left a batch, and is extended by itself, once
    _whole_at = math.inf  # when to look whether masters lack its key (R37)
    _asked_again = False  # masters got the key `node_timeout` after the grant
    _loss_reported = False
    _guards = _guarded = False  # lost, and its guard lasts (R36); its guard has begun

    def __init__(self, settings: MastersSettings, spec: LockSpec, lease: LeaseState, holder: HeldBy, at: float) -> None:
        """``at``: when it was granted, or confirmed."""
        self.settings = settings
        self.spec = spec
        self.lease = lease
        self.held_by = holder
        self._since = at  # the end of the last extension, or the grant
        self.soonest = lease.valid_until - lease.ttl * _MOST_REMAINING  # it is not due earlier
        if spec.max_hold is not None:
            self._max_hold_at = at + spec.max_hold
            self.soonest = min(self.soonest, self._max_hold_at)
        last = lease.last
        if last is not None and last.yes < last.size and not lease.extensions:
            # By then masters have answered, or will hardly do so any more.
            self._whole_at = whole_at = at if lease.listened else at + settings.node_timeout
            self.soonest = min(self.soonest, whole_at)

    @property
    def _renewed(self) -> bool:
        """Whether its lock asks for that, or another one through which it was entered again and not left yet (R26)."""
        return self.spec.auto_extend or any(hold.asks_renewal and not hold.abandoned for hold in self.lease.holds)

    @property
    def due(self) -> float:
        """When to look at the lease next; `OVER` if it has ended."""
        lease = self.lease
        if lease.released or lease.lost:
            return lease.guarded_until if self._guards else OVER
        end = lease.valid_until
        until = min(end, self._max_hold_at, self._again)
        if self._whole_at < until:
            until = min(until, self._whole_due)
        if self._pause == _NO_RENEWAL or not self._renewed:
            return until
        if self._pause is None:
            self._pause = _pause(lease.ttl, self.settings.random())
        at = self._since + self._pause
        # Read TTL and end only now: the holder itself may have changed both, while `random` asked the kernel.
        if (end := lease.valid_until) != self._tried_for and not lease.all_pending:
            at = min(at, end - _latest(lease.ttl, self.settings.drift_factor))
        return min(until, _in_step(at, lease.ttl, self.settings.phase))

    @property
    def _whole_due(self) -> float:
        if self.lease.listened:
            return self._whole_at
        step = self.settings.node_timeout / _STEPS_TO_WHOLE
        return math.ceil(self._whole_at / step) * step

    @property
    def over(self) -> bool:
        return self.lease.over

    @property
    def abandoned(self) -> bool:
        return not self.over and self.held_by.presence() == "abandoned"

    @property
    def alone(self) -> bool:
        """It is to be extended by a request of its own."""
        lease = self.lease
        random_marks = bool(self.spec.keys.grants) and (lease.scattered or not lease.in_order)  # (R35)
        return self._detached or self.refused or lease.mode.shared or random_marks

    def begin_guard(self) -> bool:
        """Its lease is lost.  Whether its keys are released later, at the end of a guard that begins now (R36)."""
        begins = self.lease.guards and not self._guarded
        self._guards, self._guarded = begins, self._guarded or begins
        return begins

    def report_loss(self) -> None:
        """The lease is lost: report it, and notify the holder, once (C9)."""
        if not self._loss_reported:
            self._loss_reported = True
            self.settings.lost(self)
            self.held_by.notify_lost(self.spec.on_lost)

    @property
    def outlived(self) -> bool:
        """Whether the body still ran when the lease was lost."""
        if self.lease.given_back:
            return False
        return not self.lease.holds or self.held_by.presence() in ("here", "perhaps")

    @property
    def runs_on(self) -> bool:
        """Whether its body goes on while others may enter: nothing ends the body of a thread at `max_hold` (R45)."""
        ended = self.outlived and not self.spec.keeps_keys and self.lease.kind == "Lease"
        return ended and self.lease.loss().reason == "max_hold"

    def next_action(self, now: float) -> Literal["nothing", "renew", "make whole", "give up", "give back"]:
        lease = self.lease
        if self._guards:
            self._guards = lease.guards
            # The body of a term may run on: its end gives the lock back then.
            runs_on = self.spec.keeps_keys and lease.holds and self.held_by.presence() != "abandoned"
            return "nothing" if self._guards or runs_on else "give up"
        if not lease.extendable(now):
            # Without a holder its keys go now.  `put_back` then sees that the lease has ended, and reports the loss.
            gone = lease.lost and self.held_by.presence() == "abandoned"
            return "give up" if gone and not lease.guards else "nothing"
        if self.settings.voters.refused:  # clients with other masters go on (R34)
            lease.last_votes = self.settings.voters.refusals
            lease.lose("unreachable")
            return "nothing" if lease.guards else "give up"
        if now >= self._max_hold_at:
            lease.lose("max_hold")
            return "nothing" if self.spec.keeps_keys or lease.guards else "give up"
        presence = self.held_by.presence()
        if presence == "abandoned":
            return "give back"
        if presence == "gone":
            self._pause = _NO_RENEWAL
        self._again = now + _SOON if presence == "perhaps" else math.inf
        early = presence == "perhaps"  # it may be due for another reason than its renewal
        if now >= self._whole_at:
            if self._lacks():
                return "make whole"
            early = True
        if self._pause == _NO_RENEWAL or not self._renewed or (early and now < self.due):
            return "nothing"
        self._pause = _NO_RENEWAL  # until this operation has ended
        return "renew"

    def _lacks(self) -> bool:
        """Whether masters lack its key, or may lack it later; and when to look again (R37)."""
        if self.lease.listened:
            self._whole_at += self.settings.node_timeout
        else:
            self._whole_at = math.inf if self._asked_again else self._whole_at + AGAIN
            self._asked_again = True
        if lacking(self.lease):
            return True
        self._whole_at = math.inf
        return False

    def make_whole(self) -> Task:
        lease = self.lease
        if lease.listened:
            lease.listened = False
            yield from listen(self.settings, self.spec, lease, self._whole_at)
        else:
            yield from make_whole(self.settings, self.spec, lease, lacking(lease))
        return {}

    def conclude(self, extension: Extension, spread: float) -> None:
        """An extension has ended.  ``spread``: random, for the next pause of all leases of its operation."""
        lease = self.lease
        self._detached = False
        self._since = extension.at
        if extension.kind == "extended":
            self._pause, self._tried_for = _pause(lease.ttl, spread), math.nan
        else:  # try again soon, however little time is left
            self._pause, self._tried_for = lease.ttl * _RETRY, lease.valid_until

    def detach(self) -> None:
        """The lease leaves a batch that is under way.  It is due at once, by itself."""
        self._detached = True
        self._since, self._pause = self.lease.clock(), 0.0
        self.lease.changed()

    def give_up(self) -> Task:
        """Release the lost lease.  No caller waits for the answers."""
        if not self.lease.guards:
            yield release_lost(self.settings, self.spec, self.lease)
        return {}

    def give_back(self) -> Task:
        yield from abandon(self.settings, self.spec, self.lease)
        if self.settings.observer is not None:
            self.settings.observer.released(self.spec.name, self.lease)
        return {}


attributes.declare(
    Renewal, "settings", "spec", "lease", "held_by", "_since", "soonest", "_whole_at", "_pause", "moment", "_tried_for",
    "_again", "_detached",
)  # fmt: skip


# The three functions are cached: leases that were extended together call them with the same arguments, one by one.
@lru_cache(maxsize=16)
def _pause(ttl: float, spread: float) -> float:
    return ttl / RENEWALS * (1 - _SPREAD * spread)


@lru_cache(maxsize=16)
def _latest(ttl: float, drift_factor: float) -> float:
    """How many seconds before its end a lease is due at the latest."""
    return min(ttl * _REMAINING, (ttl - validity.drift(ttl, drift_factor)) * _REMAINING_OF_VALIDITY)


@lru_cache(maxsize=16)
def _in_step(at: float, ttl: float, phase: float) -> float:
    """Round ``at`` down to a step: all leases of that step get the same time."""
    step = ttl * _STEP
    return (math.floor(at / step - phase) + phase) * step


def tasks(due: Iterable[Renewal], now: float) -> list[tuple[Task, list[Renewal]]]:
    """The operations to start at once for what is ``due``: leases with one TTL are extended together, if they may."""
    started: list[tuple[Task, list[Renewal]]] = []
    together: dict[float, tuple[int, list[Renewal]]] = {}  # by the TTL: how many names, and the renewals
    by_itself = {"give up": Renewal.give_up, "give back": Renewal.give_back, "make whole": Renewal.make_whole}
    for renewal in due:
        todo = renewal.next_action(now)
        if todo in by_itself:
            started.append((by_itself[todo](renewal), [renewal]))
        elif todo == "renew" and renewal.alone:
            started.append((_renew([renewal], now), [renewal]))
        elif todo == "renew":
            ttl, more = renewal.lease.ttl, len(renewal.spec.names)
            names, others = together.get(ttl, (0, []))
            if others and names + more > MOST:
                started.append((_renew(others, now), others))
                names, others = 0, []
            others.append(renewal)
            together[ttl] = names + more, others
    started += [(_renew(others, now), others) for _, others in together.values()]
    return started


def failed_to_keep(renewals: list[Renewal]) -> str:
    others = f" and {len(renewals) - 1} more" if len(renewals) > 1 else ""
    return f"keeping {renewals[0].lease!r}{others} failed"


def _renew(renewals: list[Renewal], now: float) -> Task:
    first = renewals[0]
    ends = dict.fromkeys(renewals, Extension("unanswered", now))  # also if it is interrupted
    try:
        if len(renewals) == 1:
            ends[first] = yield from extend(first.settings, first.spec, first.lease, first.lease.ttl, now, renews=True)
        else:
            yield from renew(first.settings, ends, now)
    finally:
        # One pause for all of them, so that they are due at the same moment again.
        spread = first.settings.random()
        for renewal, extension in ends.items():
            renewal.conclude(extension, spread)
    for renewal, extension in ends.items():
        if extension.kind == "extended" and renewal.settings.observer is not None:
            renewal.settings.observer.extended(renewal.lease, renewed=True)
    return ends
