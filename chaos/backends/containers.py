"""The masters of ``compose/``: real containers, to be mistreated as `redlock.testing.LocalMasters` are.

They are made where ``compose/daemon.sh`` has made room for them; it takes back whatever is here, however it ends.
"""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

from redlock.testing import ServerFailed, find_server
from redlock.testing.local import contents
from redlock.testing.servers import plain_client, redis_errors

if TYPE_CHECKING:
    from ..settings import Settings

# Only where the repository is: the wheel has none.
COMPOSE: Final = Path(__file__).parents[2] / "compose"
MOST: Final = 5  # as many as are in compose.yml
# What they keep; ``everysec`` is not among what compose.yml offers.
FILES: Final = {"always": ("compose.yml",), "none": ("compose.yml", "volatile.yml")}
# Names the image that is taken, instead of one that is made of a server of this machine.
IMAGE: Final = "REDLOCK_IMAGE"

_READY_WITHIN: Final = 60.0


class Containers:
    """The first ``settings.masters`` of them, counted from 0.  They have the machine's clock."""

    def __init__(self, settings: Settings) -> None:
        self._services = [f"master-{number}" for number in range(1, settings.masters + 1)]
        self._files = [str(COMPOSE / name) for name in FILES[settings.persistence]]
        self._keeps = settings.persistence != "none"
        self._server = settings.server
        self._project = os.environ["REDLOCK_PROJECT"]
        self.ports = [int(f"{os.environ['REDLOCK_PORTS']}{number}") for number in range(1, settings.masters + 1)]
        self._clients = [plain_client(port, None) for port in self.ports]
        self._ids: list[str] = []
        self._silent: set[int] = set()  # dead or paused

    @property
    def urls(self) -> list[str]:
        return [f"redis://127.0.0.1:{port}" for port in self.ports]

    def start(self) -> None:
        """Returns when every one answers."""
        if IMAGE not in os.environ:
            image = f"{self._project}-master"
            _run(str(COMPOSE / "image.sh"), image, str(find_server(self._server)))
            os.environ[IMAGE] = image
        self._up(*self._services)
        self._ids = [self._container(service) for service in self._services]
        for i in range(len(self._services)):
            self._wait_until_ready(i)

    def stop(self) -> None:
        """Nothing is to be done."""

    def client(self, i: int) -> Any:
        return self._clients[i]

    def keys(self, pattern: str) -> list[dict[str, tuple[str, int]] | None]:
        return [None if i in self._silent else contents(client, pattern) for i, client in enumerate(self._clients)]

    def kill(self, i: int) -> None:
        """SIGKILL for its first process, which is the server."""
        self._silent.add(i)
        _run("docker", "kill", self._ids[i])

    def restart(self, i: int, keep_data: bool = True) -> None:
        """The same container again; or without its data a new one, with a new volume, if it has kept any."""
        if keep_data or not self._keeps:
            _run("docker", "start", self._ids[i])
        else:
            service = self._services[i]
            _run("docker", "rm", "--force", self._ids[i])
            _run("docker", "volume", "rm", f"{self._project}_{service}")
            self._up(service)
            self._ids[i] = self._container(service)
        self._wait_until_ready(i)
        self._silent.discard(i)

    def pause(self, i: int) -> None:
        """Not ``docker pause``, which fails without root."""
        self._silent.add(i)
        _run("docker", "kill", "--signal", "STOP", self._ids[i])

    def resume(self, i: int) -> None:
        _run("docker", "kill", "--signal", "CONT", self._ids[i])
        self._silent.discard(i)

    def jump(self, i: int, seconds: float) -> NoReturn:
        raise RuntimeError(f"the clock of master {i + 1}, by {seconds:g} s: it is the machine's")

    def slew(self, i: int, rate: float) -> NoReturn:
        raise RuntimeError(f"the clock of master {i + 1}, at {rate:g}: it is the machine's")

    def _up(self, *services: str) -> None:
        files = [word for file in self._files for word in ("-f", file)]
        _run(*os.environ["REDLOCK_COMPOSE"].split(), "-p", self._project, *files, "up", "-d", "--no-deps", *services)

    def _container(self, service: str) -> str:
        """By its labels, for names differ between versions of Compose."""
        of = (f"com.docker.compose.project={self._project}", f"com.docker.compose.service={service}")
        return _run(
            "docker", "ps", "--all", "--quiet", *(word for one in of for word in ("--filter", f"label={one}"))
        ).strip()

    def _wait_until_ready(self, i: int) -> None:
        gives_up = time.monotonic() + _READY_WITHIN
        while True:
            try:
                self._clients[i].ping()  # refused while it loads
            except redis_errors() as error:
                if time.monotonic() > gives_up:
                    log = _run("docker", "logs", "--tail", "15", self._ids[i])
                    raise ServerFailed(
                        f"{self._services[i]} did not answer within {_READY_WITHIN:g} s: {error}\n{log}"
                    ) from None
                time.sleep(0.02)
            else:
                return


def _run(*command: str) -> str:
    """What it says.  Raises `ServerFailed` with what it complains of."""
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ServerFailed(f"{' '.join(command)}: status {done.returncode}\n{(done.stderr or done.stdout).strip()}")
    return done.stdout + done.stderr
