"""The command under the lock: a process group of its own, its signals, its terminal, its end.

Its process is forked before there is any thread, by the watchdog, and waits for the word to begin.  So the watchdog knows the
group before there is anything in it to watch, at whatever moment redlock-run is killed; a `Popen` can only be told of
when it runs already, and a function between fork and exec is not safe in a program with threads.

It is in a group of its own so that all of it can be ended, and nothing else.  So it is given the terminal if redlock-run has that
for itself, and gets its Ctrl-C from there.  In a script or a pipeline, where others need it, the command is a background job to
the terminal: a Ctrl-C comes to redlock-run, which forwards it: once.  If it wants the terminal it is stopped, by the
kernel or by itself, and then it is given it.
"""

from __future__ import annotations

import contextlib
import errno
import math
import os
import select
import signal
import struct
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from redlock._cli.terminal import Terminal
from redlock._cli.watchdog import Watchdog

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import FrameType
    from typing import Self

FORWARDED = (
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGWINCH,
)
_NOT_FOUND, _NOT_STARTED = 127, 126  # as in shells (C24)
_WANTS_IT = (signal.SIGTTIN, signal.SIGTTOU)  # the terminal
_LOOK_AGAIN = 0.5  # seconds
_DIES_WITHIN = 1.0  # seconds, of SIGKILL
_ERROR = struct.Struct("i")
_COERCED = ("C.UTF-8", "C.utf8", "UTF-8")  # what Python makes of the locale C


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
        for number in (*FORWARDED, signal.SIGTSTP):
            # What whoever started us has switched off (nohup) stays off, for the command as well.
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._before[number] = signal.signal(number, self._arrive)
        # Something has become of the watchdog: if it has been stopped, what we order next lets it go on.
        signal.signal(signal.SIGCHLD, lambda *_: None)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            # Python speaks of a race if one arrives just when it is not caught any more; this one does nothing unless it is caught.
            if number != signal.SIGWINCH:
                signal.signal(number, handler)  # type: ignore[arg-type]
        signal.set_wakeup_fd(self._fd_before)

    def _arrive(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002
        self._arrived.append(number)

    def wake(self) -> None:
        """Let whoever waits look up.  From any thread."""
        with contextlib.suppress(BlockingIOError):  # full of wake-ups
            os.write(self._write, b"\0")

    def take(self) -> list[int]:
        """Those that have arrived."""
        with contextlib.suppress(BlockingIOError):
            while os.read(self.wakes, 4096):
                pass
        arrived, self._arrived = self._arrived, []
        return arrived


class Job:
    """One command.  To be made before any thread."""

    def __init__(self, command: list[str]) -> None:
        self._command = command
        word, self._word = os.pipe()
        self._failure, failure = os.pipe()

        def become() -> None:
            os.close(self._word)
            os.close(self._failure)
            _become(command, word, failure)

        self.dog = Watchdog(become)
        self.group = self.dog.group
        os.close(word)
        os.close(failure)
        # It lets us go on nevertheless.  Threads inherit this, so whichever of them the kernel asks, it stays to be seen.
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCONT])
        self._begun = self._reaped = self._is_stopped = False
        self._terminal = Terminal()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if not self._begun:
            self.send(signal.SIGKILL)  # nobody has seen it
            os.close(self._word)
        self.reap()
        os.close(self._failure)
        self.dog.close()

    def begin(self, environment: Mapping[str, str]) -> None:
        """With ``environment`` besides our own."""
        self._begun = True
        if self._terminal.ours_alone():  # some ask for it in a way that does not survive a wait (`top`)
            self._terminal.give(self.group)
        with contextlib.suppress(BrokenPipeError), os.fdopen(self._word, "wb") as word:  # `wait` says how it ended
            word.write(os.fsencode("".join(f"{name}={value}\0" for name, value in environment.items())))
        number = os.read(self._failure, _ERROR.size)  # closed when it begins
        if number:
            raise NotStarted(self._command[0], *_ERROR.unpack(number))

    def wait(self, signals: Signals, look: Callable[[], bool]) -> int | None:
        """Until the command ends: its exit code, 128 + n if a signal ended it.

        ``look`` is called at every event, and hears the watchdog; when it returns False the wait is over: None.
        """
        poll = select.poll()
        poll.register(signals.wakes, select.POLLIN)
        poll.register(self.dog.news, select.POLLIN)
        while True:
            if not look():
                return None
            code = self._news(signals)
            if code is not None:
                return code
            # That a shell has put us in front, nobody tells us.
            pause = min(self.dog.due(), _LOOK_AGAIN if self._is_stopped else math.inf)
            poll.poll(None if pause == math.inf else math.ceil(pause * 1000))
            self._hear(signals)
            if self._is_stopped and self._terminal.in_front():
                self._give()

    def send(self, number: int) -> None:
        """To the whole group, as far as it is ours: `sudo` makes it another user's."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.group, number)

    def reap(self) -> None:
        """It has been killed, or ended before it began."""
        while not (self._reaped or self.dog.gone):
            if self._status() is None:
                self.dog.wait(_DIES_WITHIN)
            if self.dog.silent() > _DIES_WITHIN:
                self.dog.dismiss()
        if not self._reaped:
            self._outlive()
            self._reaped = True
        self._terminal.take(restore=True)

    def _outlive(self) -> None:
        """See it die where the watchdog, its parent, has been killed."""
        until = time.monotonic() + _DIES_WITHIN
        while True:
            try:
                os.killpg(self.group, signal.SIGKILL)
            except ProcessLookupError:
                return
            except PermissionError:  # another user's: while it runs, nobody else gets the lock (P1)
                pass
            else:
                if time.monotonic() > until:  # dead, and nobody waits for it
                    return
            with contextlib.suppress(ChildProcessError):  # as the first process of a container we are the parent now
                os.waitpid(-self.group, os.WNOHANG)
            time.sleep(0.01)

    def _status(self) -> int | None:
        status = self.dog.status()
        if status is not None:
            self._is_stopped = os.WIFSTOPPED(status)
            self._reaped = os.WIFEXITED(status) or os.WIFSIGNALED(status)
        return status

    def _hear(self, signals: Signals) -> None:
        for number in signals.take():
            if number == signal.SIGTSTP:
                self._suspend(signals)
            else:
                self.send(number)
                if self._is_stopped and number != signal.SIGWINCH:  # else it would hear of it whenever it goes on
                    self.send(signal.SIGCONT)

    def _news(self, signals: Signals) -> int | None:
        status = self._status()
        if status is None:
            return None
        if self._is_stopped:
            self._stopped(os.WSTOPSIG(status), signals)
        if not self._reaped:
            return None
        code = os.waitstatus_to_exitcode(status)
        self._terminal.take(restore=code < 0)
        return code if code >= 0 else 128 - code

    # -- the terminal --------------------------------------------------------------------------------

    def _give(self) -> None:
        self._terminal.give(self.group)
        self.send(signal.SIGCONT)

    def _stopped(self, number: int, signals: Signals) -> None:
        wants_it = number in _WANTS_IT
        if self._terminal.in_front():  # some, like `top`, are not stopped for it by the kernel, but stop themselves
            self._give()
        elif wants_it or self._terminal.given:  # we are in the background ourselves; or it got a Ctrl-Z
            # The rest of the pipeline that we are in stops as well, as if it had come to all of us.
            number = number if wants_it else signal.SIGTSTP
            handler = signal.signal(number, signal.SIG_IGN)
            os.killpg(os.getpgrp(), number)
            signal.signal(number, handler)
            self._suspend(signals, number, give=True)
        # else who has stopped it will let it go on, or a shell puts us in front

    def _suspend(self, signals: Signals, number: int = signal.SIGTSTP, *, give: bool = False) -> None:
        """Stop, all of it, and go on when the shell says so; by ``number``, from which the shell sees why.

        The lease is not renewed meanwhile, and the watchdog, which does not stop, ends the command in time.
        """
        self.send(signal.SIGSTOP)  # that one cannot be ignored
        self._terminal.take()
        handler = signal.signal(number, signal.SIG_DFL)
        signal.pthread_kill(threading.get_ident(), number)  # here we stand still; what came before to go on is void
        signal.signal(number, handler)
        if signal.SIGCONT not in signal.sigpending() and number in _WANTS_IT:
            # No shell is left that could let us go on, so the kernel did not stop us.  To those that it has stopped
            # already it says this.
            self.send(signal.SIGHUP)
        if give and self._terminal.in_front():
            self._terminal.give(self.group)
        self._hear(signals)  # what came with it, a hang-up for example, comes first
        self.send(signal.SIGCONT)
        signals.wake()  # what came has been heard here, and whoever waits has to see what it was about


def _given() -> dict[str, str]:
    """The environment that we were given.  Where the locale is C, Python sets LC_CTYPE in its own (PEP 538)."""
    environment = dict(os.environ)
    if environment.get("LC_CTYPE") in _COERCED:
        with contextlib.suppress(OSError):  # where there is no such file, nobody knows
            at_first = Path("/proc/self/environ").read_bytes().split(b"\0")
            given = [os.fsdecode(pair.partition(b"=")[2]) for pair in at_first if pair.startswith(b"LC_CTYPE=")]
            environment |= {"LC_CTYPE": given[0]} if given else {}
            if not given:
                del environment["LC_CTYPE"]
    return environment


def _become(command: list[str], word: int, failure: int) -> NoReturn:
    """What the process does until it is the command.  That the word is never given means that it is not wanted."""
    given = b""
    while some := os.read(word, 65536):
        given += some
    if not given:
        os._exit(0)
    pairs = (pair.partition("=") for pair in os.fsdecode(given).split("\0")[:-1])
    try:
        for number in (signal.SIGPIPE, signal.SIGXFSZ):  # which Python ignores; exec resets what it catches
            signal.signal(number, signal.SIG_DFL)
        _replace(command, {**_given(), **{name: value for name, _, value in pairs}})
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
