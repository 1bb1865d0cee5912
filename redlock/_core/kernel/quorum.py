"""Counts votes (R1-R3), and computes the validity of a majority (R6).

Any two majorities of the configured masters have a master in common.  P1 and P2 rest on that common master.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, TypeAlias

from redlock.errors import OUTCOMES, Outcome, Vote

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redlock._core.outcomes import Failure

# Redis rounds an expiry to whole milliseconds on both ends: 2 ms.  See docs/design.md, "Validity".
ROUNDING = 0.002


# Both are cached, for each acquire asks them the same.
@lru_cache(maxsize=64)
def majority(masters: int) -> int:
    """More than half of the configured masters, up or down (R1)."""
    return masters // 2 + 1


@lru_cache(maxsize=64)
def drift(ttl: float, factor: float) -> float:
    """How far clocks of different speed may drift apart over one TTL, in seconds (R6)."""
    return ttl * factor + ROUNDING


def valid_until(sent_at: float, ttl: float, factor: float) -> float:
    """The end of a lease whose request was sent at ``sent_at``.

    ``sent_at`` was read before the first byte left.  No key can have been set earlier.
    """
    return sent_at + ttl - drift(ttl, factor)


def enough_to_hold(at_least: float, ttl: float, factor: float, node_timeout: float) -> float:
    """The validity that a grant has to leave, so that it keeps others out for ``at_least`` seconds (R28).

    Its holder may die right after it.  Then what is left of the lease is all that keeps them out, and the masters have
    `node_timeout` to answer.
    """
    return min(at_least, ttl - drift(ttl, factor) - node_timeout)


# A vote: the outcome, the latency, the reason, whether a configuration is to blame, and whether only this name is.
Entry: TypeAlias = tuple[Outcome, "float | None", str, bool, bool]


class Tally:
    """The votes of one round.

    ``yes`` counts the outcome ``granted``.  The round is decided as soon as the missing votes cannot change its
    outcome any more.  A majority decides it, and a tie does.

    The usual grants are counted in `_core/exchange.py`, without a call.  All other votes are counted by `count`.
    """

    yes = no = 0
    late = 0  # masters, as bits, that are known to have granted it after the round was decided

    def __init__(self, masters: Sequence[str]) -> None:
        self.masters = masters
        self.size = size = len(masters)
        self.need = majority(size)
        self.entries: list[Entry | None] = [None] * size

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
        if self.entries[master] is not None:
            return
        self.entries[master] = (outcome, latency, reason, configuration, of_name)
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
    def won(self) -> bool:
        return self.yes >= self.need

    @property
    def bare(self) -> bool:
        """Whether no more than a bare majority is known to have granted it by now, and not all masters (R37)."""
        return self.yes + self.late.bit_count() <= self.need < self.size

    def lacking(self) -> list[int]:
        """The masters that are not known to have granted it by now."""
        return [
            master
            for master, entry in enumerate(self.entries)
            if not self.late >> master & 1 and (entry is None or entry[0] != "granted")
        ]

    @property
    def lost(self) -> bool:
        return self.size - self.no < self.need

    @property
    def decided(self) -> bool:
        return self.yes >= self.need or self.size - self.no < self.need

    @property
    def denied(self) -> bool:
        """A majority says that the key is not ours (R13).  That is proof; missing votes are none."""
        return self.no >= self.need and self._number("held") >= self.need

    @property
    def perhaps_denied(self) -> bool:
        """The masters that did not vote could have made a majority with those that say that the key is not ours."""
        return self._number("held") + self._absent() >= self.need

    @property
    def settled(self) -> bool:
        """A majority has granted or denied, or no majority can do either any more."""
        if self.yes >= self.need:
            return True
        if self.no < self.need <= self.size - self.no:
            return False  # the usual case: too few answers yet for either
        open_ = self.size - self.yes - self.no
        denials = self._number("held")
        possible = self.yes + open_ >= self.need or denials + open_ >= self.need
        return denials >= self.need or not possible

    @property
    def complete(self) -> bool:
        return self.yes + self.no == self.size

    def outcome(self, master: int) -> Outcome | None:
        """What this master said; None: it has said nothing yet."""
        entry = self.entries[master]
        return None if entry is None else entry[0]

    def has_voted(self, master: int) -> bool:
        """Whether this master said something that counts."""
        entry = self.entries[master]
        return entry is not None and OUTCOMES[entry[0]].took == "voted"

    def time_out(self, after: float) -> None:
        """The round is over: a master that has not answered by now did not vote."""
        for master, entry in enumerate(self.entries):
            if entry is None:
                self.count(master, "timeout", None, f"no answer within {after:.3g} s")

    def in_the_way(self) -> list[int]:
        """Masters that said no in a lost round.  Unless one of them changes its answer, the next round is lost too.

        The masters that granted it, and those that were not waited for, make no majority together.
        A master that answers and is not counted (quarantined) is not in the list, and neither is one with a wrong
        configuration: no release changes their answers.
        """
        return [master for master, entry in enumerate(self.entries) if entry is not None and _may_change(entry)]

    @property
    def took(self) -> float:
        """Seconds until the last answer that was counted; 0 if there was none."""
        return max((entry[1] or 0.0 for entry in self.entries if entry is not None), default=0.0)

    def _number(self, outcome: Outcome) -> int:
        return sum(1 for entry in self.entries if entry is not None and entry[0] == outcome)

    def _absent(self) -> int:
        return sum(1 for entry in self.entries if entry is not None and OUTCOMES[entry[0]].took == "absent")

    @property
    def unreachable(self) -> bool:
        """No majority was possible without the masters that did not vote (C2)."""
        return self.lost and self.size - self._absent() < self.need

    @property
    def outage(self) -> bool:
        """`unreachable` for every name.  A master that only objects to the keys of this name counts as reachable."""
        there = sum(1 for entry in self.entries if entry is not None and entry[4])
        return self.unreachable and self.size - self._absent() + there < self.need

    def explain(self) -> str:
        """Explain `unreachable` to people."""
        absent = self._absent()
        masters = "masters" if self.size > 1 else "master"
        at_least = "at least " * (absent < self.size)  # it is decided before all have answered
        return f"{at_least}{absent} of {self.size} {masters} did not vote, and a majority is {self.need}"

    @property
    def misconfigured(self) -> bool:
        """No majority is possible without the masters that refuse until somebody changes a setting."""
        absent = sum(1 for entry in self.entries if entry is not None and entry[3])
        return self.size - absent < self.need

    def votes(self) -> tuple[Vote, ...]:
        return tuple(
            Vote(name, "pending", None, "decided without it")
            if entry is None
            else Vote(name, entry[0], entry[1], entry[2])
            for name, entry in zip(self.masters, self.entries, strict=True)
        )


def _may_change(entry: Entry) -> bool:
    """Whether a release may turn this vote into a grant."""
    part = OUTCOMES[entry[0]]
    return not (entry[0] == "granted" or entry[3] or (part.took == "absent" and part.heard))
