"""A relay in front of a database's socket: it counts what a client says, and strikes before or after any of it."""

import contextlib
import select
import socket
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class Relay:
    """Listens at ``path``, and forwards to ``target``; both are sockets of Unix.

    ``strike(number, "before" or "after")`` is called, in a thread of its own, when the client has sent that message, and
    when the server has answered it.  If it returns True, the connection breaks there.
    """

    def __init__(self, target, path):
        self._target = target
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(path)
        self._listener.listen()
        self._sockets = [self._listener]
        self._lock = threading.Lock()
        self.strike: Callable[[int, str], object] | None = None
        self.said: list[bytes] = []
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.socket(socket.AF_UNIX)
                server.connect(self._target)
                self._sockets += [client, server]
                self._threads.append(threading.Thread(target=self._pump, args=(client, server), daemon=True))
                self._threads[-1].start()

    def _pump(self, client, server):
        number = None
        with contextlib.suppress(OSError, ValueError), client, server:
            while True:
                for ready in select.select([client, server], [], [])[0]:
                    data = ready.recv(1 << 20)
                    if not data:
                        return
                    if ready is client and self.strike is not None:
                        number = len(self.said)
                        self.said.append(data)
                        if self.strike(number, "before"):
                            return
                    if ready is server and number is not None:
                        now, number = number, None
                        if self.strike is not None and self.strike(now, "after"):
                            return
                    (server if ready is client else client).sendall(data)

    def close(self):
        for one in self._sockets:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()
        for thread in self._threads:
            thread.join()
