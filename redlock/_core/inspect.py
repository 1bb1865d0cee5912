"""Ask masters who holds a name, and change nothing."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from redlock._core import readings, wire
from redlock._core.kernel.quorum import Tally, majority
from redlock._core.kernel.rounds import GRANTED, Round
from redlock._core.outcomes import ErrorReply
from redlock._core.tokens import READERS, by_whom, is_phantom, owner_of, released_token, shown
from redlock.errors import Outcome, QuorumUnreachable, Vote

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redlock._core.effects import Op
    from redlock._core.settings import MastersSettings


@dataclass(frozen=True, slots=True)
class LockStatus:
    """The holder of a name, as its masters saw it a moment ago.

    It proves nothing: the holder may have changed before you read it.

    Attributes:
        name: the name that was looked at.
        token: the token that a majority of masters has, None if no majority is known to have one; see ``votes``.
            Of a token of other programs, as with ``prefix=""``, the first eight characters.  ``released:`` or
            ``expired:`` and a token: no client has the lock, and none gets it yet; see `released` and `in_doubt`.
        shared: the tokens of readers (R33) that a majority of masters has; of very many those that end first.
        remaining: seconds until the holder loses its majority, or the last reader does, unless the lease is extended.
        fence: the greatest fencing token that a master showed, None if none did.
        votes: what each master said: ``held``, ``free``, or why it does not vote.
        waiters: how many clients listen for its release: those that wait for it, and those that watch it (R40).  A
            process, or an event loop, is one client, and is counted for up to half a second after its wait.  None:
            too few masters said so; the right for it is ``+pubsub|numsub``.
    """

    name: str
    token: str | None
    remaining: float
    fence: int | None
    votes: tuple[Vote, ...]
    shared: tuple[str, ...] = ()
    waiters: int | None = None

    @property
    def owner(self) -> str:
        """The name of the holder, or of the last one if `released`; "" if it has none.  A hint, no proof (R27)."""
        return owner_of(self.token)

    @property
    def readers(self) -> tuple[str, ...]:
        """The owner of each token in `shared`; "" where a token names none."""
        return tuple(map(owner_of, self.shared))

    @property
    def released(self) -> bool:
        """Whether the holder has released it, and its `hold_at_least` keeps it from all for `remaining` (R28)."""
        return released_token(self.token) != ""

    @property
    def in_doubt(self) -> bool:
        """Whether the last lease may still be valid, so that no client gets the lock for `remaining` (R35)."""
        return self.token is not None and is_phantom(self.token)


@dataclass(frozen=True, slots=True)
class SlotsStatus:
    """The slots of a group, as its masters saw each of them a moment ago (R32).

    No proof, and no snapshot: each slot is looked at by itself.

    Attributes:
        name: the name of the group.
        slots: what is known of each slot, in order.
    """

    name: str
    slots: tuple[LockStatus, ...]

    @property
    def limit(self) -> int:
        """How many slots were looked at."""
        return len(self.slots)

    @property
    def holders(self) -> tuple[LockStatus, ...]:
        """The slots that a majority of masters has the same token for."""
        return tuple(slot for slot in self.slots if slot.token is not None)

    @property
    def free(self) -> int:
        """How many slots a majority of masters calls free.  Attempts under way have the rest."""
        return sum(sum(one.outcome == "free" for one in slot.votes) >= majority(len(slot.votes)) for slot in self.slots)


class Look(Round):
    """The round of a status: what every master knows of a name."""

    _until = "complete"

    def __init__(self, settings: MastersSettings, call: wire.Call) -> None:
        super().__init__(settings, call)
        self.seen: dict[int, wire.Seen] = {}

    def read(self, master: int, value: Any) -> tuple[Outcome, str]:
        self.seen[master] = answer = wire.read_status(value)
        return _vote(answer)


class LookAtMany(Round):
    """The round of a look at many names.  A vote is about all of them."""

    _until = "complete"

    def __init__(self, settings: MastersSettings, names: Sequence[str], prefix: str) -> None:
        super().__init__(settings, wire.look(prefix, names))
        self.names = names
        self.seen: dict[int, list[wire.Seen | ErrorReply]] = {}

    def read(self, master: int, value: Any) -> tuple[Outcome, str]:
        self.seen[master] = wire.read_look(value, len(self.names))
        return GRANTED

    def status(self, index: int) -> tuple[LockStatus, Tally]:
        seen, tally = {}, Tally(self.tally.masters)
        for master, entry in enumerate(self.tally.entries):
            if entry is None or entry[0] != "granted":
                tally.inherit(self.tally, master)
                continue
            answer = self.seen[master][index]
            if isinstance(answer, ErrorReply):
                tally.fail(master, answer.failure(), entry[1])
            else:
                seen[master] = answer
                outcome, reason = _vote(answer)
                tally.count(master, outcome, entry[1], reason)
        return told(status_of(self.names[index], seen, tally)), tally


def _vote(answer: wire.Seen) -> tuple[Outcome, str]:
    if answer.holder:
        return "held", f"{by_whom(answer.holder)} {wire.how_long(answer.remaining)}"
    return "free", ""


def inspect(settings: MastersSettings, name: str, key: str) -> Op[tuple[LockStatus, Tally]]:
    """Ask all masters, and wait for all of them up to `node_timeout`: a view with holes is of no use."""
    look = Look(settings, wire.status(key, listeners=True))
    yield from look.ask()
    return told(status_of(name, look.seen, look.tally)), look.tally


def inspect_many(settings: MastersSettings, names: Sequence[str], prefix: str) -> Op[list[tuple[LockStatus, Tally]]]:
    """The same for many names, by one request to each master."""
    look = LookAtMany(settings, names, prefix)
    yield from look.ask()
    return [look.status(index) for index in range(len(names))]


def told(status: LockStatus) -> LockStatus:
    """``status`` as callers get it, with foreign tokens cut.  Only within a look values are compared whole."""
    return replace(status, token=status.token and shown(status.token), shared=tuple(map(shown, status.shared)))


def status_of(name: str, seen: dict[int, wire.Seen], tally: Tally) -> LockStatus:
    counted = [answer for master, answer in seen.items() if readings.has_voted(tally, master)]
    need = majority(tally.size)
    token, remaining = None, 0.0
    for holder in {answer.holder for answer in counted if answer.holder}:
        left = sorted((answer.remaining for answer in counted if answer.holder == holder), reverse=True)
        if len(left) >= need:
            # The majority lasts as long as its need-th longest key.  The median of the answers is something else.
            token, remaining = holder, left[need - 1]
    times_seen = Counter(reader for answer in counted for reader in answer.readers)
    shared = tuple(reader for reader, times in times_seen.items() if times >= need)
    if token == READERS:
        token = None
    fence = max((answer.fence for answer in seen.values()), default=0)
    listeners = sorted((one.listeners for one in seen.values() if one.listeners is not None), reverse=True)
    waiters = listeners[need - 1] if len(listeners) >= need else None
    return LockStatus(name, token, remaining, fence or None, tally.votes(), shared, waiters)


def known(status: LockStatus, tally: Tally) -> LockStatus:
    """``status``, if enough masters answered; else raises QuorumUnreachable."""
    if tally.unreachable:
        text = f"cannot tell who holds {status.name!r}: {readings.explain(tally)}"
        raise QuorumUnreachable(text, name=status.name, votes=status.votes)
    return status
