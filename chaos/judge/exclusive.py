"""P1: holds of one lock with different tokens never overlap."""

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
    # Of each lock the hold that ends last: whoever overlaps with any earlier one overlaps with that.  If it
    # has the same token there is none, for holds of one token follow each other.
    last: dict[str, Hold] = {}
    for hold in held:
        if hold.end <= hold.start:
            continue  # touching is not overlapping, and this one touches at most (C25)
        other = last.get(hold.lock)
        if other is not None and other.token != hold.token and hold.start < other.end:
            yield _overlap(other, hold)
        if other is None or hold.end > other.end:
            last[hold.lock] = hold


def _overlap(one: Hold, two: Hold) -> Violation:
    seconds = min(one.end, two.end) - two.start
    return violation(
        f"{one.lock!r} was held by {one.process} ({short(one.token)}) until {stamp(one.end)} "
        f"and by {two.process} ({short(two.token)}) from {stamp(two.start)}: both for {seconds:.6f} s",
        two.start,
        one.began,
        one.renewed,
        two.began,
        lock=one.lock,
    )
