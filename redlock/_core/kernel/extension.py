"""Extends one lease: sets the TTL of keys that are still ours, and never brings back a lost lease.

Repair (R14).  A master that has lost the key of a lease that was just extended gets it back, also if it answers only
after the decision: so the repair is sent where the answer is read, on the same connection (`Send.more`).  A greater
fence there is of a failed attempt, and stays.  The repair is dropped if the lease has ended by then (`Send.only_if`).
Before that check, the master is noted as one that may have a key: a release that begins later goes there too, behind
the repair.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from redlock._core import wire
from redlock._core.effects import Op, Send
from redlock._core.kernel import validity
from redlock._core.kernel.release import Claim
from redlock._core.lease import ExtensionEnd, LeaseState, PendingExtension
from redlock._core.outcomes import NEVER

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from redlock._core.kernel.quorum import Tally
    from redlock._core.settings import LockSpec, MastersSettings
    from redlock.errors import Outcome


class Extension(NamedTuple):
    """How an extension ended (R13).

    ``extended``: the lease has a new validity.  ``lost``: it has none.  ``unanswered``: it has its old validity, or
    the validity of a shorter TTL which this extension asked for (C6).
    """

    kind: ExtensionEnd
    at: float
    tally: Tally | None = None
    others: tuple[wire.OtherMode, ...] = ()  # of masters that know the token in another mode


def extend(
    settings: MastersSettings, spec: LockSpec, lease: LeaseState, ttl: float, now: float, *, renews: bool = False
) -> Op[Extension]:
    """Set the TTL to ``ttl`` on a majority that still holds the token (R12).

    ``renews``: the renewer does that.  It gives way to an extension by the holder.
    """
    if not lease.extendable(lease.clock()):
        return Extension("lost", now)
    pending = PendingExtension(validity.valid_until(now, ttl, settings.drift_factor), ttl, renews)
    try:
        lease.begin_extension(pending)
        claim = Extending(settings, spec, lease, ttl)
        claim.only_if = lambda: not lease.over and pending.may_be_written(claim, (lease,))
        # Wait no longer than the lease lasts: then it is lost, and the caller has to know.
        at = yield from claim.ask(lease.valid_until)
        if claim.sent_at == NEVER:
            return Extension("lost" if lease.over else "unanswered", now)
        # No longer than others know our list of masters.
        valid_until = min(validity.valid_until(claim.sent_at, ttl, settings.drift_factor), settings.voters.known_until)
        end = lease.conclude(pending, valid_until, claim.tally, claim.reason)
        if end == "extended":
            yield from repair(settings, spec, lease, claim.missing, ttl - (at - claim.sent_at))
        return Extension(end, at, claim.tally, claim.others)
    except GeneratorExit:
        lease.drop_extension(pending)
        raise
    finally:
        lease.end_extension(pending)
        if not pending.dropped:
            lease.changed()  # the lease lasts longer; or too few masters answered, and the renewer must hurry


class Extending(Claim):
    """The round that extends one lease."""

    def __init__(self, settings: MastersSettings, spec: LockSpec, lease: LeaseState, ttl: float) -> None:
        super().__init__(settings, lease.extension_call(settings, spec, ttl))
        self._spec, self._lease, self._ttl = spec, lease, ttl

    def read(self, master: int, value: Any) -> tuple[Outcome, str]:
        before = self.others
        outcome, reason = super().read(master, value)
        # It was downgraded, perhaps by the process that took it over.  That denies nothing: it is the same lease.
        return (outcome if self.others is before else "error"), reason

    def late(self, master: int, value: Any, at: float) -> None:
        super().late(master, value, at)
        with suppress(ValueError):
            if self.tally.won and is_missing(wire.read_owned(value)):
                left = self._ttl - (at - self.sent_at)
                self.more = tuple(repair(self._settings, self._spec, self._lease, [master], left))


def is_missing(answer: object) -> bool:
    """Whether a master says that the key is gone."""
    return isinstance(answer, wire.NotOwned) and not answer.other


def repair(
    settings: MastersSettings,
    spec: LockSpec,
    lease: LeaseState,
    missing: Sequence[int],
    ttl: float,
    wanted: Callable[[], bool] | None = None,
) -> Iterator[Send]:
    """Give the key back to the masters in ``missing`` (R14).  Their answers are no votes.

    ``ttl``: what is left of it, without a guard.
    ``wanted``: it is not sent unless this is true then, as well.
    """
    if not missing or ttl <= 0:
        return
    call = lease.mode.repair(spec.keys, lease.token, ttl + lease.guarded, lease.fence, settings.fence_ttl)
    request = Repair(call, lease, missing, wanted)
    lease.may_be_on(missing)
    yield request


class Repair(Send):
    """Gives the key back.  Its answer is no vote, and only ends the lease's time on a bare majority."""

    def __init__(
        self, call: wire.Call, lease: LeaseState, missing: Sequence[int], wanted: Callable[[], bool] | None
    ) -> None:
        only_if = (lambda: lease.valid) if wanted is None else (lambda: lease.valid and wanted())
        super().__init__(call, to=frozenset(missing), only_if=only_if)
        self._lease = lease

    def late(self, master: int, value: Any, at: float) -> None:  # noqa: ARG002 - part of the interface
        if value == [1]:
            self._lease.repaired_at(at)
