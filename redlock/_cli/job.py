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

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import FrameType
    from typing import Self

FORWARDED = (
    signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGWINCH,
)
_NOT_FOUND, _NOT_STARTED = 127, 126     # as in shells (C24)
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
        with contextlib.suppress(OSError):      # whoever of the two comes first; it may have ended by now
            os.setpgid(self.group, self.group)
        self._begun = self._reaped = False
        self._terminal = _terminal()
        self._given = False     # the command has the terminal

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
            code = self._news()
            if code is not None:
                self._take_terminal()
                return code
            poll.poll()
            for number in signals.take():
                if number == signal.SIGTSTP:
                    self._suspend()
                elif number != signal.SIGCHLD:
                    self.send(number)

    def send(self, number: int) -> None:
        """To the whole group."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.group, number)

    def reap(self) -> None:
        """It has ended, or is about to."""
        if not self._reaped:
            os.waitpid(self.group, 0)
            self._reaped = True
        self._take_terminal()

    def _news(self) -> int | None:
        pid, status = os.waitpid(self.group, os.WNOHANG | os.WUNTRACED)
        if pid == 0:
            return None
        if os.WIFSTOPPED(status):
            self._stopped(os.WSTOPSIG(status))
            return None
        self._reaped = True
        code = os.waitstatus_to_exitcode(status)
        return code if code >= 0 else 128 - code

    # -- the terminal --------------------------------------------------------------------------------

    def _stopped(self, number: int) -> None:
        if self._terminal is None:
            return      # whoever stopped it will let it go on
        wants_it = number in (signal.SIGTTIN, signal.SIGTTOU)
        if wants_it and self._in_front():
            self._give_terminal()
            self.send(signal.SIGCONT)
        elif wants_it or self._given:       # we are in the background ourselves; or it got a Ctrl-Z
            # The rest of the pipeline that we are in stops as well, as if it had come to all of us.
            handler = signal.signal(signal.SIGTSTP, signal.SIG_IGN)
            os.killpg(os.getpgrp(), signal.SIGTSTP)
            signal.signal(signal.SIGTSTP, handler)
            self._suspend(give=True)

    def _suspend(self, *, give: bool = False) -> None:
        """Ctrl-Z: stop, all of it, and go on when the shell says so.

        The lease is not renewed meanwhile, and the watchdog, which does not stop, ends the command in time.
        """
        self.send(signal.SIGSTOP)       # that one cannot be ignored
        self._take_terminal()
        handler = signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        signal.pthread_kill(threading.get_ident(), signal.SIGTSTP)      # here we stand still
        signal.signal(signal.SIGTSTP, handler)
        if give and self._in_front():
            self._give_terminal()
        self.send(signal.SIGCONT)

    def _in_front(self) -> bool:
        return self._terminal is not None and os.tcgetpgrp(self._terminal) == os.getpgrp()

    def _give_terminal(self) -> None:
        self._hand(self.group)
        self._given = True

    def _take_terminal(self) -> None:
        if self._given:
            self._hand(os.getpgrp())
            self._given = False

    def _hand(self, group: int) -> None:
        if self._terminal is None:
            return
        # Who is in the background and does this is stopped, unless it does not listen.
        before = signal.signal(signal.SIGTTOU, signal.SIG_IGN)
        try:
            with contextlib.suppress(OSError):      # the terminal or the group is gone
                os.tcsetpgrp(self._terminal, group)
        finally:
            signal.signal(signal.SIGTTOU, before)


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
        os.execvpe(command[0], command, {**os.environ, **{name: value for name, _, value in pairs}})  # noqa: S606
    except OSError as error:
        os.write(failure, _ERROR.pack(error.errno or errno.ENOEXEC))
    os._exit(_NOT_STARTED)


def _terminal() -> int | None:
    """A descriptor of the terminal that controls us, if we have one."""
    for descriptor in (0, 1, 2):
        try:
            os.tcgetpgrp(descriptor)
        except OSError:
            continue
        return descriptor
    return None
