"""timeline.html: a lane for every client and master, to be read at a glance and then zoomed into.

One file that works from a disk, in a mail and behind a strict proxy: it loads nothing.  What is drawn is
data, computed here; the page only draws it, on a canvas, so that tens of thousands of events are no trouble.
"""

from __future__ import annotations

import json
import math
import re
from importlib import resources
from typing import TYPE_CHECKING, Final

from ..faults import FAULTS
from ..history import NEMESIS, OBSERVER
from ..judge.faults import faults
from ..judge.holds import holds
from .document import document
from .text import describe

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ..history import Event, History
    from ..judge import Verdict
    from ..summary import Summary

# Events that are drawn as marks of their own.  The rest is told by the holds.
_MARKS: Final = {
    ("lost", "info"): "lost",
    ("acquire", "fail"): "refused",
    ("acquire", "info"): "unclear",
    ("inspect", "ok"): "inspect",
}
_PLACEHOLDER: Final = re.compile(r"\{\{ (\w+) \}\}")


def timeline(history: History, verdict: Verdict, summary: Summary) -> str:
    """The page.  Names out of the history appear in it as text, whatever they are."""
    data = json.dumps(_data(history, verdict, summary), separators=(",", ":"), allow_nan=False)
    # Inside <script> only a "<" can end it.
    parts = {"style": _file("timeline.css"), "script": _file("timeline.js"), "data": data.replace("<", "\\u003c")}
    return _PLACEHOLDER.sub(lambda found: parts[found[1]], _file("timeline.html"))


def _file(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")


def _data(history: History, verdict: Verdict, summary: Summary) -> dict[str, object]:
    """Times are seconds since the first event, rounded to microseconds; lanes and locks are numbers."""
    lanes = _lanes(history)
    number = {name: at for at, (name, _) in enumerate(lanes)}
    shown = _Times(history)
    held = holds(history)
    locks = sorted({hold.lock for hold in held} | set(history.header.locks), key=_natural)
    lock_number = {lock: at for at, lock in enumerate(locks)}
    return {
        **{key: value for key, value in document(history, verdict, summary).items() if key != "rulings"},
        "begin": history.begin,
        "end": shown(history.end),
        "lanes": lanes,
        "locks": locks,
        "holds": [
            [
                number[hold.process],
                shown(hold.start),
                shown(hold.end),
                lock_number[hold.lock],
                hold.token,
                hold.fence,
                shown(hold.valid_until),
                hold.began.line,
                "passed on"
                if hold.passed_on is not None
                else "lost"
                if hold.lost is not None and hold.lost.t <= hold.end
                else "released"
                if hold.release is not None and hold.release.t <= hold.end
                else "ran out",
                None if hold.shared_from == math.inf else shown(max(hold.start, hold.shared_from)),
            ]
            for hold in held
        ],
        "marks": list(_marks(history, number, lock_number, shown)),
        "meanings": {name: FAULTS[name].what for name in summary.faults if name in FAULTS},
        "faults": [
            [
                number.get(fault.target, number[NEMESIS]),
                shown(fault.begin),
                None if fault.healed is None else shown(fault.end),
                fault.name,
                fault.target,
                fault.struck.line,
                describe(fault.struck),
            ]
            for fault in faults(history)
            if not fault.failed
        ],
        "rulings": [
            {
                "name": ruling.name,
                "outcome": ruling.outcome,
                "note": ruling.note,
                "demanded": ruling.name in verdict.must,
                "count": ruling.count,
                "violations": [
                    {
                        "sentence": one.sentence,
                        "at": shown(one.at),
                        "lock": one.lock,
                        "events": [
                            [event.line, shown(event.t), number[event.process], describe(event)] for event in one.events
                        ],
                    }
                    for one in ruling.violations
                ],
            }
            for ruling in verdict.rulings
        ],
    }


class _Times:
    def __init__(self, history: History) -> None:
        self._begin = history.begin

    def __call__(self, t: float) -> float:
        return round(t - self._begin, 6)


def _lanes(history: History) -> list[tuple[str, str]]:
    """Name and kind: clients as the header has them, then the masters, and the nemesis for all other targets."""
    header = history.header
    seen = {event.process for event in history.events if event.by_client}
    clients = sorted({*header.clients, *seen}, key=_natural)
    targets = {target for event in history.events if event.process == NEMESIS for target in event.target}
    looked = {target for event in history.events if event.process == OBSERVER for target in event.target}
    masters = sorted((targets | looked) - set(clients), key=_natural)
    if not any(name.startswith("master") for name in masters):
        masters = [*masters, *(f"master-{at}" for at in range(1, header.masters + 1))]
    else:
        masters = _filled(masters, header.masters)
    return [
        *((name, "client") for name in clients),
        *((name, "master") for name in masters),
        (NEMESIS, "other"),
        (OBSERVER, "other"),
    ]


def _filled(masters: list[str], size: int) -> list[str]:
    """With those that nothing happened to, if the names are numbers: their quiet lanes tell something as well."""
    numbers = [int(found[1]) for name in masters if (found := re.fullmatch(r"master-(\d+)", name))]
    if not numbers:
        return masters
    first = 0 if 0 in numbers else 1
    return sorted({*masters, *(f"master-{first + at}" for at in range(size))}, key=_natural)


def _natural(name: str) -> list[tuple[int, str]]:
    """client-2 before client-10."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", name)]


def _marks(
    history: History, number: dict[str, int], lock_number: dict[str, int], shown: _Times
) -> Iterator[list[object]]:
    """Lane, time, kind, lock, line and a word more, of what is drawn as a point."""
    for event in history.events:
        kind = _kind(event)
        if kind is None:
            continue
        lanes: Sequence[int] = [number[event.process]]
        if event.op == "inspect":
            lanes = [number[target] for target in event.target if target in number] or lanes
        lock = None if event.lock is None else lock_number.get(event.lock)
        for lane in lanes:
            yield [lane, shown(event.t), kind, lock, event.line, _words(event)]


def _kind(event: Event) -> str | None:
    if event.op == "use" and event.phase == "ok":
        return "use" if event.accepted else "rejected"
    return _MARKS.get((event.op, event.phase))


def _words(event: Event) -> str:
    if event.op == "use":
        return f"{event.store} store, fence {event.fence}"
    if event.op == "inspect":
        return f"{len(event.keys)} keys"
    if event.reason is not None:
        return event.reason
    return "" if event.detail is None else json.dumps(event.detail)
