"""``redlock-check --plan``: the steps from the masters in use to other ones. See docs/howto/masters.md."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redlock import ConfigurationError
from redlock._cli.table import in_use
from redlock._health.plan import plan

if TYPE_CHECKING:
    from collections.abc import Iterator

    from redlock import Health, MastersList
    from redlock._cli.config import WantedMasters
    from redlock._health.plan import Plan

NOW, LATER, NEVER = range(3)  # exit codes: the first step may be taken, has to wait, there is no safe way


def united(now: WantedMasters, new: WantedMasters) -> tuple[str, ...] | dict[str, str]:
    """All masters of both lists.

    Raises:
        ConfigurationError: the two cannot be compared.
    """
    if bool(now.names) != bool(new.names):
        raise ConfigurationError(
            "--plan: one list has names and the other has none, so they cannot be compared: write "
            "NAME=redis://HOST:PORT in both (docs/howto/masters.md says how to introduce names)"
        )
    if not new.names:
        return tuple(dict.fromkeys((*now.urls, *new.urls)))
    before, after = dict(zip(now.names, now.urls, strict=True)), dict(zip(new.names, new.urls, strict=True))
    for name in before.keys() & after.keys():
        if before[name] != after[name]:
            raise ConfigurationError(
                f"--plan: {name} has another address in the new list. A name stands for one server: give the new one "
                'a new name, or see "Replace a master" in docs/howto/masters.md'
            )
    return before | after


def planned(health: Health, given: tuple[str, ...], wanted: tuple[str, ...]) -> Plan:
    return plan([one for one in health.fleet if not one.refused], given, wanted, health)


def code(found: Plan) -> int:
    return NEVER if found.refused else LATER if found.waits else NOW


def lines(found: Plan, fleet: tuple[MastersList, ...], max_ttl: float) -> Iterator[str]:
    if found.refused:
        yield f"REFUSED: {found.refused}."
        return
    if not fleet:
        yield (
            "No client has announced its masters: no client runs, or all are of an earlier version or ignore the "
            "lists. "
            f"The plan begins with {', '.join(found.begins)}."
        )
    yield from map(in_use, fleet)
    yield "Clients of an earlier version announce nothing: check yourself that they have the list."
    yield ""
    if not found.steps:
        yield "Nothing is to be done: clients use that list already."
    for number, step in enumerate(found.steps, 1):
        size = len(step.masters)
        yield f"Step {number} of {len(found.steps)}: {step.change} {step.master}"
        yield f"  all clients get: {', '.join(step.masters)}  ({size} masters, {step.survives} may fail)"
        if step.change == "add":
            yield f"  before: start its server {max_ttl:g} s (max_ttl) earlier, for until then it does not vote"
        if number == 1:
            yield f"  when: {'not yet: ' + found.waits if found.waits else 'now'}"
        else:
            before = found.steps[number - 2].masters
            yield f"  when: only {', '.join(before)} is in use: run this command again to see"
        if step.change == "remove":
            yield f"  after: stop {step.master} when no list in use has it"
