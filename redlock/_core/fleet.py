"""Whether all clients use masters that make them exclude each other (R34).

Two clients do if every majority of the one's masters meets every majority of the other's.  A client that cannot know
that announces its list at each of its masters, and is shown the lists there that are incompatible with its own.  Each
master decides by itself which list it records (fleet.lua); this file decides what that means for us.

The last to come gives way.  A newcomer works if nothing incompatible is shown to it, or if its list is that of
settled clients on a majority.  A client that has settled goes on as long as a majority has its list.

It is found, not proven: clients that reach no master in common see nothing of each other.  P1 does not rest on it.

Also considered: to send the fingerprint with each acquire (every lock would pay for it, and a list would have to be
refused by the scripts of all clients, also of those before); a check by the housekeeper that only warns (two services
would go on to hold one lock); entries for each client in place of each list (a thousand clients, a thousand lines to
read for each).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from redlock._core.quorum import majority

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence, Set as AbstractSet

    from redlock._core.wire import Lists, Says

Agreement: TypeAlias = Literal["refuse", "warn", "ignore"]

LIFE = 2.0  # of max_ttl: so long a list counts that is not announced again
_REFRESH = 0.5  # of max_ttl: a list is announced again
_SOON = 0.05  # ... for the first time, and while it is refused


def compatible(one: AbstractSet[str], other: AbstractSet[str]) -> bool:
    """Whether every majority of ``one`` meets every majority of ``other``."""
    return majority(len(one)) + majority(len(other)) > len(one | other)


class Disagreement(NamedTuple):
    """Lists in use that are incompatible with ours.  ``refused``: they count, and we get no lock."""

    others: tuple[frozenset[str], ...]
    refused: bool


class _Told(NamedTuple):
    """What one master said to our announcement."""

    state: int  # of fleet.lua
    others: tuple[tuple[bool, frozenset[str]], ...]
    until: float  # so long that counts, on our clock


# It takes no announcement, and keeps its vote.  What others know of our list does not depend on it.
_SAYS_NOTHING = _Told(-1, (), math.inf)


class Fleet:
    """The list of masters of one `Masters`, and what its masters say of others.

    ``rejected``: we give way.  ``refusal``: why no vote counts; "" if they do.  ``known_until``: from then on others
    may have forgotten our list, so no lease may last longer.
    """

    def __init__(self, names: Sequence[str], max_ttl: float, drift_factor: float, *, refuses: bool) -> None:
        self.names = tuple(names)
        self.refuses = refuses
        self.life = LIFE * max_ttl
        self._max_ttl = max_ttl
        # The clocks of the masters may run faster than ours.
        self._counts = self.life * (1 - drift_factor)
        self._told: list[_Told | None] = [None] * len(self.names)
        self._settled = False
        self._in_use: frozenset[frozenset[str]] = frozenset()  # lists that count, and to which ours has to give way
        self.rejected = False
        self.refusal = ""
        self.known_until = math.inf
        self.disagreement = Disagreement((), refused=False)

    @property
    def says(self) -> Says:
        """What to announce.

        A rejected client withdraws its list (`back`) or only asks (`refused`), until no incompatible list is left.
        """
        if self.rejected and self._in_use:
            return "back" if self._recorded_somewhere else "refused"
        return "settled" if self._settled else "new"

    @property
    def in_the_way(self) -> bool:
        """We give way, and a master has recorded our list: it must not keep others away."""
        return self.says == "back"

    @property
    def _recorded_somewhere(self) -> bool:
        return any(one is not None and one.state == 1 for one in self._told)

    @property
    def pause(self) -> float:
        """Seconds until the next announcement."""
        return self._max_ttl * (_SOON if self.rejected and self.refuses else _REFRESH)

    @property
    def first_pause(self) -> float:
        """Seconds from the first announcement, with which a connection was made, to the next one."""
        return self._max_ttl * (_REFRESH if self._settled else _SOON)

    def told(self, master: int, lists: Lists | None, sent_at: float, at: float) -> None:
        """What ``master`` said to an announcement that was sent at ``sent_at``.  None: it takes no announcement."""
        if lists is None:
            self._told[master] = _SAYS_NOTHING
        else:
            self._told[master] = _Told(lists.state, lists.others, sent_at + self._counts)
        self._judge(at)

    def announcing(self, at: float) -> Says:
        """What to announce now, to all masters.  A client that was not rejected until now belongs to the fleet."""
        self._judge(at)
        self._settled = not self.rejected and self._recorded(1, at) >= majority(len(self.names))
        says = self.says
        if says == "back":
            self._told = [one if one is None or one.state != 1 else one._replace(state=0) for one in self._told]
        return says

    def _judge(self, at: float) -> None:
        need = majority(len(self.names))
        told = [one for one in self._told if one is not None and one.until > at]
        shown = {names for one in told for _, names in one.others}
        self._in_use = frozenset(names for one in told for refused, names in one.others if not refused)
        if self._in_use:
            self.rejected = self._recorded(1 if self._settled else 2, at) < need
        elif self.rejected:  # until it is recorded again, where it can be
            unable = sum(one.state < 0 for one in told)
            self.rejected = self._recorded(1, at) + unable < need
        if self.rejected:
            self._settled = False
        if shown or not self.rejected:
            self.disagreement = Disagreement(tuple(sorted(shown, key=sorted)), self.rejected and self.refuses)
        if not self.disagreement.refused:
            self.refusal = ""
        elif self._in_use:
            self.refusal = self._explain(self._in_use)
        ends = sorted((self._known_to(one) for one in self._told if one is not None and one.state), reverse=True)
        # Where no majority records any list, nobody can say more than that.
        self.known_until = ends[need - 1] if len(ends) >= need else math.inf

    @staticmethod
    def _known_to(one: _Told) -> float:
        return one.until if one.state > 0 else math.inf

    def _recorded(self, state: int, at: float) -> int:
        return sum(one is not None and one.state >= state and one.until > at for one in self._told)

    def _explain(self, others: Iterable[frozenset[str]]) -> str:
        other = min(others, key=lambda names: (-len(names & set(self.names)), sorted(names)))
        return (
            f"other clients use masters that do not go with ours: {difference(self.names, other)}. Give all clients "
            "the same masters, and change one at a time; this counts until those clients are gone "
            '(agreement="warn" goes on all the same)'
        )


def difference(ours: Iterable[str], theirs: Iterable[str]) -> str:
    """How two lists differ, for people."""
    mine, other = set(ours), set(theirs)
    only, missing = sorted(mine - other), sorted(other - mine)
    parts = [f"ours are {', '.join(sorted(mine))}", f"theirs are {', '.join(sorted(other))}"]
    if len(mine & other) and (only or missing):
        parts.append(
            " and ".join(
                [f"only we have {', '.join(only)}"] * bool(only)
                + [f"only they have {', '.join(missing)}"] * bool(missing)
            )
        )
    return "; ".join(parts)
