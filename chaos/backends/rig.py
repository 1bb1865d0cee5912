"""The masters of one run and the links to them, with everything that can be done to either."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from types import TracebackType
    from typing import Self

    from ..plan import Link
    from ..settings import Settings

# What can be the matter with a link.  ``requests`` and ``replies`` are held back; ``lose``: answers are lost
# and the connection breaks; ``slow``: answers are late; ``half``: answers are cut in two.
State: TypeAlias = Literal["requests", "replies", "lose", "slow", "half"]


# A key, a token that holds it, and how many ms that has left (-1: without expiry).
Held: TypeAlias = "tuple[str, str, int]"


class Rig(ABC):
    """Masters and clients are counted from 1.  Between `__enter__` and `__exit__` the masters run."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._states: dict[Link, Counter[State]] = {}
        self._slow: dict[Link, float] = {}

    @abstractmethod
    def __enter__(self) -> Self: ...

    @abstractmethod
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    @abstractmethod
    def urls(self, client: int) -> list[str]:
        """What this client is to dial, in the order of the masters."""

    @abstractmethod
    def keys(self) -> list[list[Held] | None]:
        """For each master what is held there, each reader by itself; None for one that does not answer."""

    # -- links -----------------------------------------------------------------------------------------

    @property
    def links(self) -> list[Link]:
        settings = self.settings
        return [(c, m) for c in range(1, settings.clients + 1) for m in range(1, settings.masters + 1)]

    @abstractmethod
    def _apply(self, states: Mapping[Link, Mapping[State, float]]) -> None:
        """From now on the links are in these states; one that is not named is in none."""

    def disturb(self, links: Iterable[Link], states: Iterable[State], seconds: float = 0.0) -> None:
        """Two who disturb the same link do so until both have mended it."""
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
        self._apply(
            {
                link: {state: self._slow.get(link, 0.0) for state, number in states.items() if number > 0}
                for link, states in self._states.items()
            }
        )

    # -- masters ---------------------------------------------------------------------------------------

    def each(self, masters: Iterable[int], do: Callable[[int], object]) -> None:
        """What strikes or heals several strikes or heals them at the same moment, as near as can be."""
        for master in masters:
            do(master)

    @abstractmethod
    def kill(self, master: int) -> None: ...

    @abstractmethod
    def restart(self, master: int, *, keep_data: bool) -> None: ...

    @abstractmethod
    def pause(self, master: int) -> None: ...

    @abstractmethod
    def resume(self, master: int) -> None: ...

    @abstractmethod
    def jump(self, master: int, seconds: float) -> None:
        """Its wall clock, forward or (negative) back."""

    @abstractmethod
    def slew(self, master: int, rate: float) -> None:
        """Its wall clock runs at this rate from now on."""

    @abstractmethod
    def flush(self, master: int) -> None:
        """SCRIPT FLUSH."""

    @abstractmethod
    def load(self, master: int) -> None:
        """FUNCTION LOAD REPLACE, of the function library (R44)."""

    @abstractmethod
    def unload(self, master: int) -> None:
        """FUNCTION FLUSH."""

    @abstractmethod
    def evict(self, master: int) -> None:
        """Its lock keys are gone; fences and records stay."""

    @abstractmethod
    def fill_memory(self, master: int) -> None: ...

    @abstractmethod
    def free_memory(self, master: int) -> None: ...

    @abstractmethod
    def fill_disk(self, master: int) -> None: ...

    @abstractmethod
    def free_disk(self, master: int) -> None: ...
