"""What the session wants of this process: the phase of the run, and by how much its wall clock is wrong."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from ..control import END, WORK, Control

if TYPE_CHECKING:
    from pathlib import Path


class Stage:
    def __init__(self, control: Path) -> None:
        self._control = Control(control)

    @property
    def working(self) -> bool:
        return self._control.phase == WORK

    @property
    def over(self) -> bool:
        return self._control.phase == END

    def set_wall_clock(self) -> None:
        """From now on `time.time` shows what the session wants.

        No other clock does, as on a machine whose operator sets the time.
        """
        control, right, right_ns = self._control, time.time, time.time_ns
        time.time = lambda: right() + control.wrong_by
        time.time_ns = lambda: right_ns() + int(control.wrong_by * 1e9)
