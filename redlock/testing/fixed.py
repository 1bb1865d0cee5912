"""Masters that always give the same answer, for tests of how a program reacts.  They are no locks.

They are sockets of this process, and answer in the words of the protocol.  So all of the library's own code runs, in
threads and in asyncio, also in a program that is started with their `urls`; nothing in it is replaced.

Also considered: a `Masters` with other methods (each new method would have to be made again, for both worlds, and a
program that makes its own `Masters` would get a real one), and operations that are fed with answers (no program has
those in its hands).
"""

from __future__ import annotations

import contextlib
import functools
import os
import selectors
import socket
import threading
from typing import TYPE_CHECKING, Any, Final, Literal, Self, TypeAlias, get_args

from redlock import scripts
from redlock._system import platform

if TYPE_CHECKING:
    from types import TracebackType

    from redlock import AsyncMasters, Masters

FixedOutcome: TypeAlias = Literal["granted", "refused", "unreachable", "lost"]

_MASTERS: Final = 3
_LOOPBACK: Final = "127.0.0.1"
_SOMEBODY: Final = "somebody-else"  # the token of the client that has the lock
_LEFT: Final = 30_000  # ms until its lease ends


class FixedMasters:
    """Three masters with one answer, between `start` and `stop` or in a ``with`` block.

    ``"granted"``: every lock is granted and extended, to all at once: nothing is kept or excluded.
    ``"refused"``: another client has every lock, so `NotAcquired` comes at the timeout of the lock.
    ``"unreachable"``: no client is let in, so `QuorumUnreachable` comes at once, whatever the timeout.
    ``"lost"``: every lock is granted, and another client's at its extension: at the first renewal, after a third
    of its TTL at the latest, or at `extend` or `release`.

    On Windows, where there are no other masters, asyncio has to have a loop that watches sockets:
    `asyncio.SelectorEventLoop`.

    Not promised: that anything is excluded; commands that only `Masters.check` needs.

    Raises:
        ValueError: the outcome is none of these.
    """

    def __init__(self, outcome: FixedOutcome) -> None:
        if outcome not in get_args(FixedOutcome):
            raise ValueError(f"outcome is {outcome!r}, it must be one of {get_args(FixedOutcome)}")
        self.outcome = outcome
        self._thread: threading.Thread | None = None
        self._ports: list[int] = []
        self._made: list[Masters] = []
        self._selector = selectors.DefaultSelector()

    def start(self) -> None:
        """Begin to listen, on free ports of this machine.

        Raises:
            RuntimeError: they have been started already.
        """
        if self._thread is not None:
            raise RuntimeError("these masters have been started already")
        self._selector = selectors.DefaultSelector()
        self._stopping, stopped = socket.socketpair()
        self._selector.register(stopped, selectors.EVENT_READ)
        for _ in range(_MASTERS):
            listener = socket.create_server((_LOOPBACK, 0))
            self._ports.append(listener.getsockname()[1])
            platform.fixed.add((_LOOPBACK, self._ports[-1]))
            self._selector.register(listener, selectors.EVENT_READ, functools.partial(self._accept, listener))
        self._thread = threading.Thread(target=self._serve, name=f"redlock-testing {self.outcome}", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Close `masters` and all sockets.  Does nothing if they are not started."""
        if self._thread is None:
            return
        for masters in self._made:
            masters.close()
        self._made.clear()
        platform.fixed.difference_update((_LOOPBACK, port) for port in self._ports)
        self._ports.clear()
        self._stopping.close()
        self._thread.join()
        self._thread = None
        self.__dict__.pop("masters", None)
        self.__dict__.pop("async_masters", None)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"<FixedMasters {self.outcome}: no locks>"

    @property
    def urls(self) -> list[str]:
        """Their addresses, for a program that makes its own `Masters` or `AsyncMasters`."""
        if self._thread is None:
            raise RuntimeError(f"these masters are not started: use `with FixedMasters({self.outcome!r}) as masters`")
        return [f"redis://{_LOOPBACK}:{port}" for port in self._ports]

    @functools.cached_property
    def masters(self) -> Masters:
        """A `Masters` on them.  `stop` closes it."""
        from redlock import Masters  # noqa: PLC0415

        self._made.append(made := Masters(self.urls))
        return made

    @functools.cached_property
    def async_masters(self) -> AsyncMasters:
        """An `AsyncMasters` on them.  Its connections end with the event loop."""
        from redlock import AsyncMasters  # noqa: PLC0415

        return AsyncMasters(self.urls)

    # -- the sockets: all of this runs in one thread -------------------------------------------------

    def _serve(self) -> None:
        with self._selector as selector:
            try:
                while True:
                    for key, _ in selector.select():
                        if key.data is None:  # the other end of it was closed: `stop`
                            return
                        key.data()
            finally:
                for key in list(selector.get_map().values()):
                    key.fileobj.close()  # type: ignore[union-attr]

    def _accept(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            connection, _ = listener.accept()
            answers = _Answers(self.outcome, f"{os.getpid():020x}{listener.getsockname()[1]:020x}")
            self._selector.register(
                connection, selectors.EVENT_READ, functools.partial(self._answer, connection, answers)
            )

    def _answer(self, connection: socket.socket, answers: _Answers) -> None:
        try:
            given = connection.recv(65536)
            if given:
                connection.sendall(b"".join(map(_packed, answers.to(given))))
                return
        except OSError:
            pass
        self._selector.unregister(connection)
        connection.close()


class _Failed(str):
    """An error of a master."""

    __slots__ = ()


class _Said(str):
    """A simple string of the protocol, such as OK."""

    __slots__ = ()


class _Answers:
    """The replies to one connection."""

    def __init__(self, outcome: FixedOutcome, run_id: str) -> None:
        import hiredis  # noqa: PLC0415 - a run of pytest without these masters does not pay for it

        self._outcome = outcome
        self._run_id = run_id
        self._reader = hiredis.Reader()  # a command has the form of an answer: a list of strings

    def to(self, given: bytes) -> list[Any]:
        """The answers to the commands that are complete with ``given``."""
        self._reader.feed(given)
        found = []
        while (words := self._reader.gets()) is not False:
            found += self._to([word.decode(errors="replace") for word in words])
        return found

    def _to(self, words: list[str]) -> list[Any]:
        if self._outcome == "unreachable":
            return [_Failed("NOAUTH this is redlock_unreachable, which accepts no client")]
        match [words[0].upper(), *words[1:]]:
            case ["SCRIPT", *_, text]:
                return [_BY_TEXT[text].sha if text in _BY_TEXT else _Said("OK")]
            case ["EVAL", text, count, *rest] if text in _BY_TEXT:
                return [self._of_script(_BY_TEXT[text], int(count), rest)]
            case ["EVALSHA", sha, count, *rest] if sha in _BY_SHA:
                return [self._of_script(_BY_SHA[sha], int(count), rest)]
            case ["INFO", *_]:
                return [f"run_id:{self._run_id}\r\nuptime_in_seconds:1000000\r\n"]
            case ["CONFIG", *_]:
                return [[]]
            case [("SUBSCRIBE" | "UNSUBSCRIBE") as what, *channels]:
                return [[what.lower(), channel, 1] for channel in channels]
            case [("AUTH" | "CLIENT" | "HELLO" | "PING" | "SELECT"), *_]:
                return [_Said("PONG" if words[0].upper() == "PING" else "OK")]
        return [_Failed(f"ERR {words[0]:.40} is not answered here: these masters are no locks")]

    def _of_script(self, script: scripts.Script, count: int, rest: list[str]) -> Any:
        keys, args = rest[:count], rest[count:]
        if script is scripts.ANNOUNCE:
            return [int(word) for word in args]
        if script is scripts.SCAN:
            return ["0", []]
        if script in (scripts.STATUS, scripts.LOOK):
            seen = ["", -2, "0"] if self._outcome == "granted" else [_SOMEBODY, _LEFT, "1"]
            return seen if script is scripts.STATUS else [seen for _ in range(count // 2)]
        if script in (scripts.ACQUIRE, scripts.ACQUIRE_RECORDED):
            if self._outcome == "refused":
                return [0, "0", _SOMEBODY, _LEFT]
            return [1, args[3] if len(keys) > int(args[0]) else "0"]
        return self._to_holder(script, args)

    def _to_holder(self, script: scripts.Script, args: list[str]) -> Any:
        """The answer to a client that holds a lock, or believes so."""
        kept = self._outcome == "granted"
        if script is scripts.RENEW:
            return [1 if kept else _SOMEBODY for _ in args[1::4]]
        if script is scripts.RENEW_RECORDED:
            return [1 if kept else _SOMEBODY for _ in args[3::4]]
        if script is scripts.FENCE:
            return [1 if self._outcome != "refused" else -1, args[2]]
        if script in (scripts.RELEASE, scripts.RELEASE_RECORDED):
            return [1, 0] if kept else [0, _SOMEBODY]
        return [1] if kept else [0, _SOMEBODY]


_BY_SHA: Final = {script.sha: script for script in scripts.ALL}
_BY_TEXT: Final = {script.text: script for script in scripts.ALL}


def _packed(answer: Any) -> bytes:
    if isinstance(answer, list):
        return b"*%d\r\n" % len(answer) + b"".join(map(_packed, answer))
    if isinstance(answer, int):
        return b":%d\r\n" % answer
    text = str(answer).encode()
    if isinstance(answer, (_Failed, _Said)):
        return (b"-" if isinstance(answer, _Failed) else b"+") + text + b"\r\n"
    return b"$%d\r\n%s\r\n" % (len(text), text)
