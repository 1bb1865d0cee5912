"""A relay in front of a server: it counts what clients say, and strikes before or after any of it."""

import contextlib
import select
import socket
import threading
import time


class Relay:
    """Forwards to ``target``, and listens at ``path`` where that is a socket of Unix; else it is the number of a port.

    ``strike(number, "before" or "after")`` is called, in the thread of the connection, when the client has sent that
    message, and when the server has answered it.  If it returns True, the connection breaks there.
    """

    def __init__(self, target, path=None):
        self._family = socket.AF_INET if path is None else socket.AF_UNIX
        self._target = ("127.0.0.1", target) if path is None else target
        self._listener = socket.socket(self._family)
        self._listener.bind(("127.0.0.1", 0) if path is None else path)
        self._listener.listen()
        if path is None:
            self.url = f"redis://127.0.0.1:{self._listener.getsockname()[1]}"
        self._sockets = []
        self.strike = None
        self.said = []
        self._caught_up = threading.Event()
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                client, server = self._listener.accept()[0], socket.socket(self._family)
                try:
                    server.connect(self._target)
                except OSError:  # as good as refused
                    client.close()
                    server.close()
                    continue
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

    def answer_late(self, seconds):
        def strike(number, when):
            time.sleep(seconds if when == "after" else 0.0)

        self.strike = strike

    def lag(self):
        """What is asked on the connections that there are now waits here, until they `catch_up`."""
        lagging = set(self._threads)
        self._caught_up.clear()

        def strike(number, when):
            if when == "before" and threading.current_thread() in lagging:
                self._caught_up.wait()

        self.strike = strike

    def catch_up(self):
        self._caught_up.set()

    def await_closed(self):
        """Wait until all connections have ended, so that no late word of an older one is counted."""
        for thread in self._threads[1:]:
            thread.join(20)
            assert not thread.is_alive(), "a connection is open"
        del self._threads[1:], self._sockets[:]

    def drop(self):
        """Reset every connection that there is."""
        for one in self._sockets:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def close(self):
        self.strike = None
        self.catch_up()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.drop()
        for thread in self._threads:
            thread.join()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
