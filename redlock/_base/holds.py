"""Who holds a lease: every acquire, and every ``with``, that was not given back yet (R15, R26).

A ``with`` is told apart from all others by an object of its own.  The interpreter looks ``__exit__`` up when a ``with``
begins, keeps what it finds until the end, and calls it then.  `AtTheEnd` is what it finds in a lock: each time a new
`Leaving`.  So whoever leaves, in whatever thread, task or context, gives back exactly what that ``with`` was given (P8);
and when a `Leaving` is no more, nobody can give its hold back: its frame was torn down by an interruption, or thrown away.
contextlib's stacks do the same with the class of a lock.
"""

from __future__ import annotations

import contextlib
import threading
import weakref
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from redlock._core.lease import LeaseState

if TYPE_CHECKING:
    from collections.abc import Callable

    from redlock._core.keep import Owner

_MANY = 100     # so many holds of one thread are not looked through for those that nobody can give back

AnyLease = TypeVar("AnyLease", bound=LeaseState)

# The tokens of the leases that were entered in this context, or in the one of which it is a copy (R26).  A thread of a pool
# serves one request after the other; what tells them apart is the context in which each of them runs.
_ENTERED: ContextVar[tuple[str, ...]] = ContextVar("redlock_entered", default=())


class Hold(Generic[AnyLease]):
    """One acquire, or one ``with``, of ``lease`` through ``lock``, until it is given back.

    ``holder``: all holds of one thread or task, or of a lock that is not bound.  ``max_hold``: that of the lease.  ``task``: of
    asyncio, in which a thread entered it.  ``driver``: of asyncio, whose masters know the lease.
    """

    __slots__ = ("_leaving", "_lock", "driver", "holder", "lease", "max_hold", "task")

    def __init__(
        self,
        lock: Any,
        lease: AnyLease,
        holder: list[Hold[AnyLease]],
        leaving: Leaving | None,
        *,
        max_hold: float | None = None,
        task: object = None,
        driver: Any = None,
    ) -> None:
        # By weak references: a keeper knows the holds of its leases, and must keep no lock and no masters alive.
        self._lock = weakref.ref(lock)
        self._leaving = None if leaving is None else weakref.ref(leaving, lease._left_behind)  # noqa: SLF001 - told only us
        self.lease = lease
        self.holder = holder
        self.max_hold = max_hold
        self.task = task
        self.driver = driver

    @property
    def lock(self) -> Any:
        """Through which it was entered; None: that is no more."""
        return self._lock()

    @property
    def by_hand(self) -> bool:
        """Given back by a call of `release`, not at the end of a ``with``."""
        return self._leaving is None

    @property
    def abandoned(self) -> bool:
        """Its ``with`` is no more, and nobody has left it."""
        return self._leaving is not None and self._leaving() is None

    @property
    def entered_here(self) -> bool:
        """In this context, or in the one of which this is a copy."""
        return self.lease.token in _ENTERED.get()

    @property
    def given_back(self) -> bool:
        return self not in self.holder

    def enter(self) -> None:
        holder, lease = self.holder, self.lease
        if len(holder) >= _MANY:        # somebody acquires and never releases
            _look_through(holder)
        holder.append(self)
        lease._holds.append(self)  # noqa: SLF001 - its list of us
        entered = _ENTERED.get()
        if lease.token in entered:
            return
        if len(entered) > 2 * len(holder) + _MANY:      # contexts that are copied again and again
            there = {hold.lease.token for hold in holder}
            entered = tuple(token for token in entered if token in there)
        _ENTERED.set((*entered, lease.token))

    def leave(self) -> bool:
        """Give it back; True if nobody else can give back its lease.  Once more does no harm."""
        token, holds = self.lease.token, self.lease._holds  # noqa: SLF001
        _remove(self, self.holder)
        _remove(self, holds)
        self._leaving = None
        if holds and not all(hold.abandoned for hold in holds):
            return False
        entered = _ENTERED.get()
        if entered and entered[-1] == token:
            _ENTERED.set(entered[:-1])
        return True


def _remove(hold: Hold[Any], holds: list[Hold[Any]]) -> None:
    if holds and holds[-1] is hold:
        holds.pop()
    else:
        with contextlib.suppress(ValueError):       # by somebody else, who was interrupted, or in another thread
            holds.remove(hold)


def _look_through(holder: list[Hold[Any]]) -> None:
    """Forget what was lost and nobody is to be told of: of what each lock acquired by hand, all but the latest."""
    kept: list[Hold[Any]] = []
    latest: set[object] = set()
    for hold in reversed(holder):
        if hold.lease.lost:
            lock = hold.lock
            if hold.abandoned or lock is None or (hold.by_hand and id(lock) in latest):
                continue
            latest.add(id(lock))
        kept.append(hold)
    holder[:] = kept[::-1]


def owner(lease: LeaseState, alive: Callable[[], bool], otherwise: Owner) -> Owner:
    """Who has ``lease``; ``alive()``: the thread, the task or the lock object that acquired it is still there."""
    by_hand = False
    for hold in list(lease._holds):  # noqa: SLF001
        if hold.by_hand:
            by_hand = True
        elif not hold.abandoned:
            return "here"
    if not by_hand:
        return "abandoned"
    return "here" if alive() else otherwise


class Leaving:
    """The end of one ``with``."""

    __slots__ = ("__weakref__", "_leave", "hold", "lock")

    def __init__(self, leave: Callable[..., Any], lock: object) -> None:
        self._leave = leave
        self.lock = lock    # None: a stack of contextlib names it when it leaves
        self.hold: Hold[Any] | None = None      # what was entered

    def __call__(self, *args: Any) -> Any:
        lock, *how = args if self.lock is None else (self.lock, *args)
        # With us, not with our hold alone: a coroutine that is made here and never begins has left nothing.
        return self._leave(lock, self, *how)


class AtTheEnd:
    """`__exit__` or `__aexit__` of a lock, which calls ``leave(lock, leaving, kind, error, trace)``: see the top of this file."""

    def __init__(self, leave: Callable[..., Any]) -> None:
        self.__wrapped__ = leave

    def __get__(self, lock: object, kind: type[object]) -> Leaving:
        leaving = Leaving(self.__wrapped__, lock)
        _begins.leaving = weakref.ref(leaving)
        return leaving


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
