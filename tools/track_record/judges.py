"""What judges of other hands say of the same histories: of the chaos harness, and of the bench.

The first judge is `chaos/judge`, and on the bench its own.  The second one is `chaos/second.py`, which shares no code with
either.  The third one is Porcupine (tools/porcupine), asked about each lock as `redlock-chaos export` writes it.
"""

from __future__ import annotations

import json
import os
import subprocess
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from chaos import second
from chaos.export import exported
from chaos.history import Unreadable, parse
from chaos.judge.exclusive import exclusive
from chaos.judge.holds import holds
from tests.bench.histories import told
from tests.bench.parameters import FAMILIES
from tests.bench.variants import VARIANTS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from chaos.history import History
    from tools.track_record.runs import Line, Source

BROKEN: Final = ("minority", "release-without-owner-check")  # every fourth seed has one of them, and may be red
_EVERY: Final = 4
_ALLOWED: Final = "Ok"  # Porcupine's word for a history that its model allows


class Judged(NamedTuple):
    """Of one history: what it is called, and the locks that each judge says were held by two; None: it was not asked.

    Porcupine is asked about those that are `registers`, which none is that readers share.
    """

    name: str
    locks: int
    first: frozenset[str]
    second: frozenset[str]
    bench: bool | None = None
    registers: frozenset[str] = frozenset()
    porcupine: frozenset[str] = frozenset()

    @property
    def differs(self) -> bool:
        said = {self.first == self.second, self.porcupine == self.second & self.registers}
        return not all(said) or self.bench not in (None, bool(self.first))


def of_chaos(folder: Path, porcupine: str | None, jobs: int | None) -> Iterator[Judged]:
    with ProcessPoolExecutor(jobs or os.cpu_count()) as pool:
        yield from pool.map(partial(_of_file, porcupine=porcupine), sorted(folder.glob("**/history.jsonl")))


def _of_file(path: Path, porcupine: str | None) -> Judged:
    return _asked(f"{path.parent.parent.name}/{path.parent.name}", path.read_bytes(), None, porcupine)


def of_bench(first: int, seeds: int, porcupine: str | None, jobs: int | None) -> Iterator[Judged]:
    """Of all families in turn."""
    with ProcessPoolExecutor(jobs or os.cpu_count()) as pool:
        yield from pool.map(partial(_of_seed, porcupine=porcupine), range(first, first + seeds), chunksize=10)


def _of_seed(seed: int, porcupine: str | None) -> Judged:
    family, which = [*FAMILIES][seed % len(FAMILIES)], seed // _EVERY
    variant = BROKEN[which % len(BROKEN)] if seed % _EVERY == _EVERY - 1 else ""
    lines, overlaps = told(FAMILIES[family](seed), VARIANTS[variant].patches if variant else ())
    data = "".join(f"{json.dumps(line)}\n" for line in lines).encode()
    return _asked(f"--family {family} --trace {seed} {variant}".strip(), data, overlaps, porcupine)


def _asked(name: str, data: bytes, bench: bool | None, porcupine: str | None) -> Judged:
    history = parse(data)
    first = frozenset(str(one.lock) for one in exclusive(holds(history)))
    verdicts = second.judged(json.loads(line) for line in data.splitlines())
    found = Judged(name, len(verdicts), first, frozenset(lock for lock, wrong in verdicts.items() if wrong), bench)
    if porcupine is None:
        return found
    texts = {lock: text for lock in verdicts if (text := _register(history, lock)) is not None}
    said = subprocess.run([porcupine], input="".join(texts.values()), capture_output=True, text=True, check=True)
    words = zip(texts, said.stdout.split(), strict=True)
    return found._replace(
        registers=frozenset(texts), porcupine=frozenset(lock for lock, word in words if word != _ALLOWED)
    )


def _register(history: History, lock: str) -> str | None:
    try:
        return "".join(f"{line}\n" for line in exported(history, lock, "porcupine")) + "\n"
    except Unreadable:
        return None


def recorded(
    known: Sequence[Line], folder: Path, seeds: int, porcupine: str | None, jobs: int | None, source: Source
) -> Iterator[Line]:
    yield counted("chaos harness", of_chaos(folder, porcupine, jobs), source)
    first = sum(line["histories"] for line in known if line.get("of") == "bench")
    yield counted("bench", of_bench(first, seeds, porcupine, jobs), source)


def counted(of: str, judged: Iterable[Judged], source: Source) -> Line:
    every = [*judged]
    return {
        "what": "judges", **source._asdict(), "of": of, "histories": len(every), "locks": sum(one.locks for one in every),
        **{name: sum(len(getattr(one, name)) for one in every) for name in ("first", "second", "registers", "porcupine")},
        "violated": [], "differ": [one.name for one in every if one.differs],
    }  # fmt: skip
