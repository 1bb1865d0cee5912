"""What a tally says beyond the majority: whether to wait, for which masters, and the text for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redlock.errors import OUTCOMES

if TYPE_CHECKING:
    from redlock._core.kernel.quorum import Tally


def explain(tally: Tally) -> str:
    """Explain `Tally.unreachable` to people."""
    absent = tally.absent()
    masters = "masters" if tally.size > 1 else "master"
    at_least = "at least " * (absent < tally.size)  # it is decided before all have answered
    return f"{at_least}{absent} of {tally.size} {masters} did not vote, and a majority is {tally.need}"


def outage(tally: Tally) -> bool:
    """`Tally.unreachable` for every name.  A master that only objects to the keys of this name is reachable."""
    there = sum(1 for entry in tally.entries if entry is not None and entry[4])
    return tally.unreachable and tally.size - tally.absent() + there < tally.need


def misconfigured(tally: Tally) -> bool:
    """No majority is possible without the masters that refuse until a setting is changed."""
    absent = sum(1 for entry in tally.entries if entry is not None and entry[3])
    return tally.size - absent < tally.need


def perhaps_denied(tally: Tally) -> bool:
    """The masters that did not vote could have made a majority with those that say that the key is not ours."""
    return tally.number("held") + tally.absent() >= tally.need


def in_the_way(tally: Tally) -> list[int]:
    """Masters that said no in a lost round: unless one of them changes its answer, the next round is lost too.

    Not those that answer without a vote (quarantined), or have a wrong configuration: no release changes their answers.
    """
    votes = ((master, entry, OUTCOMES[entry[0]]) for master, entry in enumerate(tally.entries) if entry is not None)
    return [
        master
        for master, entry, part in votes
        if not (entry[0] == "granted" or entry[3] or (part.took == "absent" and part.heard))
    ]


def bare(tally: Tally) -> bool:
    """Whether no more than a bare majority is known to have granted it by now, and not all masters (R37)."""
    return tally.yes + tally.late.bit_count() <= tally.need < tally.size


def lacking(tally: Tally) -> list[int]:
    """The masters that are not known to have granted it by now (R37)."""
    return [one for one in range(tally.size) if not tally.late >> one & 1 and tally.outcome(one) != "granted"]


def has_voted(tally: Tally, master: int) -> bool:
    entry = tally.entries[master]
    return entry is not None and OUTCOMES[entry[0]].took == "voted"


def took(tally: Tally) -> float:
    """Seconds until the last answer that was counted; 0 if there was none."""
    return max((entry[1] or 0.0 for entry in tally.entries if entry is not None), default=0.0)
