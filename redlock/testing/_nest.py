"""Makes the servers, their directory and their ports vanish with the test process."""

from __future__ import annotations

import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import time
import weakref
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from redlock.testing import _supervisor

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

LOOPBACK: Final = "127.0.0.1"

# Seconds to wait for a supervisor that starts, or cleans up. Either takes milliseconds if the machine is not busy.
_PATIENCE: Final = 10.0
_ANSWER: Final = re.compile(rb"^errno (\d+)\n", re.MULTILINE)


class Nest:
    """A directory, a process group and a few ports that end with `close` or with this process.

    That holds however this process ends, even by SIGKILL, and whatever state the servers are in, even stopped. Without
    `close` a supervisor process ends them, a moment later. Nothing is promised if the supervisor is killed as
    well.

    Why a supervisor: the parent-death signal of Linux fires when the *thread* that started a server ends, and no code
    of a process runs after SIGKILL. But the kernel closes the dead process's end of a connection, and the supervisor
    reads the other end.

    The nest belongs to the process that made it. A child made by `os.fork` lets go of everything at once: it neither
    keeps the connection open nor ends anything.
    """

    def __init__(self) -> None:
        self._owner = os.getpid()
        self._processes: list[subprocess.Popen[bytes]] = []
        self._held: list[int] = []
        self._supervisor: subprocess.Popen[bytes] | None = None
        self._ended = False
        # Only the name: the supervisor makes the directory.
        self.directory = Path(tempfile.gettempdir(), f"redlock-{os.urandom(8).hex()}").absolute()
        self._made = False
        self._lifeline, theirs = socket.socketpair()
        _nests.add(self)
        try:
            with theirs:
                self._supervisor = self._start_supervisor(theirs.fileno())
            self._group = self._supervisor.pid
            self._wait_for_directory()
        except BaseException:
            self.close()
            raise

    @property
    def mine(self) -> bool:
        """Whether this process made the nest. False in a forked child."""
        return self._owner == os.getpid()

    def spawn(
        self, command: Sequence[str], *, log: Path, environment: Mapping[str, str], given: Path | int | None = None
    ) -> subprocess.Popen[bytes]:
        """Start a process in the directory and the group of the nest.

        ``given``: a file for its standard input, or a descriptor, which is the process's own from now on.
        """
        opened = os.fdopen(given, "rb") if isinstance(given, int) else (given or Path(os.devnull)).open("rb")
        with opened as source, log.open("ab") as sink:
            process = subprocess.Popen(
                command,
                stdin=source,
                stdout=sink,
                stderr=subprocess.STDOUT,
                env=environment,
                cwd=self.directory,
                process_group=self._group,
            )
        self._processes = [one for one in self._processes if one.poll() is None]
        self._processes.append(process)
        return process

    def reserve(self) -> int:
        """A port that was free a moment ago. On Linux no other program is given it before `close`.

        On Linux a bound socket that does not listen reserves the port. The kernel gives the port neither to programs
        that look for a free one nor to outgoing connections, and refuses callers as if a server were dead. The server
        can still listen on it, because both sockets allow the address to be reused. Elsewhere the server could not
        listen then. So there the port is not reserved, only a good guess.
        """
        with socket.socket() as probe:
            probe.bind((LOOPBACK, 0))
            port: int = probe.getsockname()[1]
            if sys.platform == "linux":
                # Not before `bind`: with this option, `bind` may choose a port that another socket reserves.
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                self._held.append(probe.detach())
            return port

    def close(self) -> None:
        """End all: no process, no directory and no port is left. May be called again, also after an interruption."""
        if self._ended or not self.mine:
            return
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.wait()
        if self._made:
            # The supervisor still runs: if this process is killed right now, the supervisor does the rest.
            _supervisor.remove(str(self.directory))
        else:
            # Only the supervisor knows whether the directory is ours. It removes what it has made, then hangs up.
            with suppress(OSError):
                self._lifeline.shutdown(socket.SHUT_WR)
                for _ in self._answers():
                    pass
        if self._supervisor is not None and self._supervisor.returncode is None:
            # Kill the whole group: an interrupted `spawn` may have left a server that is not in the list. The group's
            # number cannot be reused yet: its leader has not been reaped.
            leader = self._supervisor.pid
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(leader, signal.SIGKILL)
            with suppress(ChildProcessError):
                while True:
                    os.waitpid(-leader, 0)
            self._supervisor.wait()
        self._let_go()
        self._ended = True

    def _start_supervisor(self, end: int) -> subprocess.Popen[bytes]:
        # If the program has set a default timeout for sockets, this one does not block. The supervisor has to wait.
        os.set_blocking(end, True)
        self._command = [sys.executable or "", "-I", "-S", _supervisor.__file__, str(self.directory)]
        try:
            # Ctrl-C must not end the supervisor. Nor must the SIGHUP that the kernel sends to a group with stopped
            # members when their parent dies. The signals are blocked, not ignored: so that holds from its first
            # instruction on. It gets a group of its own, which the servers join: one signal ends them all.
            with _blocked(signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                return subprocess.Popen(self._command, stdin=end, stdout=end, stderr=end, cwd="/", process_group=0)
        except OSError as error:
            raise self._no_supervisor(str(error)) from error

    def _wait_for_directory(self) -> None:
        """Wait until the supervisor has made the directory.

        Raises if there is no supervisor, before any server is started: servers and directory would outlive a SIGKILL.
        """
        said = b""
        try:
            for more in self._answers():
                said = (said + more)[-1000:]
                if answer := _ANSWER.search(said):
                    break
            else:
                raise self._no_supervisor("it ended", said)
        except TimeoutError:
            raise self._no_supervisor(f"no answer within {_PATIENCE:g} s", said) from None
        if problem := int(answer[1]):
            raise OSError(problem, os.strerror(problem), str(self.directory))
        self._made = True

    def _answers(self) -> Iterator[bytes]:
        """Yield what the supervisor writes, until it hangs up. TimeoutError: that takes too long."""
        gives_up = time.monotonic() + _PATIENCE
        while (left := gives_up - time.monotonic()) > 0:
            self._lifeline.settimeout(left)
            said = self._lifeline.recv(4096)
            if not said:
                return
            yield said
        raise TimeoutError

    def _no_supervisor(self, why: str, said: bytes = b"") -> RuntimeError:
        words = said.decode(errors="replace").strip()
        return RuntimeError(
            "no supervisor, which would end the servers when this process is killed:\n"
            f"  {shlex.join(self._command)}: {why}{': ' if words else ''}{words}\n"
            "It needs a Python that works: set sys.executable to the path of one."
        )

    def disown(self) -> None:
        """Give up the nest in a forked child. The processes are not its own, and it must close the connection."""
        self._let_go()
        for process in (*self._processes, self._supervisor):
            if process is not None:
                # Else Popen would warn in the child that a process is still running.
                process.returncode = 0

    def _let_go(self) -> None:
        while self._held:
            os.close(self._held.pop())
        self._lifeline.close()


@contextmanager
def _blocked(*signals: signal.Signals) -> Iterator[None]:
    """Block signals. Processes started in it inherit that. Signals that arrive here are delivered afterwards."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


_nests: weakref.WeakSet[Nest] = weakref.WeakSet()


def _disown_all() -> None:
    for nest in list(_nests):
        nest.disown()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_disown_all)
