"""R32: of a group of slots no more are held at once than there are, and none whose number is too great.

That two never hold one slot is `exclusive`, for each slot is a lock by itself.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from .violation import Violation, short, stamp, violation

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ..history import History
    from .holds import Hold


def group_of(lock: str) -> tuple[str, int] | None:
    """The group of a slot, and its number; None: it is no slot."""
    name, sharp, number = lock.rpartition("#")
    return (name, int(number)) if sharp and number.isdecimal() else None


def of_groups(history: History, held: Iterable[Hold]) -> Iterator[tuple[Hold, str, int]]:
    """The holds of slots, each with its group and its number, in the order in which they began."""
    for hold in held:
        found = group_of(hold.lock)
        if found is not None and found[0] in history.header.slots:
            yield hold, *found


def slots(history: History, held: Iterable[Hold]) -> Iterator[Violation]:
    together: dict[str, list[Hold]] = defaultdict(list)
    for hold, name, number in of_groups(history, held):
        limit = history.header.slots[name]
        if number >= limit:
            yield violation(
                f"{hold.process} held slot {number} of {name!r}, which has {limit}",
                hold.start,
                hold.began,
                lock=hold.lock,
            )
        if hold.end <= hold.start:
            continue
        others = together[name] = [other for other in together[name] if other.end > hold.start]
        others.append(hold)
        if len({other.token for other in others}) > limit:
            whom = ", ".join(f"{other.process} ({other.lock!r}, {short(other.token)})" for other in others)
            yield violation(
                f"at {stamp(hold.start)} more than {limit} held a slot of {name!r}: {whom}",
                hold.start,
                *(other.began for other in others),
                lock=hold.lock,
            )
