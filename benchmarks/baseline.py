"""The limits to compare with: bare sockets and bare protocols, the very bytes that the library sends."""

from __future__ import annotations

import asyncio
import functools
import select
import socket

import hiredis


class BareSockets:
    """Sends the same commands to all masters and reads the same replies, as fast as Python can.

    It knows nothing of tokens, votes, time, errors or threads.  ``need`` replies end a round; what is
    late is read at the start of the next, as the library does it.
    """

    def __init__(self, addresses: list[tuple[str, int]], need: int) -> None:
        self.sockets = [socket.create_connection(address) for address in addresses]
        for sock in self.sockets:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setblocking(False)
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

    def close(self) -> None:
        for sock in self.sockets:
            sock.close()


class BareProtocols:
    """The same with asyncio: a bare `asyncio.Protocol` for each master, one future for each round."""

    def __init__(self, need: int) -> None:
        self.need = need
        self.transports: list[asyncio.Transport] = []
        self.late: list[int] = []
        self.missing = 0
        self.answered: asyncio.Future[None] | None = None

    async def connect(self, addresses: list[tuple[str, int]]) -> None:
        loop = asyncio.get_running_loop()
        for index, (host, port) in enumerate(addresses):
            self.late.append(0)
            transport, _ = await loop.create_connection(functools.partial(_Reader, self, index), host, port)
            self.transports.append(transport)

    async def round(self, command: bytes) -> None:
        self.answered = asyncio.get_running_loop().create_future()
        self.missing = self.need
        for index, transport in enumerate(self.transports):
            self.late[index] += 1
            transport.write(command)
        await self.answered

    def arrived(self, index: int) -> None:
        self.late[index] -= 1
        if not self.late[index]:
            self.missing -= 1
            if not self.missing:
                assert self.answered is not None
                self.answered.set_result(None)

    def close(self) -> None:
        for transport in self.transports:
            transport.close()


class _Reader(asyncio.Protocol):
    def __init__(self, bare: BareProtocols, index: int) -> None:
        self.bare = bare
        self.index = index
        self.reader = hiredis.Reader()

    def data_received(self, data: bytes) -> None:
        self.reader.feed(data)
        while self.reader.gets() is not False:
            self.bare.arrived(self.index)
