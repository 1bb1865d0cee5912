"""Who holds a lease: a `Hold` is one acquire, or one ``with``, that was not given back yet (R15, R26).

Each ``with`` has an end of its own.  The interpreter looks ``__exit__`` up when a ``with`` begins, keeps what
it finds, and calls that at the end.  A lock hands out a new `WithExit` at each look (see `ExitMethod`). contextlib's
stacks do the same with the class of a lock.  Two things follow, and both are needed:

- A `WithExit` knows the lease of its ``with``. A generator is closed by the thread that drops it, perhaps inside a
  ``with`` of that thread on the same lock. The generator still gives back its own lease (P8).
- A `WithExit` lives exactly as long as its ``with``.  While it exists the lease is kept, even if the thread that
  entered has ended (R15): a generator may move through a pool of threads.  When it is gone without an exit, its frame
  was torn down, perhaps by a signal handler between the grant and the body, and no holder can give the lease back.  So
  the renewer releases it at once.

A lock with ``bound=False`` is itself the owner.  Its holds are released when it is gone, found out in the same way.

Re-entry (R26).  A holder is a thread and a context (`contextvars`).  A pool's thread may serve the next request
while a generator that it entered for the first request is suspended.  But the context has
a variable with the leases that were entered in it, and copies of the context inherit that.  Frameworks that run
generators in pools give each call a context of its own.  Elsewhere (a `@contextmanager`, a fixture, a plain thread)
all code of a thread runs in one context.  A lease that was acquired by hand belongs to its thread in every context, to
release and to extend (C10).  To enter it again takes the same context.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import inspect
import sys
import threading
import weakref
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from redlock._core import attributes
from redlock._io import process
from redlock._io.renewer import Watched, watch
from redlock._system import clock

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from redlock._core.lease import LeaseState
    from redlock._core.renewals import Presence
    from redlock._core.settings import LockSpec
    from redlock._lock.lease import LeaseBase

_MANY = 100  # a thread's holds are searched for lost ones from this number on

AnyLease = TypeVar("AnyLease", bound="LeaseBase")

# The leases that were entered in this context, or in the context that it was copied from (R26), each once.
_ENTERED: ContextVar[tuple[weakref.ref[LeaseState], ...]] = ContextVar("redlock_entered", default=())

_collector = 0  # the thread in which the garbage collector runs


def _note_collector(phase: str, _: object) -> None:
    """Before Python 3.12 the collector may run inside of `ContextVar.set`, and a second one in there ends Python."""
    global _collector  # noqa: PLW0603 - there is one collector
    _collector = threading.get_ident() if phase == "start" else 0


if sys.version_info < (3, 12):
    gc.callbacks.append(_note_collector)


class Anchor:
    """Belongs to a `WithExit`, or to a lock that is not bound, and goes with it: see `Lifetime`."""

    # The slots are cleared in this order, so a callback of a weak reference to `then` finds `mark` gone already.
    __slots__ = ("identity", "then")

    def __init__(self) -> None:
        self.identity = object()
        self.then = Watched()


class Lifetime:
    """Tells whether an `Anchor` still exists.  Only the `Anchor` and this object refer to its ``identity``.

    A weak reference would tell too early.  The collector clears those to all unreachable objects before it runs any
    finalizer there, such as the ``finally`` of a generator, which may be inside its ``with``.
    """

    __slots__ = ("_identity",)

    def __init__(self, anchor: Anchor) -> None:
        self._identity = anchor.identity

    def references(self) -> int:
        return sys.getrefcount(self._identity)

    def over(self) -> bool:
        return self.references() <= _OURS


_OURS = Lifetime(Anchor()).references()


class Holder(list["Hold[AnyLease]"]):
    """All holds of one thread or task, or of an unbound lock, the latest last.  ``alive()``: it has not ended."""

    __slots__ = ("alive",)

    def __init__(self, alive: Callable[[], bool]) -> None:
        self.alive = alive


class Hold(Generic[AnyLease]):
    """One acquire, or one ``with``, through ``lock``: made by the call, entered with the grant, and left once.

    ``through``, the lock, is weak: a renewer refers to holds, and must not keep a lock or its masters alive.  So is
    ``with_exit``, the end of its ``with``; None: it is given back by hand.  ``anchor`` is that of a lock that is not
    bound, and ``task`` the asyncio task in which a thread entered it.
    """

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        attributes.declare(
            cls, "through", "holder", "with_exit", "_life", "_watches", "max_hold", "task", "driver", "lease", "state",
            "_entered", "_unwanted", "_among",
        )  # fmt: skip

    lease: AnyLease  # from `enter` on
    state: LeaseState
    driver: Any = None
    _life: Lifetime | None = None
    _watches: weakref.ref[Any] | None = None
    _entered = _unwanted = asks_renewal = False
    anywhere = False  # it belongs to no context
    _among: Holder[AnyLease] | None = None  # the holds of the thread or task that runs the body of a term

    def __init__(
        self,
        through: weakref.ref[Any],
        holder: Holder[AnyLease],
        with_exit: Callable[[], WithExit | None] | None,
        anchor: Anchor | None,
        max_hold: float | None = None,
        task: asyncio.Task[Any] | None = None,
    ) -> None:
        self.through = through
        self.holder = holder
        self.with_exit = with_exit
        if anchor is not None:
            self._life, self._watches = Lifetime(anchor), weakref.ref(anchor.then)
        self.max_hold = max_hold
        self.task = task

    @property
    def abandoned(self) -> bool:
        """It has no holder any more: its ``with`` is gone, or its lock, if that is not bound."""
        return self._life is not None and self._life.over()

    @property
    def perhaps_abandoned(self) -> bool:
        """The collector is about to free the object that could give it back, or just did."""
        return self._watches is not None and self._watches() is None

    @property
    def entered_here(self) -> bool:
        """Whether it was entered in this context, or in the context of which this one is a copy."""
        return self.anywhere or weakref.ref(self.state) in _ENTERED.get()

    @property
    def bound_by_hand(self) -> bool:
        return self.with_exit is None and self._life is None

    @property
    def given_back(self) -> bool:
        return self not in self.holder

    def presence(self) -> Presence:
        perhaps = gone = False
        for hold in list(self.state.holds):
            if hold.bound_by_hand:
                if self.holder.alive():
                    return "here"
                gone = True
            elif not hold.abandoned:
                if not hold.perhaps_abandoned:
                    return "here"
                perhaps = True
        if gone:
            return "gone"
        return "perhaps" if perhaps else "abandoned"

    def notify_lost(self, on_lost: Callable[[AnyLease], object] | None) -> None:
        """The lease is lost: call each `on_lost` once, of the lock that acquired and of each that re-entered."""
        found = [] if on_lost is None else [on_lost]
        for other in self.state.nested_on_lost:
            if other not in found:
                found.append(other)
        with contextlib.ExitStack() as all_of_them:  # calls the others also if one raises
            for function in reversed(found):
                all_of_them.callback(self._tell, function)

    def _tell(self, on_lost: Callable[[AnyLease], object]) -> None:
        on_lost(self.lease)

    def enter(self, lease: AnyLease, state: LeaseState) -> bool:
        """From now on the lease is held.  False: its caller is gone."""
        self.lease, self.state = lease, state
        if self.with_exit is not None:
            with_exit = self.with_exit()
            if with_exit is None:
                return False
            self._bind(with_exit)
        elif self._watches is not None and (then := self._watches()) is not None:
            self._watches = watch(then, state)
        holder = self.holder
        if len(holder) >= _MANY and not len(holder) & (len(holder) - 1):  # the caller acquires and never releases
            _forget_lost(holder)
        holder.append(self)
        state.holds.append(self)
        self._entered = True
        return not self._unwanted

    def stands_among(self, others: Holder[AnyLease]) -> None:
        """Until it is left it is one of ``others`` as well."""
        self._among = others
        others.append(self)

    def bind_to(self, with_exit: Callable[[], WithExit | None]) -> None:
        """The frame of the caller, which a traceback may keep, must not keep the end of the ``with``."""
        if (found := with_exit()) is not None:
            self._bind(found)

    def _bind(self, with_exit: WithExit) -> None:
        """From now on it belongs to a ``with``, and no longer to its lock."""
        with_exit.entered.hold = self
        anchor = with_exit.anchor or with_exit.entered.anchor
        assert anchor is not None  # noqa: S101 - `ExitMethod` makes one
        self._life, self._watches = Lifetime(anchor), watch(anchor.then, self.state)

    def exit(self) -> bool:
        """Give it back, or never enter it.  True: no other hold can give back its lease.  For any thread, and twice."""
        self._unwanted = True
        if not self._entered:
            return False
        holder, holds = self.holder, self.state.holds
        if self._among is not None:
            _remove(self, self._among)
        # Usually it is the last one, which is quick to find.  No other thread runs between a look and its `pop`.
        if holder and holder[-1] is self:
            holder.pop()
        else:
            _remove(self, holder)
        if holds and holds[-1] is self:
            holds.pop()
        else:
            _remove(self, holds)
        self._watches = None  # so no callback runs when its ``with`` ends
        return not holds or all(hold.abandoned for hold in holds)

    def pass_on(self) -> None:
        """The lease was handed over: nothing is left to give back, and the end of the ``with`` does nothing (C11)."""
        self.exit()
        self._entered = False


def _remove(hold: Hold[Any], where: list[Hold[Any]]) -> None:
    with contextlib.suppress(ValueError):  # removed already, by another thread
        where.remove(hold)


def new_state(kind: type[LeaseState], spec: LockSpec, hold: Hold[Any]) -> LeaseState:
    """Of a lease that the caller is about to acquire, by ``hold``: it belongs to this context (R26).

    On an event loop only the first step of an operation runs in the context of its caller.
    """
    state = kind(spec, clock=clock.now, mine=process.here)
    if _collector and _collector == threading.get_ident():
        hold.anywhere = True
        return state
    entered = _ENTERED.get()
    # Not when one is released: a finalizer may do that, see `_note_collector`.
    while entered and ((last := entered[-1]()) is None or last.released):
        entered = entered[:-1]
    if len(entered) >= _MANY and not len(entered) & (len(entered) - 1):
        # Contexts that are copied again and again keep ended leases.  They are dropped when their number has doubled.
        entered = tuple(one for one in entered if (lease := one()) is not None and not lease.over)
    _ENTERED.set((*entered, weakref.ref(state)))
    return state


def _forget_lost(holder: list[Hold[Any]]) -> None:
    """Forget holds of lost leases that have no use.  Keep the latest that each lock acquired without ``with``."""
    kept: list[Hold[Any]] = []
    latest: set[int] = set()
    for hold in reversed(holder):
        if hold.state.lost:
            if hold.abandoned or hold.through() is None or (hold.with_exit is None and id(hold.through) in latest):
                continue
            latest.add(id(hold.through))
        kept.append(hold)
    holder[:] = kept[::-1]


class Entered:
    """The hold that a ``with`` has entered, for its end to give back."""

    __slots__ = ("anchor", "hold")

    def __init__(self) -> None:
        self.hold: Hold[Any] | None = None
        self.anchor: Anchor | None = None  # set for ``async with`` and for stacks, see `ExitMethod`


class WithExit(functools.partial[Any]):
    """The end of one ``with``: calls ``exit_method(lock, entered, kind, error, trace)``.

    The interpreter calls it without a Python function of ours in between.  The frame of such a function would refer
    to us, and a kept traceback would keep the frame: the lease of a ``with`` that was interrupted there would stay.
    """

    __slots__ = ("anchor", "entered", "lock")

    anchor: Anchor | None  # None: it is in `entered`
    entered: Entered
    lock: object  # None: a stack of contextlib passes it at the end


class ExitMethod:
    """The `__exit__` or `__aexit__` of a lock, implemented by ``exit_method``: see the top of this file."""

    def __init__(self, exit_method: Callable[..., Any]) -> None:
        self.__wrapped__ = exit_method
        # `__aexit__` only makes a coroutine, which may never begin and then has left nothing.  So `entered` keeps the
        # `Anchor`: the coroutine has that as an argument.  A stack keeps this object for as long as an error, in a
        # cycle. There `entered` has the `Anchor` as well, so that it goes whatever interrupts ``exit_method``.
        self._stays = inspect.iscoroutinefunction(exit_method)

    def __get__(self, lock: object, kind: type[object]) -> WithExit:
        entered = Entered()
        exit_method = self.__wrapped__
        with_exit = (
            WithExit(exit_method, lock, entered) if lock is not None else WithExit(_exit_named, exit_method, entered)
        )
        with_exit.lock, with_exit.entered, with_exit.anchor = lock, entered, None
        (entered if self._stays or lock is None else with_exit).anchor = Anchor()
        _begins.with_exit = weakref.ref(with_exit)
        return with_exit


def _exit_named(exit_method: Callable[..., Any], entered: Entered, lock: object, *how: Any) -> Any:
    """The end for a stack of contextlib: it looks ``__exit__`` up in the class, and passes the lock."""
    return exit_method(lock, entered, *how)


class _Begins(threading.local):
    """The ``with`` that is about to begin in this thread."""

    with_exit: Callable[[], WithExit | None] = staticmethod(lambda: None)


_begins = _Begins()
_NONE = _Begins.with_exit


def beginning(lock: object) -> Callable[[], WithExit | None] | None:
    """A weak reference to the `WithExit` of the ``with`` that enters ``lock`` now.  None: there is no ``with``."""
    reference = _begins.with_exit
    _begins.with_exit = _NONE
    with_exit = reference()
    return reference if with_exit is not None and with_exit.lock in (lock, None) else None
