"""A `Health` as a table for people: aligned, and coloured on a terminal."""

from __future__ import annotations

import os
import re
import shutil
import textwrap
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redlock import Finding, Health, MasterHealth, MastersList, Probe

_COLOURS = {
    "OK": "32",
    "WARNING": "33",
    "CRITICAL": "31",
    "UNKNOWN": "35",
    "warning": "33",
    "critical": "31",
    "dim": "2",
    "bold": "1",
}
_NARROW = 60  # columns: lines are never broken to less than this


class Style:
    """How to print to one stream. Colours only on a terminal, and not if NO_COLOR is set."""

    def __init__(self, stream: TextIO) -> None:
        self.terminal = stream.isatty() and os.environ.get("TERM") != "dumb"  # a terminal that knows escape sequences
        self.coloured = self.terminal and not os.environ.get("NO_COLOR")

    @property
    def width(self) -> int:
        """The columns at which lines are broken. 0: they are not broken, so that programs can search them."""
        if not self.terminal and not os.environ.get("COLUMNS", "").isdigit():
            return 0
        return max(_NARROW, shutil.get_terminal_size((100, 24)).columns - 1)

    def paint(self, text: str, how: str) -> str:
        return f"\x1b[{_COLOURS[how]}m{text}\x1b[0m" if self.coloured else text


def lines(health: Health, style: Style, changed: frozenset[str] = frozenset()) -> list[str]:
    """The whole report. ``changed``: the names of masters to mark."""
    quorum = health.quorum
    head = (
        f"{quorum.voting} of {quorum.size} masters vote, "
        f"{quorum.majority} {'are' if quorum.majority > 1 else 'is'} needed"
    )
    behind = "" if style.terminal else f" | {_performance(health)}"
    report = [f"{style.paint(health.status, health.status)}: {head}{behind}", ""]
    report += _table(health.masters, style, changed)
    if len(health.fleet) > 1:
        report += ["", *(line for one in health.fleet for line in _broken("", in_use(one), style))]
    report += _findings(health, style)
    if quorum.probe is not None and (quorum.probe.ok or quorum.voting < quorum.majority):
        report += ["", *_broken("", _of_the_probe(quorum.probe), style)]
    return [*report, "", *_broken(f"{health.status}: ", health.summary, style, health.status)]


def in_use(one: MastersList) -> str:
    """A list of masters of clients (R34)."""
    who = "several clients have" if one.several else "one client has"
    gives_way = "; it is refused, and gets no lock until the others are gone" if one.refused else ""
    return f"In use: {who} {', '.join(one.masters)} (seen {one.seen_s:g} s ago){gives_way}."


def _performance(health: Health) -> str:
    """Performance data of the Monitoring Plugins: label=value[unit];warn;crit;min;max. ``3:`` alerts below 3."""
    quorum = health.quorum
    size, need, probe = quorum.size, quorum.majority, quorum.probe
    figures = [f"voting={quorum.voting};{size}:;{need}:;0;{size}", f"can_lose={quorum.can_lose};1:;;0;{size - need}"]
    slowest = max((master.latency_ms for master in health.masters if master.latency_ms is not None), default=None)
    if slowest is not None:
        figures.append(f"round_trip={_plain(slowest / 1000)}s;;;0;")
    if probe is not None and probe.ok:
        figures.append(f"probe={_plain(probe.seconds)}s;;;0;")
    return " ".join(figures)


def _plain(seconds: float) -> str:
    """Seconds as text, to the microsecond and without an exponent."""
    return f"{seconds:.6f}".rstrip("0").rstrip(".") if seconds >= 1e-6 else "0"  # noqa: PLR2004


def _table(masters: Sequence[MasterHealth], style: Style, changed: frozenset[str]) -> list[str]:
    rows: list[tuple[str, ...]] = [
        ("MASTER", "VOTES", "ROUND TRIP", "SERVER", "UP", "PERSISTENCE", "EVICTION", "MEMORY", "CLOCK")
    ]
    rows += [_row(master) for master in masters]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    right = (2, 4, 8)  # columns of figures are aligned to the right
    table = []
    for number, row in enumerate(rows):
        cells = [
            cell.rjust(width) if column in right else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        mark = "  "
        if number:
            master = masters[number - 1]
            mark = "> " if master.name in changed else "  "
            level = _worst(master)
            cells[1] = style.paint(cells[1], level)
            if master.name in changed:
                cells[0] = style.paint(cells[0], "bold")
        line = mark + "  ".join(cells).rstrip()
        table.append(line if number else style.paint(line, "dim"))
    return table


def _row(master: MasterHealth) -> tuple[str, ...]:
    return (
        master.name,
        _vote(master),
        "-" if master.latency_ms is None else _ms(master.latency_ms),
        f"{master.flavour} {master.version}" + (f" {master.role}" if master.role != "master" else "")
        if master.version
        else "-",
        "-" if master.uptime_s is None else duration(master.uptime_s),
        {None: "-", "no": "none", "yes": f"aof {master.appendfsync or ''}".rstrip()}.get(master.appendonly, "-"),
        master.maxmemory_policy or "-",
        _memory(master),
        "-" if master.clock_offset_ms is None else _offset(master.clock_offset_ms),
    )


def _vote(master: MasterHealth) -> str:
    if master.votes:
        return "yes"
    return f"in {duration(master.quarantined_s)}" if _only_waits(master) else "no"


def _only_waits(master: MasterHealth) -> bool:
    critical = [finding.code for finding in master.findings if finding.level == "critical"]
    return critical == ["recently-restarted"]


def _worst(master: MasterHealth) -> str:
    levels = {finding.level for finding in master.findings}
    return "critical" if "critical" in levels else "warning" if levels else "OK"


def _memory(master: MasterHealth) -> str:
    if master.used_memory is None:
        return "-"
    used = _bytes(master.used_memory)
    return f"{used} of {_bytes(master.maxmemory)}" if master.maxmemory else used


def _bytes(number: int) -> str:
    size = float(number)
    for unit in ("B", "K", "M", "G"):
        if size < 1000:  # noqa: PLR2004
            return f"{size:.3g}{unit}"
        size /= 1024
    return f"{size:.3g}T"


def _ms(ms: float) -> str:
    return f"{ms:.2f} ms" if ms < 1 else f"{ms:.1f} ms"


def _offset(ms: float) -> str:
    if abs(ms) < 0.05:  # noqa: PLR2004 - it would be shown as 0.0
        return "0 ms"
    return f"{ms:+.1f} ms" if abs(ms) < 1000 else f"{ms / 1000:+.3g} s"  # noqa: PLR2004


def duration(seconds: float) -> str:
    """A short text, in the largest unit that it has at least two of."""
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def _findings(health: Health, style: Style) -> list[str]:
    """The findings of the quorum, then the findings of masters. A finding that several masters share is shown once."""
    report = []
    shared: dict[tuple[str, ...], tuple[Finding, list[str]]] = {}
    for where, findings in [("the quorum", health.findings), *((one.name, one.findings) for one in health.masters)]:
        for finding in findings:
            # Findings that differ only in figures count as one: the table has the figures of each master.
            key = (finding.level, finding.code, re.sub(r"\d+", "", finding.message), finding.advice)
            shared.setdefault(key, (finding, []))[1].append(where)
    for finding, names in shared.values():
        where = style.paint(", ".join(names), "bold")
        report += ["", f"{style.paint(finding.level, finding.level)} for {where}  [{finding.code}]"]
        report += _broken("  ", finding.message, style)
        report += _broken("  -> ", finding.advice, style)
    return report


def _of_the_probe(probe: Probe) -> str:
    if probe.ok:
        how = "was acquired, extended and released"
        return f"A real lock {how} in {probe.seconds * 1000:.1f} ms (fence {probe.fence})."
    return f"A real lock was {probe.error}."


def _broken(mark: str, text: str, style: Style, how: str = "") -> list[str]:
    """``text`` after ``mark``, broken into lines. ``how``: the colour of the mark."""
    shown = style.paint(mark, how) if how else mark
    if not style.width:
        return [shown + text]
    indent = " " * len(mark) if not mark.strip() or mark.startswith(" ") else "  "
    broken = textwrap.wrap(
        text,
        style.width,
        initial_indent=mark,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
        drop_whitespace=True,
    )
    return [shown + broken[0][len(mark) :], *broken[1:]]
