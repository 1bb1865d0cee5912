"""Notes how long the machine did not run this process, for `chaos.pulse`: that is not what the lock did."""

from __future__ import annotations

import json
import os
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from ..history import now

# Seconds between two looks, and how much is worth a note.
_PULSE: Final = 0.02
_WORTH: Final = 0.001
_THREADS: Final = "/proc/self/task"
_THIS_THREAD: Final = Path("/proc/thread-self/schedstat")


class Pulse:
    """For how long threads of this process have waited for a processor, in a file.

    A line is an interval, and for how long they have waited in it, in sum: one may have waited for another
    that had something locked, and was not run.  Linux says that; elsewhere only how late the thread of `beat`
    came is known.
    """

    def __init__(self, file: Path) -> None:
        self._notes = file.open("a", buffering=1)
        self._waited = _Waited()
        self._lock = threading.Lock()
        self._before = now()

    def beat(self) -> None:
        """For ever, in a thread of its own."""
        while True:
            time.sleep(_PULSE)
            self.look()

    def look(self) -> None:
        """Note what was since the last look.  Any thread may do so: the process may be killed before the next beat."""
        with self._lock:
            before, after = self._before, now()
            seconds = max(self._waited.more(), after - before - _PULSE)
            if seconds > _WORTH:
                # What a thread has waited is known when it runs again: it may have begun before this interval.
                self._notes.write(json.dumps([min(before, after - seconds), after, seconds]) + "\n")
            self._before = after


class _Waited:
    """How long threads of this process have waited for a processor."""

    def __init__(self) -> None:
        self._files: dict[str, int] = {}
        self._known: dict[str, int] = {}
        # One that connects may begin, wait and end between two looks, and have the interpreter's lock meanwhile.
        self._ended: dict[str, int] = {}
        run = threading.Thread.run

        def run_and_say(thread: threading.Thread) -> None:
            try:
                run(thread)
            finally:
                with suppress(OSError, IndexError):
                    self._ended[str(threading.get_native_id())] = _nanoseconds(_THIS_THREAD.read_bytes())

        threading.Thread.run = run_and_say  # type: ignore[method-assign, assignment]

    def more(self) -> float:
        """Seconds since the last call, of all of them."""
        seconds = 0.0
        try:
            threads = os.listdir(_THREADS)  # noqa: PTH208 - names are all that is wanted, fifty times a second
        except OSError:
            return seconds
        while self._ended:
            seconds += self._since(*self._ended.popitem())
        for gone in self._files.keys() - set(threads):
            os.close(self._files.pop(gone))
        for thread in threads:
            with suppress(OSError, IndexError):  # it has just ended, or this kernel does not say
                if thread not in self._files:
                    self._files[thread] = os.open(f"{_THREADS}/{thread}/schedstat", os.O_RDONLY | os.O_CLOEXEC)
                seconds += self._since(thread, _nanoseconds(os.pread(self._files[thread], 100, 0)))
        for gone in self._known.keys() - self._files.keys():
            del self._known[gone]
        return seconds

    def _since(self, thread: str, total: int) -> float:
        more = total - self._known.get(thread, 0)
        self._known[thread] = total
        return more / 1e9


def _nanoseconds(schedstat: bytes) -> int:
    return int(schedstat.split()[1])
