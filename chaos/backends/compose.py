"""The backend of containers: the masters of ``compose/``, under the load and the faults of the others.

The session runs inside of ``compose/daemon.sh``, which finds a Docker daemon or starts one, and removes everything.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TYPE_CHECKING, Final

from redlock.testing import find_server

from .. import IN_WHEEL
from ..faults import CLOCKS
from .containers import COMPOSE, FILES, IMAGE, MOST, Containers
from .proxy import ProxyRig

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ..settings import Settings
    from .rig import Rig

NAME: Final = "compose"
WHAT: Final = "the five containers of compose/compose.yml; Linux with Docker, a daemon that runs or root"
LACKS: Final[dict[str, str]] = {
    **dict.fromkeys(CLOCKS, "containers have the machine's clock"),
    "disk": "a volume is a folder on the daemon's disk",
}
REMARK: Final = (
    "docker kill and start, docker kill -s STOP; links are those of the backend proxy, before the published ports"
)

_DAEMON: Final = str(COMPOSE / "daemon.sh")


@cache
def unavailable() -> str | None:
    """Why it does not work here."""
    if IN_WHEEL:
        return "it needs the folder compose/ of the repository"
    if shutil.which("bash") is None:
        return "there is no bash"
    try:
        looked = subprocess.run(
            [_DAEMON, "--look"], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=20, check=False
        )
    except subprocess.TimeoutExpired:
        return "Docker does not answer within 20 s"
    if looked.returncode == 0:
        return None
    said = looked.stderr.strip().splitlines()
    return said[-1].removeprefix("daemon.sh: ") if said else f"daemon.sh ended with status {looked.returncode}"


def command(session: Sequence[str]) -> list[str]:
    """How ``session`` is started."""
    return [_DAEMON, *session]


def check(settings: Settings) -> None:
    """Raises for what these masters cannot be."""
    if settings.masters > MOST:
        raise ValueError(
            f"--masters is {settings.masters}, with --backend compose it must be at most {MOST}: compose.yml has no more"
        )
    if settings.persistence not in FILES:
        raise ValueError(
            f"--persistence is {settings.persistence}, with --backend compose it must be {' or '.join(FILES)}"
        )
    if IMAGE not in os.environ:
        find_server(settings.server)
    elif settings.server is not None:
        raise ValueError(
            f"--server is {settings.server}, and {IMAGE} is {os.environ[IMAGE]}: masters can be one of them"
        )


class ComposeRig(ProxyRig):
    def each(self, masters: Iterable[int], do: Callable[[int], object]) -> None:
        """At once: to start a container takes so long that one after the other would be another fault."""
        with ThreadPoolExecutor(MOST) as pool:
            list(pool.map(do, masters))  # raises what one of them has raised


def rig(settings: Settings) -> Rig:
    return ComposeRig(settings, Containers(settings))
