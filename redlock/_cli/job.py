"""The command under the lock: a process group of its own, its signals, its terminal, its end.

Its process is forked before there is any thread and waits for the word to begin.  So the watchdog knows the group
before there is anything in it to watch, at whatever moment redlock-run is killed; a `Popen` can only be told of
when it runs already, and a function between fork and exec is not safe in a program with threads.

It is in a group of its own so that all of it can be ended, and nothing else.  That makes it a background job to
the terminal, so a Ctrl-C comes to redlock-run, which forwards it: once.  A command that wants to read from
the terminal is stopped by the kernel; then it is given the terminal, and gets its Ctrl-C from there.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import signal
import struct
import threading
from typing import TYPE_CHECKING, NoReturn

from redlock._cli.terminal import Terminal

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import FrameType
    from typing import Self

FORWARDED = (
    signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGWINCH,
)
_NOT_FOUND, _NOT_STARTED = 127, 126     # as in shells (C24)
_DO_NOTHING = (signal.SIGCHLD, signal.SIGWINCH)         # unless they are caught
_WANTS_IT = (signal.SIGTTIN, signal.SIGTTOU)    # the terminal
_ERROR = struct.Struct("i")


class NotStarted(Exception):  # noqa: N818 - named for what happened
    """The command cannot be started; ``code`` is what a shell would end with."""

    def __init__(self, command: str, error: int) -> None:
        missing = error == errno.ENOENT
        self.code = _NOT_FOUND if missing else _NOT_STARTED
        super().__init__(f"{command}: {'command not found' if missing else os.strerror(error)}")


class Signals:
    """From now on signals come as events, and none is lost between two looks."""

    def __init__(self) -> None:
        self.wakes, self._write = os.pipe()
        os.set_blocking(self.wakes, False)
        os.set_blocking(self._write, False)
        self._arrived: list[int] = []
        self._before: dict[int, object] = {}

    def __enter__(self) -> Self:
        self._fd_before = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        for number in (*FORWARDED, signal.SIGCHLD, signal.SIGTSTP):
            # What whoever started us has switched off (nohup) stays off, for the command as well.
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._before[number] = signal.signal(number, self._arrive)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            # Python speaks of a race if one of them arrives just when it is not caught any more, and the watchdog ends now.
            if number not in _DO_NOTHING:
                signal.signal(number, handler)  # type: ignore[arg-type]
        signal.set_wakeup_fd(self._fd_before)

    def _arrive(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002
        self._arrived.append(number)

    def wake(self) -> None:
        """Let whoever waits look up.  From any thread."""
        with contextlib.suppress(BlockingIOError):      # full of wake-ups
            os.write(self._write, b"\0")

    def take(self) -> list[int]:
        """Those that have arrived."""
        with contextlib.suppress(BlockingIOError):
            while os.read(self.wakes, 4096):
                pass
        arrived, self._arrived = self._arrived, []
        return arrived


class Job:
    """One command, which does not get the descriptors ``not_its``.  To be made before any thread."""

    def __init__(self, command: list[str], not_its: tuple[int, ...]) -> None:
        self._command = command
        word, self._word = os.pipe()
        self._failure, failure = os.pipe()
        self.group = os.fork()
        if self.group == 0:
            try:
                os.setpgid(0, 0)
                for descriptor in (self._word, self._failure, *not_its):
                    os.close(descriptor)
                _become(command, word, failure)
            finally:
                os._exit(_NOT_STARTED)
        os.close(word)
        os.close(failure)
        # It lets us go on nevertheless.  Threads inherit this, so whichever of them the kernel asks, it stays to be seen.
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCONT])
        with contextlib.suppress(OSError):      # whoever of the two comes first; it may have ended by now
            os.setpgid(self.group, self.group)
        self._begun = self._reaped = False
        self._terminal = Terminal()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if not self._begun:
            self.send(signal.SIGKILL)       # nobody has seen it
            os.close(self._word)
        self.reap()
        os.close(self._failure)

    def begin(self, environment: Mapping[str, str]) -> None:
        """With ``environment`` besides our own."""
        self._begun = True
        with contextlib.suppress(BrokenPipeError), os.fdopen(self._word, "wb") as word:      # `wait` says how it ended
            word.write(os.fsencode("".join(f"{name}={value}\0" for name, value in environment.items())))
        number = os.read(self._failure, _ERROR.size)        # closed when it begins
        if number:
            raise NotStarted(self._command[0], *_ERROR.unpack(number))

    def wait(self, signals: Signals, also: int, look: Callable[[], bool]) -> int | None:
        """Until the command ends: its exit code, 128 + n if a signal ended it.

        ``look`` is called at every event, of which ``also`` is a descriptor that becomes readable for one;
        when it returns False the wait is over: None.
        """
        poll = select.poll()
        poll.register(signals.wakes, select.POLLIN)
        poll.register(also, select.POLLIN)
        while True:
            if not look():
                return None
            code = self._news(signals)
            if code is not None:
                return code
            poll.poll()
            self._hear(signals)

    def send(self, number: int) -> None:
        """To the whole group, as far as it is ours: `sudo` makes it another user's."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.group, number)

    def reap(self) -> None:
        """It has been killed, or ended before it began."""
        if not self._reaped:
            os.waitpid(self.group, 0)
            self._reaped = True
            self._terminal.take(restore=True)

    def _hear(self, signals: Signals) -> None:
        for number in signals.take():
            if number == signal.SIGTSTP:
                self._suspend(signals)
            elif number != signal.SIGCHLD:
                self.send(number)

    def _news(self, signals: Signals) -> int | None:
        pid, status = os.waitpid(self.group, os.WNOHANG | os.WUNTRACED)
        if pid == 0:
            return None
        if os.WIFSTOPPED(status):
            self._stopped(os.WSTOPSIG(status), signals)
            return None
        self._reaped = True
        code = os.waitstatus_to_exitcode(status)
        self._terminal.take(restore=code < 0)
        return code if code >= 0 else 128 - code

    # -- the terminal --------------------------------------------------------------------------------

    def _stopped(self, number: int, signals: Signals) -> None:
        wants_it = number in _WANTS_IT
        if wants_it and self._terminal.in_front():
            self._terminal.give(self.group)
            self.send(signal.SIGCONT)
        elif wants_it or self._terminal.given:      # we are in the background ourselves; or it got a Ctrl-Z
            # The rest of the pipeline that we are in stops as well, as if it had come to all of us.
            number = number if wants_it else signal.SIGTSTP
            handler = signal.signal(number, signal.SIG_IGN)
            os.killpg(os.getpgrp(), number)
            signal.signal(number, handler)
            self._suspend(signals, number, give=True)
        # else whoever stopped it will let it go on

    def _suspend(self, signals: Signals, number: int = signal.SIGTSTP, *, give: bool = False) -> None:
        """Stop, all of it, and go on when the shell says so; by ``number``, from which the shell sees why.

        The lease is not renewed meanwhile, and the watchdog, which does not stop, ends the command in time.
        """
        self.send(signal.SIGSTOP)       # that one cannot be ignored
        self._terminal.take()
        handler = signal.signal(number, signal.SIG_DFL)
        signal.pthread_kill(threading.get_ident(), number)      # here we stand still; what came before to go on is void
        signal.signal(number, handler)
        if signal.SIGCONT not in signal.sigpending() and number in _WANTS_IT:
            # No shell is left that could let us go on, so the kernel did not stop us.  To those that it has stopped
            # already it says this.
            self.send(signal.SIGHUP)
        if give and self._terminal.in_front():
            self._terminal.give(self.group)
        self._hear(signals)     # what came with it, a hang-up for example, comes first
        self.send(signal.SIGCONT)
        signals.wake()      # what came has been heard here, and whoever waits has to see what it was about


def _become(command: list[str], word: int, failure: int) -> NoReturn:
    """What the process does until it is the command.  That the word is never given means that it is not wanted."""
    given = b""
    while some := os.read(word, 65536):
        given += some
    if not given:
        os._exit(0)
    pairs = (pair.partition("=") for pair in os.fsdecode(given).split("\0")[:-1])
    try:
        for number in (signal.SIGPIPE, signal.SIGXFSZ):     # which Python ignores; exec resets what it catches
            signal.signal(number, signal.SIG_DFL)
        _replace(command, {**os.environ, **{name: value for name, _, value in pairs}})
    except OSError as error:
        os.write(failure, _ERROR.pack(error.errno or errno.ENOEXEC))
    os._exit(_NOT_STARTED)


def _replace(command: list[str], environment: Mapping[str, str]) -> NoReturn:
    """Become ``command``, and a shell if it is a script that does not say whose: as in shells (C24)."""
    try:
        os.execvpe(command[0], command, environment)  # noqa: S606
    except OSError as error:
        if error.errno != errno.ENOEXEC:
            raise
        os.execve("/bin/sh", ["sh", error.filename, *command[1:]], environment)  # noqa: S606
