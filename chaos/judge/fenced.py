"""P2: fences are unique, they grow in the order of the grants, and the store that checks them was not fooled."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .operations import operations
from .violation import Violation, short, stamp, violation

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ..history import Event, History


def fenced(history: History) -> Iterator[Violation]:
    """Judges those grants that have a fence; see `without_fence`."""
    grants: dict[str, list[tuple[float, Event]]] = {}  # of each lock, with the time of the invocation
    for operation in operations(history, "acquire"):
        end = operation.end
        if end is not None and end.phase == "ok" and end.lock is not None and end.fence is not None:
            grants.setdefault(end.lock, []).append((operation.began, end))
    for lock, granted in grants.items():
        yield from _unique(lock, [event for _, event in granted])
        yield from _ordered(lock, granted)
    yield from _stored(history)


def without_fence(history: History) -> list[Event]:
    """The grants that nothing can be said about."""
    return [e for e in history.events if (e.op, e.phase) == ("acquire", "ok") and e.by_client and e.fence is None]


def _unique(lock: str, granted: Iterable[Event]) -> Iterator[Violation]:
    first: dict[int | None, Event] = {}
    for event in granted:
        other = first.setdefault(event.fence, event)
        if other is not event:
            yield violation(
                f"fence {event.fence} of {lock!r} was given twice: to {other.process} ({short(other.token)}) "
                f"and to {event.process} ({short(event.token)})",
                event.t,
                other,
                event,
                lock=lock,
            )


def _ordered(lock: str, granted: list[tuple[float, Event]]) -> Iterator[Violation]:
    """Of two acquires that overlap in time either may come first; ``granted`` is in the order of their ends."""
    highest: Event | None = None
    ended = iter(granted)
    following = next(ended, None)
    for began, event in sorted(granted, key=lambda one: one[0]):
        while following is not None and following[1].t < began:
            if highest is None or _fence(following[1]) > _fence(highest):
                highest = following[1]
            following = next(ended, None)
        # Equal ones are found above.
        if highest is not None and _fence(highest) > _fence(event):
            yield violation(
                f"{event.process} was given fence {event.fence} of {lock!r}, though {highest.process} had been "
                f"given {highest.fence} at {stamp(highest.t)}, before this acquire began at {stamp(began)}",
                event.t,
                highest,
                event,
                lock=lock,
            )


def _stored(history: History) -> Iterator[Violation]:
    """What the store that checks fences let in.

    The order is that of the store where it is known, by the version that each use has read: a client may
    be stopped between the store's answer and its own record of it.
    """
    accepted: dict[str | None, list[Event]] = {}
    for event in accepted_uses(history, "fenced"):
        accepted.setdefault(event.lock, []).append(event)
    for lock, uses in accepted.items():
        versions = [version_read(event) for event in uses]
        if all(version is not None for version in versions):
            uses = sorted(uses, key=lambda event: version_read(event) or 0)  # noqa: PLW2901
        name = "the fenced store" if lock is None else f"the fenced store of {lock!r}"
        highest: Event | None = None
        for event in uses:
            if highest is not None and _fence(event) < _fence(highest):
                yield violation(
                    f"{name} accepted fence {event.fence} of {event.process}, after {highest.fence} of {highest.process}",
                    event.t,
                    highest,
                    event,
                    lock=lock,
                )
            else:
                highest = event
        for other, event in overwritten(uses):
            yield violation(
                f"{name} lost the update of {other.process} (fence {other.fence}): that of {event.process} "
                f"(fence {event.fence}) is based on the same version {version_read(event)}",
                event.t,
                other,
                event,
                lock=lock,
            )


def accepted_uses(history: History, store: str) -> list[Event]:
    return [e for e in history.events if (e.op, e.phase) == ("use", "ok") and e.store == store and e.accepted]


def overwritten(uses: Iterable[Event]) -> Iterator[tuple[Event, Event]]:
    """Pairs of accepted uses of one lock that are based on the same version: the former update is lost."""
    based: dict[tuple[str | None, int], Event] = {}
    for event in uses:
        version = version_read(event)
        if version is not None:
            other = based.get((event.lock, version))
            if other is not None:
                yield other, event
            based[event.lock, version] = event


def version_read(event: Event) -> int | None:
    """The version that this read-modify-write has read; every accepted one makes it greater by one."""
    read = event.detail.get("read") if isinstance(event.detail, dict) else None
    return read if isinstance(read, int) and not isinstance(read, bool) else None


def _fence(event: Event) -> int:
    assert event.fence is not None  # noqa: S101 - the reader sees to it
    return event.fence
