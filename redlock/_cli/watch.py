"""Checking again and again: redrawn in place on a terminal, and what has changed, with the time."""

from __future__ import annotations

import shutil
import sys
import time
from collections import deque
from typing import TYPE_CHECKING

from redlock._cli import table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from redlock import Health, MasterHealth

_REMEMBERED = 8     # changes
_CLEAR, _HOME, _TO_THE_END = "\x1b[2J", "\x1b[H", "\x1b[J"
_HIDE, _SHOW, _REST_OF_LINE = "\x1b[?25l", "\x1b[?25h", "\x1b[K"


def watch(check: Callable[[], Health], every: float, style: table.Style) -> Health:
    """Until Ctrl-C.  Returns the last one."""
    before: Health | None = None
    last: Health | None = None
    known: dict[str, str] = {}      # the last process that was seen behind each address
    history: deque[str] = deque(maxlen=_REMEMBERED)
    if style.terminal:
        sys.stdout.write(_HIDE + _CLEAR)
    try:
        while True:
            begun = time.monotonic()
            health = last = check()
            news = [] if before is None else [*restarts(known, health), *changes(before, health)]
            known.update((master.name, master.run_id) for master in health.masters if master.run_id)
            stamp = time.strftime("%H:%M:%S")
            history.extend(f"{stamp}  {text}" for _, text in news)
            if style.terminal:
                _redraw(health, style, frozenset(name for name, _ in news), history, every)
            elif before is None:
                print("\n".join(table.lines(health, style)), flush=True)  # noqa: T201
            else:
                for _, text in news:
                    print(f"{stamp}  {text}", flush=True)  # noqa: T201
            before = health
            time.sleep(max(0.0, every - (time.monotonic() - begun)))
    except KeyboardInterrupt:
        if last is None:
            raise
        return last
    finally:
        if style.terminal:
            sys.stdout.write(_SHOW)
            sys.stdout.flush()


def _redraw(
    health: Health, style: table.Style, changed: frozenset[str], history: deque[str], every: float
) -> None:
    report = [f"Every {every:g} s, Ctrl-C ends it.   {time.strftime('%H:%M:%S')}", ""]
    report += table.lines(health, style, changed)
    if history:
        report += ["", style.paint("Changes", "bold"), *history]
    room = shutil.get_terminal_size().lines - 1
    sys.stdout.write(_HOME + "".join(f"{line}{_REST_OF_LINE}\n" for line in report[:room]) + _TO_THE_END)
    sys.stdout.flush()


def changes(before: Health, after: Health) -> Iterator[tuple[str, str]]:
    """What is different: the master it is about ("" for the quorum), and a line for people."""
    if before.status != after.status:
        yield "", f"{before.status} -> {after.status}: {after.quorum.voting} of {after.quorum.size} masters vote"
    for old, new in zip(before.masters, after.masters, strict=True):
        for text in _of_a_master(old, new):
            yield new.name, f"{new.name}: {text}"
    yield from (("", f"the quorum: {text}") for text in _of_findings(before, after))


def restarts(known: Mapping[str, str], health: Health) -> Iterator[tuple[str, str]]:
    """Masters that are another process than the last that was seen there, perhaps long ago."""
    for master in health.masters:
        if master.run_id and known.get(master.name, master.run_id) != master.run_id:
            yield master.name, f"{master.name}: it is another process than before, so it was restarted"


def _of_a_master(old: MasterHealth, new: MasterHealth) -> Iterator[str]:
    if old.role and new.role and old.role != new.role:
        yield f"{old.role} -> {new.role}"
    if old.votes != new.votes:
        yield "votes again" if new.votes else "does not vote any more"
    yield from _of_findings(old, new)


def _of_findings(old: Health | MasterHealth, new: Health | MasterHealth) -> Iterator[str]:
    was = {finding.code for finding in old.findings}
    now = {finding.code: finding for finding in new.findings}
    yield from (f"{code}: {finding.message}" for code, finding in now.items() if code not in was)
    yield from (f"{code} is over" for code in sorted(was - now.keys()))
