"""P1: holds of one lock with different tokens never overlap."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chaos.judge.violation import Violation, short, stamp, violation

if TYPE_CHECKING:
    from collections.abc import Iterable

    from chaos.judge.holds import Hold


def exclusive(held: Iterable[Hold]) -> list[Violation]:
    """One for every hold that began while another one, with another token, was alive."""
    found = []
    # Of each lock the hold that ends last, and the last one with another token than that: whoever overlaps
    # with any earlier one overlaps with one of these two.
    last: dict[str, tuple[Hold, Hold | None]] = {}
    for hold in sorted(held, key=lambda hold: hold.start):
        if hold.end <= hold.start:
            continue    # touching is not overlapping, and this one touches at most (C25)
        if hold.lock not in last:
            last[hold.lock] = hold, None
            continue
        first, second = last[hold.lock]
        other = second if first.token == hold.token else first
        if other is not None and hold.start < other.end:
            found.append(_overlap(other, hold))
        last[hold.lock] = _last_two(first, second, hold)
    return found


def _last_two(first: Hold, second: Hold | None, hold: Hold) -> tuple[Hold, Hold | None]:
    if hold.token == first.token:
        return (hold if hold.end > first.end else first), second
    if hold.end > first.end:
        return hold, first
    return first, hold if second is None or hold.end > second.end else second


def _overlap(one: Hold, two: Hold) -> Violation:
    seconds = min(one.end, two.end) - two.start
    return violation(
        f"{one.lock!r} was held by {one.process} ({short(one.token)}) until {stamp(one.end)} "
        f"and by {two.process} ({short(two.token)}) from {stamp(two.start)}: both for {seconds:.6f} s",
        two.start, one.began, one.renewed, two.began, lock=one.lock,
    )
