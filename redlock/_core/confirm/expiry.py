"""Whether a name may be had, where masters have a record of its last holder (R35).  Pure, and without a clock.

If the lock key has gone and the record has not, the lease may still be valid: this master's clock may have been set, or
it may have lost the key.  One of f + 1 masters has an honest clock (f: those that are no majority).  So if f + 1 of
them show the same extension of the same lease, that one has run out.

The stamp of a record tells extensions of one lease apart: one of two masters with different stamps may have missed the
extension that still holds.  One that begins with ``r`` has no common order with others, and agrees with none.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from redlock._core.kernel.quorum import majority

if TYPE_CHECKING:
    from collections.abc import Mapping


class Record(NamedTuple):
    """A grant on one master, not released there: the stamp of its last extension, its token, and its TTL in seconds."""

    stamp: str
    token: str
    ttl: float


# By the place of a name in the lock: what a master has on record for it.  Names without a record are left out.
Records: TypeAlias = "Mapping[int, Record]"
# open: wait for more.  clean: a majority took it.  confirmed: a second round may.  held: another client has
# it.  doubt: all have answered, and it may be held.
Verdict: TypeAlias = Literal["open", "clean", "confirmed", "held", "doubt"]


class Judgement(NamedTuple):
    """What the answers of an attempt mean.  ``over``: name, stamp and token of what has run out for certain."""

    verdict: Verdict
    over: frozenset[tuple[int, str, str]] = frozenset()


def judge(masters: int, clean: int, shown: Mapping[int, Records], missing: int) -> Judgement:
    """Judge the answers of ``masters``.

    ``clean``: how many took it.  ``shown``: the records of those that took nothing.  ``missing``: how many may still
    answer.  The others refused it, or have no vote.  A judgement that is not open is final.
    """
    need = majority(masters)
    if clean >= need:
        return Judgement("clean")
    if clean + len(shown) + missing < need:
        return Judgement("held")
    if clean + len(shown) >= need:
        over = _over(masters - need, shown)
        dismissed = sum(all((name, *one[:2]) in over for name, one in records.items()) for records in shown.values())
        if clean + dismissed >= need:
            return Judgement("confirmed", over)
    return Judgement("open" if missing else "doubt")


def _over(wrong: int, shown: Mapping[int, Records]) -> frozenset[tuple[int, str, str]]:
    """What more masters show alike than may be ``wrong`` about time."""
    alike = Counter((name, one.stamp, one.token) for records in shown.values() for name, one in records.items())
    return frozenset(one for one, times in alike.items() if times > wrong and not (wrong and one[1].startswith("r")))
