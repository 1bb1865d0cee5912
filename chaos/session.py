"""One run, from the first server to the merged history: ``python -m chaos.session DIR BACKEND MUST...``.

`chaos.launch` starts it, and it lives as long as its standard input is open.  Its starter may be
interrupted or killed at any moment: the kernel closes the pipe, this process ends, and with it, by the
namespace or by the supervisor of `redlock.testing`, everything that it has started.  That is the only way in
which a run is broken off.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
import time
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING, Final

from redlock.testing import ClockUnavailable, ServerFailed

from . import NAME, databases, pulse
from .backends import BACKENDS
from .cast import Cast, CastFailed
from .clients.stores import Stores
from .growth import StepRefused
from .history import NEMESIS, OBSERVER, Header, Writer, demanded, merge, now
from .judge.live import WITHIN
from .nemesis import Nemesis
from .plan import plan
from .settings import Settings
from .variants import VARIANTS

if TYPE_CHECKING:
    from .backends.rig import Rig
    from .history import Must

SETTINGS: Final = "settings.json"
HISTORY: Final = "history.jsonl"

FAILED: Final = 2
_LONGEST: Final = 10  # times what `live` allows


def main(directory: str, backend: str, *must: str) -> int:
    # Ctrl-C is for whoever started this, and reaches it by the pipe.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_starter, daemon=True).start()
    settings = Settings.loads(Path(directory, SETTINGS).read_text())
    try:
        with BACKENDS[backend].rig(settings) as rig:
            _run(settings, rig, Path(directory), demanded(must))
    except (CastFailed, StepRefused, ServerFailed, ClockUnavailable, databases.DatabaseFailed) as error:
        print(f"{NAME}: {error}", file=sys.stderr, flush=True)
        return FAILED
    return 0


def _end_with_starter() -> None:
    while os.read(0, 64):
        pass
    os._exit(FAILED)


def _run(settings: Settings, rig: Rig, directory: Path, must: tuple[Must, ...]) -> None:
    if settings.restart_guard and settings.persistence != "always":
        _tell(f"new masters do not vote for {settings.longest_ttl:g} s (R21)")
        time.sleep(settings.longest_ttl + 1.0)
    urls = {seat: rig.urls(seat) for seat in range(1, settings.clients + 1)}
    chance = random.Random(f"wall clocks {settings.seed}")
    wrong = {seat: chance.uniform(-settings.skew, settings.skew) for seat in urls}
    with Cast(settings, urls, wrong=wrong) as cast:
        healed = _play(settings, rig, cast)
        time.sleep(settings.ttl + 0.1)  # whatever is there after a TTL has been left behind
        _inspect(settings, rig, cast.events / f"{OBSERVER}.jsonl")
        clients = tuple(client.name for client in cast.clients)
        excused = pulse.excuse(cast.events, clients, until=healed)
        if excused:
            _tell(f"{excused} times the machine did not run a client when it mattered: that counts as a stop")
        if spans := pulse.busy(cast.events, clients):
            _tell(f"the machine hardly ran clients for {spans * pulse.SPAN:g} s of theirs: they may take longer then")
        header = Header(
            seed=settings.seed, masters=settings.masters, locks=settings.lock_names, ttl=settings.ttl, must=must,
            clients=clients, slots=dict.fromkeys(settings.wanted_names, settings.slots) if settings.slots else {},
            faults=settings.faults, must_strike=settings.must_strike, variant=settings.variant,
            breaks=(VARIANTS[settings.variant].breaks,) if settings.variant else (), drift_factor=settings.drift_factor,
            confirm_expiry=settings.confirm_expiry,
        )  # fmt: skip
        merge(sorted(cast.events.glob("*.jsonl")), header, directory / HISTORY)


def _play(settings: Settings, rig: Rig, cast: Cast) -> float:
    """Everybody works, the nemesis strikes, everything is healed, everybody ends.  Returns when all was healed."""
    with ExitStack() as stack:
        stack.enter_context(closing(Stores(cast.directory / "stores.sqlite").create(settings.lock_names)))
        if settings.work == "transactions":
            from .clients.accounts import Accounts  # noqa: PLC0415 - it needs SQLAlchemy, the others do not

            host = stack.enter_context(databases.postgresql())
            Accounts(host).create(settings.lock_names)
            (cast.directory / "database").write_text(host)
        with Writer(cast.events / f"{NEMESIS}.jsonl", NEMESIS) as record:
            nemesis = Nemesis(rig, cast, record, _tell)
            nemesis.carry_out(plan(settings), begin=cast.start)
            time.sleep(max(0.0, nemesis.began + settings.duration - now()))
        cast.settle()
        healed, allowed = now(), WITHIN * settings.ttl
        time.sleep(allowed + 0.2)
        # What the machine took of it, `live` gives back; a machine that takes all of it for so long has no run to show.
        names = [client.name for client in cast.clients]
        while (gone := now() - healed) < _LONGEST * allowed:
            if gone - pulse.taken(cast.events, names, since=healed) >= allowed:
                break
            time.sleep(pulse.SPAN)
        cast.end()
    return healed


def _inspect(settings: Settings, rig: Rig, file: Path) -> None:
    wanted = {f"redlock:{name}": name for name in settings.lock_names}
    with Writer(file, OBSERVER) as record:
        for number, keys in enumerate(rig.keys(), start=1):
            if keys is not None:
                found = [
                    {"lock": wanted[key], "token": token, "pttl_ms": left}
                    for key, token, left in keys if key in wanted
                ]  # fmt: skip
                record.write("inspect", "ok", target=f"master-{number}", keys=found)


def _tell(what: str) -> None:
    print(what, flush=True)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
