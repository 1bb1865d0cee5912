"""One server: find a program for it, start it, end it, and connect to it."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import socket
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from redlock._local.programs import ServerNotFound, find_server, quoted
from redlock.testing import _clock
from redlock.testing._nest import LOOPBACK

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from redlock.testing._nest import Nest

_START_TIMEOUT: Final = 20.0
_CLIENT_TIMEOUT: Final = 1.0
_LOG_LINES: Final = 15


class ServerFailed(RuntimeError):  # noqa: N818
    """A server ended while it started, or did not answer in time. The text contains the end of its log."""


def clock_available(server: str | os.PathLike[str] | None = None) -> bool:
    """Whether ``LocalMasters(clock=True)`` works here, with ``server`` or the one that `find_server` finds."""
    try:
        _clock.preload(find_server(server))
    except (_clock.ClockUnavailable, ServerNotFound):
        return False
    return True


class Server:
    """One server, which can die and come back on the same port.

    Two threads must not call `start` and `kill` at the same time.
    """

    def __init__(
        self, nest: Nest, number: int, program: Path, directives: Mapping[str, str], *, clock: float | None
    ) -> None:
        """``clock``: the rate of a wall clock of its own; None: it has the machine's."""
        self._nest = nest
        self._program = program
        self._directives = directives
        self._home = nest.directory / str(number)
        self._data = self._home / "data"
        self._log = self._home / "server.log"
        self._data.mkdir(parents=True)
        self.clock = None if clock is None else _clock.Clock(program, self._home / "clock", clock)
        self._configured = False
        self._trouble = "nothing listens on its port"
        self.paused = False
        self._take(nest.reserve())
        self._launch()

    def start(self, *, keep_data: bool) -> None:
        """Start it again on its port. `wait_until_ready` must follow."""
        if not keep_data:
            shutil.rmtree(self._data)
            self._data.mkdir()
        self._launch()

    def _take(self, port: int) -> None:
        self.port = port
        self.client = plain_client(port, self._directives.get("requirepass"))

    def _launch(self) -> None:
        settings = {
            "bind": LOOPBACK,
            "port": str(self.port),
            "dir": quoted(os.fsencode(self._data)),
            "logfile": '""',  # log to standard output, where errors from before the log also go
            "protected-mode": "no",
            "save": '""',
            **self._directives,
        }
        if "requirepass" in settings:
            settings["requirepass"] = quoted(settings["requirepass"].encode())
        # A file, not arguments: so directives with several values need no quoting rules of ours. It is written anew
        # each time, because CONFIG REWRITE may have changed it.
        configuration = self._home / "server.conf"
        configuration.write_text("".join(f"{name} {value}\n" for name, value in settings.items()), encoding="utf-8")
        # Since Redis 7 a path with one of these characters is a pattern, which may match nothing. Without any
        # configuration a server would listen on port 6379. So such a file goes to standard input.
        pattern = set("*?[") & set(str(configuration))
        environment = dict(os.environ)
        if self.clock is not None:
            self.clock.started()
            environment |= self.clock.environment()
        self.paused = False
        self._process = self._nest.spawn(
            [str(self._program), "-" if pattern else str(configuration)],
            log=self._log,
            environment=environment,
            given=configuration if pattern else None,
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        self.buried()

    def buried(self) -> None:
        """Note that the server is dead."""
        self.paused = False
        if self.clock is not None:
            _clock.forget_shared_memory(self.pid)

    def pause(self) -> None:
        self.paused = True
        self._process.send_signal(signal.SIGSTOP)
        # Wait until it has stopped: after the signal, a server on another processor may still answer once more. If it
        # has died instead, WNOWAIT leaves its status to Popen.
        if hasattr(os, "waitid"):
            with suppress(ChildProcessError):
                os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def resume(self) -> None:
        self._process.send_signal(signal.SIGCONT)
        self.paused = False

    def jump(self, seconds: float) -> None:
        """Move the clock. Returns when the server has noticed; one that does not answer notices when it runs again."""
        if self.clock is None:
            raise _clock.ClockUnavailable("this server has the machine's clock: use LocalMasters(clock=True)")
        if self.clock.rate != 1.0:
            raise _clock.ClockUnavailable("this server's clock has a rate of its own, and cannot be moved as well")
        self.clock.jump(seconds)
        # Wait for it: Valkey does not read its clock at every command, but every millisecond or two.
        gives_up = time.monotonic() + _CLIENT_TIMEOUT
        while seconds and self.alive and not self.paused:
            asked = time.time()
            try:
                whole, micro = self.client.time()
            except redis_errors():
                return
            tolerance = max(abs(seconds) / 2, 0.001)
            # It read its clock at some moment in between: on a busy machine that may be long.
            if asked - tolerance < whole + micro / 1e6 - self.clock.offset < time.time() + tolerance:
                return
            if time.monotonic() > gives_up:
                raise _clock.ClockUnavailable(f"{self._program} does not follow libfaketime: is it linked statically?")

    def slew(self, rate: float) -> None:
        if self.clock is None:
            raise _clock.ClockUnavailable("this server has the machine's clock: use LocalMasters(clock=True)")
        self.clock.slew(rate)

    def ready(self) -> bool:
        """Whether it answers, has loaded its data, and is our process, not another one on the same port."""
        if not self.alive:
            self._relaunch_elsewhere()
            return False
        # First see whether the port is open. That costs a tenth of a command, and mostly says no.
        with socket.socket() as probe:
            probe.settimeout(_CLIENT_TIMEOUT)
            if probe.connect_ex((LOOPBACK, self.port)) != 0:
                return False
        try:
            self.client.ping()  # the server refuses this while it loads its data
            answered_by = self.client.info("server")["process_id"]
        except redis_errors() as error:
            self._trouble = f"{type(error).__name__}: {error}"
            return False
        if answered_by != self.pid:
            self._trouble = f"process {answered_by} answers on port {self.port}"
            return False
        if self.clock is not None:
            # Do this now, not when the server is dead: this process may end before.
            _clock.forget_shared_memory(self.pid)
        if not self._configured:
            self._as_started = _configuration(self.client)
            self._configured = True
        self.hang_up()
        return True

    def hang_up(self) -> None:
        """Close the client's connections. The client connects again when it is used.

        Until then there is no socket that a forked child would have to close, and no connection on the server.
        """
        self.client.connection_pool.disconnect()

    def emptied(self) -> bool:
        """Remove all keys, scripts and functions. False: the server is not as it was when it was started."""
        # It is not enough to resume a paused server: commands that wait in it would run after the flush.
        if not self.alive or self.paused or (self.clock is not None and self.clock.moved):
            return False
        try:
            if self._as_started is None or _configuration(self.client) != self._as_started:
                return False
            with suppress(redis_errors()):  # Redis 6 has no functions; after any other error the next command fails too
                self.client.function_flush()
            self.client.flushall()
            self.client.script_flush()
        except redis_errors():
            return False
        # The threads of a test may have opened several connections. After this the next test begins as the first did.
        self.hang_up()
        return True

    def _relaunch_elsewhere(self) -> None:
        """Start again if the port was taken after we had found it free. Else raise why the server ended.

        Before the first start has succeeded, the server gets another port. Later the clients know the port, so it is
        tried again: it may be taken by a connection that ends soon.
        """
        if os.strerror(errno.EADDRINUSE) not in self._log.read_text(errors="replace"):
            raise self.failure(f"ended with status {self._process.returncode}")
        self._log.write_text("")
        if not self._configured:
            self._take(self._nest.reserve())
        self._launch()

    def failure(self, what: str) -> ServerFailed:
        lines = self._log.read_text(errors="replace").splitlines()[-_LOG_LINES:]
        log = "\n".join(f"  {line}" for line in lines or ["(its log is empty)"])
        return ServerFailed(f"{self._program} on port {self.port} {what}\n{log}")

    def late(self) -> ServerFailed:
        return self.failure(f"did not answer within {_START_TIMEOUT:g} s: {self._trouble}")


def wait_until_ready(servers: Iterable[Server]) -> None:
    gives_up = time.monotonic() + _START_TIMEOUT
    waiting = list(servers)
    while waiting := [server for server in waiting if not server.ready()]:
        if time.monotonic() > gives_up:
            raise waiting[0].late()
        time.sleep(0.002)


def redis_errors() -> type[Exception]:
    """The base of all errors that a client raises. Like `plain_client`, it imports redis-py only when needed."""
    import redis  # noqa: PLC0415

    return redis.RedisError


def _configuration(client: Any) -> object | None:
    """The configuration and ACL of a server. None: the directives of a test do not permit to ask for them."""
    try:
        return client.config_get("*"), client.acl_list()
    except redis_errors():
        return None


def plain_client(port: int, password: str | None) -> Any:
    """A `redis.Redis` that reports an outage at once. By default it would hide one for seconds.

    It is typed as Any: the types that its methods return differ too much between versions of redis-py.
    """
    # Imported here, so that a pytest run without servers does not pay for it.
    import redis  # noqa: PLC0415
    from redis.backoff import NoBackoff  # noqa: PLC0415
    from redis.retry import Retry  # noqa: PLC0415

    return redis.Redis(
        host=LOOPBACK,
        port=port,
        password=password,
        socket_timeout=_CLIENT_TIMEOUT,
        socket_connect_timeout=_CLIENT_TIMEOUT,
        retry=Retry(NoBackoff(), 0),
    )
