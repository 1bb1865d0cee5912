"""Servers of databases: each in a folder of its own, as an ordinary user, and gone with whoever started it.

PostgreSQL is what `transactions` needs.  The tests of fenced transactions start it here as well, and MariaDB in the same way.
"""

from __future__ import annotations

import contextlib
import glob
import importlib.util
import os
import shutil
import signal
import subprocess
import time
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from redlock.testing._nest import Nest

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_NOBODY: Final = 65534  # neither server runs as root
_READY_WITHIN: Final = 60.0
_ENDS_WITHIN: Final = 30.0
# In namespaces of its own it is nobody, even where a user namespace knows root alone, and the kernel takes back the shared
# memory of a server that was killed.
_APART: Final = ("unshare", "--user", f"--map-user={_NOBODY}", f"--map-group={_NOBODY}", "--ipc")
_OTHER: Final = ("setpriv", f"--reuid={_NOBODY}", f"--regid={_NOBODY}", "--clear-groups")


class DatabaseFailed(RuntimeError):  # noqa: N818 - named for what happened
    """A server is not installed, or did not start.  The text says what to do, or what the server said."""


def program(name: str, package: str) -> str:
    """A program of a database, wherever the system keeps it.  Raises `DatabaseFailed`."""
    for found in (
        shutil.which(name),
        *sorted(glob.glob(f"/usr/lib/postgresql/*/bin/{name}"), reverse=True),  # noqa: PTH207 - sorted as texts
        f"/usr/sbin/{name}",
    ):
        if found and os.access(found, os.X_OK):
            return found
    raise DatabaseFailed(f"{name} is not here: apt-get install {package}")


def unavailable() -> str | None:
    """Why clients here cannot work with PostgreSQL."""
    missing = [name for name in ("sqlalchemy", "greenlet", "psycopg") if importlib.util.find_spec(name) is None]
    if missing:
        return f"{', '.join(missing)} not installed: pip install 'sqlalchemy[asyncio]' 'psycopg[binary]'"
    try:
        program("initdb", "postgresql")
        program("postgres", "postgresql")
    except DatabaseFailed as error:
        return str(error)
    return None


@contextlib.contextmanager
def postgresql(*, fsync: bool = False) -> Iterator[str]:
    """A server of PostgreSQL on a socket.  Yields the folder of the socket: the host of a connection.

    ``fsync``: commits wait for the disk, as those of a server do that has just been installed.
    """
    initdb, postgres = program("initdb", "postgresql"), program("postgres", "postgresql")
    with folder() as nest:
        where = str(nest.directory)
        run(nest, [initdb, "-D", f"{where}/data", "-U", "redlock", "-A", "trust", "--no-sync", "-E", "UTF8"])
        options = ("-c", "listen_addresses=", "-c", f"fsync={'on' if fsync else 'off'}")
        command = [postgres, "-D", f"{where}/data", "-k", where, *options]
        with running(nest, command, "ready to accept connections", signal.SIGINT):
            yield where


@contextlib.contextmanager
def folder() -> Iterator[Nest]:
    """For one server: it belongs to the user that the server has, and ends with this process, whatever ends that."""
    nest = Nest()
    try:
        if _user()[:1] == _OTHER[:1]:
            os.chown(nest.directory, _NOBODY, _NOBODY)
        yield nest
    finally:
        nest.close()


def run(nest: Nest, command: Sequence[str]) -> None:
    """Run a program to its end.  Raises `DatabaseFailed`."""
    process, log = _spawn(nest, command)
    if process.wait():
        raise DatabaseFailed(log.read_text(errors="replace"))


@contextlib.contextmanager
def running(nest: Nest, command: Sequence[str], ready: str, stop: signal.Signals) -> Iterator[None]:
    """A server that has said ``ready``.  Ended by ``stop``.  Raises `DatabaseFailed`."""
    process, log = _spawn(nest, command)
    until = time.monotonic() + _READY_WITHIN
    while ready not in (said := log.read_text(errors="replace")):
        if process.poll() is not None or time.monotonic() > until:
            raise DatabaseFailed(f"{command[0]} did not start:\n{said}")
        time.sleep(0.02)
    try:
        yield
    finally:
        process.send_signal(stop)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_ENDS_WITHIN)


def _spawn(nest: Nest, command: Sequence[str]) -> tuple[subprocess.Popen[bytes], Path]:
    log = nest.directory / f"{Path(command[0]).name}.log"
    environment = {"PATH": os.environ["PATH"], "HOME": str(nest.directory), "LC_ALL": "C.UTF-8", "TZ": "UTC"}
    return nest.spawn([*_user(), *command], log=log, environment=environment), log


@cache
def _user() -> tuple[str, ...]:
    """What a command begins with to be run as an ordinary user, who may be the one that we are."""
    tried = shutil.which(_APART[0]) and subprocess.run([*_APART, "true"], capture_output=True, check=False)
    if tried and not tried.returncode:
        return _APART
    return _OTHER if os.geteuid() == 0 else ()
