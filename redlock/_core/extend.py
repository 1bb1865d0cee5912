"""Extends leases: sets the TTL of keys that are still ours, and never brings back a lost lease.

Repair (R14).  A master may have lost the key of a lease that a majority has just extended.  It gets the key back.

- It may show a greater fence than the lease has.  That is no objection: a majority has just confirmed the
  lease, so that fence is of a failed attempt.  The fence stays, for the next grant has to exceed it.
- Its answer may come after the extension is decided, when no operation waits any more.  So the repair is sent
  where the answer is read, on the same connection (`Send.more`).  Otherwise a master that always answers last
  would get its key late, or never.
- The repair is dropped if the lease is over when it would be written (`Send.only_if`).  So it cannot stand
  behind the release of another thread.
- Before that look, the master is noted as one that may have a key.  A release that begins later goes there too.

One round for many leases.  A request for each of thousands of leases has to be packed, sent, read and counted:
that was seven tenths of the cost of renewing.  So one request extends up to 64 names (`renew.lua`).  Four risks
decided its shape:

- A lost lease could hide among the others.  So a master answers for each lease, and each lease has votes of its
  own.  Nearly always a master says "extended" of all, and that is counted once.  When a master says something
  else of a lease, that lease gets a tally of its own: a copy of the common one.  A key of another type is an
  error of its lease alone.
- A slow lease could hold up the others.  But each lease ends as soon as its own votes decide.
- A master may be unable to do several at once: it is part of a cluster, or its user may touch only some names.
  Then it answers the whole request with an error that is not about its own state (`Failure.refused`).  From
  then on each of these leases is renewed by itself.
- A master is busy with 64 names for a quarter of a millisecond.  That is less than 64 requests take.

`test_renew.py` compares a lease in such a round with the same lease alone, for any answers.  A lease that is due
alone goes by `extend.lua`, and so does an extension by the holder itself.  The same code begins all of them, and
reads their answers.
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

# One request renews at most so many names.  A master is busy with it for about a quarter of a millisecond, and other
# clients may have to wait for so long.  A larger request would save little more.
MOST = 64

ExtensionEnd: TypeAlias = Literal["kept", "lost", "unanswered"]


class Extension(NamedTuple):
    """How an extension ended (R13).

    ``kept``: the lease has a new validity.  ``lost``: it has none.  ``unanswered``: it has the validity that it had.
    ``refused``: masters that refused to extend it together with others.  They may extend it alone.  A master that
    refuses after the votes were counted is added later.
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
        # Wait no longer than the lease lasts: then it is lost, and the caller has to be told.
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
            lease.changed()  # it lasts longer; or too few masters answered, and its renewer must hurry


_Asked: TypeAlias = tuple["LockSpec", "LeaseState", PendingExtension]  # a lease that is to be extended, and how


def _begin(asked: Sequence[_Asked]) -> None:
    """Note that these are under way.  Once a request is sent, the keys may have its shorter TTL (C6)."""
    with asked[0][1].guard():
        shorter = [lease for _, lease, pending in asked if lease.begin_extension(pending)]
    for lease in shorter:
        lease.changed()


def _end(
    asked: Sequence[_Asked], valid_until: Mapping[PendingExtension, float], claim: Claim | BatchExtension | Part
) -> list[ExtensionEnd]:
    """Apply the answers to each lease.  ``valid_until``: the new end of a lease whose extension is won."""
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
            if not lease.extendable(now):  # it ended while we asked: the answers came too late, whatever they are
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
    """These extensions are not under way any more, whether they were won or not."""
    for _, lease, pending in asked:
        if not pending.dropped:
            with lease.guard():
                lease.end_extension(pending)


def _drop(asked: Collection[_Asked]) -> None:
    """The operation of these extensions was dropped: nobody drives it any more."""
    for _, lease, pending in asked:
        lease.drop_extension(pending)


class Extending(Claim):
    """The round that extends one lease."""

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
    """Whether a master says that nobody has the key."""
    return isinstance(answer, wire.NotOwned) and not answer.other


def repair(
    settings: MastersSettings, spec: LockSpec, lease: LeaseState, missing: Sequence[int], ttl: float
) -> Iterator[Send]:
    """Give the key back to the masters in ``missing`` (R14).  Nobody counts their answers.

    A master that reports the missing key before the extension is decided gets it once that is won.  A master that
    reports it later gets it at once.

    A repair never stands behind the release of its lease.  ``only_if`` sees a release that has begun.  A release
    that begins later goes to all masters that are noted here, and stands behind the repair on the same connection.
    """
    if not missing or ttl <= 0:
        return
    call = wire.repair(spec.keys, lease.token, ttl, lease.fence, settings.fence_ttl)
    request = Send(call, to=frozenset(missing), only_if=lambda: lease.valid)
    lease.may_be_on(missing)
    yield request


# -- many at once ------------------------------------------------------------------------------------


def renew(settings: MastersSettings, leases: Sequence[tuple[LockSpec, LeaseState]], now: float) -> Op[list[Extension]]:
    """`extend` each of ``leases`` to its own TTL, all by one request.  Returns how each ended, in this order.

    Each lease ends as soon as its own votes decide, with the same result as alone.  A lease that is denied, or
    waits for slow masters, does not affect the others.  `LeaseState.changed` is called only for leases that are
    lost or end earlier: the caller looks at all of them when this is over.
    """
    extensions = [Extension("lost", now)] * len(leases)
    asked = _extendable(settings, leases, now)
    if not asked:
        return extensions
    numbers = list(asked)
    under_way = dict(enumerate(asked.values()))  # by the index in the request
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
    """The ``leases`` that have not ended, by their index in ``leases``."""
    asked: dict[int, _Asked] = {}
    clock = leases[0][1].clock()
    all_pending: dict[float, PendingExtension] = {}  # by the TTL: many leases have few different TTLs
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
    """Wait until the votes of a lease, or of all leases without a `Part`, are settled.

    Returns the indexes of these leases, the object that has their votes, and the time.
    """
    while not batch.newly_settled:
        event = yield Wait(until, False, batch)
        if type(event) is Timeout:
            batch.time_out(event.at)
    index, at = batch.newly_settled.popleft()
    part = batch.parts.get(index)
    if part is None:
        return batch.alike(under_way), batch, at
    return [index], part, at


_ALIKE = -1  # the index that stands for all leases without a `Part`

_Vote: TypeAlias = tuple["Outcome", str, bool]  # outcome, reason, and whether somebody has to change a setting
_GRANTED: _Vote = "granted", "", False
_NO_OTHERS: Mapping[int, wire.NotOwned | ErrorReply] = MappingProxyType({})


class BatchExtension(Send):
    """An owner-checked request for many leases, and the votes for each of them.

    Nearly always a master extends all of them.  What it says of all leases is counted once, in `tally`.  When a master
    says something else of a lease, that lease gets a `Part` of its own.

    When all is decided, the request stays open for masters that refuse it.  Otherwise nobody would ever notice a master
    that refuses and always answers after the majority, and its keys would expire.
    """

    __slots__ = ("_asked", "_decided", "_settings", "newly_settled", "parts", "refused", "tally")

    # Both are about leases without a `Part`, which no master has denied.  So nobody ever asks for the reason.
    missing: ClassVar[tuple[int, ...]] = ()
    reason: ClassVar[Reason] = "expired"

    def __init__(self, settings: MastersSettings, asked: Sequence[_Asked]) -> None:
        leases = [(spec.keys, lease.token, pending.ttl) for spec, lease, pending in asked]
        super().__init__(wire.renew(leases, settings.fence_ttl))
        self.open = True
        self.tally = Tally(settings.masters)  # the votes for leases without a `Part`
        self.parts: dict[int, Part] = {}  # by the index in the request
        self.newly_settled: deque[tuple[int, float]] = deque()  # index and time of what `renew` has yet to look at
        self.refused: list[int] = []
        self._decided = False
        self._asked = asked
        self._settings = settings

    def alike(self, indexes: Iterable[int]) -> list[int]:
        """The ``indexes`` of leases without a `Part`."""
        return [index for index in indexes if index not in self.parts] if self.parts else list(indexes)

    def answered(self, master: int, value: Any, at: float) -> bool:
        try:
            others = wire.read_renew(value, len(self._asked))
        except ValueError as error:
            self.refused.append(master)
            return self._count(master, at - self.sent_at, ("error", str(error), False), at)
        return self.voted(master, at, others)

    def voted(self, master: int, at: float, others: Mapping[int, wire.NotOwned | ErrorReply] = _NO_OTHERS) -> bool:
        """A master has extended all leases but ``others``."""
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
        """Repair leases that ``master`` says nobody has, when their votes were counted already (R14)."""
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
        """Count ``vote`` for every lease but ``others``; if ``overruled``, for those as well."""
        if self._decided:
            return False
        decides = False  # not read off `newly_settled`: another thread may be emptying that just now
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
        """Count a vote.  True: that settles the votes of ``index``."""
        outcome, reason, configuration = vote
        tally.count(master, outcome, took, reason, configuration=configuration)
        if not tally.settled:
            return False
        self.newly_settled.append((index, at))
        return True

    def time_out(self, at: float) -> None:
        """A master that has not answered by now did not vote."""
        for index, tally in ((_ALIKE, self.tally), *((index, part.tally) for index, part in self.parts.items())):
            if not tally.settled:
                tally.time_out(at - self.sent_at)
                self.newly_settled.append((index, at))


class Part:
    """The votes of one lease, once a master has said something else of it than of the other leases."""

    __slots__ = ("missing", "taken", "tally")

    def __init__(self, tally: Tally) -> None:
        self.tally = tally
        self.taken = False
        self.missing: list[int] = []

    def read(
        self, master: int, took: float | None, answer: wire.NotOwned | ErrorReply, instead: _Vote | None
    ) -> tuple[float | None, _Vote]:
        """The vote that ``answer`` is.  ``instead`` replaces it, unless the answer is an error."""
        if isinstance(answer, wire.NotOwned):
            outcome, reason = denied(self, master, answer.other)
            return took, instead or (outcome, reason, False)
        failure = answer.failure()
        return None, (failure.outcome, failure.reason, failure.configuration)

    @property
    def reason(self) -> Reason:
        return "taken" if self.taken else "expired"
