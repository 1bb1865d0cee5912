"""Databases as they run: PostgreSQL and MariaDB from the system, started by `chaos.databases`; skipped where they are not."""

import contextlib
import signal

from chaos import databases
from tests.servers.needs import missing


def needs(*names, package):
    try:
        return [databases.program(name, package) for name in names]
    except databases.DatabaseFailed:
        missing(f"{', '.join(names)} (apt-get install {package})")


@contextlib.contextmanager
def postgresql():
    """A server of PostgreSQL on a socket.  Yields the folder of the socket: the host of a connection."""
    needs("initdb", "postgres", package="postgresql")
    with databases.postgresql() as host:
        yield host


@contextlib.contextmanager
def mariadb():
    """A server of MariaDB.  Yields the path of its socket."""
    install, daemon = needs("mariadb-install-db", "mariadbd", package="mariadb-server")
    with databases.folder() as nest:
        data, socket = f"--datadir={nest.directory}/data", str(nest.directory / "socket")
        apart = f"--tmpdir={nest.directory}"  # others on this machine have files of the same names in theirs
        methods = ("--auth-root-authentication-method=normal", "--skip-test-db")
        databases.run(nest, [install, "--no-defaults", data, apart, *methods])
        options = ("--skip-networking", f"--socket={socket}", f"--pid-file={nest.directory}/pid")
        quick = "--innodb-flush-log-at-trx-commit=0"  # commits do not wait for the disk
        with databases.running(
            nest, [daemon, "--no-defaults", data, apart, *options, quick], "ready for connections", signal.SIGTERM
        ):
            yield socket
