"""The masters of one run and the links to them, with everything that can be done to either."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from chaos.faults import FAULTS
from redlock.testing import LocalMasters

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from types import TracebackType
    from typing import Self

    from chaos.plan import Link
    from chaos.settings import Settings

# What can be the matter with a link.  ``requests`` and ``replies`` are held back; ``lose``: answers are lost
# and the connection breaks; ``slow``: answers are late; ``half``: answers are cut in two.
State: TypeAlias = Literal["requests", "replies", "lose", "slow", "half"]

HOST: Final = "127.0.0.1"
CLOCKS: Final = ("strobe", "clock")


class Rig(ABC):
    """Masters and clients are counted from 1.  Between `__enter__` and `__exit__` the masters run."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.masters = LocalMasters(
            settings.masters,
            persistence=settings.persistence,
            clock=any(name in CLOCKS for name in settings.faults),
            server=settings.server,
        )
        self._states: dict[Link, Counter[State]] = {}
        self._slow: dict[Link, float] = {}

    def __enter__(self) -> Self:
        self.masters.start()
        try:
            self._connect()
        except BaseException:
            self.masters.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.masters.stop()

    @property
    def links(self) -> list[Link]:
        settings = self.settings
        return [(c, m) for c in range(1, settings.clients + 1) for m in range(1, settings.masters + 1)]

    # -- links -----------------------------------------------------------------------------------------

    @abstractmethod
    def _connect(self) -> None:
        """The masters run: make the links."""

    @abstractmethod
    def _apply(self, states: Mapping[Link, Mapping[State, float]]) -> None:
        """From now on the links are in these states; one that is not named is in none."""

    @abstractmethod
    def urls(self, client: int) -> list[str]:
        """What this client is to dial, in the order of the masters."""

    def disturb(self, links: Iterable[Link], states: Iterable[State], seconds: float = 0.0) -> None:
        states = tuple(states)
        for link in links:
            self._states.setdefault(link, Counter()).update(states)
            if "slow" in states:
                self._slow[link] = seconds
        self._refresh()

    def mend(self, links: Iterable[Link], states: Iterable[State]) -> None:
        states = tuple(states)
        for link in links:
            self._states.setdefault(link, Counter()).subtract(states)
        self._refresh()

    def _refresh(self) -> None:
        self._apply({
            link: {state: self._slow.get(link, 0.0) for state, number in states.items() if number > 0}
            for link, states in self._states.items()
        })

    # -- masters ---------------------------------------------------------------------------------------

    def started(self, master: int) -> None:  # noqa: B027 - most need nothing
        """It was (re)started: what else it needs to be reached."""

    def kill(self, master: int) -> None:
        self.masters.kill(master - 1)

    def restart(self, master: int, *, keep_data: bool) -> None:
        self.masters.restart(master - 1, keep_data=keep_data)
        self.started(master)

    def pause(self, master: int) -> None:
        self.masters.pause(master - 1)

    def resume(self, master: int) -> None:
        self.masters.resume(master - 1)

    def jump(self, master: int, seconds: float) -> None:
        self.masters.jump(master - 1, seconds)

    def flush(self, master: int) -> None:
        self.masters.client(master - 1).script_flush()

    def fill_memory(self, master: int) -> None:
        self.masters.client(master - 1).config_set("maxmemory", "1")

    def free_memory(self, master: int) -> None:
        self.masters.client(master - 1).config_set("maxmemory", "0")

    def fill_disk(self, master: int) -> None:
        raise RuntimeError(f"no disk of master {master} can be filled by this backend: see its LACKS")

    def free_disk(self, master: int) -> None:
        raise RuntimeError(f"no disk of master {master} can be filled by this backend: see its LACKS")

    def keys(self) -> list[dict[str, tuple[str, int]] | None]:
        """For each master its lock keys, with token and PTTL in ms; None for one that does not answer."""
        return self.masters.keys("redlock:*")


def relayed(settings: Settings) -> bool:
    """Whether some fault of this run can only be made by a `Relay`."""
    return any(name in ("slow", "half") for name in settings.faults if FAULTS[name].kind == "master")
