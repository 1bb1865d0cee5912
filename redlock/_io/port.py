"""What connections and the background ask of their world: of a thread, of an event loop, or of a simulation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from redlock._core.outcomes import NEVER, Failure
from redlock._core.protocols import LineInbox

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable
    from contextlib import AbstractContextManager

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
        """Have the operation resumed, with a `Turn` that means nothing.  Takes no lock: signal handlers call this."""


class Sockets(Protocol):
    """Watches the descriptors of `Connections`, and calls their `read_ready`.  Used with the mutex held."""

    @property
    def mutex(self) -> AbstractContextManager[Any]: ...  # while the connections are used; nothing blocks in it
    def watch(self, stream: Stream) -> None: ...
    def unwatch(self, stream: Stream, *, ours: bool) -> None: ...  # unless ``ours``, another one has its number
    def watch_room(self, stream: Stream, *, wanted: bool) -> None: ...  # ... also when the kernel takes bytes again
    def tick_at(self, at: float) -> object: ...  # see `Port`


class Port(Protocol):
    """Calls `Background.tick`, and runs the operations of the renewer."""

    @property
    def stopped(self) -> type[BaseException]: ...  # what a user's callback may raise there, and ends only itself
    @property
    def here(self) -> bool: ...  # whether the caller may use these connections: on another event loop it may not
    def now(self) -> float: ...  # on the clock of R5
    def tick_at(self, at: float = NEVER) -> None: ...  # call it then, or soon; sooner does no harm
    def start(self, task: Task, renewals: list[Renewal]) -> None: ...  # and call `Renewer.ended` at its end
    def read_late(self, connection: Connection, now: float) -> bool: ...  # answers to no caller; True: again soon
    def rest(self, now: float, until: float) -> None: ...  # all that was due is done; called with the mutex held

    def call_soon(self, call: Callable[[], object], /) -> object:
        """Call it where `Background.tick` is called, but not now.  Takes no lock: the collector calls this.

        RuntimeError: the event loop is closed.
        """

    def hand_over(self, made: Made, finish: Callable[[], None]) -> None:
        """Call ``finish`` where the connections may be used.  The thread that has connected calls this."""
