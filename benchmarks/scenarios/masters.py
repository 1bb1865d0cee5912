"""What a master takes for one acquire and one release, by its own count.

The scripts are beside what other libraries send: `SET` with `NX` and `PX`, and a script that compares and deletes.  A
hundred are sent at once, so all caches are hot: what is compared is the work, not what a processor has to fetch.

What a master can take is reckoned from all of its processor time, with each request in a packet of its own; and what a
held lease weighs there from its memory, before and after many of them.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any, Final

import redis

from benchmarks.lab import TTL
from benchmarks.records import Record, middle, ratio
from redlock import scripts
from redlock._core import wire

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from benchmarks.lab import Lab

TITLE = "On a master"
OTHERS = "SET NX PX, compare and delete"
BOTH = "acquire + release"
SUBJECT: Final = "this library"
PAIRS: Final = "acquire + release, of all its processor time"
WEIGHT: Final = "a lease and its fence"
_TOGETHER: Final = 100
_FENCE_TTL: Final = 3600.0
_DELETE = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end"


def run(lab: Lab) -> Iterator[Record]:
    lab.reset()
    with redis.Redis(port=lab.servers.ports[0]) as client:
        for case, fencing in (("a name and its fence", True), ("a name without a fence", False)):
            ours, others = [], []
            for number in range(lab.effort.rounds + 1):
                lab.progress(f"{case}: round {number} of {lab.effort.rounds}")
                pairs = _of_others(client), _ours(client, number, fencing=fencing)
                if number:  # else scripts are new, and so is every name
                    others.append(pairs[0])
                    ours.append(pairs[1])
            for index, measure in enumerate(("acquire", "release")):
                taken = [(mine[index], other[index]) for mine, other in zip(ours, others, strict=True)]
                yield _record(case, measure, taken)
            taken = [(sum(mine), sum(other)) for mine, other in zip(ours, others, strict=True)]
            yield _record(case, BOTH, taken)
        later = range(lab.effort.rounds + 1, 2 * lab.effort.rounds + 1)  # fences only rise
        rates = [_pairs_per_second(client, number) for number in later]
        yield middle("masters", "one at a time", SUBJECT, PAIRS, "/s", rates)
        lab.progress(f"memory of {lab.effort.many:,} leases")
        yield middle("masters", WEIGHT, SUBJECT, f"of {lab.effort.many:,}, each", "KB", [_weight(client, lab)])
    lab.progress("")


def _record(case: str, measure: str, taken: list[tuple[float, float]]) -> Record:
    return ratio("masters", case, SUBJECT, measure, taken, baseline=OTHERS, scale=1)


def _ours(client: Any, number: int, *, fencing: bool) -> tuple[float, float]:
    """Microseconds of a master for each acquire, and for each release."""
    acquires, releases = _calls(_TOGETHER, number, fencing=fencing)
    return _taken(client, acquires), _taken(client, releases)


def _calls(names: int, number: int, *, fencing: bool = True) -> tuple[list[tuple[str, ...]], list[tuple[str, ...]]]:
    """What acquires each of so many names, and what releases them."""
    keys = [wire.keys_for("bench:", [f"ours-{index}"], fencing=fencing) for index in range(names)]
    tokens = [secrets.token_hex(20) + ":a-host-of-ours/12345" for _ in keys]
    fence = 1_790_000_000_000_000 + number
    acquires = [_evalsha(wire.acquire(*one, TTL, fence, _FENCE_TTL)) for one in zip(keys, tokens, strict=True)]
    return acquires, [_evalsha(wire.release(*one)) for one in zip(keys, tokens, strict=True)]


def _pairs_per_second(client: Any, number: int) -> float:
    """As often as one processor can do it, that of a master that does nothing else."""
    acquires, releases = _calls(_TOGETHER, number)
    before = _processor_time(client)
    for command in (*acquires, *releases):
        _check([client.execute_command(*command)])
    return _TOGETHER / (_processor_time(client) - before)


def _processor_time(client: Any) -> float:
    used = client.info("cpu")
    return float(used["used_cpu_user"]) + float(used["used_cpu_sys"])


def _weight(client: Any, lab: Lab) -> float:
    """KB of a master for each lease."""
    client.flushall()
    before = client.info("memory")["used_memory"]
    pipeline = client.pipeline(transaction=False)
    for command in _calls(lab.effort.many, 0)[0]:
        pipeline.execute_command(*command)
    _check(pipeline.execute())
    used = client.info("memory")["used_memory"] - before
    client.flushall()
    return float(used) / 1024 / lab.effort.many


def _of_others(client: Any) -> tuple[float, float]:
    names = [f"bench:others-{index}" for index in range(_TOGETHER)]
    tokens = [secrets.token_hex(20) for _ in names]
    sha = client.script_load(_DELETE)
    px = wire.milliseconds(TTL)
    sets = [("SET", name, token, "NX", "PX", px) for name, token in zip(names, tokens, strict=True)]
    deletes = [("EVALSHA", sha, "1", name, token) for name, token in zip(names, tokens, strict=True)]
    return _taken(client, sets), _taken(client, deletes)


def _evalsha(call: wire.Call) -> tuple[str, ...]:
    return "EVALSHA", call.script.sha, str(len(call.keys)), *call.keys, *call.args


def _taken(client: Any, commands: Any) -> float:
    """Microseconds for each of ``commands``.  What a script calls is in its own time."""
    commands = list(commands)
    for script in (scripts.ACQUIRE, scripts.RELEASE):
        client.script_load(script.text)
    client.config_resetstat()
    pipeline = client.pipeline(transaction=False)
    for command in commands:
        pipeline.execute_command(*command)
    _check(pipeline.execute())
    stats = client.info("commandstats")[f"cmdstat_{commands[0][0].lower()}"]
    return float(stats["usec"]) / len(commands)


def _check(answers: Sequence[Any]) -> None:
    """None of them was refused."""
    assert all(answer in (True, b"OK", 1) or answer[0] == 1 for answer in answers)
