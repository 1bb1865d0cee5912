"""Whether all clients use masters that make them exclude each other (R34): what the answers of masters mean for us.

Each master decides by itself which list it records (fleet.lua).  A master that is further away may be the only one that
two lists share, so a newcomer waits for it as well, for `node_timeout`.  On masters that do not have our list, lists of
new clients count too: these may already hold locks.

Also considered: to send the fingerprint with each acquire (every lock would pay for it, and a list would have to be
refused by the scripts of all clients, also of those before); a check that only warns (two services would go on to hold
one lock); entries for each client in place of each list (a thousand clients, a thousand lines to read for each); to
begin at the first majority and to take it back (a lock that was granted cannot be taken back).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from redlock._core import wire
from redlock._core.kernel import validity
from redlock._core.kernel.quorum import majority

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence, Set as AbstractSet

Agreement: TypeAlias = Literal["refuse", "warn", "ignore"]

SOON = 0.05  # of max_ttl: a list is announced again, until it works, while another one is new, and after connecting
_MOST = 64  # lists of one master that are remembered: a client that may write there can invent any number
_NEW, _WORKING = "1", "2"  # of the statuses of fleet.lua, those that count


def compatible(one: AbstractSet[str], other: AbstractSet[str]) -> bool:
    """Whether every majority of ``one`` meets every majority of ``other``."""
    return majority(len(one)) + majority(len(other)) > len(one | other)


class Disagreement(NamedTuple):
    """Lists in use that are incompatible with ours.  ``refused``: they count, and we get no lock."""

    others: tuple[frozenset[str], ...]
    refused: bool


class _Other(NamedTuple):
    """An incompatible list that a master has shown.  It is in use until then at the latest, on our clock."""

    status: str  # of fleet.lua
    until: float

    def counts(self, at: float) -> bool:
        """Whether a newcomer has to give way to it."""
        return self.status in (_NEW, _WORKING) and self.until > at


class _Answer(NamedTuple):
    """What one master said to our announcement."""

    state: int  # of fleet.lua
    others: dict[frozenset[str], _Other]
    until: float  # it knows our list until then, on our clock

    def recorded(self, state: int, at: float) -> bool:
        return self.state >= state and self.until > at


class Fleet:
    """The list of masters of one `Masters`, and what its masters say of others."""

    def __init__(
        self, names: Sequence[str], max_ttl: float, drift: float, node_timeout: float, *, refuses: bool, way: wire.Way
    ) -> None:
        self.names = tuple(names)
        self.way = way  # how we take an expiry (R35)
        self.differs = False  # clients were seen that take it in another way
        self.refuses = refuses
        self.life = wire.LIFE * max_ttl
        self._max_ttl = max_ttl
        self.first_pause = SOON * max_ttl  # from the announcement of a handshake to the next one: we may work by then
        # The clocks of the masters may run faster than ours, and slower.
        self._counts, self._slower = self.life * (1 - drift), 1 + drift
        self._patience = node_timeout
        self._answers: list[_Answer | None] = [None] * len(self.names)
        self._down_at = [-math.inf] * len(self.names)  # when the last attempt to connect failed
        self._in_use: frozenset[frozenset[str]] = frozenset()  # lists that count, and to which ours has to give way
        self._since = math.inf  # a majority has recorded our list; infinity: it has not
        self._begins = math.inf  # we work after that; infinity: not yet
        self._anew = False  # we have begun before
        self._works = False
        self._new_ones = False  # a list in use has no working clients yet
        self.rejected = False  # we give way
        self.refusal = ""  # why no vote counts
        self.known_until = math.inf  # no lease may last longer, as others may have forgotten our list by then
        self.disagreement = Disagreement((), refused=False)

    @property
    def says(self) -> wire.Says:
        """What to announce.  While others are in use, a rejected client withdraws its list, or only asks."""
        if self.rejected and self._in_use:
            return "back" if any(one is not None and one.state == 1 for one in self._answers) else "refused"
        return "working" if self._works else "new"

    @property
    def in_the_way(self) -> bool:
        """We give way, and a master has recorded our list: it must not keep others away."""
        return self.says == "back"

    @property
    def pause(self) -> float:
        """Seconds until the next announcement."""
        return self._max_ttl * (SOON if self.refuses and (self._new_ones or not self._works) else wire.REFRESH)

    @property
    def counts_from(self) -> float:
        """Votes count after that; infinity: not yet."""
        return self._begins if self.refuses else -math.inf

    def awaits(self, master: int, at: float) -> bool:
        """Whether nothing but the silence of ``master``, and of others like it, keeps us from work."""
        return self._since <= at < self._begins and self._silent(master, at)

    def answered(self, master: int, lists: wire.Lists | None, sent_at: float, at: float) -> None:
        """What ``master`` said to an announcement that was sent at ``sent_at``.  None: it takes no announcement."""
        self._judge(at)  # first: what we knew may have become too old, and then we begin anew
        before = self._answers[master]
        # A list that it does not show any more may be forgotten, and in use all the same.
        others = {} if before is None else {names: other for names, other in before.others.items() if other.counts(at)}
        if lists is None:
            self._answers[master] = _Answer(-1, others, math.inf)  # it keeps its vote, and what is known of us
        else:
            until = sent_at + self._counts
            self.differs = self.differs or lists.differs > 0
            # First those that count.  So many of them are reason enough to give way.
            for shown in sorted(lists.others, key=lambda one: one.status not in (_NEW, _WORKING)):
                if shown.names in others or len(others) < _MOST:
                    left = shown.left * self._slower + validity.ROUNDING
                    others[shown.names] = _Other(shown.status, at + left)
            self._answers[master] = _Answer(lists.state, others, until)
        self._judge(at)

    def down(self, master: int, at: float) -> None:
        self._down_at[master] = at
        self._judge(at)

    def next_announcement(self, at: float) -> wire.Says:
        """What to announce now, to all masters.  A client that was not rejected until now belongs to the fleet."""
        self._judge(at)
        says = self.says
        if says == "back":
            self._answers = [one if one is None or one.state != 1 else one._replace(state=0) for one in self._answers]
        return says

    def _judge(self, at: float) -> None:
        need = majority(len(self.names))
        answers = [one for one in self._answers if one is not None]
        others = [pair for one in answers for pair in one.others.items()]
        shown = {names for names, other in others if other.until > at}
        self._in_use = frozenset(names for names, other in others if other.counts(at))
        self._new_ones = any(other.status == _NEW for _, other in others if other.counts(at))
        unable = sum(one.state < 0 for one in answers)
        has = self._recorded(1, at) + unable >= need
        works = has and self._begins <= at
        if self._in_use:
            self.rejected = self._recorded(1 if works else 2, at) < need or self._outnumbered(at)
        elif self.rejected:  # until it is recorded again, where it can be
            self.rejected = not has
        self._begin(at, has=has and not self.rejected)
        if shown or not self.rejected:
            self.disagreement = Disagreement(tuple(sorted(shown, key=sorted)), self.rejected and self.refuses)
        if not self.disagreement.refused:
            self.refusal = ""
        elif self._in_use:
            self.refusal = self._explain(self._in_use)
        ends = sorted((one.until if one.state > 0 else math.inf for one in answers if one.state), reverse=True)
        # Where no majority records any list, masters cannot say more than that.
        self.known_until = ends[need - 1] if len(ends) >= need else math.inf

    def _begin(self, at: float, *, has: bool) -> None:
        """Begin to work, or to do so anew, if it is time.  ``has``: a majority has our list, and we work on."""
        if not has:
            self._anew = self._anew or self._since <= at
            self._since = self._begins = math.inf
        else:
            self._since = min(self._since, at)
            if self._begins > at:
                silent = any(self._silent(master, at) for master in range(len(self.names)))
                # Answers that come at the same time as this one count already.
                self._begins = self._since + self._patience if silent else math.nextafter(at, -math.inf)
        self._works = self._begins <= at

    def _silent(self, master: int, at: float) -> bool:
        """Whether ``master`` may still show us a list: it has not answered, but to a mere question, and is not down."""
        one = self._answers[master]
        answered = one is not None and one.until > at and (one.state or any(o.counts(at) for o in one.others.values()))
        # One that was cut off ignores earlier answers: masters come back one after the other.
        recently = self._since - (0.0 if self._anew else self._patience)
        return not answered and self._down_at[master] < recently

    def _outnumbered(self, at: float) -> bool:
        """Whether clients work with an incompatible list, or are about to, and it is theirs that stays."""
        fingerprint = wire.fingerprint(self.names)
        for names in self._in_use:
            ours = theirs = 0
            working = False
            for name, one in zip(self.names, self._answers, strict=True):
                if name not in names or one is None:
                    continue
                other = one.others.get(names)
                if one.recorded(1, at):
                    ours += 1
                elif other is not None and other.counts(at):
                    theirs += 1
                    working = working or other.status == _WORKING
            if (working or not ours) and theirs and (-theirs, wire.fingerprint(names)) < (-ours, fingerprint):
                return True
        return False

    def _recorded(self, state: int, at: float) -> int:
        return sum(one is not None and one.recorded(state, at) for one in self._answers)

    def _explain(self, others: Iterable[frozenset[str]]) -> str:
        other = min(others, key=lambda names: (-len(names & set(self.names)), sorted(names)))
        return (
            f"other clients use masters that are incompatible with ours: {difference(self.names, other)}. Give all "
            "clients the same masters, and change one at a time. This client is refused until those clients have "
            'ended, and two max_ttl longer (agreement="warn" lets it go on)'
        )


def difference(ours: Iterable[str], theirs: Iterable[str]) -> str:
    """How two lists differ, for people."""
    mine, other = set(ours), set(theirs)
    parts = [f"ours are {', '.join(sorted(mine))}", f"theirs are {', '.join(sorted(other))}"]
    if mine & other and mine != other:
        sides = (("we", mine - other), ("they", other - mine))
        parts.append(" and ".join(f"only {who} have {', '.join(sorted(names))}" for who, names in sides if names))
    return "; ".join(parts)
