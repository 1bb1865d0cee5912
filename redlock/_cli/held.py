"""``redlock-check --held``: all locks that are held, as a table for people or as JSON for programs.

At most ``limit`` of them are kept, whatever their number. Names and owners are foreign text: they are printed
without control characters.
"""

from __future__ import annotations

import heapq
import json
import math
from itertools import count
from typing import TYPE_CHECKING, Any

from redlock import Masters, QuorumUnreachable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from redlock import LockStatus
    from redlock._cli.config import WantedMasters
    from redlock._cli.table import Style

_NODE_TIMEOUT = 0.25  # the default of `Masters`
_WIDEST = 60  # characters of a name or owner on a terminal
_DIGITS = 8  # of a token


def listed(wanted: WantedMasters, match: str, limit: int, timeout: float) -> Listed:
    """The first locks in the order of their names.

    If too few masters vote yet (R21), the locks are those that all masters have now. `Listed.not_voting` names the
    masters that do not vote yet: they may have forgotten locks that are held.

    Raises:
        ConfigurationError: the pattern or an option cannot be right.
        QuorumUnreachable: too few masters answered, or allowed it.
    """
    # A client announces its `max_ttl` (R21). The least that is allowed changes nothing for other clients.
    least = 3 * wanted.options.get("node_timeout", _NODE_TIMEOUT)
    options = {"max_ttl": least, **wanted.options, "agreement": "ignore", "connect_timeout": timeout}
    for of_locks in ("confirm_expiry", "guard"):  # a list needs neither
        options.pop(of_locks, None)
    size = len(wanted.urls)
    with Masters(wanted.masters, **options) as masters:
        try:
            return Listed(size, masters.held(match), limit)
        except QuorumUnreachable as error:
            if not any(vote.outcome == "quarantined" for vote in error.votes):
                raise
        not_voting = {
            master.name: master.quarantined_s
            for master in masters.check(timeout=timeout, probe=False).masters
            if master.quarantined_s
        }
    with Masters(wanted.masters, **{**options, "restart_guard": False}) as masters:
        return Listed(size, masters.held(match), limit, not_voting)


def advice(error: QuorumUnreachable) -> str:
    """What to do where the user lacks rights, on a line of its own."""
    if not any(vote.reason.startswith(("NOPERM", "not permitted")) for vote in error.votes):
        return ""
    return "\nredlock-check --acl --held prints the rule with all that this takes"


class Listed:
    """The first locks of ``found``, and how many there are.

    Attributes:
        not_voting: for how many seconds masters without which there was no majority do not vote yet.
    """

    def __init__(
        self, masters: int, found: Iterable[LockStatus], limit: int, not_voting: Mapping[str, float] | None = None
    ) -> None:
        self._masters = masters
        self.not_voting = dict(not_voting or {})
        number = count()
        numbered = ((_order(status.name), next(number), status) for status in found)
        self._locks = [status for _, _, status in heapq.nsmallest(limit, numbered)]
        self._total = next(number)

    def as_dict(self) -> dict[str, Any]:
        return {
            "schema": 1,
            "size": self._masters,
            "total": self._total,
            "not_voting": self.not_voting,
            "locks": [
                {
                    "name": status.name,
                    "owner": status.owner,
                    "released": status.released,
                    "in_doubt": status.in_doubt,
                    "token": status.token,
                    "shared": list(status.shared),
                    "remaining_s": round(status.remaining, 3) if math.isfinite(status.remaining) else None,
                    "fence": status.fence,
                    "masters": _masters(status),
                    "waiters": status.waiters,
                }
                for status in self._locks
            ],
        }

    def json(self) -> str:
        return json.dumps(self.as_dict(), indent=2)

    def lines(self, style: Style) -> list[str]:
        widest = _WIDEST if style.terminal else 0
        rows = [("NAME", "OWNER", "ENDS IN", "MASTERS", "WAIT")]
        rows += [
            (
                _cut(printed(status.name), widest),
                _cut(_owner(status), widest),
                _ends_in(status),
                f"{_masters(status)} of {self._masters}",
                "-" if status.waiters is None else str(status.waiters),
            )
            for status in self._locks
        ]
        widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
        table = [
            f"{name:<{widths[0]}}  {owner:<{widths[1]}}  {ends:>{widths[2]}}  {on:>{widths[3]}}  {wait:>{widths[4]}}"
            for name, owner, ends, on, wait in rows
        ]
        said = f"{self._total} lock{'' if self._total == 1 else 's'}"
        if self._total > len(self._locks):
            said += f", of which the first {len(self._locks)} are shown: see --limit"
        notes = self._notes()
        if not self._locks:
            return [said, *notes]
        return [style.paint(table[0], "dim"), *table[1:], "", said, *notes]

    def _notes(self) -> list[str]:
        if not self.not_voting:
            return []
        young = f"{len(self.not_voting)} of {self._masters} masters"
        seconds = max(self.not_voting.values())
        return [
            "",
            f"{young} were started a short while ago and do not vote yet: {', '.join(self.not_voting)}.",
            "Locks that they have forgotten may still be held, and are not in this list.",
            f"No lock can be taken until more masters vote, in {seconds:.0f} s at the latest.",
        ]


def _order(name: str) -> tuple[str, int]:
    """Slots of one group come together, in the order of their numbers (R32)."""
    group, sharp, slot = name.rpartition("#")
    return (group, int(slot)) if sharp and slot.isdecimal() and len(slot) < len("100") else (name, -1)


def printed(text: str) -> str:
    """``text`` on one line, without anything that a terminal would obey."""
    return text if text.isprintable() else repr(text)[1:-1]


def _owner(status: LockStatus) -> str:
    if status.shared:
        who = status.readers[0] or f"(token {status.shared[0][:_DIGITS]}…)"
        more = len(status.shared) - 1
        return f"{who} and {more} more, shared" if more else f"{who}, shared"
    if status.token is None:
        return "(no majority)"
    if status.in_doubt:
        return "(no client: in doubt)"
    token = status.token.removeprefix("released:")
    who = status.owner or f"(token {token[:_DIGITS]}{'…' if len(token) > _DIGITS else ''})"
    return f"{who}, released" if status.released else who


def _ends_in(status: LockStatus) -> str:
    if status.token is None and not status.shared:
        return "-"
    return f"{status.remaining:.1f} s" if math.isfinite(status.remaining) else "never"


def _masters(status: LockStatus) -> int:
    return sum(vote.outcome == "held" for vote in status.votes)


def _cut(text: str, widest: int) -> str:
    return text if not widest or len(text) <= widest else f"{text[: widest - 1]}…"
