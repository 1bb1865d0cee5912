"""What an acquire with a fence and its release take of a master, in the time that it counts itself (INFO commandstats).

    python -m benchmarks servers [PROGRAM ...]

By scripts, by functions (R44), and by functions with a release of commands: DELIFEQ (Valkey 9) or DELEX (Redis 8.4),
and PUBLISH.  The ways of a server are measured in turn.  Figures are medians of rounds: microseconds of a pair, and its
ratio to the first way in the same round.
"""

from __future__ import annotations

import itertools
import statistics
from typing import TYPE_CHECKING, Any, Final

from redlock import scripts
from redlock._core import wire
from redlock.testing import LocalMasters, find_server

if TYPE_CHECKING:
    from collections.abc import Sequence

TITLE: Final = "What a pair takes of a master: by scripts, by functions, with a release of commands"
ROUNDS: Final = 201
PAIRS: Final = 200
_KEYS = wire.keys_for("redlock:", ["job"])
_LOCK = _KEYS.locks[0]
_RELEASES = {"delifeq": ("DELIFEQ", _LOCK, "token"), "delex": ("DELEX", _LOCK, "IFEQ", "token")}
_fences = itertools.count(1)


def main(programs: Sequence[str]) -> int:
    for program in programs or [str(find_server())]:
        with LocalMasters(1, server=program) as masters:
            info = masters.client(0).info("server")
            print(info.get("server_name", "redis"), info.get("valkey_version") or info["redis_version"])
            for way, (took, ratio) in measured(masters.client(0)).items():
                print(f"  {way:<14} {took:6.2f} us   {ratio:.2f}", flush=True)
    return 0


def measured(client: Any, rounds: int = ROUNDS, pairs: int = PAIRS) -> dict[str, tuple[float, float]]:
    """Of each way that this server knows: microseconds of a pair, and the ratio to scripts."""
    for script in (scripts.ACQUIRE, scripts.RELEASE):
        client.script_load(script.text)
    ways: dict[str, tuple[str, ...]] = {"EVALSHA": ()}
    if int(client.info("server")["redis_version"].partition(".")[0]) >= 7:
        client.function_load(scripts.library()[0], replace=True)
        there = {name.decode() for name in client.execute_command("COMMAND LIST")}
        ways |= {"FCALL": ()} | {f"FCALL, {name.upper()}": words for name, words in _RELEASES.items() if name in there}
    samples: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(rounds):
        for way, release in ways.items():
            samples[way].append(_took(client, way != "EVALSHA", release, pairs))
    return {
        way: (statistics.median(took), statistics.median(map(float.__truediv__, took, samples["EVALSHA"])))
        for way, took in samples.items()
    }


def _took(client: Any, functions: bool, release: tuple[str, ...], pairs: int) -> float:
    client.config_resetstat()
    freed = wire.release(_KEYS, "token")
    with client.pipeline(transaction=False) as pipeline:
        for _ in range(pairs):
            taken = wire.acquire(_KEYS, "token", 30.0, next(_fences), 60.0)
            pipeline.execute_command(*(taken.words_as_function if functions else taken.words))
            if release:
                pipeline.execute_command(*release)
                pipeline.execute_command("PUBLISH", f"{_LOCK}:released", "token")
            else:
                pipeline.execute_command(*(freed.words_as_function if functions else freed.words))
        answers = pipeline.execute()
    assert answers[0][0] == 1, "it was taken"
    counted = ("evalsha", "fcall", *((release[0].lower(), "publish") if release else ()))
    spent: dict[str, dict[str, float]] = client.info("commandstats")
    return sum(spent.get(f"cmdstat_{name}", {"usec": 0})["usec"] for name in counted) / pairs
