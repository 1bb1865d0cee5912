"""``redlock-chaos run``: one run, of a scenario or of the faults that are named."""

from __future__ import annotations

import random
import shlex
import sys
from dataclasses import replace
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, get_args

from redlock import Masters
from redlock.testing import ClockUnavailable, ServerNotFound, clock_available

from . import NAME, PROGRAM, databases, report
from .backends import BACKENDS, Unavailable, choose
from .faults import CLOCKS, FAULTS, GROUPS, by_name, named
from .history import DEMANDABLE, Unreadable, demanded
from .launch import EXIT_CODES, UNKNOWN, SessionFailed, judged, session
from .plan import left_out
from .scenarios import SCENARIOS, Scenario
from .settings import Persistence, Settings, Work
from .variants import VARIANTS

if TYPE_CHECKING:
    import argparse

    from .backends import Backend

# Options of `Settings` that are given as they are: name, type, help.
_OPTIONS: Final = (
    ("duration", float, "seconds of faults; starting, settling and looking come on top"),
    ("masters", int, "servers"),
    ("used", int, "of these, in the lists of clients at first; 0: all"),
    ("clients", int, "client processes"),
    ("workers", int, "threads or tasks in each of them"),
    ("locks", int, "names of locks"),
    ("slots", int, "of each name, in place of a lock; with --work slots"),
    ("lanes", int, "how many faults at once"),
    ("ttl", float, "seconds"),
    ("node-timeout", float, "seconds"),
    ("drift-factor", float, "as in redlock.Masters"),
    ("max-ttl", float, "seconds; the TTL unless given"),
    ("skew", float, "clients' wall clocks are wrong by up to that many seconds"),
    ("server", str, "program to be started as a master, instead of what redlock.testing finds"),
)
_NO_CLOCKS: Final = "libfaketime is not installed, or does not work with this server"
_SUGGESTED: Final = "kill,pause,partition"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Real masters, real clients, real faults; then a verdict.  Exit 0: every required promise held; 1: one was "
        "broken; 2: unknown, or the harness failed.  Options beside --scenario or --variant replace its own."
    )
    parser.add_argument("--scenario", choices=SCENARIOS, metavar="NAME", help=f"one of `{NAME} list`")
    parser.add_argument(
        "--variant", choices=VARIANTS, metavar="NAME", help="a lock that is broken on purpose, in its scenario"
    )
    parser.add_argument("--faults", metavar="LIST", help=f"comma-separated; {_SUGGESTED} unless there is a scenario")
    parser.add_argument("--seed", type=int, help="decides the plan and what clients do; printed if it is drawn")
    parser.add_argument(
        "--backend", choices=("auto", *BACKENDS), default="auto", help="auto takes the first that works here"
    )
    parser.add_argument(
        "--out",
        type=report.directory,
        metavar="DIR",
        default="chaos-out",
        help="history.jsonl, verdict.json, timeline.html (chaos-out)",
    )
    parser.add_argument("--must", metavar="LIST", help=f"what must hold, of {', '.join(DEMANDABLE)}")
    for name, kind, meaning in _OPTIONS:
        parser.add_argument(f"--{name}", type=kind, metavar=kind.__name__.upper(), help=meaning)
    parser.add_argument("--persistence", choices=get_args(Persistence), help="of the masters")
    parser.add_argument("--work", choices=get_args(Work), help="what clients do")
    parser.add_argument("--no-restart-guard", action="store_true", help="masters vote as soon as they are up")


def main(args: argparse.Namespace) -> int:
    try:
        scenario, settings = _wanted(args)
        must = scenario.must if args.must is None else demanded(args.must.split(","))
        backend = choose(args.backend)
        check(settings, backend)
    except (ValueError, Unreadable, Unavailable, ServerNotFound, ClockUnavailable) as error:
        print(f"{NAME}: {error}", file=sys.stderr)
        return UNKNOWN
    out = Path(args.out)
    print(introduce(backend))
    print(f"scenario {scenario.name}: {scenario.what}")
    for fault in settings.faults:
        print(f"  {fault:10} {FAULTS[fault].what}")
    if any(FAULTS[fault].kind == "link" for fault in settings.faults):
        print(
            "  1,6 x 2,3: clients 1 and 6 do not reach masters 2 and 3; -x: their requests do not, x-: the replies do not"
        )
    if settings.variant is not None:
        print(f"variant {settings.variant}: {VARIANTS[settings.variant].what}")
    print(f"seed {settings.seed}   again: {_again(args, settings.seed)}")
    print(
        f"takes some {seconds(settings):.0f} s: {settings.duration:g} s of faults, and to start, to heal and to judge"
    )
    print(_left_out(settings), flush=True)
    try:
        with session(settings, backend, out, must) as running:
            running.wait()
        verdict = judged(running, out, must, None if settings.variant else scenario.shows)
    except KeyboardInterrupt:
        print("\ninterrupted; nothing is left running", file=sys.stderr)
        return UNKNOWN
    except (SessionFailed, OSError) as error:
        print(f"{NAME}: {error}", file=sys.stderr)
        return UNKNOWN
    print()
    sys.stdout.write(report.text(verdict.history, verdict.verdict, verdict.summary))
    if scenario.shows is not None and settings.variant is None:
        print(f"beyond the model: {verdict.note}")
    print(f"{out / 'timeline.html'} shows it")
    return EXIT_CODES[verdict.ending]


def seconds(settings: Settings) -> float:
    """What a run takes on a machine with nothing else to do, roughly: judging is a quarter of the faults."""
    guarded = settings.restart_guard and settings.persistence != "always"  # new masters do not vote
    return 1.25 * settings.duration + 3 * settings.ttl + 5 + guarded * (settings.longest_ttl + 1)


def introduce(backend: Backend) -> str:
    """Which backend runs, and what it cannot do here."""
    lines = [f"backend {backend.NAME}: {backend.WHAT}"]
    if backend.REMARK:
        lines.append(f"  {backend.REMARK}")
    lines += [f"  cannot do {fault}: {why}" for fault, why in lacks(backend).items()]
    # Those that come before it.  Not all: to look for Docker takes a while, and auto never gets there.
    for better in takewhile(lambda other: other is not backend, BACKENDS.values()):
        why = better.unavailable()
        if why is not None:
            lines.append(f"  not {better.NAME}: {why}")
    return "\n".join(lines)


def lacks(backend: Backend, server: str | None = None) -> dict[str, str]:
    """The faults that cannot be made here, and why."""
    clocks = {} if clock_available(server) else dict.fromkeys(CLOCKS, _NO_CLOCKS)
    return clocks | dict(backend.LACKS)


def without_database(settings: Settings) -> str | None:
    """Why this cannot be run here, if it takes a database."""
    return databases.unavailable() if settings.work == "transactions" else None


def check(settings: Settings, backend: Backend) -> None:
    """Raises for what cannot be run here, before anything is started."""
    settings.check()
    # The library has rules of its own: in a client they would be a traceback.  Nothing is connected to for that.
    with Masters(["redis://127.0.0.1"], **{**settings.of_masters, "confirm_expiry": False}) as masters:
        masters.lock("any", ttl=settings.ttl)
    backend.check(settings)
    why = without_database(settings)
    if why is not None:
        raise Unavailable(f"--work transactions: {why}")
    missing = lacks(backend, settings.server)
    for fault in settings.faults:
        if fault in missing:
            raise Unavailable(f"fault {fault} with backend {backend.NAME}: {missing[fault]}")


def _wanted(args: argparse.Namespace) -> tuple[Scenario, Settings]:
    names = [*(name.replace("-", "_") for name, _, _ in _OPTIONS), "persistence", "work"]
    changes: dict[str, Any] = {name: value for name in names if (value := getattr(args, name)) is not None}
    if args.no_restart_guard:
        changes["restart_guard"] = False
    name = args.scenario
    if args.variant is not None:
        changes["variant"] = args.variant
        name = name or VARIANTS[args.variant].scenario
    if args.faults is not None or name is None:
        asked = _SUGGESTED if args.faults is None else args.faults
        changes |= {"faults": named(asked), "named": by_name(asked)}
    scenario = SCENARIOS[name] if name is not None else _own(changes)
    seed = random.SystemRandom().randrange(10**6) if args.seed is None else args.seed
    return scenario, scenario.with_seed(seed, **changes)


def _left_out(settings: Settings) -> str:
    """What the plan has no place for, said before anybody waits for the verdict."""
    missing = left_out(settings)
    if not missing:
        return ""
    durations = (settings.duration * 2**doubled for doubled in range(1, 8))
    enough = next((one for one in durations if not left_out(replace(settings, duration=one))), None)
    advice = f"--duration {enough:g} has time for all" if enough else "nor would they in a longer run"
    return f"never strike in this run: {', '.join(missing)} ({len(missing)} of {len(settings.faults)}); {advice}\n"


def _own(changes: dict[str, Any]) -> Scenario:
    """Of faults that are named.  Beyond the model nothing is demanded but fencing."""
    faults = changes["faults"]
    beyond = [fault for fault in faults if not FAULTS[fault].in_model]
    forgets = next((fault for fault in ("forget", "roll") if fault in faults), None)
    if forgets is not None:
        if changes.setdefault("persistence", "none") == "always":
            beyond.append(f"{forgets} with appendfsync always, which promises to forget nothing")
        if changes.get("restart_guard") is False:
            beyond.append(f"{forgets} without the restart guard")
    what = ", ".join(faults) or "no fault"
    if beyond:
        return Scenario("of your own", f"{what} (beyond the model: {', '.join(beyond)})", must=("fenced",))
    return Scenario("of your own", what)


def _again(args: argparse.Namespace, seed: int) -> str:
    words = sys.argv[1:]
    return shlex.join([*PROGRAM, *words, *(() if args.seed is not None else ("--seed", str(seed)))])


assert set(GROUPS).isdisjoint(FAULTS)  # noqa: S101 - one word means one thing
