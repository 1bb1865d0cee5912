"""Keeping a lock: set the TTL of keys that are still ours, and never bring back one that is not.

A repair (R14).  A greater fence on a master that lost the key is no reason against giving the key back.  A
majority has just confirmed the lease, so that fence is of an attempt that failed; it stays, for the next grant
has to exceed it.  A master that says so when the extension is decided gets the key back where its answer is
read, on the same connection (`Send.more`): no operation waits any more.  Else a master that always answers last
would get it late, or never.  A repair is dropped if the lease is over when it would be written
(`Send.only_if`), so it cannot stand behind the release of another thread.  Before that look the master is noted
as one that may have a key: a release that begins after it goes there as well.

One round for many leases.  To pack, send, read and count for each of thousands was seven tenths of the cost of
renewing.  So up to 64 names are extended by one request (`renew.lua`).  What could be wrong with that decided
its shape:

- One name that is lost could hide among others.  So a master answers for each lease, and each lease has votes
  of its own.  Nearly always a master says "extended" of all, which is counted once.  A lease of which any
  master says something else has its own tally from then on, a copy of the common one.  A key of another type is
  an error of its lease alone.
- One that is slow could hold up all.  But each lease ends as soon as its own votes decide.
- A master may not do several: a cluster, or a user who may touch only some names.  An error for the whole
  request that is not the state of the master (`Failure.refused`) makes each of these leases be renewed by
  itself from then on.
- A master is busy with 64 names for a quarter of a millisecond, less than for one after the other.

`test_renew.py` holds a lease in such a round against the same lease alone, with any answers.  A lease that is
due alone, and what a holder extends itself, go by `extend.lua`; how an extension begins and what its answers
mean is the same code.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, TypeAlias

from redlock._core import quorum, wire
from redlock._core.effects import Op, Send, Timeout, Wait
from redlock._core.lease import PendingExtension
from redlock._core.quorum import Tally
from redlock._core.release import Claim, denied

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from redlock._core.lease import LeaseState
    from redlock._core.outcomes import Failure
    from redlock._core.refusals import ErrorReply
    from redlock._core.settings import LockSpec, MastersSettings
    from redlock.errors import Outcome, Reason

# So many names at most are renewed in one request.  A master is busy with it for about a quarter of a millisecond, which is
# what everybody else who asks it may have to wait; with more there is little left to be saved.
MOST = 64

ExtensionEnd: TypeAlias = Literal["kept", "lost", "unanswered"]


class Extension(NamedTuple):
    """How it ended: ``kept`` with a new validity, ``lost``, or ``unanswered`` with the one it had (R13).

    ``refused``: masters that would not do it together with others; alone perhaps.  Who says so when the votes are counted
    already is added later.
    """

    kind: ExtensionEnd
    at: float
    tally: Tally | None = None
    refused: Collection[int] = ()


def extend(settings: MastersSettings, spec: LockSpec, lease: LeaseState, ttl: float, now: float) -> Op[Extension]:
    """Set the TTL to ``ttl`` on a majority that still holds the token (R12)."""
    if not lease.extendable(lease.clock()):
        return Extension("lost", now)
    pending = PendingExtension(quorum.valid_until(now, ttl, settings.drift_factor), ttl)
    asked = [(spec, lease, pending)]
    try:
        _begin(asked)
        claim = Extending(settings, spec, lease, ttl)
        # Not beyond its end: then it is lost, and whoever waits for this has to be told.
        at = yield from claim.ask(lease.ends_at)
        [end] = _end(asked, {pending: quorum.valid_until(claim.sent_at, ttl, settings.drift_factor)}, claim)
        if end == "kept":
            yield from repair(settings, spec, lease, claim.missing, ttl - (at - claim.sent_at))
        return Extension(end, at, claim.tally)
    except GeneratorExit:
        _drop(asked)
        raise
    finally:
        _let_go(asked)
        if not pending.dropped:
            lease.changed()  # it lasts longer; or too few have answered, and its renewer has no time to lose


_Asked: TypeAlias = tuple["LockSpec", "LeaseState", PendingExtension]  # a lease that is to be extended, and how


def _begin(asked: Sequence[_Asked]) -> None:
    """C6: the keys may have the new, shorter TTL from the moment at which this is sent."""
    with asked[0][1].guard():
        shorter = [lease for _, lease, pending in asked if lease.begin_extension(pending)]
    for lease in shorter:
        lease.changed()


def _end(
    asked: Sequence[_Asked], valid_until: Mapping[PendingExtension, float], claim: Claim | BatchExtension | Part
) -> list[ExtensionEnd]:
    """What the answers make of each of them; ``valid_until``: if it is won."""
    ends: list[ExtensionEnd] = []
    if not asked:
        return ends
    tally = claim.tally
    won, proven, votes = tally.won, tally.denied, tally.votes
    lost: list[LeaseState] = []
    first = asked[0][1]
    now = first.clock()
    with first.guard():
        for _, lease, pending in asked:
            lease.said = votes
            end: ExtensionEnd = "lost"
            if not lease.extendable(now):  # it ended while we asked: too late is too late, whatever they answered
                pass
            elif won:
                lease.extended(pending, valid_until[pending], votes)
                end = "kept"
            elif proven:
                lost.append(lease)
            else:
                lease.unanswered()
                end = "unanswered"
            lease.end_extension(pending)
            ends.append(end)
    for lease in lost:
        lease.lose(claim.reason)
    return ends


def _let_go(asked: Collection[_Asked]) -> None:
    """Whatever came of it, they are not under way any more."""
    for _, lease, pending in asked:
        if not pending.dropped:
            with lease.guard():
                lease.end_extension(pending)


def _drop(asked: Collection[_Asked]) -> None:
    """Nobody drives their operation any more."""
    for _, lease, pending in asked:
        lease.drop_extension(pending)


class Extending(Claim):
    """The extension of one lease."""

    __slots__ = ("_lease", "_spec", "_ttl")

    def __init__(self, settings: MastersSettings, spec: LockSpec, lease: LeaseState, ttl: float) -> None:
        super().__init__(settings, wire.extend(spec.keys, lease.token, ttl, settings.fence_ttl))
        self._spec, self._lease, self._ttl = spec, lease, ttl

    def late(self, master: int, value: Any, at: float) -> None:
        with suppress(ValueError):
            if self.tally.won and _is_missing(wire.read_owned(value)):
                left = self._ttl - (at - self.sent_at)
                self.more = tuple(repair(self._settings, self._spec, self._lease, [master], left))


def _is_missing(answer: object) -> bool:
    """A master says that nobody has it."""
    return isinstance(answer, wire.NotOwned) and not answer.other


def repair(
    settings: MastersSettings, spec: LockSpec, lease: LeaseState, missing: Sequence[int], ttl: float
) -> Iterator[Send]:
    """Give the key back to masters that have none (R14).  Nobody counts the answers.

    Masters that say so while the extension is counted get it when that is won, the others when they say so.

    The release of this lease will stand behind it on the same connection, so it cannot be outlived: one that has begun is
    seen by ``only_if``, and one that begins later goes to all masters that are noted here before.
    """
    if not missing or ttl <= 0:
        return
    call = wire.repair(spec.keys, lease.token, ttl, lease.fence, settings.fence_ttl)
    request = Send(call, to=frozenset(missing), only_if=lambda: lease.valid)
    lease.may_be_on(missing)
    yield request


# -- many at once ------------------------------------------------------------------------------------


def renew(settings: MastersSettings, leases: Sequence[tuple[LockSpec, LeaseState]], now: float) -> Op[list[Extension]]:
    """`extend` each of these to its own TTL, all by one request.  Returns how it ended for each, in this order.

    Each ends as soon as its own votes decide, and as it would alone: one that is denied, or has to wait for slow
    masters, is nothing to the others.  No lease is told that it has changed unless it is lost or lasts shorter: who
    asks this knows, and looks at all of them when it is over.
    """
    extensions = [Extension("lost", now)] * len(leases)
    asked = _extendable(settings, leases, now)
    if not asked:
        return extensions
    numbers = list(asked)
    under_way = dict(enumerate(asked.values()))  # by the indexes in the request
    batch = BatchExtension(settings, list(under_way.values()))
    try:
        _begin(list(under_way.values()))
        yield batch
        sent_at = batch.sent_at
        all_pending = {pending for _, _, pending in under_way.values()}
        valid_until = {
            pending: quorum.valid_until(sent_at, pending.ttl, settings.drift_factor) for pending in all_pending
        }
        while under_way:
            indexes, claim, at = yield from _next_settled(batch, under_way, sent_at + settings.node_timeout)
            ending = [under_way[index] for index in indexes]
            ends = _end(ending, valid_until, claim)
            ended = {end: Extension(end, at, claim.tally, batch.refused) for end in set(ends)}
            for index, end in zip(indexes, ends, strict=True):
                extensions[numbers[index]] = ended[end]
                spec, lease, pending = under_way.pop(index)
                if end == "kept" and claim.missing:
                    yield from repair(settings, spec, lease, claim.missing, pending.ttl - (at - sent_at))
    except GeneratorExit:
        _drop(under_way.values())
        raise
    finally:
        if under_way:
            batch.open = False
            _let_go(under_way.values())
    return extensions


def _extendable(
    settings: MastersSettings, leases: Sequence[tuple[LockSpec, LeaseState]], now: float
) -> dict[int, _Asked]:
    """Those of ``leases`` that have not ended, by their numbers."""
    asked: dict[int, _Asked] = {}
    clock = leases[0][1].clock()
    all_pending: dict[float, PendingExtension] = {}  # by the TTL: those of many leases are few
    for number, (spec, lease) in enumerate(leases):
        if lease.extendable(clock):
            ttl = lease.ttl
            pending = all_pending.get(ttl)
            if pending is None:
                pending = all_pending[ttl] = PendingExtension(quorum.valid_until(now, ttl, settings.drift_factor), ttl)
            asked[number] = spec, lease, pending
    return asked


def _next_settled(
    batch: BatchExtension, under_way: Collection[int], until: float
) -> Op[tuple[Sequence[int], BatchExtension | Part, float]]:
    """Wait for the next ones: their indexes, where their votes are, and when that was."""
    while not batch.newly_settled:
        event = yield Wait(until, False, batch)
        if type(event) is Timeout:
            batch.time_out(event.at)
    index, at = batch.newly_settled.popleft()
    part = batch.parts.get(index)
    if part is None:
        return batch.alike(under_way), batch, at
    return [index], part, at


_ALIKE = -1  # the place of all leases that have no `Part`

_Vote: TypeAlias = tuple["Outcome", str, bool]  # the last: somebody has to change a setting
_GRANTED: _Vote = "granted", "", False
_NO_OTHERS: Mapping[int, wire.NotOwned | ErrorReply] = MappingProxyType({})


class BatchExtension(Send):
    """An owner-checked request for many leases, and the votes for each of them.

    Nearly always a master says of all of them that they are extended.  What it says of all is counted once, in `tally`;
    a lease of which a master says anything else has a `Part` of its own from then on.

    When all is decided it stays open for those who refuse it: else one that always answers after the majority would never
    be found out, and its keys would expire.
    """

    __slots__ = ("_asked", "_decided", "_settings", "newly_settled", "parts", "refused", "tally")

    missing: ClassVar[tuple[int, ...]] = ()  # of those without a `Part` no master has denied any,
    reason: ClassVar[Reason] = "expired"  # so this is never asked for

    def __init__(self, settings: MastersSettings, asked: Sequence[_Asked]) -> None:
        leases = [(spec.keys, lease.token, pending.ttl) for spec, lease, pending in asked]
        super().__init__(wire.renew(leases, settings.fence_ttl))
        self.open = True
        self.tally = Tally(settings.masters)  # the votes for those without a `Part`
        self.parts: dict[int, Part] = {}  # by the place in the request
        self.newly_settled: deque[tuple[int, float]] = deque()  # what was settled by whom, and nobody has looked at it
        self.refused: list[int] = []
        self._decided = False
        self._asked = asked
        self._settings = settings

    def alike(self, indexes: Iterable[int]) -> list[int]:
        """Which of ``indexes`` have no part of their own."""
        return [index for index in indexes if index not in self.parts] if self.parts else list(indexes)

    def answered(self, master: int, value: Any, at: float) -> bool:
        try:
            others = wire.read_renew(value, len(self._asked))
        except ValueError as error:
            self.refused.append(master)
            return self._count(master, at - self.sent_at, ("error", str(error), False), at)
        return self.voted(master, at, others)

    def voted(self, master: int, at: float, others: Mapping[int, wire.NotOwned | ErrorReply] = _NO_OTHERS) -> bool:
        """It has extended all but ``others``."""
        took = at - self.sent_at
        if others:
            self._give_back(master, others, at)
        not_counted = self._settings.voters.why_not_counted(master, at)
        if not_counted is None:
            return self._count(master, took, _GRANTED, at, others)
        vote = not_counted.outcome, not_counted.reason, not_counted.configuration
        return self._count(master, took, vote, at, others, overruled=True)

    def late(self, master: int, value: Any, at: float) -> None:
        with suppress(ValueError):
            self._give_back(master, wire.read_renew(value, len(self._asked)), at)

    def _give_back(self, master: int, others: Mapping[int, wire.NotOwned | ErrorReply], at: float) -> None:
        """Repair those of which ``master`` says too late for their votes that nobody has them (R14)."""
        for index, answer in others.items():
            if self.parts.get(index, self).tally.won and _is_missing(answer):
                spec, lease, pending = self._asked[index]
                self.more += tuple(repair(self._settings, spec, lease, [master], pending.ttl - (at - self.sent_at)))

    def failed(self, master: int, failure: Failure, at: float) -> bool:
        if failure.refused:
            self.refused.append(master)
        return self._count(master, None, (failure.outcome, failure.reason, failure.configuration), at)

    def _count(
        self,
        master: int,
        took: float | None,
        vote: _Vote,
        at: float,
        others: Mapping[int, wire.NotOwned | ErrorReply] = _NO_OTHERS,
        *,
        overruled: bool = False,
    ) -> bool:
        """``vote`` is for every lease, except for those in ``others``; or for these as well, where it is overruled."""
        if self._decided:
            return False
        # Not by what is in `newly_settled`: another thread may be looking at that just now.
        decides = False
        alike, parts = self.tally, self.parts
        if not alike.settled:
            for index in others:
                if index not in parts:
                    parts[index] = Part(alike.copy())
            decides = self._settles(_ALIKE, alike, master, took, vote, at)
        for index, part in parts.items():
            if not part.tally.settled:
                answer = others.get(index)
                if answer is not None:
                    said, own = part.read(master, took, answer, vote if overruled else None)
                else:
                    said, own = took, vote
                decides = self._settles(index, part.tally, master, said, own, at) or decides
        if decides and (alike.settled or len(parts) == len(self._asked)):
            self._decided = all(part.tally.settled for part in parts.values())
        return decides

    def _settles(self, index: int, tally: Tally, master: int, took: float | None, vote: _Vote, at: float) -> bool:
        """Count a vote; True: that settles it."""
        outcome, reason, configuration = vote
        tally.count(master, outcome, took, reason, configuration=configuration)
        if not tally.settled:
            return False
        self.newly_settled.append((index, at))
        return True

    def time_out(self, at: float) -> None:
        """Who has not answered by now did not vote."""
        for index, tally in ((_ALIKE, self.tally), *((index, part.tally) for index, part in self.parts.items())):
            if not tally.settled:
                tally.time_out(at - self.sent_at)
                self.newly_settled.append((index, at))


class Part:
    """What masters say of one lease, from the moment on when one says something else of it than of the others."""

    __slots__ = ("missing", "taken", "tally")

    def __init__(self, tally: Tally) -> None:
        self.tally = tally
        self.taken = False
        self.missing: list[int] = []

    def read(
        self, master: int, took: float | None, answer: wire.NotOwned | ErrorReply, instead: _Vote | None
    ) -> tuple[float | None, _Vote]:
        """``instead``: what counts, whatever a master that can answer says."""
        if isinstance(answer, wire.NotOwned):
            outcome, reason = denied(self, master, answer.other)
            return took, instead or (outcome, reason, False)
        failure = answer.failure()
        return None, (failure.outcome, failure.reason, failure.configuration)

    @property
    def reason(self) -> Reason:
        return "taken" if self.taken else "expired"
