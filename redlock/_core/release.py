"""Giving a lock back.

A release may have to travel where its acquire did not.  A lease is handed over by its token, or acquired on one
event loop and released on another.  Then a master that has no key proves nothing: the acquire may be on its
way.  Such a release is in doubt.  A master that does not say that the key was ours is asked again, later and
later (a quarter of `node_timeout`, doubled up to eight of them), until the key must have expired.  Where an
extension gave the key back over such a connection (R14) it takes two such answers.  A lease that every master
has, which nearly each of these is, costs nothing more.

Besides, the loop that acquired is told, and sends a release of its own behind the acquire, as long as it runs
(P7).  It is told when the first release has been judged: the second one may be faster, and the lease would seem
to be lost.

Also considered: everything over the loop that acquired (a release would wait for a loop that is blocked, or for
ever for one that is closed; no help to another process), a wait of that loop for its late answers (as long, and
one more state), a mark on the masters that an acquire looks at (one more key in the hottest script, and other
libraries would not look).
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeVar

from redlock._core import wire
from redlock._core.acquire import despite_interrupts
from redlock._core.effects import Leave, Op, ReleaseHeard, Send
from redlock._core.outcomes import NEVER
from redlock._core.rounds import GRANTED, Round

if TYPE_CHECKING:
    from collections.abc import Iterator

    from redlock._core.lease import LeaseState
    from redlock._core.rounds import RoundEnd
    from redlock._core.settings import LockSpec, MastersSettings
    from redlock.errors import Outcome, Reason


AnySend = TypeVar("AnySend", bound=Send)


class Claim(Round):
    """An owner-checked request, the answers to it, and what the denials prove (R13)."""

    __slots__ = ("heard", "missing", "taken")

    _end: ClassVar[RoundEnd] = "settled"

    def __init__(
        self,
        settings: MastersSettings,
        call: wire.Call,
        to: frozenset[int] | None = None,
        owed_until: float | None = None,
    ) -> None:
        super().__init__(settings, call, to, owed_until)
        self.taken = False
        self.missing: list[int] = []  # masters on which nobody holds it
        self.heard: dict[int, int] = {}  # how many connections they told that it was released

    def read(self, master: int, value: Any) -> tuple[Outcome, str]:
        answer = wire.read_owned(value)
        if isinstance(answer, wire.Owned):
            if answer.listeners:
                self.heard[master] = answer.listeners
            return GRANTED
        return denied(self, master, answer.other)

    @property
    def reason(self) -> Reason:
        return "taken" if self.taken else "expired"


class Denied(Protocol):
    """What the denials of one lease are noted on: a `Claim`, or its part of a round for many."""

    taken: bool
    missing: list[int]


def denied(claim: Denied, master: int, other: str) -> tuple[Outcome, str]:
    """A master says that ``other`` holds it, "" if nobody does."""
    if other:
        claim.taken = True
        return "held", f"by {other}"
    claim.missing.append(master)
    return "held", "not ours any more: the key is gone"


def leave_line(lease: LeaseState) -> list[Leave]:
    """What lets the next one in line have a go."""
    return [] if lease.place is None else [Leave(lease.place)]


def _after(lease: LeaseState) -> Iterator[Leave]:
    """What is done while the masters are busy with the release.

    The next one in line need not wait for the answers: on every connection its acquire stands behind our
    release (R10).  The loop that acquired, if it is another one, hears of it later: it sends a release as well, which could
    overtake this one, and the lease would seem to have been lost (C8).
    """
    if lease.is_here():
        lease.changed()
    yield from leave_line(lease)


class ReleaseDoubt:
    """What no connection keeps in order: the release of a lease whose keys are set over other ones (R10).

    A master that does not have the key may not have seen the acquire yet.  Neither does it say so where an extension has
    given it back: then it is the second time that counts, when the acquire has come as well.
    """

    __slots__ = ("_repaired",)

    def __init__(self, lease: LeaseState) -> None:
        self._repaired = set(lease.repaired)

    def remains(self, master: int, value: Any) -> bool:
        with suppress(ValueError):
            if isinstance(wire.read_owned(value), wire.NotOwned):
                return True
        if master not in self._repaired:
            return False
        self._repaired.remove(master)
        return True


def _doubted(request: AnySend, lease: LeaseState) -> AnySend:
    """Have it sent until every master has seen what it takes back, unless it stands behind that."""
    if not lease.in_order:
        request.doubt = ReleaseDoubt(lease)
        request.call = request.call._replace(usual=())  # every answer is to be read
    return request


def release_lost(spec: LockSpec, lease: LeaseState) -> Send:
    """The release of what is lost already: nobody has to wait for it, whatever they would answer."""
    call = wire.release(spec.keys, lease.token)
    return _doubted(Send(call, to=lease.asked, owed_until=lease.keys_until), lease)


def abandon(spec: LockSpec, lease: LeaseState) -> Op[None]:
    """Release what nobody can give back any more, without waiting for the answers (R15)."""
    for hold in list(lease.holds):
        hold.leave()
    lease.let_go()
    lease.changed()
    interruption = yield from despite_interrupts(release_lost(spec, lease), *leave_line(lease))
    if interruption is not None:
        raise interruption


def release(settings: MastersSettings, spec: LockSpec, lease: LeaseState) -> Op[bool]:
    """Release on every master that may have the key; True if the lease was still ours until then.

    The lease is over before the first byte is sent, whatever comes back.  Masters that do not answer
    are owed the release (R10).  Where too few answer to know better, the lease counts as having been
    ours: it was valid, and nobody has denied it.  Where it was released before, by somebody who was interrupted
    or in another thread, it counts as well: keys that are gone prove nothing then.
    """
    if lease.lost:
        interruption = yield from despite_interrupts(release_lost(spec, lease), *leave_line(lease))
        if interruption is not None:
            raise interruption
        return False
    again = lease.released
    claim: Claim | None = None
    try:
        lease.end()
        # To every master that may have a key of this lease, and owed to it.  Which these are is read when it has ended: no
        # repair is written from now on.
        claim = _doubted(Claim(settings, wire.release(spec.keys, lease.token), lease.asked, lease.keys_until), lease)
        lease.said = claim.tally.votes
        at = yield from claim.ask(then=_after(lease))
        if not lease.is_here():
            lease.changed()
    except GeneratorExit:
        raise
    except BaseException:
        lease.changed()
        yield from despite_interrupts(claim or release_lost(spec, lease), *leave_line(lease))
        raise
    ours = again or not claim.tally.denied
    if not ours:
        lease.found_gone(claim.reason)
    place = lease.place
    if place is not None and (claim.heard or place.yield_until > NEVER):
        took = min(at - claim.sent_at, settings.node_timeout)  # longer than that we were stopped ourselves
        yield ReleaseHeard(place.keys, claim.heard, took)
    return ours
