"""Contenders of several processes: how fast the lock passes from one to the other (R24, R25).

Every process notes when each of its contenders got the lock and when it called release, on a clock that
all processes share; a hand-over is a hold by another contender than the one before.
"""

from __future__ import annotations

import asyncio
import itertools
import multiprocessing
import statistics
import threading
import time
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from benchmarks.baseline import BareSockets
from redlock import AsyncMasters, Masters, _connect
from redlock._core import wire

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from multiprocessing.synchronize import Barrier

    from redlock.testing import LocalMasters

TTL = 30.0
SECTION = 0.001     # how long each one holds it
PAUSE = 0.004       # between two holds of one contender, where only two processes take turns
POLL = 0.001        # of the bare sockets


class Hold(NamedTuple):
    acquired: float     # the return of acquire
    released: float     # the call of release
    contender: tuple[int, int]


class Start(NamedTuple):
    """They take a while to start, each another one, and then go on for as long as was said."""

    everybody: Barrier
    lasts: float

    def together(self) -> float:
        """Returns until when."""
        self.everybody.wait(60)
        return time.monotonic() + self.lasts


def with_threads(urls: Sequence[str], process: int, contenders: int, start: Start, pause: float, out: Any) -> None:
    holds: list[Hold] = []
    until = start.together()
    with Masters(urls, restart_guard=False) as masters:

        def work(number: int) -> None:
            lock = masters.lock("contended", ttl=TTL)
            while time.monotonic() < until or not holds:
                lock.acquire()
                acquired = time.monotonic()
                time.sleep(SECTION)
                holds.append(Hold(acquired, time.monotonic(), (process, number)))
                lock.release()
                time.sleep(pause)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(contenders)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    out.put(holds)


def with_tasks(urls: Sequence[str], process: int, contenders: int, start: Start, pause: float, out: Any) -> None:
    holds: list[Hold] = []
    until = start.together()

    async def main() -> None:
        async with AsyncMasters(urls, restart_guard=False) as masters:

            async def work(number: int) -> None:
                lock = masters.lock("contended", ttl=TTL)
                while time.monotonic() < until or not holds:
                    await lock.acquire()
                    acquired = time.monotonic()
                    await asyncio.sleep(SECTION)
                    holds.append(Hold(acquired, time.monotonic(), (process, number)))
                    await lock.release()
                    await asyncio.sleep(pause)

            await asyncio.gather(*(work(number) for number in range(contenders)))

    asyncio.run(main())
    out.put(holds)


def with_bare_sockets(urls: Sequence[str], process: int, contenders: int, start: Start, pause: float, out: Any) -> None:
    """Asks every millisecond.  One contender: what it measures is the fastest that polling can be."""
    assert contenders == 1
    holds: list[Hold] = []
    until = start.together()
    keys = wire.keys_for("redlock:", ["contended"])
    token = f"{process:040}"
    release = _connect.pack(wire.release(keys, token))
    addresses = [(str(urlsplit(url).hostname), int(urlsplit(url).port or 0)) for url in urls]
    bare = BareSockets(addresses, len(urls))
    while time.monotonic() < until or not holds:
        while True:
            proposal = time.time_ns() // 1000
            answers = bare.round(_connect.pack(wire.acquire(keys, token, TTL, proposal, 3600.0)))
            if sum(isinstance(answer, list) and answer[0] != 0 for answer in answers) > len(urls) // 2:
                break
            bare.round(release)
            time.sleep(POLL)
        acquired = time.monotonic()
        time.sleep(SECTION)
        holds.append(Hold(acquired, time.monotonic(), (process, 0)))
        bare.round(release)
        time.sleep(pause)
    bare.close()
    out.put(holds)


WORLDS = {"threads": with_threads, "asyncio": with_tasks}


def contend(
    servers: LocalMasters, work: Callable[..., None], processes: int, contenders: int, lasts: float, pause: float = 0.0
) -> list[Hold]:
    """What they did, in its order; without the time in which the first and the last one were alone.

    On a machine that is busy with something else there may be no time in which all were at work: then again, for longer.
    """
    for longer in range(6):
        by_process = _work(servers, work, processes, contenders, lasts * 2**longer, pause)
        begin = max(min(hold.acquired for hold in holds) for holds in by_process)
        end = min(max(hold.acquired for hold in holds) for holds in by_process)
        holds = sorted(hold for holds in by_process for hold in holds if begin <= hold.acquired <= end)
        if processes == 1 or handovers(holds):
            return holds
    raise RuntimeError(f"{processes} processes were never at work at once, in {lasts * 2**longer:g} s")


def _work(
    servers: LocalMasters, work: Callable[..., None], processes: int, contenders: int, lasts: float, pause: float
) -> list[list[Hold]]:
    context = multiprocessing.get_context("spawn")
    out = context.Queue()
    start = Start(context.Barrier(processes), lasts)
    started = [
        context.Process(target=work, args=(servers.urls, number, contenders, start, pause, out))
        for number in range(processes)
    ]
    for process in started:
        process.start()
    by_process = [out.get(timeout=60 + lasts) for _ in started]
    for process in started:
        process.join()
    return by_process


def handovers(holds: Sequence[Hold]) -> list[float]:
    """Seconds from the call of release to the return of the next one's acquire, where that is another one."""
    return [
        after.acquired - before.released
        for before, after in itertools.pairwise(holds)
        if after.contender != before.contender
    ]


def per_second(holds: Sequence[Hold]) -> float:
    return len(handovers(holds)) / (holds[-1].acquired - holds[0].acquired)


def script_calls(servers: LocalMasters) -> int:
    """How often scripts were run, on the first master."""
    stats: Any = servers.client(0).info("commandstats")
    return sum(stats.get(f"cmdstat_{command}", {}).get("calls", 0) for command in ("evalsha", "eval"))


def run(servers: LocalMasters, rounds: int, lasts: float) -> None:
    slowest = max(without_a_message(servers) for _ in range(rounds))
    print(f"a raw DEL, which nobody announces: noticed after {slowest * 1000:.0f} ms at most (pauses are up to 500 ms)")
    for world, work in WORLDS.items():
        ratios, times = [], []
        for _ in range(rounds):
            ours = statistics.median(handovers(contend(servers, work, 2, 1, lasts, PAUSE)))
            polling = statistics.median(handovers(contend(servers, with_bare_sockets, 2, 1, lasts, PAUSE)))
            ratios.append(ours / polling)
            times.append(ours)
        show(f"{world}: hand-over between 2 processes / 1 ms poll", ratios, 2.0, most=True,
             more=f"(about {statistics.median(times) * 1000:.2f} ms)")
        ratios, gaps, spreads, calls = [], [], [], []
        for _ in range(rounds):
            alone = contend(servers, work, 1, 1, lasts)
            before = script_calls(servers)
            holds = contend(servers, work, 4, 12, lasts)
            calls.append((script_calls(servers) - before) / len(holds))
            # One alone hands over to nobody: its own holds per second are what the lock could do.
            ratios.append(per_second(holds) / (len(alone) / (alone[-1].acquired - alone[0].acquired)))
            gaps.append(max(b.acquired - a.released for a, b in itertools.pairwise(holds)))
            counts = [sum(hold.contender == (p, c) for hold in holds) for p in range(4) for c in range(12)]
            spreads.append(max(counts) / max(1, min(counts)))
        show(f"{world}: 4 processes with 12 each / one alone", ratios, 0.3, most=False,
             more=f"longest gap {max(gaps) * 1000:.0f} ms (bar 200), luckiest to unluckiest "
                  f"{statistics.median(spreads):.2f} : 1 (bar 5), script calls per master and acquisition "
                  f"{statistics.median(calls):.1f} (bar 10)")


def without_a_message(servers: LocalMasters) -> float:
    """Seconds from a DEL behind everybody's back to the return of the acquire that waits."""
    with Masters(servers.urls, restart_guard=False) as masters, Masters(servers.urls, restart_guard=False) as others:
        others.lock("deleted", ttl=TTL, auto_extend=False).acquire()
        acquired: list[float] = []
        waiting = threading.Thread(
            target=lambda: acquired.append((masters.lock("deleted", ttl=TTL).acquire(), time.monotonic())[1])
        )
        waiting.start()
        time.sleep(1.0)
        deleted = time.monotonic()
        for number in range(len(servers)):
            servers.client(number).delete("redlock:deleted")
        waiting.join()
        for number in range(len(servers)):
            servers.client(number).delete("redlock:deleted")
        return acquired[0] - deleted


def show(title: str, ratios: list[float], bar: float, *, most: bool, more: str) -> None:
    middle = statistics.median(ratios)
    held = middle <= bar if most else middle >= bar
    print(f"{title:<50} median ratio {middle:.2f}, bar {bar:g}: {'ok' if held else 'MISSED'}; {more}", flush=True)

