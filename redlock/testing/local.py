"""Several independent masters on this machine, which tests may kill, pause and restart."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, Final, Literal, Self, TypeAlias, get_args
from urllib.parse import quote

from redlock._local.programs import find_server
from redlock._system import platform
from redlock.testing._nest import LOOPBACK, Nest
from redlock.testing.servers import Server, wait_until_ready

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence
    from types import TracebackType
    from typing import Unpack

    from redlock import AsyncMasters, Masters
    from redlock._lock.typed import MastersOptions

Persistence: TypeAlias = Literal["none", "everysec", "always"]

# Directives that `config` may not set, because the methods here rely on them.
_OURS: Final = frozenset({"bind", "daemonize", "dir", "include", "logfile", "port"})
# The answer of PTTL for a key that does not exist.
_GONE: Final = -2


class LocalMasters:
    """``n`` real servers on free loopback ports, between `start` and `stop` or in a ``with`` block.

    The servers end with the process that started them, whatever ends it, even SIGKILL: no server and no directory is
    left. Every thread can use them, and every process can use them by their `urls`. But only the process that started
    them can kill, pause, restart and stop them. A forked child that exits does them no harm.

    Not promised: the speed and the durability of masters on machines of their own. These servers share one machine's
    processors and disk, and its clock unless ``clock`` is set. A `kill` leaves the page cache intact, so ``everysec``
    loses less than in a power failure.

    Args:
        n: the number of servers.
        persistence: ``none``: a server that is killed forgets everything. ``everysec`` and ``always``: it keeps an
            append-only file with that ``appendfsync``.
        config: further directives for every server, as in ``redis.conf``. But ``requirepass`` is the plain password,
            without quotes.
        clock: give each server a wall clock of its own, for `jump`. This needs libfaketime (Linux only, see
            `clock_available`), and makes each look at the clock slower.
        clock_rates: how fast the wall clocks of the first servers run: 1.0833 is what chrony does by default while it
            corrects. It is as ``clock`` for all of them; a clock with a rate cannot jump.
        server: the path or name of the program, instead of the one that `find_server` finds.

    Raises:
        ValueError: ``n`` is less than 1, ``persistence`` is unknown, ``clock_rates`` are none for so many servers,
            or ``config`` sets a directive that this class sets itself.
    """

    def __init__(
        self,
        n: int = 5,
        *,
        persistence: Persistence = "none",
        config: Mapping[str, str] | None = None,
        clock: bool = False,
        clock_rates: Sequence[float] = (),
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
        if len(clock_rates) > n or any(not 0.1 <= rate <= 10 for rate in clock_rates):  # noqa: PLR2004
            raise ValueError(
                f"clock_rates is {clock_rates!r}, it must be a rate from 0.1 to 10 for {n} servers at most"
            )
        rates = [*clock_rates, *[1.0] * (n - len(clock_rates))]
        self._clocks: Sequence[float | None] = rates if clock or clock_rates else [None] * n
        self._program = server
        self._nest: Nest | None = None
        self._servers: list[Server] = []
        self._finalizer: weakref.finalize[..., LocalMasters] | None = None

    def start(self) -> None:
        """Start all servers at the same time, and return when every one answers. If it fails, nothing is left behind.

        Raises:
            ConfigurationError: this is Windows.
            ServerNotFound: there is no server program on this machine.
            ServerFailed: a server ended, or did not answer in time.
            ClockUnavailable: ``clock`` is set, but clocks cannot be moved here.
            RuntimeError: they have been started already. Or ``sys.executable`` is not a Python, as in programs that
                embed Python: then nothing could end the servers when this process is killed.
        """
        if self._nest is not None:
            raise RuntimeError("these masters have been started already")
        platform.refuse()
        program = find_server(self._program)
        try:
            self._nest = nest = Nest()
            servers: list[Server] = []
            self._servers = servers
            # Ends the servers if the object is dropped without `stop`, or the interpreter exits.
            self._finalizer = weakref.finalize(self, _end, nest, servers)
            servers.extend(
                Server(nest, number, program, self._directives, clock=rate) for number, rate in enumerate(self._clocks)
            )
            wait_until_ready(servers)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End all servers: no process, directory or port is left. Does nothing if stopped, or in a forked child."""
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
        """The URLs of the servers, with their password, as `redlock.Masters` takes them."""
        password = self._directives.get("requirepass")
        login = f":{quote(password, safe='')}@" if password else ""
        return [f"redis://{login}{LOOPBACK}:{port}" for port in self.ports]

    def connect(self, **options: Unpack[MastersOptions]) -> Masters:
        """Make a `redlock.Masters` for these servers, with these options. Close it when it is not needed any more.

        Its ``restart_guard`` is off unless it is given: the servers are brand-new, so they can have forgotten no
        lock, and may vote at once (R22). A server that `restart` has started again votes at once as well, even if it
        has forgotten locks that are held. To see what production does then, say ``restart_guard=True``, and give it a
        short ``max_ttl`` or the servers ``persistence="always"``.

        Raises:
            ConfigurationError: an option cannot be right.
            RuntimeError: the servers are not started.
        """
        from redlock import Masters  # noqa: PLC0415 - a pytest run without servers does not pay for it

        return Masters(self.urls, **self._with_what_is_known(options))

    async def aconnect(self, **options: Unpack[MastersOptions]) -> AsyncMasters:
        """The same for asyncio: ``async with await servers.aconnect() as masters``."""
        from redlock import AsyncMasters  # noqa: PLC0415

        return AsyncMasters(self.urls, **self._with_what_is_known(options))

    @staticmethod
    def _with_what_is_known(options: MastersOptions) -> MastersOptions:
        return {"restart_guard": False, **options}

    @property
    def ports(self) -> list[int]:
        """The ports of the servers. They stay the same until `stop`, whatever happens to each server."""
        return [server.port for server in self._all()]

    @property
    def pids(self) -> list[int]:
        """The process id of each server; of a dead one, the last that it had."""
        return [server.pid for server in self._all()]

    def alive(self, i: int) -> bool:
        """Whether server ``i`` has a process. A paused one is alive."""
        return self._mine(i).alive

    def kill(self, i: int) -> None:
        """Kill server ``i`` with SIGKILL, and return when it is dead. Does nothing to a dead one."""
        self._mine(i).kill()

    def restart(self, i: int, keep_data: bool = True) -> None:
        """Start a new process on the same port. The old one is killed first if it is alive, even if it is paused.

        With ``keep_data=False`` the server comes back without a key, as after the loss of a disk. With persistence
        ``none`` it always does. Returns when it answers and has loaded its data.

        Raises:
            ServerFailed: it ended, or did not answer in time.
        """
        server = self._mine(i)
        server.kill()
        server.start(keep_data=keep_data)
        wait_until_ready([server])

    def pause(self, i: int) -> None:
        """Stop server ``i`` with SIGSTOP. Connections stay open and new ones are accepted, but nothing is answered.

        Raises:
            RuntimeError: it is dead.
        """
        self._living(i).pause()

    def resume(self, i: int) -> None:
        """Continue a paused server. It handles what was sent to it while paused. Does nothing if it is not paused.

        Raises:
            RuntimeError: it is dead.
        """
        self._living(i).resume()

    def jump(self, i: int, seconds: float) -> None:
        """Move the wall clock of a master by ``seconds``, forward or (negative) back. Jumps add up.

        The server has noticed it when this returns, unless it is paused. The offset stays after a restart. The
        monotonic clock does not move, but the uptime that the server reports does.

        Raises:
            ClockUnavailable: ``clock`` is not set, or this server program does not follow libfaketime.
        """
        self._mine(i).jump(seconds)

    def slew(self, i: int, rate: float) -> None:
        """From now on the wall clock of a master runs at ``rate``, as with ``clock_rates``. 1.0: as true time, with
        what it has gained or lost until then.

        Raises:
            ClockUnavailable: ``clock`` is not set.
        """
        self._mine(i).slew(rate)

    def client(self, i: int) -> Any:
        """A plain `redis.Redis` for looking at a master, with timeouts of one second and no retries.

        It is always the same object for each master. `stop` closes it.
        """
        return self._all()[i].client

    def keys(self, pattern: str = "*") -> list[dict[str, tuple[str, int]] | None]:
        """For each master its keys that match, with value and PTTL in ms (-1: without expiry).

        A dead or paused master gets None. So ``not any(masters.keys("redlock:*"))`` says that no lock was left on the
        masters that answer. If a value is not a string, its type is given, like ``<hash>``. Not promised: that all
        masters are read at one moment.
        """
        return [
            contents(server.client, pattern) if server.alive and not server.paused else None
            for server in map(self._mine, range(self._n))
        ]

    def reset(self) -> None:
        """Put all servers in order: alive, not paused, empty, with the configuration and clock of their start.

        Servers that a test left as they were are only emptied, which takes a few milliseconds. The others are restarted
        without their data. Emptied servers keep their connections: a client that still writes will go on writing.

        Raises:
            ServerFailed: a restarted server ended, or did not answer in time.
        """
        touched = [server for server in map(self._mine, range(self._n)) if not server.emptied()]
        for server in touched:
            server.kill()
            if server.clock is not None:
                server.clock.reset()
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
