"""The command under the lock: a process group of its own, its signals, its terminal, its end.

The watchdog forks the command's process before there is any thread. The process then waits for the word to begin. So
the watchdog knows the group before the command runs, at whatever moment redlock-run is killed. `Popen` would not do: a
watchdog can learn of its process only when that runs already. And code between fork and exec is not safe in a program
with threads.

The command has a process group of its own, so that all of it can be ended, and nothing else. If no other program needs
the terminal, redlock-run gives it to the command, which then gets Ctrl-C directly. In a script or a pipeline other
programs may need the terminal. There the command is a background job to the terminal: redlock-run gets a Ctrl-C, and
forwards it once. If the command wants to use the terminal, it is stopped, by the kernel or by itself, and then
redlock-run gives it the terminal.
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
# Ask the command to end. A service does not begin again after that, and a redlock-run that waits ends at once.
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGQUIT)
_NOT_FOUND, _NOT_STARTED = 127, 126  # exit codes, as in shells (C24)
_WANTS_IT = (signal.SIGTTIN, signal.SIGTTOU)  # stopped by these, the command wants the terminal
_LOOK_AGAIN = 0.5  # seconds between two looks at the terminal, while the command is stopped
_DIES_WITHIN = 1.0  # seconds from SIGKILL to the end of a process
_ERROR = struct.Struct("i")
_COERCED = ("C.UTF-8", "C.utf8", "UTF-8")  # Python sets one of these instead of the locale C


class NotStarted(Exception):  # noqa: N818 - its name says what happened
    """The command cannot be started. ``code`` is the exit code that a shell would give."""

    def __init__(self, command: str, error: int) -> None:
        missing = error == errno.ENOENT
        self.code = _NOT_FOUND if missing else _NOT_STARTED
        super().__init__(f"{command}: {'command not found' if missing else os.strerror(error)}")


class JobSignals:
    """Collects signals inside its ``with`` block. None is lost between two looks."""

    def __init__(self) -> None:
        self.wakes, self._write = os.pipe()
        os.set_blocking(self.wakes, False)
        os.set_blocking(self._write, False)
        self._arrived: list[int] = []
        self._before: dict[int, object] = {}

    def __enter__(self) -> Self:
        self._fd_before = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        for number in (*FORWARDED, signal.SIGTSTP):
            # A signal that was ignored when we started (nohup) stays ignored, for the command as well.
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._before[number] = signal.signal(number, self._arrive)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            # Python warns of a race if a signal arrives just while its handler is removed. SIGWINCH keeps ours: by
            # default it does nothing anyway.
            if number != signal.SIGWINCH:
                signal.signal(number, handler)  # type: ignore[arg-type]
        signal.set_wakeup_fd(self._fd_before)

    def _arrive(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002
        self._arrived.append(number)

    def wake(self) -> None:
        """Make `Job.wait` look again. May be called from any thread."""
        with contextlib.suppress(BlockingIOError):  # the pipe is full, so a wake-up is in it already
            os.write(self._write, b"\0")

    def take(self) -> list[int]:
        """The signals that have arrived since the last call."""
        with contextlib.suppress(BlockingIOError):
            while os.read(self.wakes, 4096):
                pass
        arrived, self._arrived = self._arrived, []
        return arrived

    def close(self) -> None:
        """Close its pipe. Call this when no thread is left that could `wake` us."""
        os.close(self.wakes)
        os.close(self._write)


class Job:
    """One command. It must be made while there is no other thread.

    ``in_front``: the command may have the terminal from its beginning. Else it gets it when it wants it.
    """

    def __init__(self, command: list[str], *, in_front: bool = True) -> None:
        self._command = command
        self._in_front = in_front
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
        # SIGCONT continues us even while it is blocked. Threads inherit the mask. So SIGCONT stays pending whichever
        # thread the kernel picks, and `_suspend` can see it.
        self._mask = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCONT])
        self._begun = self._reaped = self._is_stopped = False
        self._terminal = Terminal()
        self._forwarded: set[int] = set()
        self._ended_by = 0  # the signal that ended the command
        # SIGCHLD wakes us when the watchdog changes. If it was stopped, our next order continues it.
        signal.signal(signal.SIGCHLD, self._bury)
        self._bury()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if not self._begun:
            self.send(signal.SIGKILL)  # the command has not begun, so nothing is lost
            os.close(self._word)
        self.reap()
        os.close(self._failure)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self.dog.close()
        self._terminal.close()
        signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)  # the next command would inherit ours

    @property
    def asked_to_end(self) -> bool:
        """Whether the command has ended by request.

        `ENDING` were forwarded, or any signal that then ended it. At the terminal it may have got Ctrl-C directly.
        """
        typed = {signal.SIGINT, signal.SIGQUIT} if self._terminal.was_given else set()
        return not self._forwarded.isdisjoint(ENDING) or self._ended_by in self._forwarded | typed

    def begin(self, environment: Mapping[str, str]) -> None:
        """Start the command. ``environment`` is added to our own.

        Raises:
            NotStarted: the command cannot be started.
        """
        self._begun = True
        # Given at once, for some programs (`top`) do not survive waiting for it.
        if self._in_front and self._terminal.ours_alone():
            self._terminal.give(self.group)
        # A broken pipe means that the process has ended: `wait` reports how.
        with contextlib.suppress(BrokenPipeError), os.fdopen(self._word, "wb") as word:
            word.write(os.fsencode("".join(f"{name}={value}\0" for name, value in environment.items())))
        number = os.read(self._failure, _ERROR.size)  # empty: the start of the command has closed the pipe
        if number:
            raise NotStarted(self._command[0], *_ERROR.unpack(number))

    def wait(self, signals: JobSignals, look: Callable[[], bool]) -> int | None:
        """Wait until the command ends. Returns its exit code, or 128 + n if signal n ended it.

        ``look`` is called at every event, and reads the news of the watchdog. When it returns False, the wait ends and
        returns None.
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
            # No event says that a shell has put us in the foreground: so look again while the command is stopped.
            pause = min(self.dog.due(), _LOOK_AGAIN if self._is_stopped else math.inf)
            poll.poll(None if pause == math.inf else math.ceil(pause * 1000))
            self._hear(signals)
            if self._is_stopped and self._terminal.in_front():
                self._give()

    def send(self, number: int) -> None:
        """Send a signal to the whole group. Processes of another user (`sudo`) do not get it."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.group, number)

    def reap(self) -> None:
        """Wait for the end of a command that was killed, or that ended before it began."""
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
        """Kill the command and wait until it is gone. Used if the watchdog, its parent, has been killed."""
        until = time.monotonic() + _DIES_WITHIN
        while True:
            try:
                os.killpg(self.group, signal.SIGKILL)
            except ProcessLookupError:
                return
            except PermissionError:  # another user's process: keep the lock while it runs (P1)
                pass
            else:
                if time.monotonic() > until:  # dead, but no parent reaps it
                    return
            with contextlib.suppress(ChildProcessError):  # as process 1 of a container we are the parent now
                os.waitpid(-self.group, os.WNOHANG)
            time.sleep(0.01)

    def _status(self) -> int | None:
        status = self.dog.status()
        if status is not None:
            self._is_stopped = os.WIFSTOPPED(status)
            self._reaped = os.WIFEXITED(status) or os.WIFSIGNALED(status)
        return status

    def _hear(self, signals: JobSignals) -> None:
        for number in signals.take():
            if number == signal.SIGTSTP:
                self._suspend(signals)
            else:
                self._forward(number)
                # Continue a stopped command: else it would handle the signal only when it is continued.
                if self._is_stopped and number != signal.SIGWINCH:
                    self.send(signal.SIGCONT)

    def _forward(self, number: int) -> None:
        self._forwarded.add(number)
        self.send(number)

    def _news(self, signals: JobSignals) -> int | None:
        status = self._status()
        if status is None:
            return None
        if self._is_stopped:
            self._stopped(os.WSTOPSIG(status), signals)
        if not self._reaped:
            return None
        code = os.waitstatus_to_exitcode(status)
        self._ended_by = max(0, -code)
        self._terminal.take(restore=code < 0)
        return code if code >= 0 else 128 - code

    def _bury(self, *_: object) -> None:
        """Wait for orphans. As process 1 of a container we are their parent."""
        if os.getpid() != 1:
            return
        with contextlib.suppress(ChildProcessError):
            # Only a look: another place waits for the watchdog.
            while dead := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                if dead.si_pid == self.dog.pid:
                    return
                os.waitpid(dead.si_pid, 0)

    # -- the terminal --------------------------------------------------------------------------------

    def _give(self) -> None:
        self._terminal.give(self.group)
        self.send(signal.SIGCONT)

    def _stopped(self, number: int, signals: JobSignals) -> None:
        wants_it = number in _WANTS_IT
        # Any signal matters here: some programs, like `top`, stop themselves when they want the terminal.
        if self._terminal.in_front():
            self._give()
        elif wants_it or self._terminal.given:  # we are in the background ourselves, or the command got a Ctrl-Z
            # Stop the rest of our pipeline as well, as if all of it had got the signal.
            number = number if wants_it else signal.SIGTSTP
            handler = signal.signal(number, signal.SIG_IGN)
            os.killpg(os.getpgrp(), number)
            signal.signal(number, handler)
            self._suspend(signals, number, give=True)
        # Else the process that stopped the command will continue it, or a shell puts us in the foreground.

    def _suspend(self, signals: JobSignals, number: int = signal.SIGTSTP, *, give: bool = False) -> None:
        """Stop the command and redlock-run until the shell continues them. ``number`` shows the shell why.

        The lease is not renewed until then. The watchdog does not stop, and ends the command in time.
        """
        self.send(signal.SIGSTOP)  # SIGSTOP cannot be ignored
        self._terminal.take()
        handler = signal.signal(number, signal.SIG_DFL)
        signal.pthread_kill(threading.get_ident(), number)  # we stop here; an earlier SIGCONT has no effect
        signal.signal(number, handler)
        if signal.SIGCONT not in signal.sigpending() and number in _WANTS_IT:
            # No shell is left that could continue us, so the kernel did not stop us. It sends SIGHUP to processes that
            # are already stopped in this state. The command gets the same.
            self._forward(signal.SIGHUP)
        if give and self._terminal.in_front():
            self._terminal.give(self.group)
        self._hear(signals)  # forward signals that came with the SIGCONT first, a SIGHUP for example
        self.send(signal.SIGCONT)
        signals.wake()  # the signals were read here, so `wait` has to look at their effects


def _given() -> dict[str, str]:
    """The environment as we got it. If the locale is C, Python changes LC_CTYPE in its own environment (PEP 538)."""
    environment = dict(os.environ)
    if environment.get("LC_CTYPE") in _COERCED:
        with contextlib.suppress(OSError):  # without this file the original value cannot be known
            at_first = Path("/proc/self/environ").read_bytes().split(b"\0")
            given = [os.fsdecode(pair.partition(b"=")[2]) for pair in at_first if pair.startswith(b"LC_CTYPE=")]
            environment |= {"LC_CTYPE": given[0]} if given else {}
            if not given:
                del environment["LC_CTYPE"]
    return environment


def _become(command: list[str], word: int, failure: int) -> NoReturn:
    """Wait for the word, then become the command. End of file instead of a word: the command is not wanted."""
    given = b""
    while some := os.read(word, 65536):
        given += some
    if not given:
        os._exit(0)
    pairs = (pair.partition("=") for pair in os.fsdecode(given).split("\0")[:-1])
    try:
        # Python ignores these two, and exec would keep that. Handlers that catch a signal are reset by exec.
        for number in (signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        _replace(command, {**_given(), **{name: value for name, _, value in pairs}})
    except OSError as error:
        os.write(failure, _ERROR.pack(error.errno or errno.ENOEXEC))
    os._exit(_NOT_STARTED)


def _replace(command: list[str], environment: Mapping[str, str]) -> NoReturn:
    """Become ``command``. A script without a ``#!`` line is run by /bin/sh, as in shells (C24)."""
    try:
        os.execvpe(command[0], command, environment)  # noqa: S606
    except OSError as error:
        if error.errno != errno.ENOEXEC:
            raise
        os.execve("/bin/sh", ["sh", error.filename, *command[1:]], environment)  # noqa: S606
