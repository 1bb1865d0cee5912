"""A TCP relay on the way between one client and one master, for each pair: it holds, delays, halves and loses."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..plan import Link
    from .rig import State

_CHUNK: Final = 65536


class Relay:
    """One thread with an event loop for all pairs.

    A cut holds what was sent and lets it through when it is healed, in order, as the network does that
    retransmits.  Half an answer cannot be taken back: that connection is reset when it is healed.
    """

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._pairs: dict[Link, _Pair] = {}
        self._thread = threading.Thread(target=self._loop.run_forever, name="relay", daemon=True)
        self._thread.start()

    def open(self, link: Link, host: str, port: int, target: int) -> int:
        """Listen for this pair, on any free port if ``port`` is 0.  Returns the port."""

        async def listen() -> int:
            pair = self._pairs[link] = _Pair(target)
            server = await asyncio.start_server(pair.accepted, host, port)
            found: int = server.sockets[0].getsockname()[1]
            return found

        return asyncio.run_coroutine_threadsafe(listen(), self._loop).result()

    def change(self, states: Mapping[Link, Mapping[State, float]]) -> None:
        """From now on each pair is in these states; one that is not named is in none.  In force on return."""

        async def change() -> None:
            for link, pair in self._pairs.items():
                pair.change(states.get(link, {}))

        asyncio.run_coroutine_threadsafe(change(), self._loop).result()


class _Pair:
    def __init__(self, target: int) -> None:
        self._target = target
        self._states: Mapping[State, float] = {}
        self._changed = asyncio.Event()
        self._connections: set[_Connection] = set()

    def change(self, states: Mapping[State, float]) -> None:
        self._states = states
        self._changed.set()
        self._changed = asyncio.Event()
        if "half" not in states:
            for connection in self._connections:
                if connection.broken:
                    connection.reset()

    async def accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = _Connection(writer)
        self._connections.add(connection)
        try:
            await self._hold("requests")
            try:
                answers, requests = await asyncio.open_connection("127.0.0.1", self._target)
            except OSError:
                return  # reset below, which is as good as refused
            connection.writers.append(requests)
            late: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()
            async with asyncio.TaskGroup() as ways:
                ways.create_task(self._requests(reader, requests))
                ways.create_task(self._answers(answers, late))
                ways.create_task(self._deliver(late, writer, connection))
        except* (OSError, _Ended):
            pass
        finally:
            connection.reset()
            self._connections.discard(connection)

    async def _requests(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(_CHUNK):
            await self._hold("requests")
            writer.write(data)
        raise _Ended

    async def _answers(self, reader: asyncio.StreamReader, late: asyncio.Queue[tuple[float, bytes]]) -> None:
        """Each answer is late by itself, as on a long way: it does not wait until the one before has arrived."""
        data = b"."
        while data:
            data = await reader.read(_CHUNK)
            if "lose" in self._states:
                raise _Ended
            late.put_nowait((asyncio.get_running_loop().time() + self._states.get("slow", 0.0), data))

    async def _deliver(
        self, late: asyncio.Queue[tuple[float, bytes]], writer: asyncio.StreamWriter, connection: _Connection
    ) -> None:
        while True:
            at, data = await late.get()
            await asyncio.sleep(at - asyncio.get_running_loop().time())
            if not data:
                raise _Ended
            await self._hold("replies")
            if connection.broken:
                continue
            if "half" in self._states:
                connection.broken = True
                data = data[: max(1, len(data) // 2)]
            writer.write(data)

    async def _hold(self, state: State) -> None:
        while state in self._states:
            await self._changed.wait()


class _Connection:
    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self.writers = [writer]
        self.broken = False

    def reset(self) -> None:
        for writer in self.writers:
            with contextlib.suppress(RuntimeError):
                writer.transport.abort()


class _Ended(Exception):  # noqa: N818 - no error
    """One side has hung up."""
