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
import itertools
import threading
import weakref
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from redlock._core.lease import LeaseState

if TYPE_CHECKING:
    from collections.abc import Callable

    from redlock._core.keep import Owner

_MANY = 100  # so many holds of one thread are not looked through for those that nobody can give back

AnyLease = TypeVar("AnyLease", bound=LeaseState)

# The leases that were entered in this context, or in the one of which it is a copy (R26), each once.  A thread of a pool
# serves one request after the other; what tells them apart is the context in which each of them runs.
_ENTERED: ContextVar[tuple[weakref.ref[LeaseState], ...]] = ContextVar("redlock_entered", default=())

_numbers = itertools.count()
_watched: dict[int, Hold[Any] | Holds] = {}  # by the number of its `Witness`


class Witness(int):
    """Tells what is watched by its number when the object that has it is no more.

    A weak reference would tell too early.  The collector clears those of all that is unreachable before it runs any finalizer
    there: the ``finally`` of a generator, which may stand inside of its ``with``.  A number is no container, so the collector
    does not see it; it goes when its owner is taken apart.
    """

    __slots__ = ()

    @classmethod
    def of(cls, watched: Hold[Any] | Holds | None) -> Witness:
        """A new one, for the object that is to have it; ``watched`` is told."""
        witness = cls(next(_numbers))
        if watched is not None:
            _watched[int(witness)] = watched
        return witness

    def __del__(self, *, _watched: dict[int, Hold[Any] | Holds] = _watched) -> None:
        # Wherever the collector strikes, so it takes no lock; perhaps when Python exits, and this module has no names any more.
        watched = _watched.pop(int(self), None)
        if watched is not None:
            watched.gone()


class Holds(list["Hold[Any]"]):
    """Those of a lock that is not bound."""

    __slots__ = ()

    def gone(self) -> None:
        """The lock object is no more."""
        for hold in self:
            hold.lease._left_behind()  # noqa: SLF001 - told only us


class Hold(Generic[AnyLease]):
    """One acquire, or one ``with``, of ``lease`` through ``lock``, until it is given back.

    ``through``: the number of the lock, a word for it that keeps nothing alive.  ``holder``: all holds of one thread or task, or of a lock that is not bound.  ``max_hold``: that of the lease.  ``task``: of
    asyncio, in which a thread entered it.  ``driver``: of asyncio, whose masters know the lease.
    """

    __slots__ = (
        "_lock",
        "_watched_by",
        "abandoned",
        "by_hand",
        "driver",
        "holder",
        "lease",
        "max_hold",
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
        witness: Witness,
        max_hold: float | None = None,
        task: object = None,
        driver: Any = None,
    ) -> None:
        # A keeper knows the holds of its leases, and must keep no lock and no masters alive.
        self._lock = weakref.ref(lock)
        self.through = int(witness)
        self.lease = lease
        self.holder = holder
        self.max_hold = max_hold
        self.task = task
        self.driver = driver
        self.abandoned = False  # its ``with`` is no more, and nobody has left it
        self.by_hand = leaving is None  # given back by a call of `release`, not at the end of a ``with``
        self._watched_by: int | None = None
        if leaving is not None:
            self._watched_by = int(leaving.entered.witness if leaving.entered.witness is not None else leaving.witness)
            _watched[self._watched_by] = self
            leaving.entered.hold = self

    @property
    def lock_is_gone(self) -> bool:
        return self._lock() is None

    def gone(self) -> None:
        """Its ``with`` is no more."""
        self.abandoned = True
        self.lease._left_behind()  # noqa: SLF001 - told only us

    @property
    def entered_here(self) -> bool:
        """In this context, or in the one of which this is a copy."""
        return weakref.ref(self.lease) in _ENTERED.get()

    @property
    def given_back(self) -> bool:
        return self not in self.holder

    def enter(self) -> None:
        holder, lease = self.holder, self.lease
        if len(holder) >= _MANY:  # somebody acquires and never releases
            _look_through(holder)
        holder.append(self)
        first = not lease._holds  # noqa: SLF001 - its list of us
        lease._holds.append(self)  # noqa: SLF001
        if first:
            _ENTERED.set((*_not_over(_ENTERED.get()), weakref.ref(lease)))

    def leave(self) -> bool:
        """Give it back; True if nobody else can give back its lease.  Once more does no harm."""
        holds = self.lease._holds  # noqa: SLF001
        _remove(self, self.holder)
        _remove(self, holds)
        if self._watched_by is not None:
            _watched.pop(self._watched_by, None)
        if holds and not all(hold.abandoned for hold in holds):
            return False
        entered = _ENTERED.get()
        if entered and entered[-1]() is self.lease:
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
    return tuple(one for one in entered if (lease := one()) is not None and not lease._over)  # noqa: SLF001


def _look_through(holder: list[Hold[Any]]) -> None:
    """Forget what was lost and nobody is to be told of: of what each lock acquired by hand, all but the latest."""
    kept: list[Hold[Any]] = []
    latest: set[int] = set()
    for hold in reversed(holder):
        if hold.lease.lost:
            if hold.abandoned or hold.lock_is_gone or (hold.by_hand and hold.through in latest):
                continue
            latest.add(hold.through)
        kept.append(hold)
    holder[:] = kept[::-1]


def exists(witness: Witness) -> Callable[[], bool]:
    """Whether the object that has it is there later."""
    number = int(witness)
    return lambda: number in _watched


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


class Entered:
    """What a ``with`` has entered, once it has: for its end."""

    __slots__ = ("hold", "witness")

    def __init__(self) -> None:
        self.hold: Hold[Any] | None = None
        self.witness: Witness | None = None


class Leaving(functools.partial[Any]):
    """The end of one ``with``: calls ``leave(lock, entered, kind, error, trace)``.

    No function of ours stands between the interpreter and that: a traceback that somebody keeps would keep us in its frame,
    and with us the lease of a ``with`` that was interrupted there.
    """

    __slots__ = ("entered", "lock", "witness")

    entered: Entered
    lock: object  # None: a stack of contextlib names it when it leaves
    witness: Witness


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
        leaving.lock, leaving.entered = lock, entered
        (entered if self._stays else leaving).witness = Witness.of(None)
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
