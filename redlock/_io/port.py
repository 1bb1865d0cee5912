"""What the background asks of its world: of a thread, of an event loop, or of a simulation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from redlock._core.local_queue import Place
    from redlock._core.outcomes import Failure
    from redlock._core.renewals import Renewal, Task
    from redlock._core.voters import Facts
    from redlock._io.connection import Connection

# How an attempt to connect ended.  A `Subscriber` asks for no facts.
Made: TypeAlias = "tuple[socket.socket, Facts | None] | Failure"


class Port(Protocol):
    """Who calls `Background.tick`."""

    @property
    def guard(self) -> AbstractContextManager[Any]:
        """Held while the connections are used.  Nothing blocks meanwhile."""

    @property
    def stopped(self) -> type[BaseException]:
        """What a user's callback may raise there without ending more than itself."""

    def now(self) -> float:
        """The time on the clock of R5."""

    @property
    def closed(self) -> bool:
        """Whether the connections were closed."""

    @property
    def here(self) -> bool:
        """Whether the caller may use these connections: on another event loop it may not."""

    def call_at(self, at: float) -> None:
        """Have `Background.tick` called at ``at``; sooner does no harm."""

    def call_soon(self, call: Callable[[], object]) -> None:
        """Call it where `Background.tick` is called, but not now.  Takes no lock: the collector calls this.

        Raises:
            RuntimeError: the event loop is closed.
        """

    def hand_over(self, made: Made, finish: Callable[[], None]) -> None:
        """Call ``finish`` where the connections may be used.  The thread that has connected calls this."""

    def start(self, task: Task, renewals: list[Renewal]) -> None:
        """Run ``task``, and call `Renewer.ended` when it is over."""

    def pass_by(self, place: Place) -> None:
        """Out of the line with ``place``."""

    def read_late(self, connection: Connection, now: float) -> bool:
        """Read answers that nobody waits for.  True: look again soon."""

    def rest(self, now: float, until: float) -> None:
        """All that was due at ``now`` is done.  Called with the guard held."""
