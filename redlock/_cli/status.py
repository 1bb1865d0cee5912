"""``redlock-run --status-port``: who leads, over HTTP, for sidecars and probes (R41).

``/leader`` says whether this one leads, and who does; ``/healthz`` whether it still does its work. Codes and answers
are in docs/redlock-run.md.

The port is taken once, before anything starts. A thread answers there. A `Job` forks, and that is safe only while no
thread is there, so this one ends before each fork and begins again behind it. The kernel keeps requests that come in
between.
"""

from __future__ import annotations

import contextlib
import errno
import json
import socket
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import TYPE_CHECKING, Any

from redlock import ConfigurationError
from redlock._cli.address import Address

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from redlock import Lease

_SLOWEST = 1.0  # seconds that one who asks may take: the others wait for it
_LOOK = 0.1  # seconds until the thread notices that it is to end


class Status:
    """What this one knows of the election, and the port at which that is answered.

    The thread of the command writes it, the thread of the port reads it.
    """

    def __init__(self, name: str, at: Address) -> None:
        """Take the port.

        Raises:
            ConfigurationError: it is in use, or we may not have it; or this machine has no such address.
        """
        self.name = name
        self.lease: Lease | None = None  # of the term, while there is one
        self.leader = ""  # the owner of the last leader that was seen
        self.asked: Callable[[], bool] = bool  # whether somebody asked redlock-run, or the command, to end
        try:
            self._server = _Server(at, self)
        except (OSError, UnicodeError) as error:
            why = getattr(error, "strerror", None) or error
            fix = "take another port, or 0 for any that is free"
            if (
                not isinstance(error, OSError)
                or isinstance(error, socket.gaierror)
                or error.errno == errno.EADDRNOTAVAIL
            ):
                fix = "give an address of this machine, 0.0.0.0 for all of them"
            raise ConfigurationError(f"--status-port {at}: cannot listen there ({why}): {fix}") from None
        host, port = self._server.server_address[:2]
        self.at = Address(str(host), int(port))

    @contextlib.contextmanager
    def answering(self) -> Iterator[None]:
        """Under ``with`` a thread answers."""
        thread = threading.Thread(
            target=self._server.serve_forever, args=(_LOOK,), name="redlock-run-status", daemon=True
        )
        thread.start()
        try:
            yield
        finally:
            self._server.shutdown()
            thread.join()

    def close(self) -> None:
        self._server.server_close()

    def answer(self, path: str) -> tuple[int, dict[str, Any]]:
        """The code and the text for ``path``."""
        lease = self.lease  # once: it may end meanwhile
        leads = lease is not None and lease.valid
        if path == "/leader":
            # What was seen may be stale. That we lead is not: it ends with the lease, whatever anybody has noticed.
            owner = lease.owner if lease is not None and leads else "" if lease is not None else self.leader
            about = {"name": self.name, "leads": leads, "leader": owner}
            if lease is not None and leads:
                about |= {"term": lease.fence, "remaining": round(max(0.0, lease.remaining()), 3)}
            return (200 if leads else 503), about
        if path == "/healthz":
            ending = self.asked()
            state = "ending" if ending else "leading" if leads else "waiting"
            return (503 if ending else 200), {"name": self.name, "state": state}
        return 404, {"error": "there are /leader and /healthz"}


class _Server(HTTPServer):
    def __init__(self, at: Address, status: Status) -> None:
        self.status = status
        self.address_family = socket.AF_INET6 if ":" in at.host else socket.AF_INET
        super().__init__(at, _Handler)

    def server_bind(self) -> None:
        """Without its look-up of the name of this host, which may take long."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()

    def handle_error(self, *_: object) -> None:
        """The client has gone: nobody is told."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = _SLOWEST
    server_version, sys_version = "redlock-run", ""

    def do_GET(self) -> None:
        code, about = self.server.status.answer(self.path.partition("?")[0])
        text = json.dumps(about).encode() + b"\n"
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(text)

    def do_HEAD(self) -> None:
        self.do_GET()

    def log_message(self, *_: object) -> None:
        """Probes ask all the time: what they are told stands nowhere else."""
