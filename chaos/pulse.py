"""What a busy machine did to clients: that is not what the lock did.

A client notes when it was not run for a while (`chaos.clients.watch`).  Where that kept it from telling a
holder in time, it was stopped, by the machine instead of by the nemesis, and the history says so.
"""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

from chaos.history import NEMESIS, Writer
from chaos.judge.prompt import GRACE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

WHY = "the machine did not run it"


def excuse(events: Path, clients: Iterable[str], *, until: float) -> int:
    """Write down when ``clients`` were not run and a holder was told late for it.  Returns how often.

    What was later than ``until`` is not excused: it would count as the last fault, and nobody would be left
    to show that every lock can be had after that.
    """
    found = 0
    struck = [event for event in map(json.loads, _lines(events / "nemesis.jsonl")) if event["op"] == "stop"]
    with Writer(events / "machine.jsonl", NEMESIS) as record:
        for client in clients:
            late = [due for due in _told_late(events / f"{client}.jsonl") if not _stopped(client, due, struck)]
            for begin, end in _gaps(events / f"{client}.pulse"):
                if end < until and any(begin <= due + GRACE and due <= end for due in late):
                    found += 1
                    record.write("stop", "invoke", t=begin, target=client, detail=WHY)
                    record.write("stop", "ok", t=end, target=client, detail=WHY)
    return found


def _gaps(file: Path) -> list[tuple[float, float]]:
    return [(begin, end) for begin, end in map(json.loads, _lines(file))]


def _told_late(file: Path) -> Iterator[float]:
    """When holds ended whose holders were told late, or never."""
    ends: dict[str, float] = {}
    told: dict[str, float] = {}
    for event in map(json.loads, _lines(file)):
        if "valid_until" in event:
            ends[event["token"]] = event["valid_until"]
        elif event["op"] in ("lost", "release"):
            told[event["token"]] = min(event["t"], told.get(event["token"], math.inf))
    for token, end in ends.items():
        if told.get(token, math.inf) > end + GRACE:
            yield end


def _stopped(client: str, due: float, struck: list[dict[str, Any]]) -> bool:
    """By the nemesis, so that there is nothing to excuse."""
    began = [event["t"] for event in struck if event["phase"] == "invoke" and client in event["target"]]
    ended = [event["t"] for event in struck if event["phase"] == "ok" and client in event["target"]]
    return any(begin <= due + GRACE and due <= end for begin, end in zip(began, ended, strict=False))


def _lines(file: Path) -> list[str]:
    """A client that was killed may have left half a line, or nothing at all."""
    return file.read_text().split("\n")[:-1] if file.exists() else []
