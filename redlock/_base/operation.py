"""One operation that is stepped by whatever happens, among many that one thread or one loop looks after."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from inspect import GEN_CLOSED, getgeneratorstate
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from redlock import _clock
from redlock._core.effects import Send, Timeout, Wait

if TYPE_CHECKING:
    from collections.abc import Callable

    from redlock._core.effects import Effect, Event, LocalEffect, Op
    from redlock._core.subscriptions import Subscription

T = TypeVar("T")

_NOTHING: Any = object()
# An alarm that goes off so much too late, in seconds, says that nobody was listening meanwhile.
_LATE = 0.02
_MOST_EXCUSED = 0.25


class Host(Protocol):
    """Who looks after operations."""

    operations: set[Any]  # those under way

    def send(self, request: Send, operation: Any) -> None: ...

    def perform_local(self, effect: LocalEffect, operation: Any) -> None: ...

    def last_look(self, request: Send | None) -> None:
        """Read what has arrived, if that is not done anyway, and then tell ``request`` of nothing more."""

    def wake(self, operation: Any) -> None:
        """It has an event: call its `step` when nobody is in the middle of something."""


AnyHost = TypeVar("AnyHost", bound=Host)


class OperationBase(ABC, Generic[T, AnyHost]):
    """Steps a generator; no thread and no task waits for it."""

    __slots__ = (
        "_armed",
        "_asked",
        "_closes",
        "_excused",
        "_host",
        "_op",
        "_queued",
        "_running",
        "events",
        "subscription",
        "until",
    )

    def __init__(self, op: Op[T], host: AnyHost) -> None:
        self.events: deque[Event] = deque()
        self.subscription: Subscription | None = None
        self.until = float("inf")  # when it wants to be woken at the latest
        self._asked = self.until  # ... by what it said itself
        self._excused = False
        self._closes: Send | None = None  # what it waits for
        self._armed: float | None = None  # the alarm that is set is for this time
        self._op = op
        self._host = host
        self._running = False
        self._queued = False  # with the host, to be stepped

    def start(self) -> None:
        self._host.operations.add(self)
        self._drive(self._op.send, None)

    def put(self, event: Event) -> None:
        """It happened.  Its time comes when the one who reads is done: this takes no step."""
        self.events.append(event)
        self.wake()

    def wake(self) -> None:
        """There is an event."""
        if not (self._running or self._queued):
            self._queued = True
            self._host.wake(self)

    def step(self) -> None:
        """Go on with what has happened."""
        self._queued = False
        if self.events and not self._running and not self.over:
            self._drive(self._op.send, self.events.popleft())

    def on_alarm(self) -> None:
        """The alarm has gone off."""
        self._armed = None
        if self._running or self.over:
            return
        if self.events:  # and whoever was to step it was interrupted
            self.step()
            return
        now = _clock.now()
        if now < self.until or self._excuse(now):
            self._arm(now)
            return
        self._host.last_look(self._closes)
        if self.events:
            self.step()
        else:
            self._drive(self._op.send, Timeout(now))

    def interrupt(self, error: BaseException) -> None:
        """Throw ``error`` into the operation, which cleans up and ends with it (R11).

        All that takes is to send, so this neither waits nor can it be interrupted itself.
        """
        if not (self._running or self.over):
            self._drive(self._op.throw, error)
        if not self.over:
            self._end()  # it wants to wait, though nobody is there to see its end.  None of ours does
            self._op.close()

    @property
    def over(self) -> bool:
        return self not in self._host.operations

    # -- what a world adds ---------------------------------------------------------------------------

    @abstractmethod
    def _wait(self, now: float) -> None:
        """See to it that `on_alarm` is called at `until`."""

    @abstractmethod
    def _ended(self, result: T) -> None:
        """It is over, with a result."""

    @abstractmethod
    def _failed(self, error: BaseException) -> None:
        """It is over, with an error."""

    # ------------------------------------------------------------------------------------------------

    def _drive(self, step: Callable[[Any], Any], argument: Any) -> None:
        """Take steps until the operation waits for what has not happened, or ends.

        Whatever is raised meanwhile, in a `Send` or by a signal handler, is thrown into it: it decides how
        to unwind.
        """
        self._running = True
        try:
            while True:
                try:
                    while (argument := self._perform(step(argument))) is not _NOTHING:
                        step = self._op.send
                    break
                except StopIteration as stop:
                    try:
                        self._end()
                        self._ended(stop.value)
                    except BaseException:  # of a signal handler: nobody else would tell whoever waits
                        self._end()
                        self._ended(stop.value)
                        raise
                    break
                except BaseException as error:
                    if getgeneratorstate(self._op) == GEN_CLOSED:
                        self._end()
                        self._failed(error)
                        if isinstance(error, (KeyboardInterrupt, SystemExit)):
                            raise  # it is for whoever called us
                        break
                    step, argument = self._op.throw, error
        finally:
            self._running = False
        if self.events:  # from another thread, just when nothing had happened yet
            self.wake()

    def _perform(self, effect: Effect) -> Event | None:
        """Do what it wants; returns what it is resumed with, or `_NOTHING` if that has not happened yet."""
        if isinstance(effect, Wait):
            return self.events.popleft() if self.events else self._event(effect) or _NOTHING
        if isinstance(effect, Send):
            self._host.send(effect, self)
        else:
            self._host.perform_local(effect, self)
        return None

    def _event(self, effect: Wait) -> Event | None:
        """What there is at its time; None: nothing, or too little, and now it is waited for."""
        until, self._closes = effect.until, effect.closes
        now = _clock.now()
        if until != self._asked:
            self._asked = self.until = until
            self._excused = now >= until
        if now >= self.until and not self._excuse(now):
            self._host.last_look(effect.closes)
            return self.events.popleft() if self.events else Timeout(now)
        if self._armed != self.until:  # one alarm for all answers to one question
            self._arm(now)
        return None

    def _arm(self, now: float) -> None:
        self._armed = self.until
        self._wait(now)

    def _excuse(self, now: float) -> bool:
        """Wait longer, once: whoever looks after us was held up, and the answers may be here, for nobody has
        looked.  They get as much time as nobody listened; `valid_until` counts from when we asked all the same.
        """
        late = now - self.until
        if self._excused or late < _LATE:
            return False
        self._excused = True
        self.until = now + min(late, _MOST_EXCUSED)
        return True

    def _end(self) -> None:
        self._host.operations.discard(self)
