"""An expiry that more than one clock confirms (R35): what records cost a master, and a pair beside one without them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

import redis

from benchmarks.lab import TTL
from benchmarks.records import ratio
from redlock import Masters, scripts
from redlock._core import wire
from redlock._core.confirm import records

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from benchmarks.lab import Lab
    from benchmarks.records import Record

TITLE = "Expiries that are confirmed"
_LEASES: Final = 50  # renewed by one request
_CALLS: Final = 400  # of a script in a round, on names that stay
_FENCE_TTL: Final = 3600.0
_FENCE: Final = 1_790_000_000_000_000
_ON_RECORD: Final = [wire.keys_for("bench:", [f"name-{number}"], records=True) for number in range(_LEASES)]
_PLAIN: Final = [keys._replace(grants=()) for keys in _ON_RECORD]


def run(lab: Lab) -> Iterator[Record]:
    lab.reset()
    rounds = 2 * lab.effort.rounds
    with redis.Redis(port=lab.servers.ports[0]) as client:
        for script in (*scripts.USUAL, *scripts.RECORDED):
            client.script_load(script.text)
        taken = [(_on_record(client, number), _plain(client, number)) for number in range(rounds + 1)][1:]
    for place, measure in enumerate(("acquire on a master", "release on a master", "renewal of a lease on a master")):
        pairs = [(mine[place], other[place]) for mine, other in taken]
        yield ratio(
            "confirmed", "one master", "with records", measure, pairs, baseline="without records", scale=1
        )  # fmt: skip
    for size in lab.effort.masters[:2]:
        lab.progress(f"pairs on {size} master{'s' if size > 1 else ''}")
        lab.reset()
        urls = lab.servers.urls[:size]
        with (
            Masters(urls, restart_guard=False, confirm_expiry=True, agreement="ignore") as mine,
            Masters(urls, restart_guard=False, agreement="ignore") as other,
        ):
            pairs = [(_pairs(mine, lab), _pairs(other, lab)) for _ in range(rounds + 1)][1:]
        yield ratio(
            "confirmed", f"{size} master{'s' if size > 1 else ''}", "with records", "acquire + release", pairs,
            baseline="without records",
        )  # fmt: skip
    lab.progress("")


def _on_record(client: Any, number: int) -> list[float]:
    fence = _FENCE + number * _CALLS

    def acquire(at: int) -> wire.Call:
        return records.acquire(_ON_RECORD[at % _LEASES], f"{at:040}", TTL, fence + at, _FENCE_TTL)

    def release(at: int) -> wire.Call:
        return records.release(_ON_RECORD[at % _LEASES], f"{at:040}", 0.0, fence + at)

    def renew(at: int) -> wire.Call:
        held = [(keys, f"{one:040}", TTL, fence + one) for one, keys in enumerate(_ON_RECORD)]
        return records.renew(held, _FENCE_TTL, str(number * _CALLS + at + 1))

    return _taken(client, acquire, release, renew)


def _plain(client: Any, number: int) -> list[float]:
    fence = _FENCE + number * _CALLS

    def acquire(at: int) -> wire.Call:
        return wire.acquire(_PLAIN[at % _LEASES], f"{at:040}", TTL, fence + at, _FENCE_TTL)

    def release(at: int) -> wire.Call:
        return wire.release(_PLAIN[at % _LEASES], f"{at:040}")

    def renew(_: int) -> wire.Call:
        return wire.renew([(keys, f"{one:040}", TTL) for one, keys in enumerate(_PLAIN)], _FENCE_TTL)

    return _taken(client, acquire, release, renew)


def _taken(client: Any, acquire: Any, release: Any, renew: Any) -> list[float]:
    """Microseconds of the master, by its own count, for each acquire, release and renewed lease."""
    client.flushall()
    took = [0.0, 0.0]
    for begin in range(0, _CALLS, _LEASES):
        for place, make in enumerate((acquire, release)):
            took[place] += _usec(client, make, range(begin, begin + _LEASES))
    _usec(client, acquire, range(_LEASES))
    renewed = _usec(client, renew, range(_CALLS // _LEASES))
    _usec(client, release, range(_LEASES))
    return [took[0] / _CALLS, took[1] / _CALLS, renewed / _CALLS]


def _usec(client: Any, make: Callable[[int], wire.Call], calls: range) -> float:
    client.config_resetstat()
    pipeline = client.pipeline(transaction=False)
    for at in calls:
        call = make(at)
        pipeline.execute_command("EVALSHA", call.script.sha, str(len(call.keys)), *call.keys, *call.args)
    assert all(answer[0] in (1, 2) for answer in pipeline.execute()), "one was refused"
    return float(client.info("commandstats")["cmdstat_evalsha"]["usec"])


def _pairs(masters: Masters, lab: Lab) -> float:
    lock = masters.lock("bench", ttl=TTL)
    began = time.perf_counter()
    for _ in range(lab.effort.cycles):
        lock.acquire()
        lock.release()
    return (time.perf_counter() - began) / lab.effort.cycles
