"""One operation that is stepped by events.  One thread or one loop looks after many of them."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import deque
from inspect import GEN_CLOSED, getgeneratorstate
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from redlock import _clock
from redlock._core.effects import Send, Timeout, Wait
from redlock._core.outcomes import NEVER

if TYPE_CHECKING:
    from collections.abc import Callable

    from redlock._core.effects import Effect, Event, LocalEffect, Op
    from redlock._core.subscriptions import Subscription

T = TypeVar("T")

_NOTHING: Any = object()
# An alarm that goes off so much too late, in seconds, says that nobody was reading meanwhile.
_LATE = 0.02
_MOST_EXCUSED = 0.25


class Host(Protocol):
    """What looks after operations: an event loop, or the housekeeper's thread."""

    operations: set[Any]  # under way

    def send(self, request: Send, operation: Any) -> None: ...

    def perform_local(self, effect: LocalEffect, operation: Any) -> None: ...

    def last_look(self, request: Send | None) -> None:
        """Read what has arrived, unless that is done anyway.  After that, tell ``request`` of no more answers."""

    def wake(self, operation: Any) -> None:
        """``operation`` has an event: call its `step` as soon as no other step or read is under way."""


AnyHost = TypeVar("AnyHost", bound=Host)


class OperationBase(ABC, Generic[T, AnyHost]):
    """Steps a generator.  No thread and no task waits for it."""

    subscription: Subscription | None = None
    until = math.inf  # wake it then at the latest
    _asked = math.inf  # the time that it yielded; an excuse does not change it
    _excused = False
    _closes: Send | None = None  # the request whose answers it waits for
    _armed: float | None = None  # the time for which its alarm is set
    _running = False
    _queued = False  # the host knows that it is to be stepped

    def __init__(self, op: Op[T], host: AnyHost) -> None:
        self.events: deque[Event] = deque()
        self._op = op
        self._host = host

    def start(self) -> None:
        self._host.operations.add(self)
        self._drive(self._op.send, None)

    def put(self, event: Event) -> None:
        """Add ``event``, and have the operation stepped.  The step comes later, when the reading is done."""
        self.events.append(event)
        self.wake()

    def wake(self) -> None:
        """Tell the host that there is an event."""
        if not (self._running or self._queued):
            self._queued = True
            self._host.wake(self)

    def step(self) -> None:
        """Resume the generator with the next event."""
        self._queued = False
        if self.events and not self._running and not self.over:
            self._drive(self._op.send, self.events.popleft())

    def on_alarm(self) -> None:
        """The host calls this when the alarm goes off."""
        self._armed = None
        if self._running or self.over:
            return
        if self.events:  # the step for them was interrupted
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
        """Throw ``error`` into the generator, which cleans up and ends with it (R11).

        To clean up it only sends.  So this does not wait, and cannot be interrupted itself.
        """
        if not (self._running or self.over):
            self._drive(self._op.throw, error)
        if not self.over:
            # It wants to wait, although nobody will see its end.  None of our operations does.
            self._end()
            self._op.close()

    @property
    def over(self) -> bool:
        return self not in self._host.operations

    # -- what a subclass adds ------------------------------------------------------------------------

    @abstractmethod
    def _wait(self, now: float) -> None:
        """Arrange a call of `on_alarm` at `until`."""

    @abstractmethod
    def _ended(self, result: T) -> None:
        """The operation ended with ``result``."""

    @abstractmethod
    def _failed(self, error: BaseException) -> None:
        """The operation ended with ``error``."""

    # ------------------------------------------------------------------------------------------------

    def _drive(self, step: Callable[[Any], Any], argument: Any) -> None:
        """Step the generator until it waits for an event that has not happened, or until it ends.

        An exception out of a `Send` or of a signal handler is thrown into the generator, which decides how to unwind.
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
                    except BaseException:  # from a signal handler: else the caller would wait for ever
                        self._end()
                        self._ended(stop.value)
                        raise
                    break
                except BaseException as error:
                    if getgeneratorstate(self._op) == GEN_CLOSED:
                        self._end()
                        self._failed(error)
                        if isinstance(error, (KeyboardInterrupt, SystemExit)):
                            raise  # our caller has to see it
                        break
                    step, argument = self._op.throw, error
        finally:
            self._running = False
        if self.events:  # that another thread added just before `_running` was false
            self.wake()

    def _perform(self, effect: Effect) -> Event | None:
        """Carry out ``effect``.  Returns what the generator is resumed with, or `_NOTHING` if it has to wait."""
        if isinstance(effect, Send):
            self._host.send(effect, self)
            if effect.wait_for is None or effect.sent_at == NEVER:
                return None
            return self._next(effect.sent_at + effect.wait_for, effect)
        if isinstance(effect, Wait):
            return self._next(effect.until, effect.closes)
        self._host.perform_local(effect, self)
        return None

    def _next(self, until: float, closes: Send | None) -> Event:
        return self.events.popleft() if self.events else self._event(until, closes) or _NOTHING

    def _event(self, until: float, closes: Send | None) -> Event | None:
        """An event, or a `Timeout` once ``until`` has passed.  None: it has to wait, and an alarm is set."""
        self._closes = closes
        now = _clock.now()
        if until != self._asked:
            self._asked = self.until = until
            self._excused = now >= until
        if now >= self.until and not self._excuse(now):
            self._host.last_look(closes)
            return self.events.popleft() if self.events else Timeout(now)
        if self._armed != self.until:  # one alarm for all answers of one round
            self._arm(now)
        return None

    def _arm(self, now: float) -> None:
        self._armed = self.until
        self._wait(now)

    def _excuse(self, now: float) -> bool:
        """Put `until` off, once, if the alarm came late.

        Then nobody was reading, and the answers may be here unread.  They get as much time again, up to a limit.
        That is safe: `valid_until` still counts from `sent_at`.
        """
        late = now - self.until
        if self._excused or late < _LATE:
            return False
        self._excused = True
        self.until = now + min(late, _MOST_EXCUSED)
        return True

    def _end(self) -> None:
        self._host.operations.discard(self)
