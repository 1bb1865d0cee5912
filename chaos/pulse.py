"""What a busy machine did to clients: that is not what the lock did.

A client notes how long its threads have waited for a processor (`chaos.clients.watch`).  Where a holder was
told of its loss so late only because of that, the client was stopped, by the machine instead of by the
nemesis, and the history says so.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from .history import NEMESIS, Writer
from .judge.prompt import GRACE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

WHY = "the machine did not run it"
MACHINE = "machine"  # what it is called among the faults: nobody asked for it


def excuse(events: Path, clients: Iterable[str], *, until: float) -> int:
    """Write down when ``clients`` were not run and a holder was told late for it.  Returns how often.

    What was later than ``until`` is not excused: it would count as the last fault, and nobody would be left
    to show that every lock can be had after that.
    """
    found = 0
    struck = [event for event in _lines(events / f"{NEMESIS}.jsonl") if event["op"] == "stop"]
    with Writer(events / "machine.jsonl", NEMESIS) as record:
        for client in clients:
            waited = _lines(events / f"{client}.pulse")
            for due, told in _told_late(_lines(events / f"{client}.jsonl")):
                if told < until and not _stopped(client, due, struck) and explained(due, told, waited):
                    found += 1
                    record.write("stop", "invoke", t=due, target=client, fault=MACHINE, detail=WHY)
                    record.write("stop", "ok", t=told, target=client, fault=MACHINE, detail=WHY)
    return found


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
    return ((ends[token], told) for token, told in lost.items() if told > ends[token] + GRACE)


def _stopped(client: str, due: float, struck: list[dict[str, Any]]) -> bool:
    """By the nemesis, so that there is nothing to excuse."""
    began = [event["t"] for event in struck if event["phase"] == "invoke" and client in event["target"]]
    ended = [event["t"] for event in struck if event["phase"] == "ok" and client in event["target"]]
    return any(begin <= due + GRACE and due <= end for begin, end in zip(began, ended, strict=False))


def _lines(file: Path) -> list[Any]:
    """A client that was killed may have left half a line, or nothing at all."""
    return [json.loads(line) for line in file.read_text().split("\n")[:-1]] if file.exists() else []
