"""Which lists of masters clients use, and whether they are compatible (R34). Pure."""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING

from redlock._core.fleet import compatible, difference
from redlock._health.result import Finding, MastersList

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from redlock._health.facts import MasterFacts
    from redlock._health.records import FleetEntry

_ADVICE = (
    "give all clients the same masters, and change one at a time: redlock-check --plan shows the steps. "
    "Until then stop those that have the wrong list"
)
_GIVEN_ADVICE = (
    "give the masters that the clients use, each by the name that they give it (NAME=URL); "
    "redlock-check --plan shows the steps from that list to another one"
)
_DANGER = "two clients may hold one lock, for they have"


def lists(facts: Iterable[MasterFacts]) -> tuple[MastersList, ...]:
    """Each list that is in use on any of the masters."""
    found: dict[frozenset[str], list[tuple[MasterFacts, FleetEntry]]] = {}
    for one in facts:
        for entry in one.lists or ():
            found.setdefault(entry.names, []).append((one, entry))
    return tuple(
        MastersList(
            masters=tuple(sorted(names)),
            recorded=any(entry.status in "12" for _, entry in entries),
            refused=all(entry.status == "-" for _, entry in entries),
            several=any(entry.several for _, entry in entries),
            seen_s=round(min(max(0.0, one.asked_at - entry.seen) for one, entry in entries), 1),
            known_to=tuple(one.name for one, _ in entries),
        )
        for names, entries in sorted(found.items(), key=lambda item: sorted(item[0]))
    )


def findings(found: Sequence[MastersList], facts: Iterable[MasterFacts]) -> Iterator[Finding]:
    """A finding for each two lists that are incompatible, and one for clients that announce none beside others.

    The masters that are checked are a list as well: a client would use them.
    """
    facts = list(facts)
    given = {one.name for one in facts}
    if given not in [set(one.masters) for one in found]:
        for used in found:
            if not used.refused and not compatible(given, set(used.masters)):
                yield Finding(
                    "warning",
                    "fleet",
                    "the masters that are given here are incompatible with those that clients use: "
                    f"{difference(given, used.masters)}. If these are other servers, a client with them gets no "
                    "lock, or takes those of others; if they are the same ones, it has other names for them",
                    _GIVEN_ADVICE,
                )
    for one, other in combinations(found, 2):
        if not compatible(set(one.masters), set(other.masters)):
            first, second = sorted((one, other), key=lambda each: (each.refused, not each.recorded))
            yield Finding(
                "warning",
                "fleet",
                f"{_DANGER if not (first.refused or second.refused) else 'clients have'} masters that are "
                f"incompatible: {_who(first)} {', '.join(first.masters)}; {_who(second)} {', '.join(second.masters)}"
                f"{_only(second)}",
                _ADVICE,
            )
    silent = max((one.silent for one in facts), key=len, default=())
    if found and silent:
        several = len(silent) > 1
        hosts = ", ".join(dict.fromkeys(silent))
        yield Finding(
            "warning",
            "fleet",
            f"{len(silent)} connection{'s' if several else ''} without a name, from {hosts}, "
            f"run{'' if several else 's'} scripts, as clients of an earlier version do: these announce nothing, so "
            "their masters are unknown",
            "bring all clients to one version; other programs do not belong on these masters",
        )


def _who(one: MastersList) -> str:
    return "several clients have" if one.several else "one client has"


def _only(one: MastersList) -> str:
    if not one.refused:
        return ""
    return f", and {'get' if one.several else 'gets'} no lock until the others are gone"
