"""Starts what ends the command in time, and talks to it: `guard`, a program of its own.

To `ps`, `pgrep -f` and `killall` it is another program, so that who kills redlock-run by its name or its arguments does not
kill both.  It is the parent of the command: so if it is killed itself, the kernel ends the command, where it can do that
(PR_SET_PDEATHSIG of Linux), whether redlock-run is left or not.

Considered: redlock-run as the parent, which would take its grace from the command of one that was killed; and a fork that
overwrites its arguments, which is another thing on each system.
"""

from __future__ import annotations

import contextlib
import errno
import math
import os
import select
import signal
import sys
import time
from typing import TYPE_CHECKING, NoReturn

from redlock._cli import clock, guard

if TYPE_CHECKING:
    from collections.abc import Callable

GONE = b"G"  # the guard itself
_BORN, _UNBORN = b"B", b"U"  # the command's process; that there is none, and the error
_ANSWERS_WITHIN = 0.2  # seconds; an answer that takes longer is news
_NOT_FOR_IT = (
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGPIPE,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGTSTP,
    signal.SIGTTIN,
    signal.SIGTTOU,
)
_PR_SET_PDEATHSIG = 1


class Watchdog:
    """The end of it that redlock-run has.  To be made before any thread.

    ``command`` is what the process does that is watched, in a process group of its own: `group`.
    """

    def __init__(self, command: Callable[[], object]) -> None:
        orders, self._orders = os.pipe()
        self.news, news = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            try:
                os.close(self._orders)
                os.close(self.news)
                _become(orders, news, command)
            finally:
                os._exit(1)
        os.close(orders)
        os.close(news)
        self._done = b""
        self._answer: int | None = None
        self._asked_at = math.inf  # the question that is not answered yet
        self._term_at = self._kill_at = math.inf
        self.gone = self._ready = False
        self.group = 0
        while not (self.group or self.gone):
            self._hear()
        if not self.group:  # 0 would be our own
            raise _does_not_run()
        os.set_blocking(self.news, False)
        os.set_blocking(self._orders, False)  # it may not read

    def wait_until_ready(self) -> None:
        """Until then it looks like redlock-run to whoever kills that by name."""
        while not self._ready:
            self.wait()
            self._hear()
            if self.gone:
                raise _does_not_run()

    def order(self, term_at: float, kill_at: float) -> None:
        """The command gets SIGTERM and SIGKILL then, unless another order comes before."""
        self._term_at, self._kill_at = term_at, kill_at
        self._order(guard.WATCH, term_at, kill_at)

    def due(self) -> float:
        """Seconds until it should do the next thing that it was ordered to do."""
        now = clock.now()
        return min((at - now for at in (self._term_at, self._kill_at) if at > now), default=0.0)

    def overdue(self) -> bool:
        """Whether it should have sent SIGKILL by now."""
        return clock.now() >= self._kill_at

    def silent(self) -> float:
        """For how many seconds it has not answered."""
        return max(0.0, time.monotonic() - self._asked_at)

    def dismiss(self) -> None:
        """There is nothing to watch any more, or it does not do that.  Our child, so its number is nobody else's."""
        os.kill(self._pid, signal.SIGKILL)
        self.gone = True

    def heard(self) -> bytes:
        """What it has done since the last time, or that it is `GONE` itself."""
        with contextlib.suppress(BlockingIOError):
            while not self.gone:
                self._hear()
        return self.had_done() + GONE * self.gone

    def had_done(self) -> bytes:
        """What it had done before its latest answer; nothing is read for that."""
        done, self._done = self._done, b""
        return done

    def status(self) -> int | None:
        """What has become of the command, as `os.waitpid` would say it; None: nothing new, or it has not answered yet."""
        if self._asked_at == math.inf:
            self._asked_at = time.monotonic()
            self._order(guard.LOOK)
        while self._answer is None and not self.gone and self.wait(_ANSWERS_WITHIN - self.silent()):
            self._hear()
        if self._answer is None:
            return None
        answer, self._answer, self._asked_at = self._answer, None, math.inf
        return None if answer == guard.NOTHING_NEW else answer

    def wait(self, seconds: float | None = None) -> bool:
        """Until there is something to hear, or so long."""
        return bool(select.select([self.news], [], [], None if seconds is None else max(0.0, seconds))[0])

    def close(self) -> None:
        self.dismiss()
        os.close(self._orders)
        os.waitpid(self._pid, 0)
        os.close(self.news)

    def _order(self, what: bytes, term_at: float = math.inf, kill_at: float = math.inf) -> None:
        with contextlib.suppress(
            BrokenPipeError, BlockingIOError
        ):  # `heard` says that it is gone; `silent`, that it does not read
            os.write(self._orders, guard.ORDER.pack(what, term_at, kill_at))
        if not self.gone:
            os.kill(self._pid, signal.SIGCONT)  # somebody may have stopped it

    def _hear(self) -> None:
        """One piece of news: what comes behind an answer is left there, for who waits to see."""
        data = os.read(self.news, guard.NEWS.size)
        what, status = guard.NEWS.unpack(data) if data else (GONE, 0)
        match what:
            case _ if what == GONE:
                self.gone = True
            case _ if what == _BORN:
                self.group = status
            case _ if what == _UNBORN:
                raise OSError(status, os.strerror(status))
            case guard.STATUS:
                self._answer = status
            case guard.READY:
                self._ready = True
            case guard.TERMINATED | guard.KILLED:
                self._done += what


def _does_not_run() -> ChildProcessError:
    return ChildProcessError(f"what would end the command in time does not run: {sys.executable} {guard.__file__}")


def _become(orders: int, news: int, command: Callable[[], object]) -> NoReturn:
    """The command's parent, then the guard.

    It stays in the session: a job whose parent is in another one could not be stopped by its terminal.
    """
    os.setpgid(0, 0)  # neither Ctrl-C nor a signal to the job's group is for this process
    us = os.getpid()
    try:
        group = os.fork()
    except OSError as error:
        os.write(news, guard.NEWS.pack(_UNBORN, error.errno or errno.EAGAIN))
        raise
    if group == 0:
        try:
            os.close(orders)
            os.close(news)
            os.setpgid(0, 0)
            _die_with(us)
            command()
        finally:
            os._exit(1)
    with contextlib.suppress(OSError):  # whichever of the two comes first; it may have ended by now
        os.setpgid(group, group)
    os.write(news, guard.NEWS.pack(_BORN, group))
    for number in _NOT_FOR_IT:
        signal.signal(number, signal.SIG_IGN)
    null, program = os.open(os.devnull, os.O_RDWR), os.open(guard.__file__, os.O_RDONLY)
    for ours, standard in (
        (program, 0),
        (null, 1),
        (null, 2),
    ):  # who reads our output to its end must not wait for this process
        os.dup2(ours, standard)
    for descriptor in (orders, news):
        os.set_inheritable(descriptor, True)
    # Python looks for its library by the name that it was started by; this one is no path.  And nothing of a user's is for it.
    home = {"PYTHONHOME": f"{sys.base_prefix}:{sys.base_exec_prefix}"}
    others = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "REDLOCK_"))}
    numbers = [str(number) for number in (clock.CLOCK, orders, news, group)]
    os.chdir("/")  # ours may be gone, and without one Python does not start
    os.execve(sys.executable, [guard.NAME, "-s", "-S", "-P", "-", *numbers], others | home)  # noqa: S606


def _die_with(parent: int) -> None:
    """The kernel sends SIGKILL when that is gone, where it can; not if we become another user's (sudo)."""
    if sys.platform == "linux":
        with contextlib.suppress(ImportError, OSError, AttributeError):
            import ctypes  # noqa: PLC0415 - here alone

            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, *map(ctypes.c_ulong, (signal.SIGKILL, 0, 0, 0)))
    if os.getppid() != parent:  # before that
        os._exit(1)
