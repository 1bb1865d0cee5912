"""What an election and its terms check, and what they know; threads and asyncio share it."""

from __future__ import annotations

import math
import weakref
from abc import ABC, abstractmethod
from asyncio import CancelledError
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NoReturn, TypeAlias, TypeVar

from redlock import options
from redlock._core.election import Pause, Progress, Step, election, until_stopped
from redlock._core.retry import BETWEEN_TERMS
from redlock._core.stop import Stop
from redlock._core.tokens import is_phantom, owner_of, released_token
from redlock._io import process
from redlock._io.report import report_failure
from redlock._lock.decorated import check_told
from redlock._lock.holds import AnyLease, Hold, WithExit
from redlock._lock.lock import AnyMasters, LockBase
from redlock.errors import ConfigurationError, LockLost, RedlockError, WouldDeadlock

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from tenacity.wait import wait_base

    from redlock._core.effects import Op
    from redlock._core.kernel.ballot import Grant, Refusal
    from redlock._core.lease import LeaseState


class Candidate(LockBase[AnyMasters, AnyLease]):
    """The lock of a candidate, which is not bound: its acquire ends when the election is stopped.

    While a body runs, its thread or task has the hold as well: if it asks for the name, it would wait for itself (C5).
    """

    gone = False  # its lease has no holder any more

    def stands(self, stop: Stop, refused: Callable[[Refusal], object]) -> None:
        self._stop = stop
        self._spec = self._spec._replace(refused=refused, keeps_keys=True)
        self._settings = self._settings._replace(outage_timeout=math.inf, waits=None)  # a campaign waits (R38, R45)

    def leads(self, with_exit: Callable[[], WithExit | None] | None) -> None:
        """The caller begins the body.  ``with_exit``: the end of its ``with``; the lease lasts no longer than that."""
        for hold in self._own.holds:
            if with_exit is not None:
                hold.bind_to(with_exit)
            hold.stands_among(self._runtime.own.holds)

    def abandon(self) -> None:
        """Unless a ``with`` gives the lease back, the renewer does so, at once.  Takes no lock."""
        self.gone = True
        self._anchor = None

    def _hand_over(self, state: LeaseState) -> NoReturn:
        why = "belongs to a term, which ends with its body: stop the election, and let the other process be a candidate"
        raise RedlockError(f"the lease on {state.shown} {why}", name=state.name)

    def _acquire_op(self, hold: Hold[AnyLease], deadline: float, began: float) -> Op[Grant | Refusal | None]:
        for other in self._runtime.own.holds:
            if self._wants_any(other.lease.names) and other.lease.valid and not other.abandoned and other.entered_here:
                why = "so its election would wait for itself: release it first, or give the election a name of its own"
                raise WouldDeadlock(
                    f"this {self._holder} holds {other.lease.name!r} already, {why}", name=self._spec.name
                )
        return until_stopped(super()._acquire_op(hold, deadline, began), self._stop)


AnyCandidate = TypeVar("AnyCandidate", bound=Candidate[Any, Any])


class TermBase(Generic[AnyCandidate, AnyLease]):
    """The time for which this process leads: one lease, with a number.

    Two terms of one election that are valid never overlap, and their numbers rise.  This is a promise about time: after
    a long pause the body may act in the term of the next leader.  So pass `number` with each write, as a fence.
    """

    def __init__(self, stop: Stop, candidate: AnyCandidate, lease: AnyLease) -> None:
        self._stop = stop
        # Weak until the body begins: if a loop is left before that, the candidate goes and its lease is given back.
        self._stands = weakref.ref(candidate)
        self._candidate: AnyCandidate | None = None
        self._lease = lease

    @property
    def lease(self) -> AnyLease:
        return self._lease

    @property
    def name(self) -> str:
        """The name of the election."""
        return self._lease.name

    @property
    def number(self) -> int:
        """Greater than the numbers of all earlier leaders. It is the fence of the lease."""
        fence = self._lease.fence
        assert fence is not None  # noqa: S101 - the lock of an election has fencing
        return fence

    @property
    def owner(self) -> str:
        """The owner of the leading lease, as all clients read it (R27)."""
        return self._lease.owner

    @property
    def valid(self) -> bool:
        """Whether no other candidate can lead now.  No I/O."""
        return self._lease.valid and not self._abandoned

    @property
    def lost(self) -> bool:
        """Whether the term ended although its body had not.  False in a forked child (C8)."""
        return self._lease.lost

    @property
    def should_stop(self) -> bool:
        """Whether the body should end, as the term has ended or the election was stopped.  No I/O."""
        return self._stop.requested() or not self.valid

    def remaining(self) -> float:
        """Seconds until the term ends if it is not renewed; 0 when it has ended."""
        return 0.0 if self._abandoned else self._lease.remaining()

    def ensure(self, at_least: float = 0.0) -> None:
        """Raise `LockLost` unless more than ``at_least`` seconds of the term remain.

        If the error leaves the body, it only ends the term: the next campaign begins, and nothing is raised.
        """
        if self._abandoned:
            raise LockLost(f"term {self.number} of {self.name!r} has ended: its loop was left", name=self.name)
        self._lease.ensure(at_least)

    @property
    def _abandoned(self) -> bool:
        """Whether no holder can give the lease back any more: the loop that has yielded this was left."""
        if self._candidate is not None:
            return False
        candidate = self._stands()
        return candidate is None or candidate.gone

    def _begin_body(self, with_exit: Callable[[], WithExit | None] | None = None) -> None:
        """The body begins.  ``with_exit``: the end of its ``with``."""
        shown = f"term {self.number} of {self.name!r}"
        if self._candidate is not None:
            why = "was entered already: a term has one body, and the lock is released at its end"
            raise RedlockError(f"{shown} {why}", name=self.name)
        candidate = self._stands()
        if candidate is None or candidate.gone:
            why = "has ended, because its loop was left: enter it inside the loop"
            raise RedlockError(f"{shown} {why}", name=self.name)
        self._candidate = candidate
        candidate.leads(with_exit)

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"{self!r} cannot be copied or pickled, it ends here: hand over its number")

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.number} of {self.name!r} {self._lease!r}>"


AnyTerm = TypeVar("AnyTerm", bound=TermBase[Any, Any])
Steps: TypeAlias = "Generator[Step, Any, BaseException | None]"


def only_says_over(error: BaseException | None, term: AnyTerm) -> bool:
    """Whether ``error`` only says that ``term`` has ended. The token decides: other masters may have the same names."""
    return isinstance(error, LockLost) and error._token == term.lease.token  # noqa: SLF001 - not for users


class Running(Progress):
    """One `run` of an election, or one loop of its `terms`."""

    __slots__ = ("__weakref__", "here", "lead", "on_stopped")

    def __init__(self, lead: Callable[[Any], Any] = id, on_stopped: Callable[[Any], Any] | None = None) -> None:
        super().__init__()
        self.lead = lead  # the body; unused in a loop
        self.on_stopped = on_stopped
        self.here = process.noted()  # false in a process that a body has forked: such a process leaves the election


class ElectionBase(ABC, Generic[AnyMasters, AnyCandidate, AnyTerm]):
    """One candidate of the election ``name``.

    A leader is the holder of the lock of that name, and its term is one lease of it, with all promises of a lock.

    Args:
        name: of the election, as of a lock.
        ttl: seconds after which another one leads if this process dies.  It renews at a third of that.
        max_hold: the longest term, in seconds: then it is lost, and others lead when the body has ended, or
            one TTL later at most.  None: until the body ends.
        hold_at_least: seconds in which no other candidate leads, even if the body ends sooner (R28).
        guard: seconds for which no other candidate leads after a lost term, or a dead leader (R36).  None: as masters.
        min_validity: a term begins only if it has at least these seconds left (R7).
        retry: a tenacity wait strategy for the pause between attempts (R25).
        owner: the leader's name, for people (R27); None: that of the masters.

    Raises:
        ConfigurationError: a value cannot be right; the text names it and what is allowed.
    """

    _candidate_class: ClassVar[type[Candidate[Any, Any]]]

    def __init__(
        self,
        name: str,
        masters: AnyMasters,
        *,
        ttl: float = 15.0,
        max_hold: float | None = None,
        hold_at_least: float | None = None,
        guard: float | None = None,
        min_validity: float | None = None,
        retry: wait_base | None = None,
        owner: str | None = None,
    ) -> None:
        (self._name,) = options.names([name])
        self._masters = masters
        self._options: dict[str, Any] = {
            "ttl": ttl, "max_hold": max_hold, "hold_at_least": hold_at_least, "guard": guard,
            "min_validity": min_validity, "retry": retry, "owner": owner,
        }  # fmt: skip
        self._stop = Stop()
        self._current: Callable[[], AnyTerm | None] = _nothing  # weak: a term that is thrown away ends
        self._runs: Callable[[], Running | None] = _nothing  # weak: the run goes with its frame
        self._leader: str | None = None  # the other leader that was seen last
        self._candidate()  # checks the options

    @property
    def name(self) -> str:
        return self._name

    @property
    def term(self) -> AnyTerm | None:
        """The term of this candidate; None if it does not lead now.  No I/O."""
        term = self._current()
        return term if term is not None and term.valid else None

    def stop(self) -> None:
        """End the election for this candidate, for good: no campaign begins, and the body of a term is notified.

        Any thread and any signal handler may call this.  It does not wait: the lock is given back after the body.
        """
        self._stop.request()

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"{self!r} cannot be copied or pickled, it is one candidate: make another one with the same name"
        )

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._name!r} {self._masters!r}>"

    def _candidate(self) -> Any:
        stop = self._stop
        candidate = self._candidate_class(
            self._name, self._masters, timeout=-1.0, bound=False,
            on_lost=lambda _: stop.wake(),  # the body looks at its term; this does not refer to the election
            **self._options,
        )  # fmt: skip
        candidate.stands(stop, self._saw_leader)
        return candidate

    def _saw_leader(self, refusal: Refusal) -> None:
        """Another candidate leads.  Reported once, until we lead or a third one does."""
        if refusal.split or released_token(refusal.holder) or is_phantom(refusal.holder):
            return
        leader = owner_of(refusal.holder)
        if leader != self._leader:
            self._leader = leader
            try:
                self._say_leader(leader)
            except (Exception, CancelledError):  # noqa: BLE001 - it must not end the campaign, as an observer must not
                report_failure(f"on_new_leader of {self._name!r} failed")

    @abstractmethod
    def _say_leader(self, owner: str) -> None:
        """Call `on_new_leader`."""

    @abstractmethod
    def _check_lead(self, lead: object) -> None:
        """Raise ConfigurationError if ``lead`` cannot be the body of a term."""

    def _check(self, lead: object, on_stopped: object = None, on_new_leader: object = None) -> None:
        """Raise ConfigurationError if one of these cannot be what `run` calls."""
        if not callable(lead):
            raise ConfigurationError(f"lead={options.shown(lead)}: allowed is a function that takes the term")
        self._check_lead(lead)
        holder = self._candidate_class._holder  # noqa: SLF001 - a lock of ours
        check_told("on_stopped", on_stopped, "the term", holder)
        check_told("on_new_leader", on_new_leader, "the owner of another leader", holder)

    def _begin_run(
        self, running: Running, on_error: str = "raise", passes: Callable[[BaseException], bool] | None = None
    ) -> Steps:
        """The steps of a run, which `_end_run` ends.  Raises RedlockError if there is one already."""
        if on_error not in ("raise", "retry"):
            raise ConfigurationError(f"on_error={options.shown(on_error)}: allowed are 'raise' and 'retry'")
        before = self._runs()
        if before is not None and before.here():
            raise RedlockError(
                f"this election of {self._name!r} runs already: each object is one candidate, make another one"
            )
        self._runs = weakref.ref(running)
        pauses = BETWEEN_TERMS if on_error == "retry" else None
        return election(self._stop, pauses) if passes is None else election(self._stop, pauses, passes)

    def _report(self, pause: Pause) -> None:
        again = f"; trying again in {pause.seconds:.1f} s" if pause.seconds else ""
        report_failure(f"leading {self._name!r} failed{again}", pause.error)

    def _end_run(self, running: Running) -> None:
        """The run has ended. A lease that was not given back is given back now, in the background (P7)."""
        if self._runs() is running:
            self._runs = _nothing
        if running.stands is not None:
            running.stands.abandon()
            running.stands = None

    def _elected(self, term: AnyTerm) -> AnyTerm:
        self._leader = None
        self._current = weakref.ref(term)
        return term


def advance(steps: Steps, result: object) -> tuple[Step | None, BaseException | None]:
    try:
        return steps.send(result), None
    except StopIteration as end:
        return None, end.value


def _nothing() -> None:
    return None
