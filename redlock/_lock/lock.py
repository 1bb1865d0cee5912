"""What a lock checks and decides, and its operations.  Threads and asyncio share it; nothing here waits for masters.

Re-entry (R26): a holder would wait for itself if it asks for other names as well, or for more `min_validity` than its
lease has left: `WouldDeadlock` (C5).  Else it gets what it asks for (`auto_extend`, `on_lost`, cancelling), or an error
(`fencing`, `max_hold`, `hold_at_least`, `guard`).  Each level learns of a loss from its own release.

Interruptions (R11, P7) can strike between any two instructions.  Each of three places takes over where the one before
ends.  The operation: they are thrown into the generator, which takes its keys back by sending.  The call: `acquire`,
`release` and the beginning of a ``with`` give back a hold that they do not finish (`_abandon`).  The end of a ``with``:
when it is gone and the hold is still entered, the renewer gives the lease back (`holds.py`).  A hold is made before the
operation, entered in one place and exited in one place; to exit it twice, or before it is entered, does no harm.
"""

from __future__ import annotations

import contextlib
import math
import weakref
from abc import ABC, abstractmethod
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Generic, Literal, NoReturn, TypeVar, Unpack

from redlock import options
from redlock._core.abandon import abandon
from redlock._core.acquire import Target, acquire
from redlock._core.kernel.ballot import Grant, Refusal
from redlock._core.kernel.extension import Extension, extend
from redlock._core.kernel.release import leave_line, release
from redlock._core.kernel.rollback import carry_out, raise_graver
from redlock._core.modes import MOST_READERS, downgrade, shared_by
from redlock._core.retry import BETWEEN_ATTEMPTS
from redlock._core.settings import LockSpec, Mode
from redlock._io.connections import Inside
from redlock._lock.decorated import check_told
from redlock._lock.holds import Anchor, AnyLease, Hold, Holder, WithExit, new_state
from redlock._lock.keywords import hide_unknown, unexpected
from redlock._lock.lease import Handed
from redlock._lock.masters import MastersBase, token_source
from redlock._lock.refused import not_acquired, not_extended, unreachable
from redlock._lock.times import Times, check_ttl, checked
from redlock._system import clock
from redlock.errors import ConfigurationError, LockUnavailable, NotHeld, RedlockError, WouldDeadlock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from tenacity.wait import wait_base

    from redlock._core.effects import Op
    from redlock._core.fair.target import FairTarget
    from redlock._core.lease import LeaseState
    from redlock._io.runtime import Runtime
    from redlock._lock.typed import NoOptions

AnyMasters = TypeVar("AnyMasters", bound="MastersBase[Any]")


class LockBase(ABC, Generic[AnyMasters, AnyLease]):
    """The options of `MultiLock` and `AsyncMultiLock`, their checks, and the texts of their errors."""

    # Set by the subclass: its classes, and the word for what holds a lease.
    _masters_class: type[AnyMasters]
    _lease_class: type[AnyLease]
    _state_class: type[LeaseState]
    _holder: str
    _runtime: Runtime[Any]
    _elsewhere = ""  # why the holder may be another one than it seems

    _anchor: Anchor | None = None  # of this lock, if it is not bound

    @hide_unknown
    def __init__(  # noqa: C901 - flat: each call costs
        self,
        name: str | Sequence[str],
        masters: AnyMasters | Iterable[object],
        *,
        ttl: float = 30.0,
        timeout: float | None = None,
        auto_extend: bool = True,
        max_hold: float | None = None,
        hold_at_least: float | None = None,
        guard: float | None = None,
        min_validity: float | None = None,
        shared: bool = False,
        max_readers: int = MOST_READERS,
        max_waiters: int | None = None,
        fair: bool = False,
        fencing: bool = True,
        bound: bool = True,
        retry: wait_base | None = None,
        owner: str | None = None,
        on_lost: Callable[[AnyLease], object] | None = None,
        **unknown: Unpack[NoOptions],
    ) -> None:
        """Check the options; nothing is sent.

        Args:
            name: 1 to 512 bytes of UTF-8, or a sequence of up to 1,000 names: all of them are taken or none, in one
                step of each master, during which it serves no other client (1,000 names: some 3 ms).  No name may
                collide with a key of another, such as its fencing token: ``["{u}", "{u}:fence"]`` is refused.
            masters: an object that several locks share, or the first argument of its class.  Then this lock makes
                masters of its own, and `close` closes them.
            ttl: seconds after which the masters forget a holder that does not renew.
            timeout: default for `acquire`, in seconds: negative waits for ever, 0 tries once.  None: as masters say.
            auto_extend: renew the lease in the background, at a third of its TTL, until it is released, lost, or its
                owner has ended (R15).  False: it lasts for its TTL, or until `extend`, and is renewed only while a
                lock with ``auto_extend`` has entered it again (R26).
            max_hold: seconds after which the lease is lost although it could be renewed, and its keys are released
                (C7): others may enter, and the body of a thread runs on.  None: no limit.
            hold_at_least: seconds after the acquire in which no other client gets the lock, even if it is released
                sooner (R28), so that a job which takes a moment runs once in a period.  At most the TTL; a holder that
                dies keeps it for no longer than its lease was valid.  None or 0: a release frees it at once.
            guard: seconds for which the name stays taken after its lease was lost or its holder died (R36), so that
                work under way can arrive.  The lease is valid for no longer, and a release frees the name at once.
                It is an allowance for the clocks of masters, too.  With the ``ttl`` at most `max_ttl`.  None: theirs.
            min_validity: an acquire that leaves less than these seconds has failed (R7); None: half the TTL, or
                ``hold_at_least`` if the TTL allows it.  Less than the TTL minus the allowance for clock drift.
            shared: share the lock with other readers (R33), without any writer.  A lock without ``shared`` is a writer:
                it waits for readers, and keeps new ones away.  All names or none.
            max_readers: refuse a reader where a name has this many.  For ``shared`` alone; each client has its own.
            max_waiters: how many of this process may wait in line for a name, behind the one that has the lock or asks
                for it (R40).  The next one is refused at once, as `NotAcquired` with ``kind="crowded"``.  None: no
                limit.
            fair: first come, first served, across all processes (R42), and before all locks without ``fair``: so give
                it to every lock of that name.  A waiter that dies delays its successor by a second, once.  The line in
                a process stays as it is: its first waiter queues for all of them.  Locks with ``fencing=False`` and
                clients of version 0.1 ignore the queue, and may go first.  Not with ``shared``.
            fencing: False: no fencing token, and no fence key is touched.
            bound: the hold belongs to the thread or task that acquired.  No other one may release or extend it, and
                the renewals end when it ends.  False: it belongs to this object, and every thread or task may use it.
                It is released when the object is gone.
            retry: a tenacity wait strategy for the pause between attempts (R25).
            owner: the holder's name, for people (R27); None: the owner of the masters, "": none.
            on_lost: called with the lease, once, if it is lost, also if this lock re-entered a lease that its thread or
                task held already.  It must not block.  It is not called after `close` of the masters.

        Raises:
            ConfigurationError: a value cannot be right; the text names it and what is allowed.
            TypeError: there is no such option; the text says what it is called here.
        """
        if unknown:
            raise unexpected(type(self).__name__, unknown, LockBase.__init__)
        names = options.names(name)
        self._private = not isinstance(masters, MastersBase)
        if not isinstance(masters, MastersBase):
            masters = self._masters_class(masters)
        if not isinstance(masters, self._masters_class):
            raise ConfigurationError(
                f"{type(self).__name__} needs {self._masters_class.__name__}, these are {type(masters).__name__}"
            )
        self._masters = masters
        self._runtime = self._masters._runtime  # noqa: SLF001 - what is behind masters is for what is made of them
        deployment = self._runtime.deployment
        self._settings = deployment.settings
        times = checked(deployment.limits, ttl, timeout, max_hold, hold_at_least, min_validity, guard)
        self._timeout = times.patience
        self._asks_validity = min_validity is not None
        if retry is None:
            retry = BETWEEN_ATTEMPTS
        elif not callable(retry):
            raise ConfigurationError(f"retry={options.shown(retry)}: allowed is a wait strategy of tenacity")
        if on_lost is not None:
            check_told("on_lost", on_lost, "the lease", self._holder)
        self._target: Callable[..., Target] = Target  # the strategy of an acquire
        if fair is not False:
            self._target = _in_order(fair, shared=shared, fencing=fencing)
        if not (auto_extend is True and fencing is True and bound is True):
            options.flag("auto_extend", auto_extend)
            options.flag("fencing", fencing)
            options.flag("bound", bound)
        keys = deployment.keys(names, fencing=fencing, fair=fair)
        mode = deployment.mode
        if shared is not False or max_readers != MOST_READERS:
            mode = _shared(shared, max_readers, times, mode)
        if deployment.records and not fencing:
            raise ConfigurationError(
                "fencing=False with confirm_expiry=True of its masters: a lease is on record with its fence, drop one"
            )
        self._spec = LockSpec(
            names, keys, mode, times.ttl, times.min_validity, retry, auto_extend,
            times.max_hold, on_lost, times.hold_at_least,
            max_waiters=None if max_waiters is None else options.number("max_waiters", max_waiters), guard=times.guard,
        )  # fmt: skip
        if owner is not None:
            self._settings = self._settings._replace(token=token_source(owner))
        self._bound = bound
        self._lease: AnyLease | None = None  # the latest lease, of any holder
        self._me = weakref.ref(self)  # identifies this lock in a `Hold`
        self._own = self._runtime.own  # `holds` of the calling thread or task, through any lock of these masters
        if not self._bound:
            self._anchor = Anchor()
            self._own = SimpleNamespace(holds=Holder(bool))  # the holds of all users of this lock

    @abstractmethod
    def _new_hold(self, with_exit: Callable[[], WithExit | None] | None = None) -> Hold[AnyLease]:
        """A hold of the caller, to be entered.  ``with_exit``: the end of its ``with``."""

    def owned(self) -> bool:
        """Whether the caller holds, through this object, a lease that is valid now.  No I/O."""
        hold = self._latest(self._own.holds)
        return hold is not None and hold.lease.valid

    @property
    def lease(self) -> AnyLease | None:
        """The lease that this object got last, for any thread or task; None before the first."""
        return self._lease

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"{self!r} cannot be copied or pickled: make another one, and pass on what lease.hand_over() returns"
        )

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._spec.shown} on {len(self._settings.masters)} masters>"

    # -- re-entry (R26) ------------------------------------------------------------------------------

    def _latest(self, holder: list[Hold[AnyLease]]) -> Hold[AnyLease] | None:
        """The hold that the caller may release or extend; not one of a ``with`` of another context, a generator's."""
        for hold in reversed(holder):
            if hold.through is self._me and (
                hold.with_exit is None or (not hold.abandoned and (hold.entered_here or not self._bound))
            ):
                return hold
        return None

    def _reenter(self, again: Hold[AnyLease]) -> bool:
        """Enter ``again`` into the lease that the caller holds on the same names already.  False: it holds none."""
        for hold in reversed(again.holder):
            lease = hold.lease
            if not self._wants_any(lease.names) or not lease.valid:
                continue  # a lost lease is not entered again
            if hold.abandoned:
                self._runtime.post(abandon(self._settings, self._spec_of(hold.state), hold.state))
                continue
            if hold.task is not again.task:
                raise WouldDeadlock(_in_another_task(hold), name=self._spec.name)
            if not hold.entered_here:
                continue  # a request that this thread of a pool has suspended
            if hold.holder is not again.holder:  # the hold of a candidate, in whose body this runs
                raise WouldDeadlock(
                    f"this {self._holder} leads {lease.name!r}, and would wait for the end of its own term: give "
                    "this lock a name of its own",
                    name=self._spec.name,
                )
            self._check_asked(hold)
            again.max_hold = hold.max_hold or self._spec.max_hold
            again.enter(lease, hold.state)
            if self._spec.on_lost is not None:
                hold.state.nested_on_lost += (self._spec.on_lost,)
            if self._spec.auto_extend and not hold.state.renewed:
                again.asks_renewal = True
                hold.state.changed()
            return True
        return False

    def _wants_any(self, names: tuple[str, ...]) -> bool:
        return any(name in names for name in self._spec.names)

    def _wants_all(self, names: tuple[str, ...]) -> bool:
        return set(self._spec.names) == set(names)

    def _spec_of(self, state: LeaseState) -> LockSpec:  # noqa: ARG002 - of slots each is another lock
        return self._spec

    def _check_asked(self, hold: Hold[AnyLease]) -> None:
        lease, holds = hold.lease, f"this {self._holder} holds"
        spec, state = self._spec, hold.state
        if not self._wants_all(lease.names):
            why = f"{holds} {state.shown} already, so it would wait for itself to get {spec.shown}"
            raise WouldDeadlock(why, name=spec.name)
        if hold.state.mode.shared and not self._spec.mode.shared:
            shared = f"{state.shown} shared, so acquiring it exclusively would deadlock"
            why = "release it first, or take it without shared and downgrade it"
            raise WouldDeadlock(f"{holds} {shared}: {why}", name=spec.name)
        if lease.fence is None and spec.fencing:
            raise ConfigurationError(
                f"{holds} {spec.shown} without a fencing token already, and asks for one: "
                "give both locks the same fencing"
            )
        too_long = spec.max_hold is not None and (hold.max_hold is None or hold.max_hold > spec.max_hold)
        for option, has, asks, differs in (
            ("max_hold", hold.max_hold, spec.max_hold, too_long),
            ("hold_at_least", state.hold_at_least, spec.hold_at_least, state.hold_at_least < spec.hold_at_least),
            ("guard", state.guarded, spec.guard, state.guarded < spec.guard),
        ):
            if differs:
                raise ConfigurationError(
                    f"{holds} {spec.shown} already, with {option}={has if has is None else f'{has:g}'}, "
                    f"and asks for {option}={asks:g}: give both locks the same {option}"
                )
        if self._asks_validity and lease.remaining() < spec.min_validity:
            left = f"already, for another {lease.remaining():.3f} s; min_validity is {spec.min_validity:g} s"
            why = "and a new lease would wait for the end of this one: extend it, or release it first"
            raise WouldDeadlock(f"{holds} {spec.shown} {left}, {why}", name=spec.name)

    def _latest_by_hand(self) -> Hold[AnyLease]:
        """The hold for an `__exit__` that was called by hand, or by a stack that has not entered."""
        holder: Holder[AnyLease] = self._own.holds
        mine = [hold for hold in reversed(holder) if hold.through is self._me and hold.with_exit is None]
        # Valid ones first.  Two leases of one lock are never valid at once, to release an ended one is harmless (P8).
        if not self._bound:
            mine.sort(key=lambda hold: not hold.state.over)
        if not mine:
            raise self._not_held()
        return mine[0]

    def _check(self, hold: Hold[AnyLease]) -> None:
        """Check that the hold of a ``with`` is still there at its end: not lost, and not released by hand."""
        state = hold.state
        if not state.mine():
            raise self._not_held()
        if not hold.given_back or state.handed_over:
            return
        if state.lost:
            raise state.loss()
        if self._bound:
            raise self._not_held()
        raise NotHeld(f"another thread or task has released {self._spec.shown}", name=self._spec.name)

    # -- operations, and what their results mean -----------------------------------------------------

    def _deadline(self, now: float, timeout: float | None = None, *, blocking: bool = True) -> float:
        if blocking not in (True, False):
            raise ConfigurationError(
                f"blocking={options.shown(blocking)}: allowed are True and False; "
                f"to wait for that many seconds, write timeout={options.shown(blocking)}"
            )
        if not blocking and timeout is not None:
            raise ConfigurationError(
                f"blocking=False with timeout={options.shown(timeout)}: it does not wait, drop one of the two"
            )
        patience = self._timeout if timeout is None else options.timeout("timeout", timeout)
        return now + patience if blocking else now

    def _acquire_op(self, hold: Hold[AnyLease], deadline: float, began: float) -> Op[Grant | Refusal | None]:
        """Take the lock, enter ``hold``, and begin to renew.  None: the caller held the lock already (R26)."""
        hold.driver = driver = self._runtime.drivers.get(self._runtime.where())
        if self._bound and hold.holder and self._reenter(hold):
            return None
        new_lease = partial(new_state, self._state_class, self._spec, hold)
        target = self._target(self._settings, self._spec, new_lease)
        try:
            outcome = yield from acquire(target, deadline, began)
            if isinstance(outcome, Grant) and (state := target.lease):
                self._lease = lease = self._lease_class(state)
                if hold.enter(lease, state):
                    if driver is not None:  # else the masters were closed just now: nothing is renewed any more
                        driver.keep(self._settings, self._spec_of(state), state, hold, outcome.decided_at)
                else:
                    yield from self._give_back(target)
        except GeneratorExit:
            raise
        except BaseException as first:
            try:
                yield from self._give_back(target)
            except GeneratorExit:
                raise
            except BaseException as second:  # noqa: BLE001 - before that was sent
                yield from self._give_back(target)
                raise_graver(first, second)
            raise
        return outcome

    def _give_back(self, target: Target) -> Op[None]:
        """Release what was granted, if anything: no caller gets the lease."""
        state = target.lease
        if state is not None and state.begun:
            yield from abandon(self._settings, self._spec_of(state), state)

    def _release_op(self, hold: Hold[AnyLease]) -> Op[Literal["released", "nested", "lost"]]:
        """Leave ``hold``, and release the lease if it was the last one.  ``lost``: it was not ours any more."""
        state = hold.state
        if hold.exit():
            if (yield from release(self._settings, self._spec_of(state), state)):
                return "released"
            return "lost"
        self._forget_on_lost(state)
        return "lost" if state.lost else "nested"

    def _leave_behind(self, hold: Hold[AnyLease]) -> Literal["nested", "lost"]:
        """Leave ``hold`` where the masters cannot be asked.  If it was the last one, the renewer releases the lease."""
        state = hold.state
        if hold.exit():
            state.holder_gone()
        self._forget_on_lost(state)
        return "lost" if state.lost else "nested"

    def _extend_op(self, hold: Hold[AnyLease], ttl: float | None) -> Op[Extension]:
        state = hold.state
        ttl = check_ttl(self._runtime.deployment.limits, self._spec.ttl if ttl is None else ttl, state.guarded)
        if ttl < state.hold_at_least:
            raise ConfigurationError(
                f"ttl={ttl:g}: allowed is at least hold_at_least ({state.hold_at_least:g} s), or others could get the "
                "lock before that"
            )
        return (yield from extend(self._settings, self._spec_of(state), state, ttl, clock.now()))

    def _downgrade_op(self, state: LeaseState) -> Op[Extension | None]:
        """Share the lease with readers (R33).  None: it is shared already."""
        if not any(hold.state is state for hold in self._own.holds):
            raise self._not_held()
        state.ensure()
        if state.mode.shared:
            return None
        if len([hold for hold in state.holds if not hold.abandoned]) > 1:
            why = "was entered more than once, and the outermost one needs it exclusively: downgrade it there"
            raise WouldDeadlock(f"{state.shown} {why}", name=state.name)
        if state.slot is not None:
            raise ConfigurationError(f"{state.shown} is a slot, which is held alone")
        if state.hold_at_least:
            raise ConfigurationError(
                f"hold_at_least={state.hold_at_least:g}: until then no other client may get {state.shown}, not even "
                "a reader"
            )
        return (yield from downgrade(self._settings, self._spec, state, clock.now()))

    def _hand_over(self, state: LeaseState) -> str:
        hold = next((hold for hold in self._own.holds if hold.state is state), None)
        if hold is None:
            raise self._not_held()
        if len([hold for hold in state.holds if not hold.abandoned]) > 1:
            why = "was entered more than once, and the outermost one still needs it: hand it over there"
            raise RedlockError(f"{state.shown} {why}", name=state.name)
        reserved = math.ceil(max(0.0, state.reserved) * 1000) / 1000 if state.hold_at_least else 0.0
        try:
            # First: if an interruption strikes behind this, others in line do not wait for ever.
            self._runtime.post(carry_out(*leave_line(state)), hold.driver)
        except Inside:  # they would
            raise
        except RedlockError:  # the masters were closed
            pass
        if not state.valid or not state.end():
            raise state.loss()
        state.handed_over, state.last_votes = True, tuple
        for hold in list(state.holds):
            hold.pass_on()
        state.changed()
        self._conclude_release(state, "released")
        # No longer than the TTL of an extension under way, which may come to a master behind the first one of the
        # next process.
        ttl = min([state.ttl, *(pending.ttl for pending in list(state.all_pending))])
        return Handed(
            state.names, state.token, state.fence, state.mode.shared, ttl, state.guarded, reserved,
            self._runtime.deployment.prefix,
        ).text()  # fmt: skip

    def _abandon(self, hold: Hold[AnyLease], *, again: bool = False) -> None:
        """Give ``hold`` back, entered or not, after an interruption; ``again``: after a second one in here (R11)."""
        try:
            if hold.exit():
                state = hold.state
                if again or not state.released:
                    with contextlib.suppress(RedlockError):  # the masters were closed
                        self._runtime.post(abandon(self._settings, self._spec_of(state), state), hold.driver)
                if state.released:  # only the wait for the answers was interrupted: it is given back
                    self._conclude_release(state, "released")
        except RecursionError:
            self._abandon_elsewhere(hold)
            raise
        except BaseException:
            if not again:
                self._abandon(hold, again=True)
            raise

    def _abandon_elsewhere(self, hold: Hold[AnyLease]) -> None:
        """`_abandon`, in the background, which has a whole stack."""
        if hold.driver is not None:
            hold.driver.call_soon(partial(self._abandon, hold, again=True))

    def _conclude_acquire(self, hold: Hold[AnyLease], outcome: Grant | Refusal | None, began: float) -> None:
        """The caller is about to get the result.  If masters were asked, tell the observer.

        Only from now on `hold_at_least` applies: a grant that its caller never gets leaves no key behind (R11).
        """
        if self._spec.hold_at_least and isinstance(outcome, Grant):
            hold.state.hold_at_least = self._spec.hold_at_least
        observer = self._settings.observer
        if observer is None or outcome is None:
            return
        took = clock.now() - began
        if isinstance(outcome, Refusal):
            observer.refused(self._spec.name, outcome, began, took)
        else:
            observer.acquired(self._spec.name, outcome, began, took)

    def _refusal_error(self, refusal: Refusal) -> LockUnavailable:
        if refusal.kind == "held":
            return not_acquired(self._spec, refusal)
        return unreachable(self._spec, refusal, self._settings)

    def _conclude_release(self, state: LeaseState, how: Literal["released", "nested", "lost"]) -> None:
        """A release has ended.  Raises LockLost if the lease was not ours any more."""
        if how == "lost":
            raise state.loss()
        if how == "released":
            state.on_change = None  # the renewer has dropped it: this breaks the reference cycle
            if self._settings.observer is not None:
                self._settings.observer.released(self._spec.name, state)

    def _forget_on_lost(self, state: LeaseState) -> None:
        """A holder of a re-entered lease has released it: its `on_lost` is not called any more."""
        if state.nested_on_lost and not state.lost and self._spec.on_lost in state.nested_on_lost:
            tells = list(state.nested_on_lost)
            tells.remove(self._spec.on_lost)
            state.nested_on_lost = tuple(tells)

    def _current_hold(self) -> Hold[AnyLease]:
        hold = self._latest(self._own.holds)
        if hold is not None and hold.state.mine():
            return hold
        raise self._not_held()

    def _not_held(self) -> NotHeld:
        ours = [hold for hold in self._own.holds if self._wants_all(hold.lease.names) and hold.lease.valid]
        if any(hold.through is not self._me and hold.entered_here for hold in ours):
            why = "but not through this lock object: release it through the one that acquired it"
            return NotHeld(f"this {self._holder} holds {self._spec.shown}, {why}", name=self._spec.name)
        other = self._lease is not None and self._lease.valid
        whose = f"its holder is another {self._holder}{self._elsewhere}" if other else f"no {self._holder} here does"
        return NotHeld(f"this {self._holder} does not hold {self._spec.shown}: {whose}", name=self._spec.name)

    def _conclude_extension(self, state: LeaseState, extension: Extension) -> None:
        if extension.kind != "extended":
            raise state.loss() if extension.kind == "lost" else not_extended(self._spec, state, extension)
        if (observer := self._settings.observer) is not None:
            observer.extended(state)


def _in_another_task(hold: Hold[Any]) -> str:
    """Why the caller would wait for itself: a task of its thread entered ``hold``."""
    if hold.task is not None and hold.task.done():
        return (
            f"a task of this thread that has ended holds {hold.state.shown} (a notebook runs each cell in a task of "
            "its own), and this thread would wait for itself: release it through the lock object that acquired it"
        )
    return (
        f"another task of this thread holds {hold.state.shown}, and could not release it while this one waits: in "
        "coroutines use AsyncMasters"
    )


def _in_order(fair: object, *, shared: object, fencing: object) -> type[FairTarget]:
    """The request of an acquire in order (R42). Raises ConfigurationError."""
    options.flag("fair", fair)
    if shared:
        raise ConfigurationError("fair=True with shared=True: readers enter together, drop one of them")
    if fencing is False:
        raise ConfigurationError("fair=True with fencing=False: the order is that of proposed fencing tokens (R42)")
    from redlock._core.fair.target import FairTarget  # noqa: PLC0415 - few locks wait in order

    return FairTarget


def _shared(shared: object, max_readers: object, times: Times, beside: Mode) -> Mode:
    """The mode of a reader.  Raises ConfigurationError."""
    most = options.number("max_readers", max_readers)
    if shared is not True:
        why = "max_readers without it is of no use" if shared is False else "allowed are True and False"
        raise ConfigurationError(f"shared={options.shown(shared)}: {why}")
    if times.hold_at_least:
        raise ConfigurationError(
            f"shared=True with hold_at_least={times.hold_at_least:g}: a reader keeps no reader out, drop one of them"
        )
    return shared_by(most, beside)
