"""Several independent masters on this machine, to be mistreated."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, Final, Literal, Self, TypeAlias, get_args
from urllib.parse import quote

from redlock.testing._nest import LOOPBACK, Nest
from redlock.testing.servers import Server, find_server, wait_until_ready

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence
    from types import TracebackType

Persistence: TypeAlias = Literal["none", "everysec", "always"]

# What the methods here rely on.
_OURS: Final = frozenset({"bind", "daemonize", "dir", "include", "logfile", "port"})
# The answer of PTTL for a key that does not exist.
_GONE: Final = -2


class LocalMasters:
    """``n`` real servers on free loopback ports, between `start` and `stop` or in a ``with`` block.

    They end with the process that started them, whatever ends it, SIGKILL included: no server and no
    directory is left.  They can be used from every thread and, by their `urls`, from every process.
    Mistreating and stopping them is for the process that started them; a child forked from it that
    exits does them no harm.

    Not promised: the speed and the durability of masters on machines of their own.  These share one
    machine's processors and disk and, unless told otherwise, its clock; and as a `kill` leaves the
    page cache alone, ``everysec`` loses less than a power failure would.

    Args:
        n: how many.
        persistence: ``none`` forgets everything when killed; ``everysec`` and ``always`` keep an
            append-only file with that ``appendfsync``.
        config: further directives for every server, as in ``redis.conf``; but ``requirepass`` is the
            password as it is, without quotes.
        clock: give each server a wall clock of its own, for `jump`.  Needs libfaketime (Linux only),
            see `clock_available`, and makes each look at the clock slower.
        server: path or name of the program, instead of what `find_server` finds.
    """

    def __init__(
        self,
        n: int = 5,
        *,
        persistence: Persistence = "none",
        config: Mapping[str, str] | None = None,
        clock: bool = False,
        server: str | os.PathLike[str] | None = None,
    ) -> None:
        if n < 1:
            raise ValueError(f"n is {n}, it must be at least 1")
        if persistence not in get_args(Persistence):
            raise ValueError(f"persistence is {persistence!r}, it must be one of {get_args(Persistence)}")
        self._directives = {"appendonly": "no"}
        if persistence != "none":
            self._directives = {"appendonly": "yes", "appendfsync": persistence}
        for name, value in (config or {}).items():
            if name.lower() in _OURS:
                raise ValueError(f"{name!r} cannot be in config, LocalMasters decides it")
            self._directives[name.lower()] = value
        self._n = n
        self._clock = clock
        self._program = server
        self._nest: Nest | None = None
        self._servers: list[Server] = []
        self._finalizer: weakref.finalize[..., LocalMasters] | None = None

    def start(self) -> None:
        """All at the same time; returns when every one answers.  Nothing is left behind if it fails.

        Raises:
            ServerNotFound: there is none on this machine.
            ServerFailed: a server ended, or did not answer in time.
            ClockUnavailable: ``clock`` was asked for, and cannot be had here.
            RuntimeError: they have been started already; or ``sys.executable`` is not a Python, as where
                Python is embedded, and nothing could end them when this process is killed.
        """
        if self._nest is not None:
            raise RuntimeError("these masters have been started already")
        program = find_server(self._program)
        try:
            self._nest = nest = Nest()
            servers: list[Server] = []
            self._servers = servers
            # For those who drop the object without `stop`, and for the interpreter's exit.
            self._finalizer = weakref.finalize(self, _end, nest, servers)
            servers.extend(
                Server(nest, number, program, self._directives, clock=self._clock) for number in range(self._n)
            )
            wait_until_ready(servers)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """No process, directory or port is left.  Does nothing when stopped, nor in a forked child."""
        if self._nest is None or not self._nest.mine:
            return
        _end(self._nest, self._servers)
        for server in self._servers:
            server.hang_up()
        if self._finalizer is not None:
            self._finalizer.detach()
        self._nest = None
        self._servers = []

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def __len__(self) -> int:
        return self._n

    def __repr__(self) -> str:
        where = ", ".join(f"{LOOPBACK}:{server.port}" for server in self._servers) or "not started"
        return f"<LocalMasters {where}>"

    @property
    def urls(self) -> list[str]:
        """What `redlock.Masters` takes."""
        password = self._directives.get("requirepass")
        login = f":{quote(password, safe='')}@" if password else ""
        return [f"redis://{login}{LOOPBACK}:{port}" for port in self.ports]

    @property
    def ports(self) -> list[int]:
        """They stay the same for as long as the masters are started, whatever happens to each."""
        return [server.port for server in self._all()]

    @property
    def pids(self) -> list[int]:
        """The process of each; of a dead one, the last that it had."""
        return [server.pid for server in self._all()]

    def alive(self, i: int) -> bool:
        """Whether there is a process.  A paused one is alive."""
        return self._mine(i).alive

    def kill(self, i: int) -> None:
        """With SIGKILL; returns when it is dead.  Does nothing to a dead one."""
        self._mine(i).kill()

    def restart(self, i: int, keep_data: bool = True) -> None:
        """A new process on the same port, the old one killed first if need be, paused or not.

        ``keep_data=False`` makes it come back without a key, as after the loss of a disk; with
        persistence ``none`` it does so anyway.  Returns when it answers and has loaded its data.
        """
        server = self._mine(i)
        server.kill()
        server.start(keep_data=keep_data)
        wait_until_ready([server])

    def pause(self, i: int) -> None:
        """With SIGSTOP: connections stay open and are accepted, nothing is answered any more."""
        self._living(i).pause()

    def resume(self, i: int) -> None:
        """It goes on with what has been sent to it meanwhile.  Does nothing if it is not paused."""
        self._living(i).resume()

    def jump(self, i: int, seconds: float) -> None:
        """Move the wall clock of a master, forward or (negative) back; jumps add up.

        In force when this returns, unless the master is paused, and still so after a restart.  The
        monotonic clock does not move; the uptime that a server reports does.
        """
        self._mine(i).jump(seconds)

    def client(self, i: int) -> Any:
        """A plain `redis.Redis` to look at a master with: one second of patience, no retries.

        Always the same one for each master; `stop` closes it.
        """
        return self._all()[i].client

    def keys(self, pattern: str = "*") -> list[dict[str, tuple[str, int]] | None]:
        """For each master its keys that match, with value and PTTL in ms (-1: without expiry).

        None for a master that is dead or paused.  So ``not any(masters.keys("redlock:*"))`` says that
        no lock was left on those that can be asked.  A value that is not a string is given by its
        type, like ``<hash>``.  Not promised: one moment in time for all.
        """
        return [
            contents(server.client, pattern) if server.alive and not server.paused else None
            for server in map(self._mine, range(self._n))
        ]

    def reset(self) -> None:
        """All alive, unpaused, empty, and configured and on time as when they were started.

        The untouched ones stay, which takes a few milliseconds; the others are restarted without
        their data.  Connections of others stay open, so who still writes will go on writing.
        """
        touched = [server for server in map(self._mine, range(self._n)) if not server.emptied()]
        for server in touched:
            server.kill()
            if server.clock is not None:
                server.clock.jump(-server.clock.offset)
            server.start(keep_data=False)
        wait_until_ready(touched)

    def _all(self) -> list[Server]:
        if self._nest is None:
            raise RuntimeError("these masters are not started: use `with LocalMasters() as masters`")
        return self._servers

    def _mine(self, i: int) -> Server:
        servers = self._all()
        if self._nest is not None and not self._nest.mine:
            raise RuntimeError("these masters belong to the process that started them, not to its children")
        if not -len(servers) <= i < len(servers):
            raise IndexError(f"there is no master {i}: there are {len(servers)}, the first one is 0")
        return servers[i]

    def _living(self, i: int) -> Server:
        server = self._mine(i)
        if not server.alive:
            raise RuntimeError(f"master {i} (port {server.port}) is dead: restart it first")
        return server


def _end(nest: Nest, servers: Sequence[Server]) -> None:
    nest.close()
    if nest.mine:
        for server in servers:
            server.buried()


def contents(client: Any, pattern: str) -> dict[str, tuple[str, int]]:
    """The keys of one master, as in `LocalMasters.keys`."""
    found = {}
    for key in client.scan_iter(match=pattern, count=1000):
        with client.pipeline(transaction=True) as asked:
            value, kind, left = asked.get(key).type(key).pttl(key).execute(raise_on_error=False)
        if left != _GONE:
            shown = _text(value) if kind == b"string" else f"<{_text(kind)}>"
            found[_text(key)] = (shown, left)
    return found


def _text(value: bytes) -> str:
    return value.decode(errors="backslashreplace")
