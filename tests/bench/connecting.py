"""How a connection is made: what `redlock._connect.Connector` does, less redis-py's part of it.

redis-py resolves names, speaks TLS and authenticates; none of that is simulated.  The handshake that this library adds
is the shipped one.
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any

import hiredis
import redis

from redlock._core.outcomes import ErrorReply

if TYPE_CHECKING:
    from types import ModuleType

    from tests.bench.machine import Process
    from tests.bench.wire import Line, Socket


def connector(process: Process, lines: dict[str, Line]) -> Any:
    """What makes the class in the place of ``Connector``.  ``lines``: by the name of the master."""

    def make(module: ModuleType) -> Any:
        class Connector(module.Connector):  # type: ignore[misc, name-defined]
            def __init__(self, target: Any, timeout: float) -> None:
                super().__init__(target, timeout)
                self._line, self._longest = lines[target.address], timeout
                self._sock: Socket | None = None

            def __call__(self, *what: Any) -> tuple[Socket, Any]:
                sock = self._dialled()
                try:
                    return sock, module._handshake(_Talk(process, sock, self._longest), *what)
                except BaseException:
                    sock.close()
                    raise

            def bare(self) -> Socket:
                return self._dialled()

            def _dialled(self) -> Socket:
                process.called()
                self._sock = sock = self._line.open()
                try:
                    _await(process, lambda: sock.connected or sock.error, self._longest)
                except BaseException:
                    sock.close()
                    raise
                if sock.error is not None:
                    sock.close()
                    raise redis.ConnectionError(f"Error connecting: {sock.error.strerror}")
                return sock

            def abort(self) -> None:
                if self._sock is not None and not self._sock.closed:
                    self._sock.shutdown(socket.SHUT_RDWR)

            def disown(self) -> None:
                if self._sock is not None and not self._sock.closed:
                    process.close(self._sock.detach())

        return Connector

    return make


def _await(process: Process, ready: Any, seconds: float) -> None:
    if not process.wait_for(ready, seconds):
        raise redis.TimeoutError("Timeout connecting to server")


class _Talk:
    """A connection of redis-py, as far as the handshake goes."""

    client_name = None

    def __init__(self, process: Process, sock: Socket, timeout: float) -> None:
        self._process, self._sock, self._timeout = process, sock, timeout
        self._reader = hiredis.Reader()

    def send_command(self, *words: str, check_health: bool) -> None:
        self._process.called()
        self._sock.tcp.send(hiredis.pack_command(words))  # type: ignore[arg-type]

    def read_response(self) -> Any:
        while (answer := self._reader.gets()) is False:
            _await(self._process, self._sock.readable, self._timeout)
            try:
                self._reader.feed(self._sock.recv(65536))
            except OSError as error:
                raise redis.ConnectionError(str(error)) from error
        if isinstance(answer, hiredis.ReplyError):
            text = str(answer)
            kind = {"NOPERM": redis.exceptions.NoPermissionError, "READONLY": redis.exceptions.ReadOnlyError}
            raise kind.get(ErrorReply.read(text).code, redis.ResponseError)(text)
        return answer
