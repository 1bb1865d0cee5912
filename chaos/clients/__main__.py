"""One client process: ``python -m chaos.clients NAME SEAT DIRECTORY EVENTS MASTER=URL...``, started by `chaos.cast`."""

from __future__ import annotations

import sys
import threading
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from redlock import AsyncMasters, LeaseExtended, LeaseLost, Masters

from .. import variants
from ..history import Writer
from ..settings import Settings
from .stage import Stage
from .watch import watch
from .work import Worker
from .worlds import run_tasks, run_threads

if TYPE_CHECKING:
    from redlock import Event

    from .worlds import World


def main(name: str, seat: str, directory: str, events: str, *named: str) -> None:
    stage = Stage(Path(directory, f"control-{seat}"))
    stage.set_wall_clock()
    settings = Settings.loads(Path(directory, "settings.json").read_text())
    if settings.variant is not None:
        variants.VARIANTS[settings.variant].apply()
    held: dict[str, tuple[Worker, Any]] = {}
    accounts = None
    if settings.work == "transactions":
        from .accounts import Accounts  # noqa: PLC0415 - it needs SQLAlchemy, the others do not

        accounts = Accounts(Path(directory, "database").read_text(), tasks=not int(seat) % 2)

    def observe(event: Event) -> None:
        if isinstance(event, LeaseExtended) and event.token in held:
            worker, lease = held[event.token]
            worker.extended(lease)
        elif isinstance(event, LeaseLost) and event.token in held:
            worker, lease = held[event.token]
            worker.lost(lease)

    # Each client has addresses of its own; the names say that they are the same masters (R34).
    masters = dict(one.split("=", 1) for one in named)
    options = {**settings.of_masters, "observer": observe}
    record = Writer(Path(events, f"{name}.jsonl"), name)

    async def perform(worker: str, world: World) -> None:
        await Worker(worker, world, settings, stage, record, Path(directory), held, accounts).perform()

    workers = [partial(perform, str(number)) for number in range(1, settings.workers + 1)]
    threading.Thread(target=watch, args=(Path(events, f"{name}.pulse"),), daemon=True).start()
    Path(directory, f"{name}.ready").touch()
    if int(seat) % 2:
        run_threads(workers, Masters(masters, **options))
    else:
        run_tasks(workers, AsyncMasters(masters, **options))


if __name__ == "__main__":
    main(*sys.argv[1:])
