"""The terminal, which either redlock-run or its command controls."""

from __future__ import annotations

import contextlib
import os
import signal
import termios
from typing import Any


class Terminal:
    """The terminal that controls this process, whatever the standard streams are.

    A program that asks for a password opens it. If there is no terminal, all methods do nothing.
    """

    def __init__(self) -> None:
        self._fd = -1
        with contextlib.suppress(OSError):
            self._fd = os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY)
        self._before: list[Any] = []  # its modes before the command got it
        self.given = False  # True: the command has it

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    @property
    def was_given(self) -> bool:
        """Whether the command ever had it."""
        return bool(self._before)

    def in_front(self) -> bool:
        """Whether our process group is in the foreground of the terminal, so that we may give it away."""
        try:
            return os.tcgetpgrp(self._fd) == os.getpgrp()
        except OSError:  # there is no terminal, or it has hung up
            return False

    def ours_alone(self) -> bool:
        """Whether a person typed our command line alone: no other program of a script or pipeline needs it."""
        return os.getpgrp() == os.getpid() and os.isatty(0) and os.isatty(1) and self.in_front()

    def give(self, group: int) -> None:
        """Let ``group`` read from the terminal, and get its Ctrl-C and Ctrl-Z."""
        if not self._before:
            self._before = termios.tcgetattr(self._fd)
        self._hand(group)
        self.given = True

    def take(self, *, restore: bool = False) -> None:
        """Take the terminal back. ``restore``: also set its old modes, as the command had no time to do that."""
        if self.given:
            self._hand(os.getpgrp())
            self.given = False
        if restore and self._before and self.in_front():
            with contextlib.suppress(termios.error):
                termios.tcsetattr(self._fd, termios.TCSADRAIN, self._before)

    def _hand(self, group: int) -> None:
        # The kernel stops a background process that does this, unless it ignores SIGTTOU.
        before = signal.signal(signal.SIGTTOU, signal.SIG_IGN)
        try:
            with contextlib.suppress(OSError):  # the terminal or the group is gone
                os.tcsetpgrp(self._fd, group)
        finally:
            signal.signal(signal.SIGTTOU, before)
