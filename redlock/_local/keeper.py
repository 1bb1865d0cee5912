"""Keeps the servers of `REDLOCK_MASTERS=local`, and ends with them when no program uses them any more.

It is a program of its own, run by path, and uses only the standard library: the program that starts the keeper may
end, and may be upgraded or removed at any time.  Standard input is a socket that listens: a program that uses the
servers is connected to it for as long as it runs, and the kernel ends that connection however the program ends.  One
line of JSON says to each program where the servers are, or why there are none.  If a program answers ``stop``,
the keeper ends the servers and itself.

The keeper got the lock of the directory when it was started, and has it until it ends.  So there is one keeper.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import time

_START_TIMEOUT = 20.0
_LOOK, _TICK = 0.01, 0.5  # seconds between two looks: while servers start, and later
_PAUSE = 1.0  # seconds before a server that has died is started again
_ANSWER = 1.0  # seconds for a server to answer
_SHUTDOWN = 5.0
_LOG_LINES = 5
_PR_SET_PDEATHSIG = 1
_C = None  # the C library, where the kernel can do what we want of it
if sys.platform == "linux":
    with contextlib.suppress(ImportError):
        import ctypes

        _C = ctypes.CDLL(None)


class NoServers(Exception):  # noqa: N818 - its name says what happened
    """There are no servers.  Its text says why."""


class Server:
    """One server, with a directory for its data."""

    def __init__(self, program: str, home: str, address: str, configuration: str) -> None:
        self._program, self._home, self._address = program, home, address
        self._configuration = configuration.encode()
        self.failure = ""  # why it does not run, until it does
        self.launch()

    def launch(self) -> None:
        self._since = time.monotonic()
        self._process: subprocess.Popen[bytes] | None = None
        try:
            self._launch()
        except (NoServers, OSError) as error:  # the others may be a majority without it
            self.failure = f"{self._home}: {error}"

    def _launch(self) -> None:
        os.makedirs(os.path.join(self._home, "data"), 0o700, exist_ok=True)  # noqa: PTH103, PTH118 - pathlib takes long to import
        _end_stranger(self._address)
        with open(self._log, "wb") as log:  # noqa: PTH123
            self._process = subprocess.Popen(  # noqa: S603 - that is what this program is for
                [self._program, "-"],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self._home,
                preexec_fn=_end_with(os.getpid()),  # noqa: PLW1509 - this process has one thread
            )
        assert self._process.stdin is not None  # noqa: S101
        with contextlib.suppress(BrokenPipeError), self._process.stdin as given:  # it ended: `look` finds out
            given.write(self._configuration)

    @property
    def _log(self) -> str:
        return os.path.join(self._home, "server.log")  # noqa: PTH118

    def look(self, *, late: bool = False) -> bool:
        """Whether it is known to answer, or not to: then `failure` says why. ``late``: it has had time enough."""
        if self._ended:
            self.failure = self._said()
        elif _asked(self._address, b"PING\r\n").startswith(b"+PONG"):
            self.failure = ""
        elif late:
            self.failure = f"{self._home}: it did not answer within {_START_TIMEOUT:g} s"
        else:
            return False
        return True

    @property
    def _ended(self) -> bool:
        return self._process is None or self._process.poll() is not None

    def _said(self) -> str:
        if self._process is None:
            return self.failure
        lines: list[str] = []
        with contextlib.suppress(OSError), open(self._log, errors="replace") as log:  # noqa: PTH123
            lines = log.read().splitlines()[-_LOG_LINES:]
        said = "".join(f"\n  {line}" for line in lines) or f", and nothing is in {self._log}: is the disk full?"
        # To move it is one step.  A server that we start while a folder is being deleted would write into it again.
        return (
            f"{self._home}: {self._program} ended with status {self._process.returncode}{said}\n"
            f"If its data is damaged, move {self._home}/data away while no program holds a local lock: "
            "it begins anew then"
        )

    def look_after(self) -> None:
        """Start it again if it has died. Its data is on the disk."""
        if self._ended or self.failure:
            self.look()
        if self._ended and time.monotonic() - self._since > _PAUSE:  # a full disk, for example: later, perhaps
            self.launch()

    @property
    def used(self) -> bool:
        """Whether any program is connected to it."""
        for line in _asked(self._address, b"INFO clients\r\n").splitlines():
            if line.startswith(b"connected_clients:"):
                return line != b"connected_clients:1"  # that was us
        return False

    def end(self) -> None:
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(_SHUTDOWN)
        except subprocess.TimeoutExpired:  # it is stopped, or its disk hangs; what it has promised is on the disk
            self._process.kill()
            self._process.wait()


def _end_with(keeper: int):  # type: ignore[no-untyped-def]  # noqa: ANN202
    """Have the kernel end a server with us, even if we are killed.  Where it cannot, the next keeper ends it."""

    def prepare() -> None:
        if _C is not None:
            _C.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != keeper:
                os._exit(1)

    return prepare


def _asked(address: str, command: bytes) -> bytes:
    """The first part of the answer of a server.  Empty: there is none."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as line:
        line.settimeout(_ANSWER)
        line.connect(address)
        line.sendall(command)
        return line.recv(65536)
    return b""


def _end_stranger(address: str) -> None:
    """End a server of a keeper that was killed: two servers must not have one directory."""
    gives_up = time.monotonic() + _SHUTDOWN
    while True:
        with socket.socket(socket.AF_UNIX) as line:
            if line.connect_ex(address):
                return
        if time.monotonic() > gives_up:
            raise NoServers(f"a server that was left there does not end: see what has {address} open")
        _asked(address, b"SHUTDOWN NOSAVE\r\n")
        time.sleep(_LOOK)


class Keeper:
    """The servers, and the programs that use them."""

    def __init__(self, directory: str, idle: float) -> None:
        self._directory, self._idle = directory, idle
        self._door = os.path.join(directory, "door")  # noqa: PTH118
        self._listener = socket.socket(fileno=0)
        self._listener.setblocking(False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._programs: set[socket.socket] = set()
        self._servers: list[Server] = []
        self._greeting: dict[str, object] = {}  # empty: the servers are starting
        self._ending = False
        self._mine = self._there()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._end_soon)

    def run(self, servers: list[list[str]], urls: list[str]) -> None:
        try:
            try:
                self._serve(servers, urls)
            finally:
                for server in self._servers:
                    server.end()
        except (NoServers, OSError) as error:
            self._greet({"error": str(error)})
            self._answer(0.0)  # programs that come right now get it as well
        finally:
            if self._mine == self._there():  # no other keeper listens here while we have the lock
                os.unlink(self._door)  # noqa: PTH108

    def _serve(self, servers: list[list[str]], urls: list[str]) -> None:
        gives_up = time.monotonic() + _START_TIMEOUT
        for one in servers:
            self._servers.append(Server(*one))
        # All of them, so that the first programs have three.  But a majority will do.
        while not self._ending and not all(one.look(late=time.monotonic() > gives_up) for one in self._servers):
            self._answer(_LOOK)
        failures = self._failures()
        if 2 * len(failures) >= len(self._servers):
            raise NoServers("\n".join(failures))
        self._greet({"urls": urls})
        self._idle_since = time.monotonic()
        # If the directory was removed, the next program starts other servers.
        while not self._ending and not self._idle_for_long() and self._mine == self._there():
            for server in self._servers:
                server.look_after()
            self._answer(_TICK)

    def _failures(self) -> list[str]:
        return [server.failure for server in self._servers if server.failure]

    def _idle_for_long(self) -> bool:
        now = time.monotonic()
        if not self._programs and now - self._idle_since <= self._idle:
            return False
        if self._programs or any(server.used for server in self._servers):
            self._idle_since = now
            return False
        return True

    def _answer(self, seconds: float) -> None:
        """Look for programs that come, that go, and that want us to stop."""
        for key, _ in self._selector.select(seconds):
            if self._ending:  # a signal does not cut `select` short: a program that comes now is to get other servers
                return
            line: socket.socket = key.fileobj  # type: ignore[assignment]
            with contextlib.suppress(BlockingIOError):
                if line is self._listener:
                    self._take(line.accept()[0])
                else:
                    self._hear(line)

    def _take(self, program: socket.socket) -> None:
        program.setblocking(False)
        self._programs.add(program)
        self._selector.register(program, selectors.EVENT_READ)
        if self._greeting:
            self._say(program)

    def _hear(self, program: socket.socket) -> None:
        try:
            said = program.recv(64)
        except ConnectionError:
            said = b""
        if said == b"stop\n":
            self._ending = True
        elif not said:
            self._selector.unregister(program)
            self._programs.discard(program)
            program.close()

    def _greet(self, greeting: dict[str, object]) -> None:
        self._greeting = greeting
        for program in self._programs:
            self._say(program)

    def _say(self, program: socket.socket) -> None:
        with contextlib.suppress(OSError):  # it has gone; `_hear` finds out
            more = {"others": len(self._programs) - 1, "failures": self._failures()}
            program.send(json.dumps({**self._greeting, **more}).encode() + b"\n")

    def _end_soon(self, *_: object) -> None:
        self._ending = True

    def _there(self) -> tuple[int, int] | None:
        try:
            found = os.stat(self._door)  # noqa: PTH116
        except OSError:
            return None
        return found.st_dev, found.st_ino


def main(plan: str) -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, [])  # the parent may have blocked some
    if os.fork():
        os._exit(0)  # so that no parent has to wait for us
    given = json.loads(plan)
    Keeper(given["directory"], given["idle"]).run(given["servers"], given["urls"])


if __name__ == "__main__":
    main(sys.argv[1])
