"""Ctrl-C at a line that a test chooses, or a signal handler that raises at a bytecode of its choice."""

import contextlib
import gc
import itertools
import linecache
import os
import random
import sys

import redlock


class Interrupt:
    """Raises KeyboardInterrupt at the n-th line that this library executes in this thread.

    Ctrl-C comes between two bytecodes, wherever; a trace function can put it at every line in turn.
    """

    error: type[BaseException] = KeyboardInterrupt
    no_place: tuple[str, ...] = ("with ", "try:")
    package = os.path.dirname(redlock.__file__) + os.sep

    def __init__(self, at):
        self.at = self.left = at
        self.where = ""
        self.struck = False

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

    @contextlib.contextmanager
    def strikes(self):
        """The same, and goes on behind it when it was struck."""
        try:
            with self.tracing():
                yield
        except self.error:
            self.struck = True

    def __call__(self, frame, event, arg):
        if not frame.f_code.co_filename.startswith(self.package):
            return None
        # WithExit a `with` and entering a `try` are lines of their own for a trace function, but not places
        # where the interpreter looks for signals (that is after calls and on jumps back): nothing can
        # strike between the body of a `with` and its end.
        if event == "line" and not self.text(frame).startswith(self.no_place):
            self.count(frame)
        return self

    @staticmethod
    def text(frame):
        """The line that is about to be executed."""
        return linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip()

    def count(self, frame):
        self.left -= 1
        if self.left == 0:
            self.where = f"{frame.f_code.co_filename}:{frame.f_lineno}"
            raise self.error


def at_every_line(least=50, make=Interrupt, step=1):
    """An `Interrupt` for each line in turn, until one is over before its line; of the others at least so many strike.

    ``step``: only for each line of so many, from one that is drawn anew in each run.
    """
    struck = 0
    for at in itertools.count(random.randint(1, step), step):
        interrupt = make(at)
        yield interrupt
        print(interrupt.at, interrupt.where)  # of the one that went wrong
        struck += interrupt.struck
        if interrupt.left > 0:
            break
    assert struck > least


class InTheCleanup(Interrupt):
    """A second one, at the n-th line behind the first one, which is thrown into an operation."""

    no_place = (*Interrupt.no_place, "except ")  # here, too, the interpreter does not look for signals

    @contextlib.contextmanager
    def tracing(self):
        with super().tracing():
            sys.settrace(None)
            yield

    def first(self, *_):
        """The first one."""
        sys.settrace(self)
        raise self.error

    def of(self, op):
        """``op``, struck there."""
        step, argument = op.send, None
        while True:
            try:
                effect = step(argument)
            except StopIteration as stop:
                return stop.value
            try:
                step, argument = op.send, (yield effect)
            except BaseException as error:  # noqa: BLE001 - what strikes first
                step, argument = op.throw, error
                sys.settrace(self)


class Struck(Exception):  # noqa: N818 - what a signal handler raises
    pass


class AtOpcode(Interrupt):
    """Raises `Struck` at the n-th bytecode of one function of a user, as a signal handler may."""

    error = Struck

    def __init__(self, code, at):
        super().__init__(at)
        self.code = code

    def __call__(self, frame, event, arg):
        if frame.f_code is not self.code:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            self.count(frame)
        return self


def at_every_opcode(function):
    """The same for the bytecodes of ``function``."""
    told = sys.version_info[:2] != (3, 12)  # which tells a trace function of the bytecodes once, and not again
    return at_every_line(10 if told else -1, lambda at: AtOpcode(function.__code__, at))
