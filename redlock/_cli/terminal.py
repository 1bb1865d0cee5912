"""Who has the terminal: redlock-run, or its command."""

from __future__ import annotations

import contextlib
import os
import signal
import termios
from typing import Any


class Terminal:
    """The one that controls us, whatever the standard streams are; a program that asks for a password opens it.

    Without one nothing here does anything.
    """

    def __init__(self) -> None:
        self._fd = -1
        with contextlib.suppress(OSError):
            self._fd = os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY)
        self._before: list[Any] = []  # its modes
        self.given = False  # the command has it

    def in_front(self) -> bool:
        """Whether it is ours to give."""
        try:
            return os.tcgetpgrp(self._fd) == os.getpgrp()
        except OSError:  # there is none, or it has hung up
            return False

    def ours_alone(self) -> bool:
        """Whether we have it as what a person typed: nobody else of a script or a pipeline needs it."""
        return os.getpgrp() == os.getpid() and os.isatty(0) and os.isatty(1) and self.in_front()

    def give(self, group: int) -> None:
        """``group`` may read from it, and gets its Ctrl-C and Ctrl-Z."""
        if not self._before:
            self._before = termios.tcgetattr(self._fd)
        self._hand(group)
        self.given = True

    def take(self, *, restore: bool = False) -> None:
        """Have it again.  ``restore``: and in its old modes, for who had it had no time to see to that."""
        if self.given:
            self._hand(os.getpgrp())
            self.given = False
        if restore and self._before and self.in_front():
            with contextlib.suppress(termios.error):
                termios.tcsetattr(self._fd, termios.TCSADRAIN, self._before)

    def _hand(self, group: int) -> None:
        # Who is in the background and does this is stopped, unless it does not listen.
        before = signal.signal(signal.SIGTTOU, signal.SIG_IGN)
        try:
            with contextlib.suppress(OSError):  # the terminal or the group is gone
                os.tcsetpgrp(self._fd, group)
        finally:
            signal.signal(signal.SIGTTOU, before)
