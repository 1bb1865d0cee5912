"""The two files that a run leaves beside its history."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

from .document import document
from .timeline import timeline

if TYPE_CHECKING:
    import os

    from ..history import History
    from ..judge import Verdict
    from ..summary import Summary


def directory(text: str) -> str:
    """An argument of the command line."""
    if not text:
        raise argparse.ArgumentTypeError(f"{text!r}: it must be a directory")
    return text


def write(directory: str | os.PathLike[str], history: History, verdict: Verdict, summary: Summary) -> None:
    """``verdict.json`` and ``timeline.html`` in ``directory``, which is made if it is not there.

    Raises:
        OSError: that is not possible.
    """
    into = Path(directory)
    into.mkdir(parents=True, exist_ok=True)
    text = json.dumps(document(history, verdict, summary), indent=1, allow_nan=False)
    (into / "verdict.json").write_text(text + "\n", encoding="utf-8")
    (into / "timeline.html").write_text(timeline(history, verdict, summary), encoding="utf-8")
