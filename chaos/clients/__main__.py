"""All client processes of a run: ``python -m chaos.clients DIRECTORY``, started by `chaos.cast`, which says who is to begin."""

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
from .nursery import Nursery
from .stage import Stage
from .votes import Votes
from .watch import Pulse
from .work import Worker
from .worlds import run_tasks, run_threads

if TYPE_CHECKING:
    from redlock import Event

    from .worlds import World


def main(directory: str) -> None:
    settings = Settings.loads(Path(directory, "settings.json").read_text())
    if settings.work == "transactions":
        from . import accounts  # noqa: F401, PLC0415 - it needs SQLAlchemy, the others do not
    name, _, seat, *named = Nursery().serve()
    _client(settings, Path(directory), name, int(seat), named)


def _client(settings: Settings, directory: Path, name: str, seat: int, named: list[str]) -> None:
    stage = Stage(directory / f"control-{seat}")
    stage.set_wall_clock()
    if settings.variant is not None:
        variants.VARIANTS[settings.variant].apply()
    held: dict[str, tuple[Worker, Any]] = {}
    votes = Votes()
    accounts = None
    if settings.work == "transactions":
        from .accounts import Accounts  # noqa: PLC0415 - see above

        accounts = Accounts((directory / "database").read_text(), tasks=not seat % 2)

    def observe(event: Event) -> None:
        votes.hear(event)
        if isinstance(event, LeaseExtended) and event.token in held:
            worker, lease = held[event.token]
            worker.extended(lease)
        elif isinstance(event, LeaseLost) and event.token in held:
            worker, lease = held[event.token]
            worker.lost(lease)

    # Each client has addresses of its own; the names say that they are the same masters (R34).
    masters = dict(one.split("=", 1) for one in named)
    options = {**settings.of_masters, "observer": observe}
    events = directory / "events"
    record = Writer(events / f"{name}.jsonl", name)
    pulse = Pulse(events / f"{name}.pulse")

    async def perform(worker: str, world: World) -> None:
        await Worker(worker, world, settings, stage, record, directory, held, votes, accounts, pulse).perform()

    workers = [partial(perform, str(number)) for number in range(1, settings.workers + 1)]
    threading.Thread(target=pulse.beat, daemon=True).start()
    (directory / f"{name}.ready").touch()
    if seat % 2:
        run_threads(workers, Masters(masters, **options))
    else:
        run_tasks(workers, AsyncMasters(masters, **options))


if __name__ == "__main__":
    main(*sys.argv[1:])
