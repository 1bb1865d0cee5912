"""The steps from the lists of masters that are in use to another one (R34). Pure.

A step adds one address, or removes one: the lists before and after it are compatible, so clients may have either
while it is deployed. The next step has to wait until the list before is gone, for lists that are two steps apart are
incompatible.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

from redlock._core.fleet import compatible, difference
from redlock._core.kernel.quorum import majority

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redlock._health.result import Health, MastersList


@dataclass(frozen=True, slots=True)
class MastersChange:
    """``change``: ``add`` or ``remove`` ``master``. ``masters``: the list that all clients have then.

    ``survives``: how many more of these may fail.
    """

    change: str
    master: str
    masters: tuple[str, ...]
    survives: int


@dataclass(frozen=True, slots=True)
class Plan:
    """``refused``: why there is no safe way now. ``waits``: why the first step may not be taken yet."""

    begins: tuple[str, ...]
    steps: tuple[MastersChange, ...]
    refused: str = ""
    waits: str = ""


def plan(alive: Sequence[MastersList], given: Sequence[str], wanted: Sequence[str], health: Health) -> Plan:
    """``alive``: the lists in use. ``given``: the list that is said to be in use. ``health``: of all these masters."""
    new, now = set(wanted), set(given)
    lists = [set(one.masters) for one in alive]
    refused = _refused(alive, now, new, health)
    if refused:
        return Plan(tuple(sorted(now)), (), refused)
    # While a step is under way, the next steps begin at the list that is nearer to the goal.
    begins = min(lists, key=lambda one: (len(one ^ new), sorted(one)), default=now)
    down = {master.name for master in health.masters if not master.reachable}
    steps, here = [], set(begins)
    while here != new:
        add, remove = sorted(new - here), sorted(here - new, key=lambda name: (name not in down, name))
        if add and (len(here) % 2 or not remove):
            change, master = "add", add[0]
            here = here | {master}
        else:
            change, master = "remove", remove[0]
            here = here - {master}
        survives = len(here - down) - majority(len(here))
        if change == "remove" and survives < 0:
            text = f"without {master} only {len(here - down)} of {len(here)} masters would be up, which is no majority"
            return Plan(tuple(sorted(begins)), (), f"{text}. Start {', '.join(sorted(here & down))} first")
        steps.append(MastersChange(change, master, tuple(sorted(here)), survives))
    waits = ""
    if steps:
        behind = [one for one in lists if not compatible(one, set(steps[0].masters))]
        if behind:
            waits = "; and ".join(f"clients still have {', '.join(sorted(one))}" for one in behind)
    return Plan(tuple(sorted(begins)), tuple(steps), waits=waits)


def _refused(alive: Sequence[MastersList], now: set[str], new: set[str], health: Health) -> str:
    for one, other in combinations([set(one.masters) for one in alive], 2):
        if not compatible(one, other):
            return (
                "clients use masters that are incompatible already, so no step is safe: "
                f"{difference(one, other)}. Stop those that have the wrong list first"
            )
    for used in alive:
        if not compatible(set(used.masters), now):
            return (
                f"clients use another list than the one that is given here: {difference(now, used.masters)}. Give the "
                "masters that they use"
            )
    by_name = {master.name: master for master in health.masters}
    for name in sorted(new - now):
        for finding in by_name[name].findings:
            if finding.code == "duplicate":
                return f"{name}: {finding.message}. One server under two names has one vote: give a server of its own"
            if finding.level == "critical" and finding.code != "recently-restarted":
                return f"the new master {name} cannot vote: {finding.message}. Next: {finding.advice}"
    return ""
