"""Databases as they run, each in a folder of its own, as an ordinary user: PostgreSQL and MariaDB from the system."""

from __future__ import annotations

import contextlib
import glob
import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

REQUIRED = bool(os.environ.get("REDLOCK_TEST_REQUIRE_ALL"))
ORDINARY = 65534  # nobody: neither server runs as root


def program(name: str, package: str) -> str:
    """A program of a database, wherever the system keeps it; skipped where it is not."""
    for found in (
        shutil.which(name),
        *sorted(glob.glob(f"/usr/lib/postgresql/*/bin/{name}"), reverse=True),
        f"/usr/sbin/{name}",
    ):
        if found and os.access(found, os.X_OK):
            return found
    if REQUIRED:
        pytest.fail(f"{name} is missing: apt-get install {package}")
    pytest.skip(f"{name} is not here: apt-get install {package}")


def _as_ordinary_user() -> dict[str, int]:
    return {"user": ORDINARY, "group": ORDINARY} if os.geteuid() == 0 else {}


@contextlib.contextmanager
def folder() -> Iterator[Path]:
    """A short path: that of a socket must not be long."""
    path = Path(tempfile.mkdtemp(prefix="db", dir="/tmp"))
    path.chmod(0o700)
    if os.geteuid() == 0:
        os.chown(path, ORDINARY, ORDINARY)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def _run(command: Sequence[str], where: Path) -> None:
    done = subprocess.run(
        command, cwd=where, capture_output=True, text=True, check=False, env=_environment(where), **_as_ordinary_user()
    )  # type: ignore[call-overload]
    assert done.returncode == 0, done.stdout + done.stderr


def _environment(where: Path) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "HOME": str(where), "LC_ALL": "C.UTF-8", "TZ": "UTC"}


@contextlib.contextmanager
def _running(command: Sequence[str], where: Path, ready: str, stop: signal.Signals) -> Iterator[subprocess.Popen[str]]:
    log = where / "log"
    with log.open("w") as output:
        server = subprocess.Popen(
            command, cwd=where, stdout=output, stderr=output, text=True, env=_environment(where), **_as_ordinary_user()
        )  # type: ignore[call-overload]
    try:
        until = time.monotonic() + 60
        while ready not in log.read_text():
            assert server.poll() is None, log.read_text()
            assert time.monotonic() < until, log.read_text()
            time.sleep(0.02)
        yield server
    finally:
        server.send_signal(stop)
        try:
            server.wait(30)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


@contextlib.contextmanager
def postgresql() -> Iterator[str]:
    """A server of PostgreSQL on a socket.  Yields the folder of the socket: the host of a connection."""
    initdb, postgres = program("initdb", "postgresql"), program("postgres", "postgresql")
    with folder() as where:
        _run([initdb, "-D", str(where / "data"), "-U", "redlock", "-A", "trust", "--no-sync", "-E", "UTF8"], where)
        command = [postgres, "-D", str(where / "data"), "-k", str(where), "-c", "listen_addresses=", "-c", "fsync=off"]
        with _running(command, where, "ready to accept connections", signal.SIGINT):
            yield str(where)


@contextlib.contextmanager
def mariadb() -> Iterator[str]:
    """A server of MariaDB.  Yields the path of its socket."""
    install, daemon = program("mariadb-install-db", "mariadb-server"), program("mariadbd", "mariadb-server")
    with folder() as where:
        data, socket = str(where / "data"), str(where / "socket")
        _run(
            [
                install,
                "--no-defaults",
                f"--datadir={data}",
                "--auth-root-authentication-method=normal",
                "--skip-test-db",
            ],
            where,
        )
        command = [
            daemon,
            "--no-defaults",
            f"--datadir={data}",
            f"--socket={socket}",
            "--skip-networking",
            f"--pid-file={where}/pid",
        ]
        with _running(command, where, "ready for connections", signal.SIGTERM):
            yield socket
