"""What must vanish with the test process: servers, their directory, their ports."""

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

# With a supervisor that starts, or tidies up: a few milliseconds, if the machine is not very busy.
_PATIENCE: Final = 10.0
_ANSWER: Final = re.compile(rb"^errno (\d+)\n", re.MULTILINE)


class Nest:
    """A directory, a process group and a few ports that end with `close` or with this process.

    However this process ends, SIGKILL included, and whatever state the servers are in, stopped
    included.  Without `close` the end comes from outside, a moment later.  Not promised: anything
    after somebody has killed the supervisor as well.

    Why a supervisor: the parent-death signal of Linux fires when the *thread* that started a server
    ends, and nothing that runs in a dying process survives SIGKILL.  But the kernel closes its end
    of a connection, and the supervisor reads the other.

    The nest belongs to the process that made it.  A child made by `os.fork` lets go of everything
    at once: it neither keeps the connection open nor ends anything.
    """

    def __init__(self) -> None:
        self._owner = os.getpid()
        self._processes: list[subprocess.Popen[bytes]] = []
        self._held: list[int] = []
        self._supervisor: subprocess.Popen[bytes] | None = None
        self._ended = False
        # The name only: the supervisor makes it.
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
        """False in a process that was forked from the one that made it."""
        return self._owner == os.getpid()

    def spawn(
        self, command: Sequence[str], *, log: Path, environment: Mapping[str, str], given: Path | None = None
    ) -> subprocess.Popen[bytes]:
        """``given``: what it finds on its standard input."""
        with log.open("ab") as sink, (given or Path(os.devnull)).open("rb") as source:
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
        """A port that was free a moment ago; on Linux nobody else is given it before `close`.

        There a bound socket that does not listen keeps the port from being handed out, to others who
        look for a free one as well as to outgoing connections, and refuses callers just as a dead
        server does.  The server can listen on it all the same, because both of them allow the address
        to be reused.  Elsewhere it could not, so there the port is only a good guess.
        """
        with socket.socket() as probe:
            probe.bind((LOOPBACK, 0))
            port: int = probe.getsockname()[1]
            if sys.platform == "linux":
                # Only now: a socket that has it before `bind` may be given a port that another holds.
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                self._held.append(probe.detach())
            return port

    def close(self) -> None:
        """No process, no directory and no port is left.  May be repeated, also after an interruption."""
        if self._ended or not self.mine:
            return
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.wait()
        if self._made:
            # While there is a supervisor: should this process be killed right now, it does the rest.
            _supervisor.remove(str(self.directory))
        else:
            # The supervisor alone knows whether the directory is ours.  It removes what it has made, then hangs up.
            with suppress(OSError):
                self._lifeline.shutdown(socket.SHUT_WR)
                for _ in self._answers():
                    pass
        if self._supervisor is not None and self._supervisor.returncode is None:
            # The whole group, because an interrupted `spawn` may have left a server that nobody knows.
            # Its number cannot be anybody else's: nobody has waited for its leader yet.
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
        # Or it would not wait there, where the program has given its sockets a default timeout.
        os.set_blocking(end, True)
        self._command = [sys.executable or "", "-I", "-S", _supervisor.__file__, str(self.directory)]
        try:
            # Not to be bothered by Ctrl-C, nor by the SIGHUP that the kernel sends to a group with
            # stopped members when their parent dies.  Blocked rather than ignored, because that is
            # in force before its first instruction.  Its own group, which the servers join, so that
            # one signal ends them all.
            with _blocked(signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                return subprocess.Popen(self._command, stdin=end, stdout=end, stderr=end, cwd="/", process_group=0)
        except OSError as error:
            raise self._no_supervisor(str(error)) from error

    def _wait_for_directory(self) -> None:
        """Without a supervisor servers and directory would outlive a SIGKILL, so none is started."""
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
        """What the supervisor says, until it hangs up."""
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
        """For a forked child: these processes are not its own, and the connection must not stay open."""
        self._let_go()
        for process in (*self._processes, self._supervisor):
            if process is not None:
                # Else Popen would complain in the child about a process that is still running.
                process.returncode = 0

    def _let_go(self) -> None:
        while self._held:
            os.close(self._held.pop())
        self._lifeline.close()


@contextmanager
def _blocked(*signals: signal.Signals) -> Iterator[None]:
    """Processes started meanwhile inherit it; what arrives here meanwhile is delivered afterwards."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


_nests: weakref.WeakSet[Nest] = weakref.WeakSet()


def _disown_all() -> None:
    for nest in list(_nests):
        nest.disown()


os.register_at_fork(after_in_child=_disown_all)
