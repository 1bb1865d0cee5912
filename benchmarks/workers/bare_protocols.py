"""The limit of asyncio: a bare `asyncio.Protocol` for each master, the very bytes that the library sends.

One future for each round, which is over when a majority have answered.
"""

from __future__ import annotations

import asyncio
import functools
from typing import TYPE_CHECKING

import hiredis

from benchmarks.workers import serve, tasks
from benchmarks.workers.bare_sockets import Commands, connected
from redlock._core.kernel.quorum import majority

if TYPE_CHECKING:
    import socket
    from collections.abc import Awaitable, Callable, Sequence


class BareProtocols:
    def __init__(self, need: int) -> None:
        self.need = need
        self.transports: list[asyncio.Transport] = []
        self.late: list[int] = []
        self.missing = 0
        self.answered: asyncio.Future[None] | None = None

    async def use(self, sockets: Sequence[socket.socket]) -> None:
        loop = asyncio.get_running_loop()
        for index, sock in enumerate(sockets):
            self.late.append(0)
            transport, _ = await loop.create_connection(functools.partial(_Reader, self, index), sock=sock)
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


class _Reader(asyncio.Protocol):
    def __init__(self, bare: BareProtocols, index: int) -> None:
        self.bare = bare
        self.index = index
        self.reader = hiredis.Reader()

    def data_received(self, data: bytes) -> None:
        self.reader.feed(data)
        while self.reader.gets() is not False:
            self.bare.arrived(self.index)


class Handle:
    """For one task; it never waits for somebody else, and asks for no answer's meaning."""

    def __init__(self, bare: BareProtocols, name: str) -> None:
        commands = Commands(name, f"{serve.name():0>40.40}", serve.ttl())
        self.acquire: Callable[[], Awaitable[None]] = lambda: bare.round(commands.acquire())
        self.release: Callable[[], Awaitable[None]] = lambda: bare.round(commands.release())

    async def attempt(self) -> bool:
        await self.acquire()
        return True

    async def wait(self, until: float) -> bool:
        del until
        return await self.attempt()


async def main() -> None:
    found = connected()
    bare = BareProtocols(majority(len(found)))
    await bare.use(found)
    await serve.serve_tasks(tasks.Load(lambda name: Handle(bare, name)))


if __name__ == "__main__":
    asyncio.run(main())
