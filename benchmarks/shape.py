"""What one acquire and its release cost, counted instead of timed; and how large the house is.

    python -m benchmarks shape [--write]

Five masters; nobody else wants the lock.  The masters are scripted, and all clocks stand still (`benchmarks.scripted`):
two runs on one version of Python say the same.

functions   of redlock/ that one warm acquire in a thread enters.  Each counts once, however often it is called, so
            nothing is counted for each of five masters.  Comprehensions are no functions.
files       with these functions.
changes     of folder, for a reader who follows the calls: in the order of first calls, back to the caller of each
            function, and from there into it.  Each of these two steps may lead into another folder.
bytecodes   of one acquire and its release in that thread: of all Python code, the standard library and the event loop
            included.  Of 64 tasks: those of all, by the number of pairs.  The bare loops send the same bytes.
calls       of the kernel for the same: to send, to receive, to wait, and to wake a thread.
new lock    bytecodes of making a lock and of its first pair, beyond a pair of an old lock.
lines       of Python, empty ones included: those that people write, and those that `tools.unasync` makes of them.
reaches     into private attributes of others, in redlock/: SLF001 of ruff, whatever is excused.

Budgets are in this file, with their reasons.  Lines have room above theirs: within it this command warns, so five lines
of a mend need nothing else.  Above budget and room the exit code is 1.  A budget goes down with what is made smaller;
only a change of this file that says what is worth it raises one.  Bytecodes and kernel calls of a task have none: they
are to be seen, but the time of a pair does not follow them.  `--write` keeps the figures of this run in shape.json, to
be shown beside later ones.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import platform
import statistics
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from benchmarks.counter import HOUSE, Counter
from benchmarks.scripted import MASTERS, scripted, standstill, urls, warming
from benchmarks.workers.bare_protocols import BareProtocols
from benchmarks.workers.bare_sockets import BareSockets, Commands
from redlock import AsyncMasters, Masters
from redlock._core.kernel.quorum import majority
from tools.unasync import HEAD

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from benchmarks.scripted import Master

TITLE: Final = "What one acquire and its release cost, counted: functions, bytecodes, calls of the kernel; and lines"
KEPT: Final = Path(__file__).with_suffix(".json")
VERSION: Final = "{}.{}".format(*sys.version_info)  # another one has other bytecodes
TTL: Final = 10.0
# Nothing is announced when time goes on: the masters know no such script.
ALONE: Final[dict[str, Any]] = {"restart_guard": False, "agreement": "ignore", "max_ttl": 3600.0}
PAIRS: Final = 16  # of each kind

Figures: TypeAlias = dict[str, int]
Pair: TypeAlias = "tuple[Callable[[], Any], Callable[[], Any]]"


class Budget(NamedTuple):
    """The most that a figure may be."""

    most: int
    why: str
    room: int = 0  # so much above it is a warning


LINES: Final[dict[str, tuple[str, Budget | None]]] = {
    "functions": (
        "functions of an acquire in a thread",
        Budget(48, "more than that nobody follows"),
    ),
    "files": (
        "files of an acquire in a thread",
        Budget(20, "each is opened by whoever follows an acquire; six are the kernel"),
    ),
    "changes": (
        "changes of folder of an acquire in a thread",
        Budget(
            32, "rooms are cut by subject; a third of these steps leads into the kernel, a folder of its own, and back"
        ),
    ),
    "thread": ("bytecodes of a pair in a thread", None),
    "task": ("bytecodes of a pair in a task alone", None),
    "tasks": ("bytecodes of a pair in one of 64 tasks", None),
    "new lock": ("bytecodes of a new lock, beyond an old one", None),
    "thread calls": (
        "calls of the kernel of a pair in a thread",
        Budget(22, "those of a loop on bare sockets: a call of the kernel is what a pair takes its time for"),
    ),
    "task calls": ("calls of the kernel of a pair in a task alone", Budget(26, "as above, and two that wake the loop")),
    "lines": (
        "written lines of core, I/O and locks",
        Budget(
            14_900,
            "the kernel is 900 of these; what is around it has clock rates (R43), functions (R44), waiting that is reported (R45) and leases taken over from a text (R46)",
            room=200,
        ),
    ),
    "made lines": ("lines made of them by tools.unasync", None),
    "test lines": (
        "lines of tests",
        Budget(
            52_800,
            "one simulation, scenes and tables took the place of tests of real servers: 65,000 lines before",
            room=200,
        ),
    ),
    "reaches": (
        "reaches into private attributes of others",
        Budget(
            32,
            "each is a door that its owner cannot see: six lead into APScheduler, four into a term of an election, four ask "
            "whether a lock is held by its own thread, two lead from a lease that is resumed to its masters",
        ),
    ),
}


# -- what is counted ---------------------------------------------------------------------------------------------------


def in_a_thread() -> Figures:
    with scripted() as wired, Masters(urls(), **ALONE) as masters, standstill():
        old = masters.lock("old", ttl=TTL)
        for _ in warming(wired):
            assert old.acquire() is not None
            old.release()
        walker = Counter()
        with walker.counting():
            old.acquire()
        old.release()
        pair, calls, python = _median(lambda: _of(old))
        new, _, _ = _median(lambda: _of(masters.lock("new", ttl=TTL)))
    return {**walker.walk(), "thread": pair, "new lock": new - pair, "thread calls": calls, "thread python": python}


def on_bare_sockets() -> Figures:
    with scripted() as wired:
        pair = _bare(BareSockets([master.wire for master in wired], majority(MASTERS)))
        for _ in warming(wired):
            pair[0]()
        bytecodes, calls, _ = _median(lambda: pair)
    return {"bare thread": bytecodes, "bare thread calls": calls}


async def in_tasks(number: int) -> Sequence[int]:
    with scripted() as wired:
        async with AsyncMasters(urls(), **ALONE) as masters:
            with standstill():
                return await _mean([_of(masters.lock(f"lock-{one}", ttl=TTL)) for one in range(number)], wired)


async def on_bare_protocols() -> Sequence[int]:
    with scripted() as wired:
        bare = BareProtocols(majority(MASTERS))
        await bare.use([master.wire for master in wired])
        try:
            return await _mean([_bare(bare)], wired)
        finally:
            for transport in bare.transports:
                transport.close()
            await asyncio.sleep(0)


def _of(lock: Any) -> Pair:
    return lock.acquire, lock.release


def _bare(bare: Any) -> Pair:
    commands = Commands("old", "0" * 40, TTL)
    return (lambda: bare.round(commands.acquire())), (lambda: bare.round(commands.release()))


def _median(make: Callable[[], Pair]) -> Sequence[int]:
    """Bytecodes, calls of the kernel and of Python code, of making a pair and of the pair.

    A thread in the background may disturb some of them.
    """
    counter, each = Counter(), []
    with counter.counting():
        for _ in range(PAIRS):
            before = counter.figures()
            acquire, release = make()
            acquire()
            release()
            each.append([now - then for now, then in zip(counter.figures(), before, strict=True)])
    return [statistics.median_low(figures) for figures in zip(*each, strict=True)]


async def _mean(pairs: list[Pair], wired: list[Master]) -> Sequence[int]:
    """The same of a pair, where each has a task of its own and all of them are at work."""
    counter, each = Counter(), []

    async def work(pair: Pair, times: int) -> None:
        acquire, release = pair
        for _ in range(times):
            await acquire()
            await release()
            each.append(counter.figures())

    for _ in warming(wired):
        await asyncio.gather(*(work(pair, 1) for pair in pairs))
    each.clear()
    with counter.counting():
        await asyncio.gather(*(work(pair, PAIRS + 1) for pair in pairs))
    first, last = each[len(pairs) - 1], each[-1]  # without the first of each
    return [round((end - start) / PAIRS / len(pairs)) for start, end in zip(first, last, strict=True)]


def of_the_house() -> Figures:
    def lines(*folders: Path) -> list[int]:
        """Written, and made."""
        found = [0, 0]
        for path in (path for folder in folders for path in folder.rglob("*.py")):
            text = path.read_bytes()
            found[text.startswith(made)] += len(text.splitlines())
        return found

    made = HEAD.partition("{}")[0].encode()
    written, of_tool = lines(*(HOUSE / floor for floor in ("_core", "_io", "_lock")))
    ruff = [sys.executable, "-m", "ruff", "check", "--select", "SLF001", "--ignore-noqa", "--output-format", "json"]
    found = subprocess.run([*ruff, HOUSE], cwd=HOUSE.parent, capture_output=True, check=False).stdout
    return {
        "lines": written,
        "made lines": of_tool,
        "test lines": sum(lines(HOUSE.parent / "tests")),
        "reaches": len(json.loads(found)),
    }


def measured() -> Figures:
    figures = {**in_a_thread(), **on_bare_sockets(), **of_the_house()}
    figures["task"], figures["task calls"], _ = asyncio.run(in_tasks(1))
    figures["tasks"], _, _ = asyncio.run(in_tasks(64))
    figures["bare task"], figures["bare task calls"], _ = asyncio.run(on_bare_protocols())
    return figures


# -- what is said ------------------------------------------------------------------------------------------------------


def table(figures: Figures, kept: Figures) -> Iterator[str]:
    yield f"{f'Python {platform.python_version()}, five masters':<48}{'now':>8}{'kept':>8}{'budget':>8}{'bare':>8}"
    for key, (title, budget) in LINES.items():
        columns = (figures[key], kept.get(key), budget and budget.most, figures.get(f"bare {key}"))
        shown = "".join(f"{'' if one is None else format(one, ','):>8}" for one in columns)
        yield f"{title:<48}{shown}".rstrip()


def above(figures: Figures, *, room: bool) -> list[str]:
    """The figures above their budgets; with `room`: those above budget and room."""
    return [
        f"{title}: {figures[key]:,}; the budget is {budget.most:,}"
        + f", with room for {budget.room:,} more" * bool(budget.room)
        + f" ({budget.why})"
        for key, (title, budget) in LINES.items()
        if budget is not None and figures[key] > budget.most + room * budget.room
    ]


def kept_figures() -> dict[str, Figures]:
    """By the version of Python."""
    found: dict[str, Figures] = json.loads(KEPT.read_text(encoding="utf-8")) if KEPT.exists() else {}
    return found


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks shape", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--write", action="store_true", help=f"keep the figures in {KEPT.name}, to compare")
    options = parser.parse_args(arguments)
    figures, kept = measured(), kept_figures()
    if options.write:
        kept[VERSION] = {key: figures[key] for key in LINES}
        KEPT.write_text(json.dumps(kept, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    print(*table(figures, kept.get(VERSION, {})), sep="\n")
    larger = above(figures, room=True)
    if larger:
        print("\nToo large.  Make it smaller, or say in benchmarks/shape.py what is worth it.", *larger, sep="\n  ")
    warned = [line for line in above(figures, room=False) if line not in larger]
    if warned:
        print("\nWarning: above its budget, within the room of work that goes on.", *warned, sep="\n  ")
    return 1 if larger else 0
