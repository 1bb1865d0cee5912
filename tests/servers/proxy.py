"""A TCP proxy in front of a server, that can hold, cut and drop what passes."""

import contextlib
import select
import socket
import threading
import time


class Proxy:
    """Forwards to ``port``; ``loses``: when the server answers, the connection is reset instead."""

    def __init__(self, port):
        self.loses = False
        self.delay = 0.0
        self._lagging: set[socket.socket] = set()  # of clients, whose requests wait here
        self._target = ("127.0.0.1", port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.url = f"redis://127.0.0.1:{self.port}"
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._closed = False
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def _accept(self):
        while not self._closed:
            if not select.select([self._listener], [], [], 0.05)[0]:
                continue
            client, _ = self._listener.accept()
            try:
                server = socket.create_connection(self._target)
            except OSError:  # as good as refused
                client.close()
                continue
            self._pairs.append((client, server))
            thread = threading.Thread(target=self._pump, args=(client, server))
            self._threads.append(thread)
            thread.start()

    def _pump(self, client, server):
        late = b""
        with contextlib.suppress(OSError, ValueError), client, server:
            while not self._closed:
                for ready in select.select([client, server], [], [], 0.01)[0]:
                    data = ready.recv(65536)
                    if not data:
                        while late and client in self._lagging and not self._closed:
                            time.sleep(0.01)  # what was sent before the end arrives before it
                        if not self._closed:
                            server.sendall(late)
                        return
                    if ready is client:
                        late += data
                        continue
                    if self.delay:
                        time.sleep(self.delay)
                    if self.loses:
                        return
                    client.sendall(data)
                if late and client not in self._lagging and not self._closed:
                    server.sendall(late)
                    late = b""

    def lag(self):
        """What is asked on the connections that there are now waits here, until they `catch_up`."""
        self._lagging.update(client for client, _ in self._pairs)

    def catch_up(self):
        self._lagging.clear()

    def drop(self):
        """Reset every connection that there is."""
        for pair in self._pairs:
            for sock in pair:
                with contextlib.suppress(OSError):
                    sock.shutdown(socket.SHUT_RDWR)

    def close(self):
        self._closed = True
        self.drop()
        for thread in self._threads:
            thread.join()
        self._listener.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
