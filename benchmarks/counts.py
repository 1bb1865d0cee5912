"""What a busy machine cannot spoil: counts of an acquire and its release, and of what is kept, with their budgets.

    python -m benchmarks counts [--write]

Counted on five masters as in `benchmarks.shape`, which says more of the first of these:

thread, task    bytecodes of a pair in a thread, in a task alone and in each of 64 tasks; "python": calls of Python code,
                each time that a generator goes on included; "calls": of the kernel.
instructions    of the processor in the caller's thread, outside of the kernel, and allocations of Python: by callgrind,
                if valgrind is installed.  Sockets do nothing, and no Python code does that (`Master.still`).
                The median of some blocks of pairs: two runs say the same to half a percent.
objects         that the garbage collector tracks, for each lock, and for each lease beyond its lock.
renewal         bytecodes of one lease that its loop extends together with as many others as one request may have; "python"
                as above.
garbage         objects that a pair in a task leaves to the garbage collector, because they refer to each other.

Budgets are in counts.json, for each version of Python.  There is room for 2 % above each: beyond that the exit code is 1.
`--write` makes the figures of this run the budgets.  What raises one is said in the commit.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from unittest import mock

from benchmarks import shape
from benchmarks.counter import Counter
from benchmarks.scripted import WARM, alone, scripted, standstill, urls, warming
from redlock import AsyncMasters, Masters
from redlock._core.extend_many import MOST
from redlock._system import clock

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

TITLE: Final = "What a busy machine cannot spoil: instructions, calls, bytecodes, objects; and their budgets"
BUDGETS: Final = Path(__file__).with_suffix(".json")
ROOM: Final = 0.02
BY_CALLGRIND: Final = ("instructions", "allocations")
_MANY = 100  # locks
_BLOCKS, _BLOCK = 5, 100  # of pairs, behind one that warms up
_ALLOCATES = re.compile(r"_Py(Object|Mem)_(Raw)?(Malloc|Calloc|Realloc)")


def counted() -> dict[str, float]:
    """All but what takes valgrind."""
    thread = shape.in_a_thread()
    figures: dict[str, float] = {what: thread[what] for what in ("thread", "thread python", "thread calls")}
    figures["task"], figures["task calls"], figures["task python"] = asyncio.run(shape.in_tasks(1))
    figures["tasks"], _, figures["tasks python"] = asyncio.run(shape.in_tasks(64))
    figures["renewal"], figures["renewal python"] = asyncio.run(renewals())
    return figures | kept() | {"task garbage": asyncio.run(garbage())}


def kept() -> dict[str, float]:
    """Each lock and lease is counted by itself, and the median taken: a thread in the background keeps things for a while."""
    locks: list[Any] = []
    with scripted() as wired, Masters(urls(), **shape.ALONE) as masters, standstill():
        old = masters.lock("old", ttl=shape.TTL)
        for _ in warming(wired):
            assert old.acquire() is not None
            old.release()
        gc.freeze()  # all that there is: it is not counted, so counting is fast
        alone = [_more(lambda: locks.append(masters.lock(f"lock-{len(locks)}", ttl=shape.TTL))) for _ in range(_MANY)]
        leases = [_more(lock.acquire) for lock in locks]
        gc.unfreeze()
        for lock in locks:
            lock.release()
    return {"lock objects": statistics.median_low(alone), "lease objects": statistics.median_low(leases)}


def _more(make: Callable[[], object]) -> int:
    """Objects that stay, of what that makes."""
    before = _tracked()
    make()
    return _tracked() - before


def _tracked() -> int:
    gc.collect()
    return len(gc.get_objects())


async def garbage() -> int:
    with scripted() as wired:
        async with AsyncMasters(urls(), **shape.ALONE) as masters:
            lock = masters.lock("old", ttl=shape.TTL)
            with standstill():
                for _ in warming(wired):
                    assert await lock.acquire() is not None
                    await lock.release()
                gc.collect()
                for _ in range(_MANY):
                    await lock.acquire()
                    await lock.release()
                return gc.collect() // _MANY


async def renewals() -> tuple[int, int]:
    """Bytecodes and calls of Python code of one lease, in a round that extends as many as one request may."""
    counter, each = Counter(), []
    with scripted() as wired:
        async with AsyncMasters(urls(), **shape.ALONE) as masters:
            driver = masters._runtime.driver()
            renewer = driver.background.renewer
            with standstill():
                while min(master.heard for master in wired) < WARM:  # all answer at once: no master lacks a key (R37)
                    async with masters.lock("old", ttl=shape.TTL):
                        pass
                leases = [await masters.lock(f"lock-{one}", ttl=shape.TTL).acquire() for one in range(MOST)]
                for _ in range(_BLOCKS):
                    before = counter.figures()
                    with counter.counting():
                        renewer.give_way(clock.now())  # all of them are due
                        renewer.work(clock.now())
                        await asyncio.gather(*(operation.future for operation in driver.host.operations))
                    each.append([now - then for now, then in zip(counter.figures(), before, strict=True)])
                assert all(lease is not None and lease._state.extensions == _BLOCKS for lease in leases)
    bytecodes, _, python = (round(statistics.median_low(figures) / MOST) for figures in zip(*each, strict=True))
    return bytecodes, python


def by_callgrind() -> dict[str, float]:
    """Of one pair in a thread.  Empty without valgrind."""
    if shutil.which("valgrind") is None:
        return {}
    with tempfile.TemporaryDirectory() as folder:
        # Each call of getppid() ends a block.  The threads apart: the background goes by the time of the wall.
        tool = ["valgrind", "--tool=callgrind", "--separate-threads=yes", "--compress-strings=no"]
        tool += ["--dump-before=getppid", f"--callgrind-out-file={folder}/out"]
        subprocess.run(
            [*tool, sys.executable, "-m", "benchmarks.counts", "--play", str(_BLOCKS)],
            cwd=BUDGETS.parents[1], env=os.environ | {"PYTHONHASHSEED": "0"}, capture_output=True, check=True,
        )  # fmt: skip
        blocks = [_of_block(Path(folder, f"out.{number}-01")) for number in range(2, _BLOCKS + 2)]
    return {what: round(statistics.median(block[what] for block in blocks) / _BLOCK) for what in BY_CALLGRIND}


def _of_block(out: Path) -> dict[str, int]:
    text = out.read_text(encoding="utf-8")
    (total,) = re.findall(r"^(?:totals|summary): (\d+)$", text, re.MULTILINE)[:1]
    called = re.findall(r"^cfn=(\S+)\ncalls=(\d+)", text, re.MULTILINE)
    return {
        "instructions": int(total),
        "allocations": sum(int(times) for name, times in called if _ALLOCATES.match(name)),
    }


def play(blocks: int) -> None:
    wall = mock.patch.object(time, "time_ns", partial(int, 10**18))
    with wall, scripted() as wired, Masters(urls(), **shape.ALONE) as masters, standstill():
        lock = masters.lock("old", ttl=shape.TTL)
        first = 0
        while min(master.heard for master in wired) < WARM:
            with lock as lease:
                first = (lease.fence or 0) + 1
        driver = masters._runtime.driver()
        pipelines = driver.host.connections.pipelines
        with alone(driver):
            for pipeline, master in zip(pipelines, wired, strict=True):
                master.still(pipeline, range(first, first + _BLOCK * (blocks + 1)))
            for _ in range(blocks + 1):
                for _ in range(_BLOCK):
                    assert lock.acquire() is not None
                    lock.release()
                os.getppid()
            for pipeline, master in zip(pipelines, wired, strict=True):
                master.awake(pipeline)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks counts", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--write", action="store_true", help=f"make the figures of this run the budgets of {BUDGETS.name}"
    )
    parser.add_argument("--play", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.play:
        play(options.play)
        return 0
    figures = by_callgrind() | counted()
    budgets: dict[str, dict[str, float]] = json.loads(BUDGETS.read_text(encoding="utf-8")) if BUDGETS.exists() else {}
    if options.write:
        budgets[shape.VERSION] = budgets.get(shape.VERSION, {}) | figures
        BUDGETS.write_text(json.dumps(budgets, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    known = budgets.get(shape.VERSION, {})
    print(f"{f'Python {shape.VERSION}, five masters, one pair':<40}{'now':>10}{'budget':>10}")
    for what, figure in figures.items():
        print(f"{what:<40}{figure:>10,}{known.get(what, ''):>10,}" if what in known else f"{what:<40}{figure:>10,}")
    larger = above(figures, known)
    print(*(f"too many: {line}" for line in larger), sep="\n", end="\n" * bool(larger))
    return 1 if larger else 0


def above(figures: dict[str, float], budgets: dict[str, float]) -> list[str]:
    return [
        f"{what} {figure:,}, the budget is {budgets[what]:,} and 2 %"
        for what, figure in figures.items()
        if figure > budgets.get(what, figure) * (1 + ROOM)
    ]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
