"""Who holds a lease: every acquire, and every ``with``, that was not given back yet (R15, R26).

A ``with`` is told apart from all others by an object of its own.  The interpreter looks ``__exit__`` up when a ``with``
begins, keeps what it finds until the end, and calls it then.  `AtTheEnd` is what it finds in a lock: each time a new
`Leaving`.  So whoever leaves, in whatever thread, task or context, gives back exactly what that ``with`` was given (P8);
and when a `Leaving` is no more, nobody can give its hold back: its frame was torn down by an interruption, or thrown away.
contextlib's stacks do the same with the class of a lock.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import sys
import threading
import weakref
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    from redlock._base.lease import LeaseBase
    from redlock._core.lease import LeaseState
    from redlock._core.renewals import Owner

_MANY = 100  # so many holds of one thread are not looked through for those that nobody can give back

AnyLease = TypeVar("AnyLease", bound="LeaseBase[LeaseState]")

# The leases that were entered in this context, or in the one of which it is a copy (R26), each once.  A thread of a pool
# serves one request after the other; what tells them apart is the context in which each of them runs.
_ENTERED: ContextVar[tuple[weakref.ref[LeaseState], ...]] = ContextVar("redlock_entered", default=())


class _Watched:
    __slots__ = ("__weakref__",)


class End:
    """Belongs to what can give back a hold, and goes with it; `Life` tells whether it is there."""

    # In this order they go: what watches the second finds that the first is no more.
    __slots__ = ("mark", "then")

    def __init__(self) -> None:
        self.mark = object()
        self.then = _Watched()


class Life:
    """Tells whether an `End` is still there: nobody but it and us has its ``mark``.

    A weak reference would tell too early.  The collector clears those of all that is unreachable before it runs any
    finalizer there: the ``finally`` of a generator, which may stand inside of its ``with``.  And a finalizer would be Python
    code at the end of each ``with``, where Python swallows what a signal handler raises.
    """

    __slots__ = ("_mark",)

    def __init__(self, end: End) -> None:
        self._mark = end.mark

    def references(self) -> int:
        return sys.getrefcount(self._mark)

    def over(self) -> bool:
        return self.references() <= _OURS


_OURS = Life(End()).references()


class Hold(Generic[AnyLease]):
    """One acquire, or one ``with``, of ``lease`` through ``lock``, until it is given back.

    ``through``: a word for the lock that keeps nothing alive.  ``holder``: all holds of one thread or task, or of a lock that
    is not bound.  ``leaving``: the end of its ``with``; None: it is given back by hand.  ``end``: that of the lock, if it is
    not bound.  ``max_hold``: that of the lease.  ``task``: of asyncio, in which a thread entered it.  ``driver``: of asyncio, whose
    masters know the lease.
    """

    __slots__ = (
        "_life",
        "_lock",
        "_watches",
        "by_hand",
        "driver",
        "holder",
        "lease",
        "max_hold",
        "state",
        "task",
        "through",
    )

    def __init__(
        self,
        lock: Any,
        lease: AnyLease,
        holder: list[Hold[AnyLease]],
        leaving: Leaving | None,
        *,
        through: object,
        end: End | None,
        max_hold: float | None = None,
        task: object = None,
        driver: Any = None,
    ) -> None:
        # A renewer knows the holds of its leases, and must keep no lock and no masters alive.
        self._lock = weakref.ref(lock)
        self.through = through
        self.lease = lease
        self.state: LeaseState = lease._state  # noqa: SLF001 - users see the lease, we what is behind it
        self.holder = holder
        self.max_hold = max_hold
        self.task = task
        self.driver = driver
        self.by_hand = leaving is None
        if leaving is not None:
            leaving.entered.hold = self
            end = leaving.end or leaving.entered.end
        self._life: Life | None = None
        self._watches: weakref.ref[Any] | None = None
        if end is not None:
            self._life = Life(end)
            self._watches = weakref.ref(end.then, self.state.left_behind)

    @property
    def lock_is_gone(self) -> bool:
        return self._lock() is None

    @property
    def abandoned(self) -> bool:
        """What could give it back is no more: its ``with``, or its lock, if that is not bound."""
        return self._life is not None and self._life.over()

    @property
    def perhaps_abandoned(self) -> bool:
        """The collector is about to take that apart, or just did."""
        return self._watches is not None and self._watches() is None

    @property
    def entered_here(self) -> bool:
        """In this context, or in the one of which this is a copy."""
        return weakref.ref(self.state) in _ENTERED.get()

    @property
    def bound_by_hand(self) -> bool:
        """Its thread or task gives it back by a call of `release`."""
        return self.by_hand and self._life is None

    @property
    def given_back(self) -> bool:
        return self not in self.holder

    def enter(self) -> None:
        holder, state = self.holder, self.state
        if len(holder) >= _MANY and not len(holder) & (len(holder) - 1):  # somebody acquires and never releases
            _look_through(holder)
        holder.append(self)
        first = not state.holds
        state.holds.append(self)
        if first:
            _ENTERED.set((*_not_over(_ENTERED.get()), weakref.ref(state)))

    def leave(self) -> bool:
        """Give it back; True if nobody else can give back its lease.  Once more does no harm."""
        holds = self.state.holds
        _remove(self, self.holder)
        _remove(self, holds)
        self._watches = None  # and nothing of ours is called where its ``with`` ends
        if holds and not all(hold.abandoned for hold in holds):
            return False
        entered = _ENTERED.get()
        if entered and entered[-1]() is self.state:
            _ENTERED.set(entered[:-1])
        return True


def _remove(hold: Hold[Any], holds: list[Hold[Any]]) -> None:
    if holds and holds[-1] is hold:
        holds.pop()
    else:
        with contextlib.suppress(ValueError):  # by somebody else, who was interrupted, or in another thread
            holds.remove(hold)


def _not_over(entered: tuple[weakref.ref[LeaseState], ...]) -> tuple[weakref.ref[LeaseState], ...]:
    """Contexts that are copied again and again would collect the others; they are looked for each time that there are twice as many."""
    if len(entered) < _MANY or len(entered) & (len(entered) - 1):
        return entered
    return tuple(one for one in entered if (lease := one()) is not None and not lease.over)


def _look_through(holder: list[Hold[Any]]) -> None:
    """Forget what was lost and nobody is to be told of: of what each lock acquired by hand, all but the latest."""
    kept: list[Hold[Any]] = []
    latest: set[int] = set()
    for hold in reversed(holder):
        if hold.state.lost:
            if hold.abandoned or hold.lock_is_gone or (hold.by_hand and id(hold.through) in latest):
                continue
            latest.add(id(hold.through))
        kept.append(hold)
    holder[:] = kept[::-1]


def owner(lease: LeaseState, alive: Callable[[], bool]) -> Owner:
    """Who has ``lease``; ``alive()``: the thread or task that acquired it is still there."""
    perhaps = gone = False
    for hold in list(lease.holds):
        if hold.abandoned:
            continue
        if hold.perhaps_abandoned:
            perhaps = True
        elif hold.bound_by_hand and not alive():
            gone = True
        else:
            return "here"
    if gone:
        return "gone"
    return "perhaps" if perhaps else "abandoned"


class Entered:
    """What a ``with`` has entered, once it has: for its end."""

    __slots__ = ("end", "hold")

    def __init__(self) -> None:
        self.hold: Hold[Any] | None = None
        self.end: End | None = None  # its own, where a coroutine leaves that may never begin


class Leaving(functools.partial[Any]):
    """The end of one ``with``: calls ``leave(lock, entered, kind, error, trace)``.

    No function of ours stands between the interpreter and that: a traceback that somebody keeps would keep us in its frame,
    and with us the lease of a ``with`` that was interrupted there.
    """

    __slots__ = ("end", "entered", "lock")

    end: End | None  # None: `entered` has it
    entered: Entered
    lock: object  # None: a stack of contextlib names it when it leaves


class AtTheEnd:
    """`__exit__` or `__aexit__` of a lock, which is ``leave``: see the top of this file."""

    def __init__(self, leave: Callable[..., Any]) -> None:
        self.__wrapped__ = leave
        # A coroutine that was made and never begins has left nothing, so what ends its hold stays with it.
        self._stays = inspect.iscoroutinefunction(leave)

    def __get__(self, lock: object, kind: type[object]) -> Leaving:
        entered = Entered()
        leave = self.__wrapped__
        leaving = Leaving(leave, lock, entered) if lock is not None else Leaving(_leave_named, leave, entered)
        leaving.lock, leaving.entered, leaving.end = lock, entered, None
        (entered if self._stays else leaving).end = End()
        _begins.leaving = weakref.ref(leaving)
        return leaving


def _leave_named(leave: Callable[..., Any], entered: Entered, lock: object, *how: Any) -> Any:
    """As the stacks of contextlib call what they have found in a class."""
    return leave(lock, entered, *how)


class _Begins(threading.local):
    """The ``with`` that begins in this thread."""

    leaving: Callable[[], Leaving | None] = staticmethod(lambda: None)


_begins = _Begins()
_NONE = _Begins.leaving


def beginning(lock: object) -> Leaving | None:
    """Of the ``with`` that enters ``lock`` just now; None: `__enter__` is called by hand."""
    leaving = _begins.leaving()
    _begins.leaving = _NONE
    return leaving if leaving is not None and leaving.lock in (lock, None) else None
