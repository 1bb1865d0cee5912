"""The engine: steps operations.  Threads, event loops, renewals and the simulation run this one.

An operation is a generator (`redlock/_core/effects.py`).  The engine resumes it, and its `Host` carries out what it
yields.  One of a caller's thread is driven to its end by that thread, which sleeps in its waits (`_io/waiter.py`).
Every other one is a `SteppedOperation`: where it waits, the engine returns to the host, which calls `step` when there
is an event, and `on_alarm` when the time is up.  So one thread or one loop looks after many.

Whatever interrupts a wait is thrown into the generator there (R11).  To clean up it only sends, and so needs no time.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import deque
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from redlock._core.effects import Effect, Event, LocalEffect, Op, Send, Timeout, Wait
from redlock._core.outcomes import NEVER

if TYPE_CHECKING:
    from collections.abc import Callable

    from redlock._core.subscriptions import Subscription

T = TypeVar("T")

WAITS: Any = object()  # instead of an event: the operation has to wait
_LATE = 0.02  # seconds; an alarm that is later says that the answers were not read until then
_MOST_EXCUSED = 0.25


class Host(Protocol):
    """The carrier of operations: the connections of a caller's thread, an event loop, the renewer of threads."""

    operations: set[Any]  # under way

    def perform_local(self, effect: LocalEffect, operation: Any) -> None: ...


class SteppingHost(Host, Protocol):
    """The host of operations that do not wait in a thread of their own."""

    def now(self) -> float: ...

    def send(self, request: Send, operation: Any) -> None: ...

    def read_and_close(self, request: Send | None) -> None:
        """Read what has arrived, unless that is done anyway.  After that, hand ``request`` no more answers."""

    def step_soon(self, operation: Any) -> None:
        """``operation`` has an event: call its `step` as soon as no other step or read is under way."""


AnyHost = TypeVar("AnyHost", bound=Host)
AnySteppingHost = TypeVar("AnySteppingHost", bound=SteppingHost)


class OperationBase(ABC, Generic[T, AnyHost]):
    """One operation under way, and the events that it has not seen yet: each subclass is a `LineInbox`."""

    subscription: Subscription | None = None
    result: T  # once it has ended
    _struck: BaseException | None = None  # the first Ctrl-C, or other interruption, that was thrown in
    _running = False

    def __init__(self, op: Op[T], host: AnyHost) -> None:
        self.events: deque[Event] = deque()
        self._op = op
        self._host = host

    def start(self) -> None:
        self._host.operations.add(self)
        self._drive(self._op.send, None)

    @property
    def over(self) -> bool:
        return self not in self._host.operations

    @abstractmethod
    def send(self, request: Send) -> None:
        """Write ``request`` to its masters, or have it written."""

    @abstractmethod
    def _await(self, until: float, closes: Send | None, *, quiet: bool = False) -> Event:
        """The next event, or from ``until`` on a `Timeout` (see `Wait`); `WAITS`: the engine is to return."""

    def _conclude(self, error: BaseException | None) -> bool:  # noqa: ARG002 - for those with a caller
        """The generator has ended; a second time does no harm.  True: the caller is to see ``error``."""
        self._host.operations.discard(self)
        return True

    @abstractmethod
    def wake(self) -> object:
        """Events were added that the operation may not have seen."""

    def _drive(self, step: Callable[[Any], Any], argument: Any) -> None:
        self._running = True
        try:
            while True:
                try:
                    while (argument := self._perform(step(argument))) is not WAITS:
                        step = self._op.send
                    break
                except StopIteration as stop:
                    try:
                        self.result = stop.value
                        self._conclude(None)
                    except BaseException:  # from a signal handler: else the caller would wait for ever
                        self.result = stop.value
                        self._conclude(None)
                        raise
                    break
                except BaseException as error:
                    if _is_closed(self._op):  # the generator has cleaned up and raised this
                        error = self._ends_with(error)
                        if self._conclude(error) or isinstance(error, (GeneratorExit, KeyboardInterrupt, SystemExit)):
                            raise error  # noqa: TRY201 - perhaps another one
                        break
                    if not isinstance(error, Exception):
                        self._struck = self._struck or error
                    step, argument = self._op.throw, _Struck() if isinstance(error, GeneratorExit) else error
        finally:
            self._running = False
        if self.events:  # that another thread added just before `_running` was false
            self.wake()

    def _ends_with(self, error: BaseException) -> BaseException:
        """``error`` was raised by the generator; but a Ctrl-C in the cleanup after another one is not lost (R11)."""
        struck, self._struck = self._struck, None
        return struck if struck is not None and isinstance(error, (Exception, _Struck)) else error

    def _perform(self, effect: Effect) -> Event | None:
        """Carry out ``effect``.  Returns what the generator is resumed with, or `WAITS`."""
        if isinstance(effect, Send):
            self.send(effect)
            if effect.meanwhile is not None:
                effect.meanwhile()
            if effect.wait_for is None or effect.sent_at == NEVER:
                return None
            return self.events.popleft() if self.events else self._await(effect.sent_at + effect.wait_for, effect)
        if isinstance(effect, Wait):
            return (
                self.events.popleft() if self.events else self._await(effect.until, effect.closes, quiet=effect.quiet)
            )
        self._host.perform_local(effect, self)
        return None


class _Struck(BaseException):
    """A GeneratorExit of a signal handler.  To a generator that would mean that its effects are not carried out."""


def _is_closed(op: Any) -> bool:
    return op.gi_frame is None


class SteppedOperation(OperationBase[T, AnySteppingHost]):
    """An operation for which no thread waits."""

    until = math.inf  # wake it then at the latest
    _asked = math.inf  # the time that it yielded; `_excuse` does not change this one
    _excused = False
    _closes: Send | None = None  # the request whose answers it waits for
    _armed: float | None = None  # the time for which its alarm is set
    _queued = False  # the host knows that it is to be stepped

    def send(self, request: Send) -> None:
        self._host.send(request, self)

    def put(self, event: Event) -> None:
        """Add ``event``, and have the operation stepped.  The step comes later, when the reading is done."""
        self.events.append(event)
        self.wake()

    def wake(self) -> None:
        if not (self._running or self._queued):
            self._queued = True
            self._host.step_soon(self)

    def step(self) -> None:
        self._queued = False
        if self.events and not self._running and self in self._host.operations:
            self._closes = None  # the request refers to this operation: break the cycle
            self._drive(self._op.send, self.events.popleft())

    def on_alarm(self) -> None:
        """The host calls this when the alarm goes off."""
        self._armed = None
        if self._running or self.over:
            return
        if self.events:  # an interruption has cut their step short
            self.step()
            return
        now = self._host.now()
        if now < self.until or self._excuse(now):
            self._armed = self.until
            self._wait(now)
            return
        self._host.read_and_close(self._closes)
        if self.events:
            self.step()
        else:
            self._drive(self._op.send, Timeout(now))

    def interrupt(self, error: BaseException) -> None:
        """Throw ``error`` into the generator, which cleans up and ends with it (R11): that only sends."""
        if not (self._running or self.over):
            self._drive(self._op.throw, error)
        if not self.over:
            # It wants to wait, although no caller will see its end.  None of our operations does.
            self._conclude(error)
            self._op.close()

    @abstractmethod
    def _wait(self, now: float) -> None:
        """Arrange a call of `on_alarm` at `until`."""

    def _await(self, until: float, closes: Send | None, *, quiet: bool = False) -> Event:  # noqa: ARG002
        self._closes = closes
        now = self._host.now()
        if until != self._asked:
            self._asked = self.until = until
            self._excused = now >= until
        if now >= self.until and not self._excuse(now):
            self._host.read_and_close(closes)
            return self.events.popleft() if self.events else Timeout(now)
        if self._armed != self.until:  # one alarm for all answers of one round
            self._armed = self.until
            self._wait(now)
        waits: Event = WAITS
        return waits

    def _excuse(self, now: float) -> bool:
        """Put `until` off, once, if the alarm came late: no answers were read (`valid_until` still holds)."""
        late = now - self.until
        if self._closes is None or self._excused or late < _LATE:
            return False
        self._excused = True
        self.until = now + min(late, _MOST_EXCUSED)
        return True
