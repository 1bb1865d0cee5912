"""What happened, in figures: how much was tried, what was broken, how long nobody could hold a lock."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, get_args

from .history import Phase, Store
from .judge.faults import faults
from .judge.fenced import overwritten, version_read
from .judge.holds import Hold, holds
from .judge.operations import operations

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .history import Event, History
    from .judge import Verdict


@dataclass(frozen=True, slots=True)
class OfLock:
    """Seconds.  ``longest_gap`` is the longest time without a holder, while clients were at work on it."""

    lock: str
    holds: int
    held: float
    longest_hold: float
    longest_gap: float


@dataclass(frozen=True, slots=True)
class OfStore:
    """What became of the uses of one store.

    ``stale``: accepted with a fence below one accepted before.  ``lost_updates``: accepted, and then
    overwritten by one that had not seen it; None if the history does not say which versions were read.
    """

    store: Store
    accepted: int
    refused: int
    stale: int
    lost_updates: int | None


@dataclass(frozen=True, slots=True)
class Summary:
    """``operations`` counts the events of clients by op and phase, ``faults`` by kind, ``lost`` by reason.

    Of operations as well: ``unasked`` ended without an invocation, as what the library does by itself; ``unended``
    were invoked and have no end.  So invoke + unasked = ok + fail + info + unended.
    """

    seconds: float
    events: int
    operations: dict[str, dict[str, int]]
    faults: dict[str, int]
    locks: tuple[OfLock, ...]
    lost: dict[str, int]
    stores: tuple[OfStore, ...]
    violations: dict[str, int]

    def as_dict(self) -> dict[str, object]:
        return asdict(self)


def summarize(history: History, verdict: Verdict) -> Summary:
    clients = [event for event in history.events if event.by_client]
    counted: Counter[tuple[str, Phase]] = Counter((event.op, event.phase) for event in clients)
    ops = sorted({op for op, _ in counted})
    # One fault on several targets is one.
    struck = {fault.struck.line: fault.name for fault in faults(history) if not fault.failed}
    return Summary(
        seconds=history.end - history.begin,
        events=len(history.events),
        operations={op: {phase: counted[op, phase] for phase in get_args(Phase)} | _alone(history, op) for op in ops},
        faults=dict(sorted({**dict.fromkeys(history.header.faults, 0), **Counter(struck.values())}.items())),
        locks=_locks(history, clients),
        lost=dict(
            sorted(Counter(e.reason or "unknown" for e in clients if (e.op, e.phase) == ("lost", "info")).items())
        ),
        stores=tuple(found for store in get_args(Store) if (found := _store(clients, store))),
        violations={ruling.name: ruling.count for ruling in verdict.rulings},
    )


def _alone(history: History, op: str) -> dict[str, int]:
    """How many ends have no beginning, and the reverse."""
    found = list(operations(history, op))
    return {
        "unasked": sum(one.invoke is None for one in found),
        "unended": sum(one.end is None for one in found),
    }


def _locks(history: History, clients: Sequence[Event]) -> tuple[OfLock, ...]:
    held: dict[str, list[Hold]] = {lock: [] for lock in history.header.locks}
    for hold in holds(history):
        held.setdefault(hold.lock, []).append(hold)
    times: dict[str, list[float]] = {}
    for event in clients:
        if event.lock is not None:
            times.setdefault(event.lock, []).append(event.t)
    return tuple(_lock(lock, of, times.get(lock, [])) for lock, of in held.items())


def _lock(lock: str, held: Sequence[Hold], times: Sequence[float]) -> OfLock:
    lengths = [hold.end - hold.start for hold in held]
    gap = 0.0
    if times:
        free_from = times[0]
        for hold in held:  # in the order of their beginnings
            gap = max(gap, hold.start - free_from)
            free_from = max(free_from, hold.end)
        gap = max(gap, times[-1] - free_from)
    return OfLock(lock, len(held), sum(lengths), max(lengths, default=0.0), gap)


def _store(clients: Sequence[Event], store: Store) -> OfStore | None:
    uses = [event for event in clients if (event.op, event.phase, event.store) == ("use", "ok", store)]
    accepted = [event for event in uses if event.accepted]
    stale = 0
    highest: dict[str | None, int] = {}
    for event in accepted:
        if event.fence is not None:
            stale += event.fence < highest.get(event.lock, event.fence)
            highest[event.lock] = max(event.fence, highest.get(event.lock, event.fence))
    known = all(version_read(event) is not None for event in accepted)
    if not uses:
        return None
    lost = sum(1 for _ in overwritten(accepted)) if known else None
    return OfStore(store, len(accepted), len(uses) - len(accepted), stale, lost)
