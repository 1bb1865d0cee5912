"""The lock, for threads."""

from __future__ import annotations

import functools
import inspect as introspection
import math
import os
import threading
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from redlock import _clock, options
from redlock._core import quorum
from redlock._core.acquire import Grant, Refusal, acquire
from redlock._core.extend import extend
from redlock._core.release import release
from redlock._core.retry import BETWEEN_ATTEMPTS
from redlock._core.terms import Plan
from redlock._threads.lease import Lease
from redlock._threads.masters import private_or_shared
from redlock.errors import (
    ConfigurationError,
    LockLost,
    NotAcquired,
    NotExtended,
    NotHeld,
    QuorumUnreachable,
    WouldDeadlock,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from types import TracebackType

    from tenacity.wait import wait_base

    from redlock._threads.masters import Masters

P = ParamSpec("P")
R = TypeVar("R")


class MultiLock:
    """A lock on one name, or on several at once, granted by a majority of masters.

    While its `Lease` is valid nobody else holds the name, as long as clocks run at nearly the same
    rate.  It is not a barrier: a holder that was paused finds its lease lost at its next look, not
    before.  Where that would do harm, hand `Lease.fence` to what you write to.

    One object may be used by many threads; each holds for itself.

    Args:
        name: 1 to 512 bytes of UTF-8, or a sequence of names, of which all are taken or none.
        masters: `Masters`, or what `Masters` takes first; then they are private to this lock, and
            `close` closes them.
        ttl: seconds after which the masters forget a holder that is gone.
        timeout: default for `acquire`, in seconds: negative waits for ever, 0 tries once.
        min_validity: an acquire that leaves less than so many seconds has failed (R7); None: half the TTL.
        fencing: False: no fencing token, and no fence key is touched.
        retry: a tenacity wait strategy for the pause between attempts (R25).

    Raises:
        ConfigurationError: for a value that cannot be right; the text has it and what is allowed.
    """

    def __init__(
        self,
        name: str | Sequence[str],
        masters: Masters | Iterable[object],
        *,
        ttl: float = 30.0,
        timeout: float = -1.0,
        min_validity: float | None = None,
        fencing: bool = True,
        retry: wait_base | None = None,
    ) -> None:
        names = options.names(name)
        if retry is not None and not callable(retry):
            raise ConfigurationError(f"retry={retry!r}: allowed is a wait strategy of tenacity")
        self._timeout = options.timeout("timeout", timeout)
        self._masters, self._private = private_or_shared(masters)
        try:
            self._plan = self._make_plan(names, ttl, min_validity, fencing=fencing, retry=retry)
        except ConfigurationError:
            self.close()
            raise
        self._own = threading.local()
        self._lease: Lease | None = None

    def _make_plan(
        self,
        names: tuple[str, ...],
        ttl: float,
        min_validity: float | None,
        *,
        fencing: bool,
        retry: wait_base | None,
    ) -> Plan:
        ttl = self._check_ttl(ttl)
        terms = self._masters._terms  # noqa: SLF001 - the two are one module in two files
        longest = ttl - quorum.drift(ttl, terms.drift_factor)
        if min_validity is None:
            min_validity = ttl / 2
        else:
            why = "the TTL less the allowance for clock drift"
            min_validity = options.seconds("min_validity", min_validity, at_most=longest, why=why)
        keys = self._masters._keys(names, fencing=fencing)  # noqa: SLF001
        return Plan(names, keys, ttl, min_validity, BETWEEN_ATTEMPTS if retry is None else retry)

    def _check_ttl(self, value: float) -> float:
        ttl = options.seconds("ttl", value, at_most=self._masters.max_ttl, why="max_ttl is the longest")
        node_timeout = self._masters._terms.node_timeout  # noqa: SLF001
        if node_timeout > ttl / 3:
            raise ConfigurationError(
                f"ttl={value!r} with node_timeout={node_timeout:g}: allowed is a ttl of at least "
                f"{3 * node_timeout:g} s, three times node_timeout, or too little of it is left when the "
                "masters have answered (R7)"
            )
        return ttl

    # -- taking and giving back ----------------------------------------------------------------------

    def acquire(self, blocking: bool = True, timeout: float | None = None) -> Lease | None:
        """Take the lock; None if somebody else held it all the time.

        Args:
            blocking: False tries once.
            timeout: seconds to wait; negative waits for ever, 0 tries once, None: the lock's own.
                An attempt that is under way at the deadline is finished, which takes at most
                `node_timeout`; the very first one waits for the masters to be connected, at most
                `connect_timeout` (R2).

        Raises:
            QuorumUnreachable: too few masters took part in the last attempt, or so many refuse for
                a reason that waiting cannot cure (a wrong password) that there is no majority.
            WouldDeadlock: this thread holds it through this object.
            ConfigurationError: ``blocking=False`` with a ``timeout``.
        """
        before = self._mine
        try:
            outcome = self._try(blocking=blocking, timeout=timeout)
            if isinstance(outcome, Lease):
                return outcome
        except BaseException:
            self._drop_unless(before)
            raise
        if outcome.kind != "held":
            raise self._unreachable(outcome)
        return None

    def _try(self, *, blocking: bool, timeout: float | None) -> Lease | Refusal:
        if not blocking and timeout is not None:
            raise ConfigurationError(f"blocking=False with timeout={timeout!r}: it does not wait, drop one of the two")
        patience = self._timeout if timeout is None else options.timeout("timeout", timeout)
        if self.owned():
            raise WouldDeadlock(f"this thread holds {self._shown} already, and would wait for itself", name=self._name)
        now = _clock.now()
        deadline = now + patience if blocking else now
        terms = self._masters._terms  # noqa: SLF001
        won: list[Grant] = []
        try:
            outcome = self._masters._run(acquire(terms, self._plan, deadline, won))  # noqa: SLF001
            if isinstance(outcome, Grant):
                lease = self._make_lease(outcome)
                self._own.lease = self._lease = lease
                return lease
        except BaseException:
            for grant in won:       # interrupted between the grant and our caller (R11)
                self._own.lease = None
                self._release(self._make_lease(grant))
            raise
        return outcome

    def _drop_unless(self, before: Lease | None) -> None:
        """Interrupted on the last steps back to our caller: nobody will release what nobody got (R11)."""
        lease = self._mine
        if lease is not None and lease is not before:
            self._own.lease = None
            self._release(lease)

    def _make_lease(self, grant: Grant) -> Lease:
        mine = functools.partial(_is_this_process, os.getpid())
        return Lease(self._plan.names, self._plan.ttl, grant, clock=_clock.now, mine=mine)

    def release(self) -> None:
        """Give the lock back, on every master that can be reached.

        It is over when this is called, whatever happens then: masters that do not answer are owed the
        release and get it as soon as they do.

        Raises:
            NotHeld: this thread does not hold it.
            LockLost: it was no longer ours; somebody else may have had it.
        """
        lease = self._held()
        try:
            ours = self._release(lease)
        except BaseException:
            self._release(lease)        # interrupted, perhaps before anything was sent (R11)
            raise
        finally:
            self._own.lease = None
        if not ours:
            raise lease.loss()

    def _release(self, lease: Lease) -> bool:
        return self._masters._run(release(self._masters._terms, self._plan, lease))  # noqa: SLF001

    def extend(self, ttl: float | None = None) -> Lease:
        """Set the TTL anew, counted from now; it does not add.  None: the lock's TTL.

        Raises:
            NotHeld: this thread does not hold it.
            NotExtended: too few masters answered.  The lease is valid for what it had, so this can be
                tried again (after a shorter ``ttl``: for that).
            LockLost: it had ended, or a majority of masters says so now.
        """
        lease = self._held()
        ttl = self._plan.ttl if ttl is None else self._check_ttl(ttl)
        terms = self._masters._terms  # noqa: SLF001
        extension = self._masters._run(extend(terms, self._plan, lease, ttl, _clock.now()))  # noqa: SLF001
        if extension.kind == "kept":
            return lease
        votes = () if extension.tally is None else extension.tally.votes()
        if extension.kind == "lost":
            raise lease.loss()
        raise NotExtended(
            f"{self._shown} was not extended: too few masters answered; "
            f"the lease is valid for another {lease.remaining():.3f} s",
            name=self._name,
            votes=votes,
        )

    # -- looking -------------------------------------------------------------------------------------

    def locked(self) -> bool:
        """Whether a majority of masters has a holder, whoever it is.  Of several names: of any.

        Raises:
            QuorumUnreachable: too few masters answered to know.
        """
        for name in self._plan.names:
            status, tally = self._masters._look(name)  # noqa: SLF001
            if tally.denied:
                return True
            if tally.unreachable:
                raise QuorumUnreachable(
                    f"nobody can tell whether {name!r} is locked: {tally.explain()}",
                    name=name,
                    votes=status.votes,
                )
        return False

    def owned(self) -> bool:
        """Whether this thread holds a lease, through this object, that is valid now.  No I/O."""
        lease = self._mine
        return lease is not None and lease.valid

    @property
    def lease(self) -> Lease | None:
        """The lease that was granted last through this object, to whichever thread; None before that."""
        return self._lease

    def close(self) -> None:
        """Close the masters, if this lock made them for itself."""
        if self._private:
            self._masters.close()

    # -- with, and as a decorator --------------------------------------------------------------------

    def __enter__(self) -> Lease:
        """Acquire; raises `NotAcquired` where `acquire` returns None."""
        # The same steps as in `acquire`, not a call of it or of a helper: every frame on the way back to the
        # caller is one more place for a Ctrl-C to strike after the grant (R11).
        before = self._mine
        try:
            outcome = self._try(blocking=True, timeout=None)
            if isinstance(outcome, Lease):
                return outcome
        except BaseException:
            self._drop_unless(before)
            raise
        if outcome.kind != "held":
            raise self._unreachable(outcome)
        who = f"held by {outcome.holder}" if outcome.holder else "held by somebody else"
        if outcome.remaining is not None and math.isfinite(outcome.remaining):
            who += f" for up to {outcome.remaining:.1f} s"
        raise NotAcquired(
            f"{self._shown} not acquired in {_attempts(outcome)}: {who}",
            name=self._name,
            votes=outcome.tally.votes(),
        )

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.release()
        except LockLost as lost:
            if error is None:
                raise
            error.add_note(f"besides, {lost.message}")      # never hide the body's error
        except BaseException:
            self._drop_unless(None)
            raise

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        """As a decorator: every call of ``function`` holds the lock."""
        if introspection.iscoroutinefunction(function):
            raise ConfigurationError(
                f"{function.__qualname__} is a coroutine function: its body would run after the release"
            )

        @functools.wraps(function)
        def locked(*args: P.args, **kwargs: P.kwargs) -> R:
            with self:
                return function(*args, **kwargs)

        return locked

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._shown} on {len(self._masters._terms.masters)} masters>"  # noqa: SLF001

    # -- helpers -------------------------------------------------------------------------------------

    @property
    def _name(self) -> str:
        return ", ".join(self._plan.names)

    @property
    def _shown(self) -> str:
        return repr(self._name)

    @property
    def _mine(self) -> Lease | None:
        """What this thread acquired and has not released, valid or not."""
        lease: Lease | None = getattr(self._own, "lease", None)
        return lease

    def _held(self) -> Lease:
        lease = self._mine
        if lease is not None and lease._mine():  # noqa: SLF001
            return lease
        whose = "its holder is another thread" if self._lease is not None and self._lease.valid else "nobody does here"
        raise NotHeld(f"this thread does not hold {self._shown}: {whose}", name=self._name)

    def _unreachable(self, refusal: Refusal) -> QuorumUnreachable:
        if refusal.kind == "slow":
            why = (
                f"the masters answered too late: {refusal.validity:.3f} s of the lease would be left, "
                f"min_validity is {self._plan.min_validity:g} s"
            )
        else:
            why = refusal.tally.explain()
        return QuorumUnreachable(
            f"{self._shown} not acquired in {_attempts(refusal)}: {why}",
            name=self._name,
            votes=refusal.tally.votes(),
        )


def _is_this_process(pid: int) -> bool:
    return os.getpid() == pid


def _attempts(refusal: Refusal) -> str:
    return f"{refusal.attempts} attempt{'s' if refusal.attempts > 1 else ''}"
