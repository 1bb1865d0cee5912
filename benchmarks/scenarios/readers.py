"""Readers and writers (R33): what many readers cost a master, and what they gain over a lock that each has alone."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, Final

import redis

from benchmarks.lab import TTL
from benchmarks.records import ratio
from redlock import AsyncMasters, scripts
from redlock._core import wire

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.lab import Lab
    from benchmarks.records import Record

TITLE = "Readers and writers"
_PRESENT: Final = (1, 100, 1000, 10_000)  # readers of the name, while another one comes and goes
_PAIRS: Final = 100
_FENCE_TTL: Final = 3600.0
_CLIENTS: Final = 10  # one of them writes
_SECTION: Final = 0.005  # seconds


def run(lab: Lab) -> Iterator[Record]:
    lab.reset()
    with redis.Redis(port=lab.servers.ports[0]) as client:
        for present in _PRESENT:
            lab.progress(f"{present} readers on a master")
            pairs = [(_shared(client, present), _alone(client)) for _ in range(lab.effort.rounds + 1)][1:]
            yield ratio(
                "readers", f"{present:,} reader{'s' if present > 1 else ''} of one name", "this library", "acquire + release on a master", pairs,
                baseline="a lock that nobody has", scale=1,
            )  # fmt: skip
    taken = []
    for number in range(lab.effort.few):
        lab.progress(f"9 readers and a writer: round {number + 1} of {lab.effort.few}")
        shared, alone = (asyncio.run(_sections(lab, shared=shared)) for shared in (True, False))
        taken.append((shared, alone))
    yield ratio(
        "readers", "9 readers and a writer", "this library", "sections in a second", taken,
        baseline="the same with a plain lock", at_most=False, scale=1, unit="in a second",
    )  # fmt: skip
    lab.progress("")


def _shared(client: Any, present: int) -> float:
    """Microseconds for the scripts of a reader, while others read."""
    keys = wire.keys_for("bench:", ["read"])
    client.delete(keys.locks[0])
    ends = int((time.time() + 600) * 1000)
    client.zadd(keys.locks[0], {f"reader-{number}": ends + number for number in range(present)})
    client.pexpireat(keys.locks[0], ends + present)
    calls = []
    for number in range(_PAIRS):
        fence = 1_790_000_000_000_000 + number
        calls.append(wire.acquire_shared(keys, f"token-{number}", TTL, fence, _FENCE_TTL, 2 * present + _PAIRS))
        calls.append(wire.release_shared(keys, f"token-{number}"))
    return _taken(client, calls)


def _alone(client: Any) -> float:
    calls = []
    for number in range(_PAIRS):
        keys = wire.keys_for("bench:", [f"alone-{number}"])
        calls.append(wire.acquire(keys, "token", TTL, 1_790_000_000_000_000 + number, _FENCE_TTL))
        calls.append(wire.release(keys, "token"))
    return _taken(client, calls)


def _taken(client: Any, calls: list[wire.Call]) -> float:
    """Microseconds of the master for each pair, by its own count."""
    for script in scripts.USUAL:
        client.script_load(script.text)
    client.config_resetstat()
    pipeline = client.pipeline(transaction=False)
    for call in calls:
        pipeline.execute_command("EVALSHA", call.script.sha, str(len(call.keys)), *call.keys, *call.args)
    assert all(answer[0] in (1, 2) for answer in pipeline.execute()), "one was refused"
    return 2 * float(client.info("commandstats")["cmdstat_evalsha"]["usec"]) / len(calls)


async def _sections(lab: Lab, *, shared: bool) -> float:
    """Of ten clients: nine read, if ``shared``; else each has it alone."""
    lab.reset()
    done = 0

    async def work(masters: AsyncMasters, number: int) -> None:
        nonlocal done
        while time.perf_counter() < ends:
            async with masters.lock("job", ttl=TTL, shared=shared and number > 0):
                await asyncio.sleep(_SECTION)
            done += 1
            await asyncio.sleep(_SECTION if number else 10 * _SECTION)

    clients = [AsyncMasters(lab.servers.urls[:5], restart_guard=False) for _ in range(_CLIENTS)]
    try:
        for masters in clients:
            async with masters.lock("warm", ttl=TTL):
                pass
        ends = time.perf_counter() + 3 * lab.effort.lasts
        began = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for number, masters in enumerate(clients):
                group.create_task(work(masters, number))
        return done / (time.perf_counter() - began)
    finally:
        for masters in clients:
            await masters.close()
