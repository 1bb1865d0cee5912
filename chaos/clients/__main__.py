"""One client process: ``python -m chaos.clients NAME SEAT DIRECTORY EVENTS URL...``, started by `chaos.cast`."""

from __future__ import annotations

import json
import sys
import threading
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from chaos import names, variants
from chaos.clients.stage import Stage
from chaos.clients.work import Worker
from chaos.clients.worlds import run_tasks, run_threads
from chaos.history import Writer, now
from chaos.settings import Settings
from redlock import AsyncMasters, LeaseExtended, Masters

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from chaos.clients.worlds import World
    from redlock import Event

# Every so often somebody looks whether this process is being run at all.
_PULSE: Final = 0.01
_SKIPPED: Final = 0.02


def main(name: str, seat: str, directory: str, events: str, *urls: str) -> None:
    stage = Stage(Path(directory, f"control-{seat}"))
    stage.set_wall_clock()
    settings = Settings.loads(Path(directory, "settings.json").read_text())
    if settings.variant is not None:
        variants.VARIANTS[settings.variant].apply()
    held: dict[str, tuple[Worker, Any]] = {}

    def observe(event: Event) -> None:
        if isinstance(event, LeaseExtended) and event.token in held:
            worker, lease = held[event.token]
            worker.extended(lease)

    options: dict[str, Any] = {
        "node_timeout": settings.node_timeout,
        "drift_factor": settings.drift_factor,
        "max_ttl": settings.longest_ttl,
        "restart_guard": settings.restart_guard,
        "observer": observe,
    }

    async def perform(record: Writer, world: World) -> None:
        await Worker(world, settings, stage, record, Path(directory), held).perform()

    workers: list[Any] = []
    for worker in names.workers(name, settings.workers):
        record = Writer(Path(events, f"{worker}.jsonl"), worker)
        workers.append(partial(perform, record))
    watch = threading.Thread(target=_watch, args=(Path(events, f"{name}.pulse"),), daemon=True)
    watch.start()
    Path(directory, f"{name}.ready").touch()
    if int(seat) % 2:
        run_threads(workers, Masters(urls, **options))
    else:
        run_tasks(workers, AsyncMasters(urls, **options))


def _watch(file: Path) -> None:
    """Write down when the machine did not run this process: see `chaos.pulse`."""
    with file.open("a", buffering=1) as pulse:
        before = now()
        while True:
            time.sleep(_PULSE)
            after = now()
            if after - before > _PULSE + _SKIPPED:
                pulse.write(json.dumps([before, after]) + "\n")
            before = after


if __name__ == "__main__":
    main(*sys.argv[1:])
