"""``redlock-run --status-port``: who leads, over HTTP, for sidecars and probes (R41).

``/leader`` says whether this one leads, and who does; ``/healthz`` whether it still does its work. Codes and answers
are in docs/redlock-run.md.

The port is taken once, before anything starts. A thread answers there. A `Job` forks, which is safe only without
other threads, so this thread ends before each fork and begins again after it. The kernel keeps requests that come in
between.

That thread never waits for a client: it reads what has come, from all of them, and answers from what it knows. So a
slow client delays neither the others nor the end of the thread. Also considered: `ThreadingHTTPServer` (a thread for
each client, and all of them would have to end before a fork; its timeout is for one byte, not for the request).
"""

from __future__ import annotations

import contextlib
import errno
import json
import re
import selectors
import socket
import threading
import time
from email.utils import formatdate
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from redlock import ConfigurationError
from redlock._cli.address import Address

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from redlock import Lease

MOST = 32  # connections at once; the oldest one makes room for the next
_PATIENCE = 5.0  # seconds from a connection to its end, however its client behaves
_LARGEST = 8192  # bytes of a request; what comes behind them is read and dropped
_LOOK = 0.5  # seconds between two looks whose time has passed
_NO_ROOM = 0.05  # seconds until the next try, while this process may not open one more file
_END = re.compile(rb"\r?\n\r?\n")
_LOOKS = ("GET", "HEAD", "OPTIONS")  # the last one is what HAProxy sends by default


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
        self.asked: Callable[[], bool] = bool  # whether redlock-run, or the command, is to end
        self._listener = socket.socket(socket.AF_INET6 if ":" in at.host else socket.AF_INET)
        try:
            self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._listener.bind(at)
            self._listener.listen()
        except (OSError, UnicodeError) as error:
            self._listener.close()
            why = getattr(error, "strerror", None) or error
            fix = "take another port, or 0 for any that is free"
            if (
                not isinstance(error, OSError)
                or isinstance(error, socket.gaierror)
                or error.errno == errno.EADDRNOTAVAIL
            ):
                fix = "give an address of this machine, 0.0.0.0 for all of them"
            raise ConfigurationError(f"--status-port {at}: cannot listen there ({why}): {fix}") from None
        host, port = self._listener.getsockname()[:2]
        self.at = Address(str(host), int(port))
        self._clients: dict[socket.socket, _Client] = {}  # in the order in which they came
        self._woken, self._wake = socket.socketpair()
        self._selector = selectors.DefaultSelector()
        for one in (self._listener, self._woken):
            one.setblocking(False)
            self._selector.register(one, selectors.EVENT_READ)

    @contextlib.contextmanager
    def answering(self) -> Iterator[int]:
        """Under ``with`` one thread answers."""
        thread = threading.Thread(target=self._work, name="redlock-run-status", daemon=True)
        thread.start()
        try:
            yield 1
        finally:
            self._wake.send(b"\0")
            thread.join()

    @property
    def room(self) -> int:
        """How many more connections there may be at once."""
        return MOST - len(self._clients)

    def close(self) -> None:
        for client in list(self._clients):
            self._drop(client)
        for one in (self._selector, self._listener, self._woken, self._wake):
            one.close()

    def answer(self, path: str) -> tuple[int, dict[str, Any]]:
        """The code and the text for ``path``."""
        lease = self.lease  # once: it may end at any moment
        leads = lease is not None and lease.valid
        if path == "/leader":
            # Another leader that was seen may be stale. Our own term is not: it ends with the lease, noticed or not.
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

    # -- in the thread -------------------------------------------------------------------------------

    def _work(self) -> None:
        while True:
            ready: list[Any] = [key.fileobj for key, _ in self._selector.select(_LOOK)]
            if self._woken in ready:
                self._woken.recv(1)
                return
            for one in ready:
                if one is self._listener:
                    self._take()
                elif one in self._clients:  # else it has made room
                    self._hear(one, self._clients[one])
            now = time.monotonic()
            for client in [client for client, its in self._clients.items() if its.until <= now]:
                self._drop(client)

    def _take(self) -> None:
        try:
            client, _ = self._listener.accept()
        except OSError:
            time.sleep(_NO_ROOM)
            return
        client.setblocking(False)
        if len(self._clients) >= MOST:
            self._drop(next(iter(self._clients)))
        self._clients[client] = _Client(time.monotonic() + _PATIENCE)
        self._selector.register(client, selectors.EVENT_READ)

    def _hear(self, client: socket.socket, its: _Client) -> None:
        """Read a part of its request, and answer when there is no more to come.

        Then wait until the client closes. If we closed before the client has sent everything, a body for example, the
        kernel might discard the answer.
        """
        try:
            more = client.recv(_LARGEST)
            if not its.answered:
                its.said = (its.said + more).lstrip()
                its.answered = not more or len(its.said) >= _LARGEST or bool(_END.search(its.said))
                if its.answered and its.said:
                    client.send(self._response(its.said))  # the buffer of a new connection has room for all of it
                    client.shutdown(socket.SHUT_WR)
        except BlockingIOError:
            return
        except OSError:  # it has gone
            more = b""
        if not more:
            self._drop(client)

    def _drop(self, client: socket.socket) -> None:
        del self._clients[client]
        self._selector.unregister(client)
        with contextlib.suppress(OSError):  # a process that was forked since may have it open, too
            client.shutdown(socket.SHUT_RDWR)
        client.close()

    def _response(self, request: bytes) -> bytes:
        method, target = (*request.decode("latin-1").split(), "", "")[:2]
        code, about = self.answer(target.partition("?")[0] if method in _LOOKS else "")
        text = json.dumps(about) + "\n"
        head = (
            f"HTTP/1.0 {code} {HTTPStatus(code).phrase}",
            f"Date: {formatdate(usegmt=True)}",
            "Content-Type: application/json",
            f"Content-Length: {len(text)}",
            "Cache-Control: no-store",
            "\r\n" + (text if method != "HEAD" else ""),
        )
        return "\r\n".join(head).encode()


class _Client:
    """What one client has sent, and until when its connection lasts."""

    def __init__(self, until: float) -> None:
        self.until = until
        self.said = b""
        self.answered = False
