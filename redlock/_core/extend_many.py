"""Extends many leases by one request (`renew.lua`): one for each was seven tenths of the cost of renewing.

It is optimistic: the answer that all are extended is known by its bytes, and is a vote for all leases at once.  Any
other answer takes leases out of the batch, for it needs the rules for one lease (R12-R14):

- A master does not extend one of the leases: it leaves the batch, and is extended by itself at once.  The other leases
  go on: that master has extended them.  If a key is gone and the batch was decided, it gets it back where the answer is
  read (R14).
- A master refuses the request as a whole, although it is well: it is part of a cluster, or its user may touch only some
  names (`Failure.refused`).  Then all leases leave, and stay by themselves; also after the decision: else the keys of a
  master that always answers last would expire.

So the votes of a batch are about every lease that is still in it (P1), and a batch can win but never prove a loss.  It
waits for `node_timeout` at most, and its leases can end before that (P6).
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from redlock._core import wire
from redlock._core.confirm import records
from redlock._core.effects import Op, Timeout, Wait
from redlock._core.kernel import validity
from redlock._core.kernel.extension import Extension, is_missing, repair
from redlock._core.kernel.rounds import GRANTED, Round
from redlock._core.lease import LeaseState, PendingExtension
from redlock._core.outcomes import NEVER, ErrorReply, Failure

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from redlock._core.settings import LockSpec, MastersSettings
    from redlock.errors import Outcome

MOST = 64  # names in one request: a master is busy for a quarter of a millisecond, and more would save little


class BatchMember(Protocol):
    """A lease that is extended together with others."""

    lease: LeaseState
    spec: LockSpec
    refused: bool  # a master refuses to extend it together with others

    def detach(self) -> None:
        """Extend it by itself, at once."""


AnyMember = TypeVar("AnyMember", bound=BatchMember)


def renew(settings: MastersSettings, extensions: dict[AnyMember, Extension], now: float) -> Op[None]:
    """Extend ``extensions``, leases of one TTL, and note there how each ended; one that leaves is removed.

    Another thread may read the answers: it notes leases that leave before it counts the vote.  So every counted master
    has extended each lease that has not left by the decision (P1).
    """
    ttl = next(iter(extensions)).lease.ttl
    asked = _extendable(extensions, ttl, now)
    if not asked:
        return
    pending = PendingExtension(validity.valid_until(now, ttl, settings.drift_factor), ttl, renews=True)
    batch = BatchExtension(settings, asked, ttl)
    batch.only_if = partial(pending.may_be_written, batch, [member.lease for member in asked])
    try:
        for member in asked:
            member.lease.begin_extension(pending)
        yield batch
        wait = Wait(batch.sent_at + settings.node_timeout, False, batch)
        while batch.decided_at is None and len(batch.detached) < len(asked):
            event = yield wait
            if type(event) is Timeout and batch.decided_at is None:
                batch.time_out(event.at)
            _detach_leases(batch, asked, extensions, pending)
        _detach_leases(batch, asked, extensions, pending)
        # No longer than others know our list of masters (R34).
        valid_until = min(validity.valid_until(batch.sent_at, ttl, settings.drift_factor), settings.voters.known_until)
        # If the holder of one of them extends it, nothing was sent: all others are tried again soon.
        for index, member in enumerate(asked if batch.sent_at > NEVER else ()):
            if index not in batch.detached:
                end = member.lease.conclude(pending, valid_until, batch.tally)
                extensions[member] = Extension(end, batch.decided_at or now, batch.tally)
    except GeneratorExit:
        for member in asked:
            member.lease.drop_extension(pending)
        raise
    finally:
        for member in asked:
            member.lease.end_extension(pending)


def _call(settings: MastersSettings, asked: Sequence[BatchMember], ttl: float) -> wire.Call:
    if asked[0].spec.keys.grants:
        recorded = [(one.spec.keys, one.lease.token, ttl + one.lease.guarded, one.lease.fence) for one in asked]
        return records.renew(recorded, settings.fence_ttl, str(settings.stamp()))
    leases = [(one.spec.keys, one.lease.token, ttl + one.lease.guarded) for one in asked]
    return wire.renew(leases, settings.fence_ttl)


def _extendable(extensions: dict[AnyMember, Extension], ttl: float, now: float) -> list[AnyMember]:
    """The leases that have not ended since, and still have this TTL.  The others are tried again soon."""
    asked = []
    for member in extensions:
        lease = member.lease
        if lease.over:
            extensions[member] = Extension("lost", now)
        elif lease.ttl == ttl:
            asked.append(member)
    return asked


def _detach_leases(
    batch: BatchExtension, asked: Sequence[AnyMember], extensions: dict[AnyMember, Extension], pending: PendingExtension
) -> None:
    while batch.to_detach:
        member = asked[batch.to_detach.popleft()]
        del extensions[member]
        member.lease.end_extension(pending)
        member.detach()


class BatchExtension(Round):
    """The round that extends many leases; once decided it stays open, to notice a master that refuses it."""

    def __init__(self, settings: MastersSettings, asked: Sequence[BatchMember], ttl: float) -> None:
        super().__init__(settings, _call(settings, asked, ttl))
        self.counts = None  # it stays open, so that each vote comes to `answered`
        self.asked = asked
        self.detached: set[int] = set()  # the leases that have left, by their index in the request
        self.to_detach: deque[int] = deque()  # leases that `renew` has yet to let go
        self._ttl = ttl

    def time_out(self, at: float) -> None:
        self.tally.time_out(at - self.sent_at)
        self.decided_at = at
        self.open = True

    def read(self, master: int, value: Any) -> tuple[Outcome, str]:  # noqa: ARG002 - all masters are alike
        for index in self._others(value):
            self._detach(index)
        return GRANTED  # to those that stay

    def voted(self, master: int, at: float, outcome: Outcome = "granted", reason: str = "") -> bool:
        if self.decided_at is not None:
            self.tally.late |= 1 << master
            return False
        return super().voted(master, at, outcome, reason)

    def answered(self, master: int, value: Any, at: float) -> bool:
        if self.decided_at is not None:
            self.late(master, value, at)
            return False
        return super().answered(master, value, at) or bool(self.to_detach)

    def late(self, master: int, value: Any, at: float) -> None:
        with suppress(ValueError):
            for index, answer in self._others(value).items():
                if self.tally.won and index not in self.detached and is_missing(answer):
                    member, ttl = self.asked[index], self._ttl - (at - self.sent_at)
                    self.more += tuple(repair(self._settings, member.spec, member.lease, [master], ttl))

    def failed(self, master: int, failure: Failure, at: float) -> bool:
        if failure.refused:
            self._refuse_all()
        return self.decided_at is None and (super().failed(master, failure, at) or bool(self.to_detach))

    def decides(self, at: float) -> bool:
        decides = super().decides(at)
        self.open = True
        return decides

    def _others(self, value: Any) -> Mapping[int, wire.NotOwned | ErrorReply]:
        try:
            return wire.read_renew(value, len(self.asked))
        except ValueError:
            self._refuse_all()
            raise

    def _refuse_all(self) -> None:
        """A master does not extend these leases together.  From now on each is extended by itself."""
        for index, member in enumerate(self.asked):
            member.refused = True
            if self.decided_at is None:
                self._detach(index)

    def _detach(self, index: int) -> None:
        if index not in self.detached:
            self.to_detach.append(index)
            self.detached.add(index)
