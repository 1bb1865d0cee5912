"""P1: holds of one lock with different tokens never overlap, unless both are shared (R33)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .violation import Violation, short, stamp, violation

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from .holds import Hold


def exclusive(held: Iterable[Hold]) -> Iterator[Violation]:
    """One for every hold that began while another one, with another token, was alive.

    ``held`` is in the order in which they began.
    """
    # Of each lock: the hold that ends last, and the one that is alone for longest.  A hold that overlaps with any earlier
    # one overlaps with one of these.  Holds of one token follow each other, so the same token is no overlap.
    last: dict[str, Hold] = {}
    alone: dict[str, Hold] = {}
    for hold in held:
        if hold.end <= hold.start:
            continue  # touching is not overlapping, and this one touches at most (C25)
        other, until = last.get(hold.lock), hold.start
        if hold.alone_until > hold.start:
            until = hold.start if other is None else other.end
        else:
            other = alone.get(hold.lock)
            until = hold.start if other is None else other.alone_until
        if other is not None and other.token != hold.token and hold.start < until:
            yield _overlap(other, hold, until)
        if hold.lock not in last or hold.end > last[hold.lock].end:
            last[hold.lock] = hold
        if hold.lock not in alone or hold.alone_until > alone[hold.lock].alone_until:
            alone[hold.lock] = hold


def _overlap(one: Hold, two: Hold, until: float) -> Violation:
    seconds = min(until, two.end) - two.start
    reads = "" if two.alone_until > two.start else "read "
    return violation(
        f"{one.lock!r} was held by {one.process} ({short(one.token)}) until {stamp(until)} "
        f"and {reads}by {two.process} ({short(two.token)}) from {stamp(two.start)}: both for {seconds:.6f} s",
        two.start,
        one.began,
        one.renewed,
        two.began,
        lock=one.lock,
    )
