"""A verdict for a terminal."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ..history import Event, History
    from ..judge import Ruling, Steps, Verdict, Violation
    from ..summary import Summary

MOST: Final = 10  # violations of one kind that are printed; verdict.json has more


_PHASES: Final = ("invoke", "ok", "fail", "info")
_ALONE: Final = {
    "unasked": "they ended without an invocation: renewals by the library, losses that it tells, leases handed over",
    "unended": "they were invoked and never ended: their process was killed, or the record ends before",
}
_OF_FAULTS: Final = {
    "flap": "each time that links go counts",
    **dict.fromkeys(("strobe", "swing"), "each time that a clock is moved counts"),
    "machine": "this machine was too busy to run a client, which counts as a stop that was not planned",
}


def text(history: History, verdict: Verdict, summary: Summary) -> str:
    """Rulings, offending events, figures, and in the last line the outcome."""
    lines = [*_rulings(history, verdict), "", *_figures(history, summary), "", _outcome(history, verdict)]
    return "\n".join(_printable(line) for line in lines) + "\n"


def describe(event: Event) -> str:
    """One event in one line."""
    told = [
        ("lock", event.lock),
        ("token", event.token),
        ("fence", event.fence),
        ("valid_until", None if event.valid_until is None else f"{event.valid_until:.6f}"),
        ("reason", event.reason),
        ("store", event.store),
        ("accepted", event.accepted),
        ("target", ",".join(event.target) or None),
        ("keys", len(event.keys) if event.op == "inspect" else None),
        ("detail", None if event.detail is None else json.dumps(event.detail)),
    ]
    values = "  ".join(f"{name}={value}" for name, value in told if value is not None)
    return f"t={event.t:.6f}  {event.process}  {event.op} {event.phase}  {values}".rstrip()


def _rulings(history: History, verdict: Verdict) -> Iterator[str]:
    words = {"passed": "holds", "violated": "VIOLATED", "unknown": "UNKNOWN"}
    for ruling in verdict.rulings:
        demanded = "must hold" if ruling.name in verdict.must else "not demanded"
        if ruling.name in history.header.breaks:
            demanded = "as expected" if ruling.violations else "must be violated"
        count = f": {_count(ruling.count, 'violation')}" if ruling.count else ""
        note = f" ({ruling.note})" if ruling.note else ""
        yield f"{ruling.name:<10} {words[ruling.outcome]:<9} {demanded}{count}{note}"
    for ruling in verdict.rulings:
        if ruling.violations:
            yield from ("", f"{ruling.name}:", *_violations(ruling))


def of_steps(steps: Steps) -> str:
    """Whether the rules allow each step; the first of each lock that none allows."""
    if steps.note:
        return _printable(f"UNKNOWN: {steps.note}") + "\n"
    lines = [*_listed(steps.found), ""] if steps.found else []
    outcome = (
        f"VIOLATED: {_count(len(steps.found), 'lock')} took a step that no rule allows" if steps.found else "PASSED"
    )
    return "".join(f"{_printable(line)}\n" for line in (*lines, f"{outcome}: {steps.count} steps of the specification"))


def _listed(violations: Sequence[Violation]) -> Iterator[str]:
    for number, violation in enumerate(violations, start=1):
        yield f"  {number}. {violation.sentence}"
        for event in violation.events:
            yield f"       line {event.line}: {describe(event)}"


def _violations(ruling: Ruling) -> Iterator[str]:
    yield from _listed(ruling.violations[:MOST])
    more = ruling.count - MOST
    if more > 0:
        has = "them all" if ruling.count == len(ruling.violations) else f"the first {len(ruling.violations)}"
        yield f"  and {more} more (--json has {has})"


def _figures(history: History, summary: Summary) -> Iterator[str]:
    header = history.header
    yield (
        f"{_count(summary.events, 'event')} in {summary.seconds:.3f} s, {_count(len(header.clients), 'client')}, "
        f"{_count(header.masters, 'master')}, TTL {header.ttl:g} s, seed {header.seed}"
    )
    if summary.operations:
        counted = summary.operations.values()
        columns = [*_PHASES, *(one for one in _ALONE if any(counts[one] for counts in counted))]
        yield from _table(
            ["operation", *columns],
            [[op, *(str(counts[column]) for column in columns)] for op, counts in summary.operations.items()],
        )
        yield from (f"  {name}: {_ALONE[name]}" for name in columns if name in _ALONE)
    if summary.faults:
        yield from _table(["fault", "times"], [[name, str(count)] for name, count in summary.faults.items()])
        yield from (f"  {name}: {why}" for name, why in _OF_FAULTS.items() if summary.faults.get(name))
    if summary.locks:
        yield from _table(
            ["lock", "holds", "held s", "longest s", "longest gap s"],
            [
                [one.lock, str(one.holds), f"{one.held:.3f}", f"{one.longest_hold:.3f}", f"{one.longest_gap:.3f}"]
                for one in summary.locks
            ],
        )
        if any(one.held > summary.seconds for one in summary.locks):
            yield "  held s: more than there were, as holds at the same time are added up"
    if summary.lost:
        yield from _table(["lost", "times"], [[reason, str(count)] for reason, count in summary.lost.items()])
    if summary.stores:
        yield from _table(
            ["store", "accepted", "refused", "stale", "lost updates"],
            [
                [
                    one.store,
                    str(one.accepted),
                    str(one.refused),
                    str(one.stale),
                    "not recorded" if one.lost_updates is None else str(one.lost_updates),
                ]
                for one in summary.stores
            ],
        )


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    widths = [max(len(row[column]) for row in (head, *rows)) for column in range(len(head))]
    yield ""
    for row in (head, *rows):
        yield "  ".join([f"{row[0]:<{widths[0]}}", *_right(row[1:], widths[1:])]).rstrip()


def _right(cells: Iterable[str], widths: Iterable[int]) -> Iterator[str]:
    return (f"{cell:>{width}}" for cell, width in zip(cells, widths, strict=True))


def _outcome(history: History, verdict: Verdict) -> str:
    cut = " (perhaps cut: the history has no footer, so it may have had more)" if history.perhaps_cut else ""
    header, idle = history.header, verdict.never_struck
    of_variant = f" (the lock is the broken variant {header.variant})" if header.variant else ""
    struck = f" ({len(idle)} of {len(header.faults)} faults never struck: {', '.join(idle)})" if idle else ""
    return _of(history, verdict) + of_variant + struck + cut


def _of(history: History, verdict: Verdict) -> str:
    if verdict.outcome == "unknown":
        return f"UNKNOWN: {verdict.why}"
    demanded = ", ".join(verdict.must) or "nothing was demanded"
    if verdict.outcome == "passed":
        return f"PASSED: {demanded}"
    broken = [one.name for one in verdict.rulings if one.outcome == "violated" and one.name in verdict.must]
    meant = history.header.breaks
    return f"VIOLATED: {', '.join(f'{name}, as expected' if name in meant else name for name in broken)}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _printable(line: str) -> str:
    """A history may be anybody's: it must not colour a line, or forge one."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in line)
