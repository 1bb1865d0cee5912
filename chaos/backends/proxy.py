"""The backend for any machine: every link goes through a relay in this process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NoReturn

from redlock.testing import find_server

from .local import HOST, LocalRig, local_masters
from .relay import Relay

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from redlock.testing import LocalMasters

    from ..plan import Link
    from ..settings import Settings
    from .containers import Containers
    from .rig import Rig, State

NAME: Final = "proxy"
WHAT: Final = "a TCP relay between each client and each master; anywhere"
# What it cannot do, and why.
LACKS: Final[dict[str, str]] = {"disk": "it cannot mount a small disk"}
REMARK: Final = "a cut link holds bytes, but connections are accepted; a dead master resets them instead of refusing"


def unavailable() -> str | None:
    """Why it does not work here."""
    return None


def command(session: Sequence[str]) -> list[str]:
    """How ``session`` is started."""
    return list(session)


def check(settings: Settings) -> None:
    """Raises for what these masters cannot be."""
    find_server(settings.server)


class ProxyRig(LocalRig):
    def __init__(self, settings: Settings, masters: LocalMasters | Containers) -> None:
        super().__init__(settings, masters)
        self._relay = Relay()
        self._ports: dict[Link, int] = {}

    def _connect(self) -> None:
        targets = self.masters.ports
        self._ports = {link: self._relay.open(link, HOST, 0, targets[link[1] - 1]) for link in self.links}

    def urls(self, client: int) -> list[str]:
        return [
            f"redis://{self.user(client)}{HOST}:{self._ports[client, master + 1]}"
            for master in range(self.settings.masters)
        ]

    def _apply(self, states: Mapping[Link, Mapping[State, float]]) -> None:
        self._relay.change(states)

    def fill_disk(self, master: int) -> NoReturn:
        raise RuntimeError(f"the disk of master {master}: {LACKS['disk']}")

    free_disk = fill_disk


def rig(settings: Settings) -> Rig:
    return ProxyRig(settings, local_masters(settings))
