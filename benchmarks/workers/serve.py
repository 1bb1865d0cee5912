"""What every subject of a measurement speaks, whatever it is written in: a line of words in, a line of JSON out.

    cycles 100                                      acquire and release, so many times (and a quarter before that)
    attempt NAME                                    one try, and release if it was granted
    throughput 64 0.5                               so many workers on names of their own, for so many seconds
    contend NAME 10 0.001 0 BEGIN END               contenders for one name: section, pause, when on the common clock
    hold 1000, rest 10, drop                        leases: take them, let them be kept, give them back
    footprint idle|held|waiting 1000                memory

Which of them a subject knows is in `benchmarks.subjects`.  This file and its two neighbours `threads` and
`tasks`, which make the load, are the same for all subjects in Python, and need nothing but Python, for the
other libraries are measured in an environment without this one.

A request is read by a thread of its own, so that a process whose parent is gone ends, even if a library hangs.
"""

from __future__ import annotations

import asyncio
import gc
import inspect
import json
import os
import queue
import resource
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

THREADS = 2  # that a subject has of its own: the main one and the one that reads requests


def addresses() -> list[tuple[str, int]]:
    """The masters, as the command line has them: host:port, separated by commas."""
    return [(host, int(port)) for host, _, port in (one.rpartition(":") for one in sys.argv[1].split(","))]


def urls() -> list[str]:
    return [f"redis://{host}:{port}" for host, port in addresses()]


def ttl() -> float:
    """Seconds."""
    return float(sys.argv[2])


def name() -> str:
    """What this process calls the lock that nobody else wants."""
    return sys.argv[3]


def options() -> list[str]:
    return sys.argv[4:]


def serve(load: Any) -> None:
    """Connect, then answer until there are no more requests.  ``load`` has a method for each verb."""
    asked: queue.SimpleQueue[str] = queue.SimpleQueue()
    _listen(asked.put)  # before anything that may hang
    load.cycles(1)
    _say({"ready": True})
    while True:
        verb, *words = asked.get().split()
        _say(_call(load, verb, words))


async def serve_tasks(load: Any) -> None:
    """The same on an event loop, which runs on between the requests: leases have to be kept."""
    loop = asyncio.get_running_loop()
    asked: asyncio.Queue[str] = asyncio.Queue()
    _listen(lambda line: loop.call_soon_threadsafe(asked.put_nowait, line))
    await load.cycles(1)
    _say({"ready": True})
    while True:
        verb, *words = (await asked.get()).split()
        answer = _call(load, verb, words)
        if inspect.isawaitable(answer):
            try:
                answer = await answer
            except Exception as error:  # noqa: BLE001 - whatever a library raises is its answer
                answer = _failed(error)
        _say(answer)


def _listen(heard: Callable[[str], object]) -> None:
    def read() -> None:
        for line in sys.stdin:
            heard(line)
        os._exit(0)  # whatever hangs; there is nobody to tell

    threading.Thread(target=read, name="requests", daemon=True).start()


def _call(load: Any, verb: str, words: list[str]) -> Any:
    try:
        return getattr(load, verb)(*(_number(word) for word in words))
    except Exception as error:  # noqa: BLE001 - whatever a library raises is its answer
        return _failed(error)


def _failed(error: Exception) -> dict[str, str]:
    text = " ".join(str(error).split())
    return {"error": f"{type(error).__name__}: {text:.200}"}


def _number(word: str) -> float | int | str:
    for kind in (int, float):
        try:
            return kind(word)
        except ValueError:
            pass
    return word


def _say(answer: Any) -> None:
    print(json.dumps(answer), flush=True)


def memory() -> int:
    """Bytes that this process has now; where that is not known, the most that it ever had."""
    gc.collect()
    statm = Path("/proc/self/statm")
    if statm.exists():
        return int(statm.read_text().split()[1]) * resource.getpagesize()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
