"""The limit: bare sockets, the very bytes that the library sends, as fast as sensible Python can be.

    … majority|all

It knows nothing of tokens, votes, time, errors or threads.  A round is over when a majority (or all) have
answered; what is late is read at the start of the next, as the library does it.
"""

from __future__ import annotations

import select
import socket
import time
from typing import TYPE_CHECKING

import hiredis

from benchmarks.workers import serve, threads
from redlock import _connect, scripts
from redlock._core import wire
from redlock._core.kernel.quorum import majority

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

POLL = 0.001  # seconds between two tries, where somebody else has it
FENCE_TTL = 3600.0


class BareSockets:
    def __init__(self, sockets: Sequence[socket.socket], need: int) -> None:
        self.sockets = sockets
        self.by_fd = {sock.fileno(): index for index, sock in enumerate(self.sockets)}
        self.readers = [hiredis.Reader() for _ in self.sockets]
        self.poll = select.poll()
        for sock in self.sockets:
            self.poll.register(sock, select.POLLIN)
        self.need = need
        self.late = [0] * len(self.sockets)

    def round(self, command: bytes) -> list[object]:
        for sock in self.sockets:
            sock.send(command)
        for index in range(len(self.late)):
            self.late[index] += 1
        answers: list[object] = []
        while len(answers) < self.need:
            for fd, _ in self.poll.poll(1000):
                index = self.by_fd[fd]
                reader = self.readers[index]
                reader.feed(self.sockets[index].recv(65536))
                while (answer := reader.gets()) is not False:
                    self.late[index] -= 1
                    if not self.late[index]:
                        answers.append(answer)
        return answers


class Commands:
    """What the library would send for one name."""

    def __init__(self, name: str, token: str, ttl: float) -> None:
        self._keys = wire.keys_for("redlock:", [name])
        self._token, self._ttl = token, ttl

    def acquire(self) -> bytes:
        proposal = time.time_ns() // 1000
        return _connect.pack(wire.acquire(self._keys, self._token, self._ttl, proposal, FENCE_TTL).words)

    def release(self) -> bytes:
        return _connect.pack(wire.release(self._keys, self._token).words)


class Handle:
    def __init__(self, bare: BareSockets, name: str) -> None:
        commands = Commands(name, f"{serve.name():0>40.40}", serve.ttl())
        self._majority = majority(len(bare.sockets))
        self.acquire: Callable[[], list[object]] = lambda: bare.round(commands.acquire())
        self.release: Callable[[], object] = lambda: bare.round(commands.release())

    def attempt(self) -> bool:
        granted = [answer for answer in self.acquire() if isinstance(answer, list) and answer[0] != 0]
        return len(granted) >= self._majority

    def wait(self, until: float) -> bool:
        while time.monotonic() < until:
            if self.attempt():
                return True
            self.release()
            time.sleep(POLL)
        return False


def connected() -> list[socket.socket]:
    """To the masters, which have our scripts now."""
    sockets = [socket.create_connection(address) for address in serve.addresses()]
    for sock in sockets:
        for script in (scripts.ACQUIRE, scripts.RELEASE):
            sock.sendall(_connect.pack(("SCRIPT", "LOAD", script.text)))
            sock.recv(100)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setblocking(False)
    return sockets


def main() -> None:
    found = connected()
    bare = BareSockets(found, majority(len(found)) if serve.options() == ["majority"] else len(found))
    serve.serve(threads.Load(lambda name: Handle(bare, name)))


if __name__ == "__main__":
    main()
