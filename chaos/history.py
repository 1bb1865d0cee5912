"""What happened, one JSON object a line: the only thing that those who work and the judge share.

    {"schema": 1, "seed": 7, "masters": 5, "locks": ["a"], "clients": ["client-1"], "clock": "boottime",
     "ttl": 2.0, "must": ["exclusive", "fenced"]}
    {"t": 10.0, "process": "client-1", "op": "acquire", "phase": "invoke", "lock": "a"}
    {"t": 10.1, "process": "client-1", "op": "acquire", "phase": "ok", "lock": "a", "token": "f00",
     "fence": 1, "valid_until": 12.0}
    {"events": 2}

Each writer has a file of its own, and `merge` makes one of them.  docs/chaos-history.md lists all fields.
"""

from __future__ import annotations

import io
import json
import math
import os
import sys
import time
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, Self, TypeAlias, cast, get_args

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

SCHEMA: Final = 1
DRIFT_FACTOR: Final = 0.01  # where a header has none
FOOTER: Final = "footer"  # in a header: the last line is one, so that a cut at the end of a line is noticed
NEMESIS: Final = "nemesis"
OBSERVER: Final = "observer"

Phase: TypeAlias = Literal["invoke", "ok", "fail", "info"]
Store: TypeAlias = Literal["fenced", "plain"]
Mode: TypeAlias = Literal["shared"]
Must: TypeAlias = Literal["exclusive", "fenced", "prompt", "live", "clean", "kept", "handover", "slots", "order"]
# What has to hold always, and is judged whether it is demanded or not.
MUST: Final[tuple[Must, ...]] = ("exclusive", "fenced", "prompt", "live", "clean")
# The others are judged only where they are demanded: elsewhere leases are lost, and not everybody wants a lock at once.
DEMANDABLE: Final[tuple[Must, ...]] = get_args(Must)

# Seconds on one clock for all processes of a machine, which also counts while it sleeps: that of the leases
# themselves (R5), so that `valid_until` and `t` can be compared.
now: Callable[[], float] = partial(
    time.clock_gettime, time.CLOCK_BOOTTIME if sys.platform == "linux" else time.CLOCK_MONOTONIC
)


class Unreadable(ValueError):  # noqa: N818 - what it is, as a verdict: neither passed nor violated
    """This is not a whole history in a format that is known here.  The text says where and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """The first line.  ``ttl`` is in seconds; ``must`` is what the scenario states.

    What has a default is for people, and may be missing.
    """

    locks: tuple[str, ...]
    ttl: float
    must: tuple[Must, ...]
    masters: int = 0
    clients: tuple[str, ...] = ()
    seed: int | str | None = None
    clock: str = "boottime"
    schema: int = SCHEMA
    slots: Mapping[str, int] = field(default_factory=dict)  # how many there are of each group
    faults: tuple[str, ...] = ()  # that were asked for
    must_strike: tuple[str, ...] = ()  # those of them without which nothing is proven: they were asked for by name
    variant: str | None = None  # the lock was broken on purpose
    breaks: tuple[Must, ...] = ()  # what has to be violated then
    # As in `redlock.Masters`: the steps of a history are judged by them.
    drift_factor: float = DRIFT_FACTOR
    confirm_expiry: bool = False

    def as_dict(self) -> dict[str, object]:
        return {
            "schema": self.schema,
            "seed": self.seed,
            "masters": self.masters,
            "locks": list(self.locks),
            "clients": list(self.clients),
            "clock": self.clock,
            "ttl": self.ttl,
            "must": list(self.must),
            **({"slots": dict(self.slots)} if self.slots else {}),
            **({"faults": list(self.faults), "must_strike": list(self.must_strike)} if self.faults else {}),
            **({"variant": self.variant, "breaks": list(self.breaks)} if self.variant else {}),
            **({"drift_factor": self.drift_factor} if self.drift_factor != DRIFT_FACTOR else {}),
            **({"confirm_expiry": True} if self.confirm_expiry else {}),
        }


@dataclass(frozen=True, slots=True)
class Key:
    """A lock key that was found on a master.  ``pttl_ms`` is None for one without expiry."""

    lock: str
    token: str
    pttl_ms: int | None


class Vote(NamedTuple):
    """What one master said, so many seconds ``after`` the request was sent; the outcome is one of `redlock.Vote`.

    A grant with a ``reason`` is no plain one: the master has the key, and a greater fence than was asked for (R18).
    """

    master: str
    outcome: str
    after: float | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One line; fields that do not apply are None or empty.

    ``line`` is its number in the file, counted from 1.  ``worker`` tells the threads or tasks of one process
    apart: each does one thing of a kind at a time, so that an answer finds its invocation.
    """

    line: int
    t: float
    process: str
    op: str
    phase: Phase
    worker: str | None = None
    lock: str | None = None
    token: str | None = None
    fence: int | None = None
    valid_until: float | None = None
    reason: str | None = None
    store: Store | None = None
    accepted: bool | None = None
    mode: Mode | None = None  # `shared`: with other readers; None: for itself (R33)
    target: tuple[str, ...] = ()
    fault: str | None = None  # what it is called, where that is not the `op`
    keys: tuple[Key, ...] = ()
    detail: object = None
    votes: tuple[Vote, ...] = ()
    settled: tuple[Vote, ...] = ()  # of the second round, if the fence took one (R17)
    after: float | None = None  # seconds since the acquire began

    def as_dict(self) -> dict[str, object]:
        """As in the file, with the number of the line; without what is None or empty."""
        return {name: value for name, value in asdict(self).items() if value is not None and value != ()}

    @property
    def by_client(self) -> bool:
        return self.process not in (NEMESIS, OBSERVER)


@dataclass(frozen=True, slots=True)
class History:
    """``events`` are in the order of their times, those of one time in that of the file (C31).

    ``perhaps_cut``: the file has no footer, and may have been cut at the end of a line.
    """

    header: Header
    events: tuple[Event, ...] = field(repr=False)
    perhaps_cut: bool = False

    @property
    def begin(self) -> float:
        return self.events[0].t if self.events else 0.0

    @property
    def end(self) -> float:
        """The time of the last event: what lies beyond it nobody has seen."""
        return self.events[-1].t if self.events else 0.0


# -- reading -----------------------------------------------------------------------------------------------


def read(path: str | os.PathLike[str]) -> History:
    """The history in the file ``path``.

    Raises:
        Unreadable: it cannot be read, is cut short, or has a line that this schema does not know (C31).
    """
    try:
        with Path(path).open("rb") as file:
            return _history(file)
    except OSError as error:
        raise Unreadable(f"{os.fspath(path)}: {error.strerror or error}") from error
    except Unreadable as error:
        raise Unreadable(f"{os.fspath(path)}: {error}") from error


def parse(data: bytes) -> History:
    """The history that ``data`` is the file of.  Raises `Unreadable`."""
    return _history(io.BytesIO(data))


def _history(file: Iterable[bytes]) -> History:
    lines = _lines(file)
    first = next(lines, None)
    if first is None:
        raise Unreadable("is empty: not even a header")
    values = _object(first, 1)
    header = _header(values)
    promised = _Fields(values, 1).perhaps_flag(FOOTER)
    events: list[Event] = []
    known: dict[str, str] = {}  # each text once: names and tokens are in many lines
    footer = False
    for number, text in enumerate(lines, start=2):
        found = _object(text, number)
        if footer:
            raise Unreadable(f"line {number}: stands behind the footer, which is the last line")
        footer = _is_footer(found)
        if not footer:
            events.append(_event(found, number, known))
        elif found["events"] != len(events):
            raise Unreadable(
                f"line {number}: the footer says that {_shown(found['events'])} events were written, and {len(events)} are there"
            )
    if promised and not footer:
        raise Unreadable(
            f"line {len(events) + 1}: is the last one, and the header promises a footer, so the file is cut short"
        )
    events.sort(key=lambda event: event.t)
    return History(header, tuple(events), perhaps_cut=not footer)


def _is_footer(values: dict[str, Any]) -> bool:
    return "events" in values and "t" not in values and "process" not in values


def _shown(value: object) -> str:
    return f"{value!r:.80}"


def _lines(file: Iterable[bytes]) -> Iterator[bytes]:
    for number, line in enumerate(file, start=1):
        if not line.endswith(b"\n"):
            raise Unreadable(f"line {number}: has no newline, so the file is cut short")
        yield line[:-1]


def _whole_lines(file: Iterable[bytes]) -> Iterator[bytes]:
    return (line[:-1] for line in file if line.endswith(b"\n"))


def _object(text: bytes, line: int) -> dict[str, Any]:
    try:
        found = json.loads(text, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        raise Unreadable(f"line {line}: is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise Unreadable(f"line {line}: is {type(found).__name__}, it must be a JSON object")
    return cast("dict[str, Any]", found)


def _no_number(text: str) -> float:
    raise ValueError(f"{text} is no number")


class _Fields:
    """Takes typed values out of one line, and says which line it was if one is missing or of another type."""

    def __init__(self, values: dict[str, Any], line: int, known: dict[str, str] | None = None) -> None:
        self._values = values
        self._line = line
        self._known = {} if known is None else known

    def wrong(self, name: str, wanted: str) -> Unreadable:
        if self._values.get(name) is None:
            return Unreadable(f"line {self._line}: {name!r} is missing, it must be {wanted}")
        return Unreadable(f"line {self._line}: {name!r} is {self._values[name]!r:.80}, it must be {wanted}")

    def raw(self, name: str) -> Any:
        return self._values.get(name)

    def text(self, name: str) -> str:
        value = self._values.get(name)
        if not isinstance(value, str):
            raise self.wrong(name, "a string")
        return self._known.setdefault(value, value)

    def number(self, name: str) -> float:
        value = self._values.get(name)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.wrong(name, "a number")
        try:
            number = float(value)
        except OverflowError:
            raise self.wrong(name, "a finite number") from None
        if not math.isfinite(number):
            raise self.wrong(name, "a finite number")
        return number

    def whole(self, name: str) -> int:
        value = self._values.get(name)
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.wrong(name, "a whole number")
        return value

    def names(self, name: str) -> tuple[str, ...]:
        value = self._values.get(name)
        if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
            raise self.wrong(name, "a list of strings")
        return tuple(value)

    def word(self, name: str, allowed: tuple[str, ...]) -> str:
        value = self._values.get(name)
        if not isinstance(value, str) or value not in allowed:
            raise self.wrong(name, "one of " + ", ".join(allowed))
        return self._known.setdefault(value, value)

    def perhaps_text(self, name: str) -> str | None:
        return None if self._values.get(name) is None else self.text(name)

    def perhaps_number(self, name: str) -> float | None:
        return None if self._values.get(name) is None else self.number(name)

    def perhaps_whole(self, name: str) -> int | None:
        return None if self._values.get(name) is None else self.whole(name)

    def perhaps_word(self, name: str, allowed: tuple[str, ...]) -> str | None:
        return None if self._values.get(name) is None else self.word(name, allowed)

    def perhaps_flag(self, name: str) -> bool | None:
        value = self._values.get(name)
        if value is not None and not isinstance(value, bool):
            raise self.wrong(name, "true or false")
        return value

    def one_or_more(self, name: str) -> tuple[str, ...]:
        value = self._values.get(name)
        if value is None:
            return ()
        return (value,) if isinstance(value, str) else self.names(name)

    def numbers(self, name: str) -> dict[str, int]:
        value = self._values.get(name)
        if value is None:
            return {}
        if not isinstance(value, dict) or not all(type(one) is int and one > 0 for one in value.values()):
            raise self.wrong(name, "an object of whole numbers, 1 or more")
        return value

    def keys(self, name: str) -> tuple[Key, ...]:
        value = self._values.get(name)
        if value is None:
            return ()
        if not isinstance(value, list) or not all(isinstance(one, dict) for one in value):
            raise self.wrong(name, "a list of objects")
        found = []
        for one in value:
            fields = _Fields(one, self._line, self._known)
            found.append(Key(fields.text("lock"), fields.text("token"), fields.perhaps_whole("pttl_ms")))
        return tuple(found)

    def votes(self, name: str) -> tuple[Vote, ...]:
        value = self._values.get(name)
        if value is None:
            return ()
        if not isinstance(value, list):
            raise self.wrong(name, "a list of votes")
        return tuple(self._vote(one) for one in value)

    def _vote(self, one: object) -> Vote:
        match one:
            case [str(master), str(outcome)]:
                return Vote(self._same(master), self._same(outcome))
            case [str(master), str(outcome), None | int() | float() as after]:
                return Vote(self._same(master), self._same(outcome), after)
            case [str(master), str(outcome), None | int() | float() as after, str(reason)]:
                return Vote(self._same(master), self._same(outcome), after, reason)
        raise Unreadable(
            f"line {self._line}: {one!r:.80} is no vote, it must be a master, an outcome, seconds, a reason"
        )

    def _same(self, text: str) -> str:
        return self._known.setdefault(text, text)


def _header(values: dict[str, Any]) -> Header:
    fields = _Fields(values, 1)
    schema = fields.raw("schema")
    if isinstance(schema, bool) or schema != SCHEMA:
        raise Unreadable(f"line 1: schema is {schema!r:.80}, only {SCHEMA} is known here")
    seed = fields.raw("seed")
    if isinstance(seed, bool) or not isinstance(seed, int | str | None):
        raise fields.wrong("seed", "a whole number or a string")
    ttl = fields.number("ttl")
    if ttl <= 0:
        raise fields.wrong("ttl", "more than 0 seconds")
    return Header(
        locks=fields.names("locks"),
        ttl=ttl,
        must=demanded(fields.names("must")),
        masters=fields.perhaps_whole("masters") or 0,
        clients=() if fields.raw("clients") is None else fields.names("clients"),
        seed=seed,
        clock=fields.perhaps_text("clock") or "boottime",
        slots=fields.numbers("slots"),
        faults=fields.one_or_more("faults"),
        must_strike=fields.one_or_more("must_strike"),
        variant=fields.perhaps_text("variant"),
        breaks=demanded(fields.one_or_more("breaks")),
        drift_factor=DRIFT_FACTOR if (drift := fields.perhaps_number("drift_factor")) is None else drift,
        confirm_expiry=bool(fields.perhaps_flag("confirm_expiry")),
    )


def demanded(names: Iterable[str]) -> tuple[Must, ...]:
    """``names`` as what must hold, each once.  Raises `Unreadable` for a name that is none (C31)."""
    must: list[Must] = []
    for name in names:
        if name not in DEMANDABLE:
            raise Unreadable(f"{name!r} is nothing that can be demanded, only {', '.join(DEMANDABLE)}")
        if name not in must:
            must.append(name)
    return tuple(must)


def _event(values: dict[str, Any], line: int, known: dict[str, str]) -> Event:
    fields = _Fields(values, line, known)
    process = fields.text("process")
    event = Event(
        line=line,
        t=fields.number("t"),
        process=process,
        op=fields.text("op"),
        phase=cast("Phase", fields.word("phase", get_args(Phase))),
        worker=fields.perhaps_text("worker"),
        lock=fields.perhaps_text("lock"),
        token=fields.perhaps_text("token"),
        fence=fields.perhaps_whole("fence"),
        valid_until=fields.perhaps_number("valid_until"),
        reason=fields.perhaps_text("reason"),
        store=cast("Store | None", fields.perhaps_word("store", get_args(Store))),
        accepted=fields.perhaps_flag("accepted"),
        mode=cast("Mode | None", fields.perhaps_word("mode", get_args(Mode))),
        target=fields.one_or_more("target"),
        fault=fields.perhaps_text("fault"),
        keys=fields.keys("keys"),
        detail=fields.raw("detail"),
        votes=fields.votes("votes"),
        settled=fields.votes("settled"),
        after=fields.perhaps_number("after"),
    )
    for name in _NEEDED.get((event.op, event.phase), ()) if process != NEMESIS else ():
        if fields.raw(name) is None:
            raise Unreadable(f"line {line}: {event.op} {event.phase} without {name!r}, which it must have")
    if event.op == "use" and event.store == "fenced" and event.accepted and event.fence is None:
        raise Unreadable(f"line {line}: the fenced store accepted a use without 'fence'")
    return event


# What the judge stands on.  A fence may be missing: then `fenced` cannot be judged, and the rest can.
_NEEDED: Final[dict[tuple[str, str], tuple[str, ...]]] = {
    ("acquire", "ok"): ("lock", "token", "valid_until"),
    ("resume", "ok"): ("lock", "token", "valid_until"),
    ("extend", "ok"): ("token", "valid_until"),
    ("downgrade", "invoke"): ("token",),
    ("release", "invoke"): ("token",),
    ("lost", "info"): ("token",),
    ("use", "ok"): ("token", "store", "accepted"),
    ("inspect", "ok"): ("keys",),
}


# -- writing -----------------------------------------------------------------------------------------------


class Writer:
    """Appends what one process sees to a file of its own.

    Each event is one write to a descriptor in append mode: threads need no lock, and of a process that is killed there
    are whole lines, but perhaps for the last one: where a line reaches into another page, the kernel may end a write
    half-way.  That process did nothing after that write, so `merge` leaves such a line out.  Nothing is buffered.
    """

    def __init__(self, path: str | os.PathLike[str], process: str) -> None:
        self.process = process
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        _cut_half_a_line(self._fd)

    def write(self, op: str, phase: Phase, *, t: float | None = None, **fields: object) -> None:
        """``t`` is now unless it is given; fields that are None are left out.

        Raises:
            OSError: the line could not be written whole.
            ValueError: a value has no place in JSON, as NaN has none.
        """
        event: dict[str, object] = {"t": now() if t is None else t, "process": self.process, "op": op, "phase": phase}
        event.update((name, value) for name, value in fields.items() if value is not None)
        line = _line(event)
        written = os.write(self._fd, line)
        if written != len(line):
            raise OSError(f"{written} of {len(line)} bytes of an event were written")

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _cut_half_a_line(fd: int) -> None:
    """Of a process of this name that was killed before: what follows would be a part of that line."""
    written = os.pread(fd, os.fstat(fd).st_size, 0)
    whole = written.rfind(b"\n") + 1
    if whole < len(written):
        os.ftruncate(fd, whole)


def merge(
    paths: Iterable[str | os.PathLike[str]], header: Header | Mapping[str, object], out: str | os.PathLike[str]
) -> None:
    """Makes one history of the files that writers have written, in the order of time, with a footer.

    ``out`` is there whole, or not at all.  A last line without a newline is left out, see `Writer`.

    Raises:
        Unreadable: one of the files cannot be read, or has a line that is no event; or the header is none.
    """
    first = _line({**(header.as_dict() if isinstance(header, Header) else header), FOOTER: True})
    _header(_object(first, 1))
    found: list[tuple[float, bytes]] = []
    for path in paths:
        try:
            with Path(path).open("rb") as part:
                found.extend(
                    (_event(_object(text, number), number, {}).t, text)
                    for number, text in enumerate(_whole_lines(part), start=1)
                )
        except OSError as error:
            raise Unreadable(f"{os.fspath(path)}: {error.strerror or error}") from error
        except Unreadable as error:
            raise Unreadable(f"{os.fspath(path)}: {error}") from error
    found.sort(key=lambda one: one[0])
    target = Path(out)
    half = target.with_name(target.name + ".part")
    try:
        with half.open("wb") as file:
            file.write(first)
            file.writelines(text + b"\n" for _, text in found)
            file.write(_line({"events": len(found)}))
        half.replace(target)
    except BaseException:
        half.unlink(missing_ok=True)
        raise


def _line(values: Mapping[str, object]) -> bytes:
    return json.dumps(values, allow_nan=False, separators=(",", ":")).encode() + b"\n"
