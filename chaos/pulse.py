"""What a busy machine did to clients: it is not what the lock did.

A client notes when it was not run for a while.  Where that kept it from telling a holder in time, it was
stopped, by the machine instead of by the nemesis, and the history says so.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from chaos.history import NEMESIS, Writer

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

GRACE: Final = 0.050    # as in the judge: how long telling a holder may take


def excuse(events: Path, out: Path, workers: dict[str, Sequence[str]], settled: float) -> int:
    """Write to ``out`` when clients were not run and it mattered.  ``workers``: of each client.

    Until ``settled``, or it would count as the last fault that was healed.  Returns how many there were.
    """
    found = 0
    with Writer(out, NEMESIS) as record:
        for client, names in workers.items():
            gaps = _gaps(events / f"{client}.pulse")
            if not gaps:
                continue
            ends = [end for name in names for end in _ends(events / f"{name}.jsonl")]
            for begin, end in gaps:
                if any(begin - GRACE <= one <= end for one in ends) and end < settled:
                    found += 1
                    detail = "the machine did not run it"
                    record.write("stop", "invoke", t=begin, target=list(names), detail=detail)
                    record.write("stop", "ok", t=end, target=list(names), detail=detail)
    return found


def _gaps(file: Path) -> list[tuple[float, float]]:
    """One that was killed may have left half a line."""
    lines = file.read_text().split("\n")[:-1] if file.exists() else []
    return [(begin, end) for begin, end in map(json.loads, lines)]


def _ends(file: Path) -> list[float]:
    """All ends of validity that were written down there."""
    events = map(json.loads, file.read_text().split("\n")[:-1])
    return [event["valid_until"] for event in events if "valid_until" in event]
