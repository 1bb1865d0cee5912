"""Ctrl-C at a line that a test chooses."""

from __future__ import annotations

import contextlib
import gc
import linecache
import os
import sys

import redlock


class Interrupt:
    """Raises KeyboardInterrupt at the n-th line that this library executes in this thread.

    Ctrl-C comes between two bytecodes, wherever; a trace function can put it at every line in turn.
    """

    def __init__(self, at: int) -> None:
        self.left = at
        self.where = ""
        self._package = os.path.dirname(redlock.__file__) + os.sep

    @contextlib.contextmanager
    def tracing(self):
        """Without garbage collections: what tests before this one left is not what Ctrl-C is to strike."""
        previous = sys.gettrace()
        gc.disable()
        sys.settrace(self)
        try:
            yield
        finally:
            sys.settrace(previous)
            gc.enable()

    def __call__(self, frame, event, arg):
        if not frame.f_code.co_filename.startswith(self._package):
            return None
        # Leaving a `with` and entering a `try` are lines of their own for a trace function, but not places
        # where the interpreter looks for signals (that is after calls and on jumps back): nothing can
        # strike between the body of a `with` and its end.
        text = linecache.getline(frame.f_code.co_filename, frame.f_lineno)
        if event == "line" and not text.lstrip().startswith(("with ", "try:")):
            self.left -= 1
            if self.left == 0:
                self.where = f"{frame.f_code.co_filename}:{frame.f_lineno}"
                raise KeyboardInterrupt
        return self
