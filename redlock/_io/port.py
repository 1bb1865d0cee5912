"""What connections and the background ask of their world: of a thread, of an event loop, or of a simulation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from redlock._core.outcomes import NEVER
from redlock._core.protocols import LineInbox

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from redlock._core.outcomes import Failure
    from redlock._core.renewals import Renewal, Task
    from redlock._core.subscriptions import Subscription
    from redlock._core.voters import Facts
    from redlock._io.stream import Connection, Stream

# How an attempt to connect ended.  A `Subscriber` asks for no facts.
Made: TypeAlias = "tuple[socket.socket, Facts | None] | Failure"


class Listener(LineInbox, Protocol):
    """The inbox of an operation that may wait for announced releases."""

    subscription: Subscription | None  # while it does

    def poke(self) -> None:
        """Have the operation resumed.  Takes no lock: a signal handler may call this, in any thread and at any moment.

        The `Turn` that it gets is only a wake-up: an operation that still has to wait does so again.
        """


class Sockets(Protocol):
    """Who watches the descriptors of `Connections`, and calls their `read_ready`.

    All is used with the mutex held.
    """

    @property
    def mutex(self) -> AbstractContextManager[Any]:
        """Held while the connections are used.  Nothing blocks in it."""

    def watch(self, stream: Stream) -> None:
        """Call `Connections.read_ready` from now on whenever ``stream`` has something to read."""

    def unwatch(self, stream: Stream, *, ours: bool) -> None:
        """Stop watching ``stream``, which is about to be closed.  Unless it is ``ours``, another one has its number."""

    def watch_room(self, stream: Stream, *, wanted: bool) -> None:
        """``wanted``: also call `Connections.read_ready` when the kernel can take more bytes of ``stream``."""

    def tick_at(self, at: float) -> object:
        """Have `Background.tick` called at ``at``; sooner does no harm."""


class Port(Protocol):
    """Who calls `Background.tick`."""

    @property
    def stopped(self) -> type[BaseException]:
        """Errors of a user's callback that are logged, and go no further."""

    def now(self) -> float:
        """The time on the clock of R5."""

    @property
    def here(self) -> bool:
        """Whether the caller may use these connections: on another event loop it may not."""

    def tick_at(self, at: float = NEVER) -> None:
        """Have `Background.tick` called at ``at``, or soon; sooner does no harm."""

    def call_soon(self, call: Callable[[], object], /) -> object:
        """Call it later, where `Background.tick` is called.  Takes no lock: the collector calls this.

        Raises:
            RuntimeError: the event loop is closed.
        """

    def hand_over(self, made: Made, finish: Callable[[], None]) -> None:
        """Call ``finish`` where the connections may be used.  The thread that has connected calls this."""

    def start(self, task: Task, renewals: list[Renewal]) -> None:
        """Run ``task``, and call `Renewer.ended` when it has ended."""

    def read_late(self, connection: Connection, now: float) -> bool:
        """Read answers without a waiter.  True: call this again soon."""

    def rest(self, now: float, until: float) -> None:
        """All that was due at ``now`` is done.  Called with the mutex held."""
