"""Notes when the machine did not run this process, for `chaos.pulse`: that is not what the lock did."""

from __future__ import annotations

import json
import os
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from chaos.history import now

if TYPE_CHECKING:
    from pathlib import Path

# Seconds between two looks, and how much more is worth a note.
_PULSE: Final = 0.02
_SKIPPED: Final = 0.02
_THREADS: Final = "/proc/self/task"


def watch(file: Path) -> None:
    """For ever, in a thread of its own.  A line is an interval in which some thread waited to be run.

    This thread may have been run while the one that matters was not.  Linux says how long each has waited
    for a processor; elsewhere only what happens to this one is seen.
    """
    waited = _Waited()
    with file.open("a", buffering=1) as notes:
        before = now()
        while True:
            time.sleep(_PULSE)
            after = now()
            lost = waited.most()
            begin = min(before if after - before > _PULSE + _SKIPPED else after, after - lost - _PULSE if lost > _SKIPPED else after)
            if begin < after:
                notes.write(json.dumps([begin, after]) + "\n")
            before = after


class _Waited:
    """How long threads of this process have waited for a processor since the last look."""

    def __init__(self) -> None:
        self._files: dict[str, int] = {}
        self._known: dict[str, int] = {}

    def most(self) -> float:
        """Seconds, of the one that has waited longest."""
        most = 0
        try:
            threads = os.listdir(_THREADS)  # noqa: PTH208 - names are all that is wanted, fifty times a second
        except OSError:
            return 0.0
        for gone in self._files.keys() - set(threads):
            os.close(self._files.pop(gone))
            del self._known[gone]
        for thread in threads:
            with suppress(OSError):     # it has just ended
                if thread not in self._files:
                    self._files[thread] = os.open(f"{_THREADS}/{thread}/schedstat", os.O_RDONLY | os.O_CLOEXEC)
                    self._known[thread] = 0
                total = int(os.pread(self._files[thread], 100, 0).split()[1])
                most = max(most, total - self._known[thread])
                self._known[thread] = total
        return most / 1e9
