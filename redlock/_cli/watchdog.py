"""Starts the guard, which ends the command in time, and talks to it. `guard` is a program of its own.

The guard looks like another program to `ps`, `pgrep -f` and `killall`. So no kill takes both by the name or the
arguments of redlock-run. The guard is the parent of the command. If the guard is killed, the kernel ends the command,
whether redlock-run is left or not. Only Linux can do that (PR_SET_PDEATHSIG).

In a program that PyInstaller has packed there is no interpreter. There the guard runs in the process that was forked
for it: one name or argument means both, and the kernel still ends the command.

Also considered: redlock-run as the parent of the command. But if redlock-run is killed, the command would then get no
grace. And a fork that overwrites its arguments, but that is done differently on each system.
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
from importlib.resources import files
from typing import TYPE_CHECKING, NoReturn

from redlock._cli import clock, guard

if TYPE_CHECKING:
    from collections.abc import Callable

GONE = b"G"  # news: the guard itself is gone
_BORN, _UNBORN = b"B", b"U"  # news: the command's process was forked, with its id; or the fork failed, with the error
_ANSWERS_WITHIN = 0.2  # seconds to wait for an answer; a later one is read with the news
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
    """redlock-run's side of the guard. It must be made before any thread is started.

    The watched process calls ``command``. It has a process group of its own: `group`.
    """

    def __init__(self, command: Callable[[], object]) -> None:
        orders, self._orders = os.pipe()
        self.news, news = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
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
        self._asked_at = math.inf  # when the question was sent that is not answered yet
        self._term_at = self._kill_at = math.inf
        self.gone = self._ready = False
        self.group = 0
        while not (self.group or self.gone):
            self._hear()
        if not self.group:  # to `os.killpg`, 0 would be our own group
            raise _does_not_run()
        os.set_blocking(self.news, False)
        os.set_blocking(self._orders, False)  # the guard may hang and not read

    def wait_until_ready(self) -> None:
        """Wait until the guard runs. Before that it still has redlock-run's name, and can be killed by that name."""
        while not self._ready:
            self.wait()
            self._hear()
            if self.gone:
                raise _does_not_run()

    def order(self, term_at: float, kill_at: float) -> None:
        """Send SIGTERM and SIGKILL to the command at these times, unless another order comes before."""
        self._term_at, self._kill_at = term_at, kill_at
        self._order(guard.WATCH, term_at, kill_at)

    def due(self) -> float:
        """Seconds until the next time of its order."""
        now = clock.now()
        return min((at - now for at in (self._term_at, self._kill_at) if at > now), default=0.0)

    def overdue(self) -> bool:
        """Whether the guard should have sent SIGKILL by now."""
        return clock.now() >= self._kill_at

    def silent(self) -> float:
        """For how many seconds the guard has not answered."""
        return max(0.0, time.monotonic() - self._asked_at)

    def dismiss(self) -> None:
        """Kill the guard: there is nothing left to watch, or the guard does not work.

        It is our child, so its process id cannot belong to another process.
        """
        os.kill(self.pid, signal.SIGKILL)
        self.gone = True

    def heard(self) -> bytes:
        """What the guard has done since the last call; `GONE` if it is gone itself."""
        with contextlib.suppress(BlockingIOError):
            while not self.gone:
                self._hear()
        return self.had_done() + GONE * self.gone

    def had_done(self) -> bytes:
        """What the guard had done before its latest answer. Reads nothing."""
        done, self._done = self._done, b""
        return done

    def status(self) -> int | None:
        """The new status of the command, as of `os.waitpid`. None: nothing new, or the guard has not answered yet."""
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
        """Wait for news, at most ``seconds``. False: there is none."""
        news = select.poll()  # `select` takes no descriptor above 1023, and we may have inherited many
        news.register(self.news, select.POLLIN)
        return bool(news.poll(None if seconds is None else math.ceil(max(0.0, seconds) * 1000)))

    def close(self) -> None:
        self.dismiss()
        os.close(self._orders)
        os.waitpid(self.pid, 0)
        os.close(self.news)

    def _order(self, what: bytes, term_at: float = math.inf, kill_at: float = math.inf) -> None:
        # `heard` reports a guard that is gone; `silent`, one that does not read.
        with contextlib.suppress(BrokenPipeError, BlockingIOError):
            os.write(self._orders, guard.ORDER.pack(what, term_at, kill_at))
        if not self.gone:
            os.kill(self.pid, signal.SIGCONT)  # the guard may have been stopped

    def _hear(self) -> None:
        """Read one piece of news. News behind an answer stays in the pipe, so that a later wait sees it."""
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
    return ChildProcessError(
        f"redlock-guard, which would end the command in time, does not run: {sys.executable} {guard.__file__}"
    )


def _become(orders: int, news: int, command: Callable[[], object]) -> NoReturn:
    """Fork the command, then become the guard.

    The guard stays in our session: the terminal cannot stop a job whose parent is in another session.
    """
    os.setpgid(0, 0)  # so neither Ctrl-C nor a signal to the job's group reaches this process
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
    with contextlib.suppress(OSError):  # both processes do it, as either may run first; the child may have ended
        os.setpgid(group, group)
    os.write(news, guard.NEWS.pack(_BORN, group))
    for number in _NOT_FOR_IT:
        signal.signal(number, signal.SIG_IGN)
    program, null = _program(), os.open(os.devnull, os.O_RDWR)
    # Our output is closed here: a program that reads it to its end must not wait for the guard.
    for standard in (0, 1, 2):
        os.dup2(null, standard)
    os.chdir("/")  # our directory may be gone, and then Python does not start
    if program is None:
        _close_all_but(orders, news)  # a reader of what redlock-run writes must not wait for the guard
        guard.main(clock.CLOCK, orders, news, group)
        os._exit(0)
    text, write = os.pipe()
    os.write(write, program)  # it fits into any pipe
    os.close(write)
    os.dup2(text, 0)
    for descriptor in (orders, news):
        os.set_inheritable(descriptor, True)
    # Python finds its library by the name it was started by, and our name is no path: so set PYTHONHOME. The user's
    # own settings of Python are not for the guard.
    home = {"PYTHONHOME": f"{sys.base_prefix}:{sys.base_exec_prefix}"}
    others = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "REDLOCK_"))}
    numbers = [str(number) for number in (clock.CLOCK, orders, news, group)]
    os.execve(sys.executable, [guard.NAME, "-s", "-S", "-P", "-", *numbers], others | home)  # noqa: S606


def _program() -> bytes | None:
    """The text of the guard, also out of a zip file.

    None: there is no text, or no interpreter for it. In a program that PyInstaller has packed, `sys.executable` is that
    program. Then the guard runs in the process that we are; only its arguments look like ours.
    """
    if getattr(sys, "frozen", False) or not sys.executable:
        return None
    try:
        return files(guard.__package__).joinpath("guard.py").read_bytes()
    except OSError:
        return None


def _close_all_but(*kept: int) -> None:
    first = 3  # behind standard input, output and error
    for descriptor in sorted(kept):
        os.closerange(first, descriptor)
        first = descriptor + 1
    os.closerange(first, os.sysconf("SC_OPEN_MAX"))


def _die_with(parent: int) -> None:
    """Let the kernel send SIGKILL to this process when ``parent`` is gone.

    Works on Linux only, and not after this process has become another user's (sudo).
    """
    if sys.platform == "linux":
        with contextlib.suppress(ImportError, OSError, AttributeError):
            import ctypes  # noqa: PLC0415 - used only here

            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, *map(ctypes.c_ulong, (signal.SIGKILL, 0, 0, 0)))
    if os.getppid() != parent:  # it was gone before the call
        os._exit(1)
