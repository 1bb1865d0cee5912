"""Counts votes (R1-R3).

Any two majorities of the configured masters have a master in common.  P1 and P2 rest on that common master.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, TypeAlias

from redlock.errors import OUTCOMES, Outcome, Vote

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redlock._core.outcomes import Failure


@lru_cache(maxsize=64)  # each acquire asks the same
def majority(masters: int) -> int:
    """More than half of the configured masters, up or down (R1)."""
    return masters // 2 + 1


# A vote: the outcome, the latency, the reason, whether a configuration is to blame, and whether only this name is.
Entry: TypeAlias = tuple[Outcome, "float | None", str, bool, bool]


class Tally:
    """The votes of one round.

    ``yes`` counts the outcome ``granted``.  The round is decided as soon as the missing votes cannot change its
    outcome any more.  A majority decides it, and so do refusals that leave none.

    The usual grants are counted in `_core/exchange.py`, without a call.  All other votes are counted by `count`.
    """

    yes = no = 0
    late = 0  # masters, as bits, that are known to have granted it after the round was decided

    def __init__(self, masters: Sequence[str]) -> None:
        self.masters = masters
        self.size = size = len(masters)
        self.need = majority(size)
        self.said: list[Entry | float | None] = [None] * size  # of a usual grant only the latency

    def count(
        self,
        master: int,
        outcome: Outcome,
        latency: float | None = None,
        reason: str = "",
        *,
        configuration: bool = False,
        of_name: bool = False,
    ) -> None:
        """Record one vote.  A master votes once in a round: its second answer changes nothing."""
        if self.said[master] is not None:
            return
        self.said[master] = (outcome, latency, reason, configuration, of_name)
        if outcome == "granted":
            self.yes += 1
        else:
            self.no += 1

    def fail(self, master: int, failure: Failure, latency: float | None = None) -> None:
        outcome, reason, _, configuration, _, of_name = failure
        self.count(master, outcome, latency, reason, configuration=configuration, of_name=of_name)

    def inherit(self, before: Tally | None, master: int) -> bool:
        """Take over what this master said in the round before.  Returns False if it said nothing."""
        entry = None if before is None else before.entries[master]
        if entry is not None:
            outcome, latency, reason, configuration, of_name = entry
            self.count(master, outcome, latency, reason, configuration=configuration, of_name=of_name)
        return entry is not None

    @property
    def entries(self) -> list[Entry | None]:
        """What each master said; None: nothing yet."""
        return [("granted", one, "", False, False) if isinstance(one, float | int) else one for one in self.said]

    @property
    def won(self) -> bool:
        return self.yes >= self.need

    @property
    def lost(self) -> bool:
        return self.size - self.no < self.need

    @property
    def decided(self) -> bool:
        return self.yes >= self.need or self.size - self.no < self.need

    @property
    def denied(self) -> bool:
        """A majority says that the key is not ours (R13).  That is proof; missing votes prove nothing."""
        return self.no >= self.need and self.number("held") >= self.need

    @property
    def conclusive(self) -> bool:
        """A majority has granted or denied, or no majority can do either any more."""
        if self.yes >= self.need:
            return True
        if self.no < self.need <= self.size - self.no:
            return False  # the usual case: too few answers yet for either
        denials, left = self.number("held"), self.size - self.yes - self.no
        return denials >= self.need or max(self.yes, denials) + left < self.need

    @property
    def complete(self) -> bool:
        return self.yes + self.no == self.size

    def outcome(self, master: int) -> Outcome | None:
        """What this master said; None: it has said nothing yet."""
        entry = self.entries[master]
        return None if entry is None else entry[0]

    def time_out(self, after: float) -> None:
        """The round has ended: a master that has not answered by now did not vote."""
        for master, entry in enumerate(self.entries):
            if entry is None:
                self.count(master, "timeout", None, f"no answer within {after:.3g} s")

    def number(self, outcome: Outcome) -> int:
        """How many masters said that."""
        return sum(1 for entry in self.entries if entry is not None and entry[0] == outcome)

    def absent(self) -> int:
        """How many masters did not take part: they were down, silent, or not in a state to vote."""
        return sum(1 for entry in self.entries if entry is not None and OUTCOMES[entry[0]].took == "absent")

    @property
    def unreachable(self) -> bool:
        """The masters that took part are too few for a majority (C2)."""
        return self.lost and self.size - self.absent() < self.need

    def votes(self) -> tuple[Vote, ...]:
        pending: Entry = ("pending", None, "decided without it", False, False)
        return tuple(
            Vote(name, *(entry or pending)[:3]) for name, entry in zip(self.masters, self.entries, strict=True)
        )

    __call__ = votes  # so a lease can keep the tally in place of a bound method
