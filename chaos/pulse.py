"""What a busy machine did to clients: that is not what the lock did.

A client notes how long its threads have waited for a processor (`chaos.clients.watch`).  Where a holder was
told of its loss so late only because of that, the client was stopped, by the machine instead of by the
nemesis, and the history says so.
"""

from __future__ import annotations

import json
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from .history import NEMESIS, OBSERVER, Writer
from .judge.prompt import GRACE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

WHY = "the machine did not run it"
SPAN, LONG = 0.5, 0.5  # seconds: `LONG` is how long the threads of a client were not run, in sum, within a `SPAN`
MACHINE = "machine"  # what it is called among the faults: nobody asked for it


def excuse(events: Path, clients: Iterable[str], *, until: float) -> int:
    """Write down when ``clients`` were not run and a holder was told late for it.  Returns how often.

    What was later than ``until`` goes on to the end: healed, it would count as the last fault, and too little of the
    run may be left to show that every lock can be had after that.
    """
    found = 0
    struck = [event for event in _lines(events / f"{NEMESIS}.jsonl") if event["op"] == "stop"]
    with Writer(events / "machine.jsonl", NEMESIS) as record:
        for client in clients:
            waited = _lines(events / f"{client}.pulse")
            for due, told in _told_late(_lines(events / f"{client}.jsonl")):
                if not _stopped(client, due, struck) and explained(due, told, waited):
                    found += 1
                    record.write("stop", "invoke", t=due, target=client, fault=MACHINE, detail=WHY)
                    if told < until:
                        record.write("stop", "ok", t=told, target=client, fault=MACHINE, detail=WHY)
    return found


def busy(events: Path, clients: Iterable[str]) -> int:
    """Write down when the machine hardly ran a client: whatever it does then may take longer.  Returns in how many spans."""
    found = _hardly_run(events, clients)
    with Writer(events / "busy.jsonl", OBSERVER) as record:
        for span, client in found:
            record.write("busy", "info", t=span * SPAN, target=client, detail={"until": (span + 1) * SPAN})
    return len(found)


def taken(events: Path, clients: Iterable[str], *, since: float) -> float:
    """For how many seconds since then the machine hardly ran any one of them."""
    return SPAN * len({span for span, _ in _hardly_run(events, clients) if (span + 1) * SPAN > since})


def _hardly_run(events: Path, clients: Iterable[str]) -> list[tuple[int, str]]:
    waited: defaultdict[tuple[int, str], float] = defaultdict(float)
    for client in clients:
        for begin, end, seconds in _lines(events / f"{client}.pulse"):
            for span in range(int(begin / SPAN), int(end / SPAN) + 1):
                within = min(end, (span + 1) * SPAN) - max(begin, span * SPAN)
                waited[span, client] += seconds * within / (end - begin)
    return sorted(of for of, seconds in waited.items() if seconds >= LONG)


def explained(due: float, told: float, waited: Iterable[list[float]]) -> bool:
    """Whether it would have been in time, had no thread of the process ever waited for a processor.

    ``waited``: from when, until when, and for how many seconds in sum.
    """
    return sum(seconds for begin, end, seconds in waited if begin <= told and due <= end) >= told - due - GRACE


def _told_late(events: Iterable[dict[str, Any]]) -> Iterator[tuple[float, float]]:
    """When holds ended whose holders were told late, and when they were."""
    ends: dict[str, float] = {}
    lost: dict[str, float] = {}
    for event in events:
        if "valid_until" in event:
            ends[event["token"]] = event["valid_until"]
        elif event["op"] == "lost":
            lost.setdefault(event["token"], event["t"])
    return ((ends[token], told) for token, told in lost.items() if told > ends.get(token, told) + GRACE)


def _stopped(client: str, due: float, struck: list[dict[str, Any]]) -> bool:
    """By the nemesis, so that there is nothing to excuse."""
    began = [event["t"] for event in struck if event["phase"] == "invoke" and client in event["target"]]
    ended = [event["t"] for event in struck if event["phase"] == "ok" and client in event["target"]]
    return any(begin <= due + GRACE and due <= end for begin, end in zip(began, ended, strict=False))


def _lines(file: Path) -> list[Any]:
    """A client that was killed may have left half a line, or nothing at all."""
    return [json.loads(line) for line in file.read_text().split("\n")[:-1]] if file.exists() else []
