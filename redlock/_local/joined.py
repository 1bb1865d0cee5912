"""Finds the masters of this user on this machine, and starts them if there are none.

Everything is in one directory, which no other user may enter.  It has a name that depends on nothing but the user:
two programs that have different variables in their environments still have to meet.  The servers listen on sockets in
it: no ports, no passwords.  A program that starts a keeper takes the lock of the directory, and hands it on to the
keeper, with the socket on which the keeper listens. So of two programs that start at the same moment one starts the
servers, and both are connected to the same keeper. Leftovers of a crash are harmless.

The servers write everything to a file before they answer.  So they forget nothing, and may vote at once (R21): after an
idle end, a crash and ``kill -9`` the next ones remember which locks are held, and which fences were given.

Also considered: ``XDG_RUNTIME_DIR`` and ``/dev/shm`` (they are emptied when the user logs out, under the feet of cron
jobs that go on, and cron does not have the variable); a port (other users could take it, or use it).
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import json
import logging
import os
import socket
import stat
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from redlock._local import LOCAL
from redlock._local.programs import ServerNotFound, find_server, quoted
from redlock.errors import ConfigurationError, RedlockError

PLACE: Final = "REDLOCK_LOCAL_DIR"  # the variable that names another directory, and so another set
SERVERS: Final = 3
IDLE: Final = 600.0  # seconds without a program, after which they end
_PATIENCE: Final = 30.0  # seconds for another program to start them
_PAUSE: Final = 0.02
_KEEPER: Final = Path(__file__).with_name("keeper.py")
_LONGEST: Final = 100  # bytes of the path of a socket; the kernel takes 107, macOS 103
# A keeper lives for days, and needs nothing else from the environment of the program that starts it.
_KEPT: Final = ("PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")
_log = logging.getLogger("redlock")


@dataclass(frozen=True)
class _Line:
    """The connection to the keeper, which is open for as long as this process, or a child of it, runs."""

    socket: socket.socket
    urls: list[str]

    @property
    def broken(self) -> bool:
        try:
            return not self.socket.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return False
        except OSError:  # a daemon closes all that is open when it begins
            return True


_lines: dict[Path, _Line] = {}


def urls() -> list[str]:
    """The addresses of the masters.  They run when this returns, and for as long as this process does.

    Raises:
        ConfigurationError: there is no server program, or the directory cannot be used.
        RedlockError: they could not be started.  The text says why.
    """
    directory = _directory()
    known = _lines.get(directory)
    if known is not None and not known.broken:
        return known.urls
    line = _joined(directory)
    if known is not None:
        known.socket.detach()  # another file may have its number by now
    _lines[directory] = line
    atexit.register(line.socket.detach)  # the kernel closes it
    _say(
        f"{LOCAL} masters are no masters for production: {len(line.urls)} servers on this machine, in {directory}, "
        f"which end {IDLE / 60:g} minutes after the last program that uses them"
    )
    return line.urls


def found() -> str:
    """Whether they run, and where, for people."""
    place = _place()
    line = _connected(place / "door")
    if line is None:
        return f"none run in {place}"
    with line:
        line.settimeout(_PATIENCE)
        greeting = _greeting(line) or {"error": "it does not answer"}
    if "error" in greeting:
        return f"{place}, {greeting['error']}"
    failed = "".join(f"; {why.splitlines()[0]}" for why in greeting.get("failures", ()))
    return f"{len(greeting['urls'])} in {place}, used by {greeting['others']} programs{failed}"


def stop() -> bool:
    """End the masters, even if programs use them.  Their data stays.  False: none run."""
    line = _connected(_place() / "door")
    if line is None:
        return False
    with line, contextlib.suppress(OSError):
        line.settimeout(_PATIENCE)
        line.sendall(b"stop\n")
        while line.recv(4096):
            pass
    return True


def _place() -> Path:
    given = os.environ.get(PLACE)
    return Path(given).absolute() if given else Path("/tmp", f"redlock-local-{os.geteuid()}")  # noqa: S108 - see _directory


def _directory() -> Path:
    """The directory, made if there is none.  ConfigurationError: it is not ours alone."""
    directory = _place()
    if len(os.fsencode(directory / "door")) > _LONGEST:
        raise ConfigurationError(f"{directory} is too long for the path of a socket: set {PLACE} to a shorter one")
    try:
        with contextlib.suppress(FileExistsError):
            directory.mkdir(0o700)
        found = directory.lstat()
    except OSError as error:
        raise ConfigurationError(f"{directory}: {error.strerror}; {PLACE} may name another directory") from None
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
        raise ConfigurationError(
            f"{directory} is not a directory that is yours alone (owner {os.geteuid()}, mode 0700): "
            f"remove it, or set {PLACE} to another one"
        )
    return directory


def _joined(directory: Path) -> _Line:
    gives_up = time.monotonic() + _PATIENCE
    while time.monotonic() < gives_up:
        line = _connected(directory / "door")
        started = line is None and (line := _start(directory)) is not None
        if line is not None:
            line.settimeout(_PATIENCE)
            greeting = _greeting(line)
            if greeting is not None and "urls" in greeting:
                line.setblocking(False)
                for why in greeting.get("failures", ()):  # a keeper of an earlier version reports none
                    _say(f"one of the {LOCAL} masters does not run, and two are a majority: {why}")
                return _Line(line, greeting["urls"])
            line.close()
            if greeting is not None:
                raise _failed(directory, greeting["error"])
            if started:
                raise _failed(directory, _said(directory))
        time.sleep(_PAUSE)  # another program is starting them, or they are ending
    raise _failed(directory, f"nothing answers there within {_PATIENCE:g} s")


def _connected(door: Path) -> socket.socket | None:
    """A connection to the keeper.  None: there is no keeper."""
    line = socket.socket(socket.AF_UNIX)
    try:
        line.connect(os.fspath(door))
    except OSError:
        line.close()
        return None
    return line


def _greeting(line: socket.socket) -> dict[str, Any] | None:
    """What the keeper says to a program that comes.  None: it has ended, or hangs."""
    said = b""
    try:
        while not said.endswith(b"\n"):
            more = line.recv(65536)
            if not more:
                return None
            said += more
    except OSError:
        return None
    greeting: dict[str, Any] = json.loads(said)
    return greeting


def _start(directory: Path) -> socket.socket | None:
    """Start a keeper, and connect to it.  None: another program is doing so."""
    if getattr(sys, "frozen", False):
        raise _failed(
            directory, "a packed program has no Python for it; start them with another one, redlock-check say"
        )
    program = _program()
    door, log = directory / "door", directory / "keeper.log"
    try:
        lock = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not os.path.samestat(os.fstat(lock), directory.stat()):
                return None
            door.unlink(missing_ok=True)
            with socket.socket(socket.AF_UNIX) as listener, log.open("wb") as errors, contextlib.ExitStack() as stack:
                listener.bind(os.fspath(door))
                listener.listen(128)
                line = stack.enter_context(socket.socket(socket.AF_UNIX))
                line.connect(os.fspath(door))  # first: the keeper has a client to answer, whatever goes wrong
                with subprocess.Popen(  # noqa: S603 - our own program
                    [sys.executable or "python3", "-I", "-S", os.fspath(_KEEPER), _plan(directory, program)],
                    stdin=listener.fileno(),
                    stdout=subprocess.DEVNULL,
                    stderr=errors,
                    cwd="/",
                    env={name: os.environ[name] for name in _KEPT if name in os.environ},
                    pass_fds=[lock],
                    start_new_session=True,
                ):
                    pass  # it goes on without a parent
                stack.pop_all()
            return line
        finally:
            os.close(lock)
    except BlockingIOError:
        return None
    except OSError as error:
        raise _failed(directory, str(error)) from error


def _program() -> Path:
    try:
        return find_server()
    except ServerNotFound as error:
        raise ConfigurationError(f"{LOCAL} masters: {error}") from None


def _plan(directory: Path, program: Path) -> str:
    """The settings of the servers that the keeper starts."""
    servers, addresses = [], []
    for number in range(1, SERVERS + 1):
        home, address = directory / str(number), directory / f"{number}.sock"
        settings = {
            "port": "0",
            "unixsocket": quoted(os.fsencode(address)),
            "unixsocketperm": "700",
            "dir": quoted(os.fsencode(home / "data")),
            "logfile": '""',
            "save": '""',
            "appendonly": "yes",
            "appendfsync": "always",
            # Readable by every version, for the next keeper may find another one.
            "aof-use-rdb-preamble": "no",
            "auto-aof-rewrite-min-size": "1mb",
        }
        configuration = "".join(f"{name} {value}\n" for name, value in settings.items())
        servers.append([*map(os.fspath, (program, home, address)), configuration])
        addresses.append(f"unix://{quote(os.fspath(address))}")
    return json.dumps({"directory": os.fspath(directory), "idle": IDLE, "servers": servers, "urls": addresses})


def _said(directory: Path) -> str:
    """What a keeper has written that ended without an answer."""
    with contextlib.suppress(OSError):
        lines = (directory / "keeper.log").read_text(errors="replace").strip().splitlines()
        if lines:
            return f"{sys.executable} says: {lines[-1]}"
    return f"their keeper ended; it needs a Python that works, and sys.executable is {sys.executable}"


def _failed(directory: Path, why: str) -> RedlockError:
    return RedlockError(f"{LOCAL} masters, in {directory}, cannot be started: {why}")


def _say(text: str) -> None:
    """Log it.  A program that drops our log, as our commands do, has it on standard error all the same."""
    _log.warning("%s", text)
    handlers = [*logging.getLogger().handlers, *_log.handlers]
    if handlers and all(isinstance(handler, logging.NullHandler) for handler in handlers) and sys.stderr is not None:
        with contextlib.suppress(OSError):
            sys.stderr.write(f"redlock: {text}\n")
