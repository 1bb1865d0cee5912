"""What the session tells this process: the phase of the run, and by how much its wall clock is wrong."""

from __future__ import annotations

import mmap
import time
from typing import TYPE_CHECKING

from chaos.cast import CONTROL, END, WORK

if TYPE_CHECKING:
    from pathlib import Path


class Stage:
    """Reads a few bytes that are shared with the session: no call, no message, in force at once."""

    def __init__(self, control: Path) -> None:
        with control.open("r+b") as opened:
            self._shared = mmap.mmap(opened.fileno(), CONTROL.size)

    @property
    def working(self) -> bool:
        return self._phase == WORK

    @property
    def over(self) -> bool:
        return self._phase == END

    @property
    def _phase(self) -> int:
        phase: int = CONTROL.unpack_from(self._shared)[1]
        return phase

    def wrong_by(self) -> float:
        """Seconds that this process's wall clock is ahead."""
        seconds: float = CONTROL.unpack_from(self._shared)[0]
        return seconds

    def set_wall_clock(self) -> None:
        """From now on `time.time` shows what the session wants.  No other clock does, as on a machine
        whose operator sets the time."""
        right, right_ns = time.time, time.time_ns
        time.time = lambda: right() + self.wrong_by()
        time.time_ns = lambda: right_ns() + int(self.wrong_by() * 1e9)
