"""Celery: several beats, one leads and the others stand by, and tasks that exclude each other by their arguments.

Needs the extra ``celery``.

The fires of an entry are moments on which all beats agree: for a number of seconds its multiples since 1970, for a
crontab its minutes.  Each fire is a lock of its own, `hold_at_least` long (R28).  A beat that leads goes through the
fires behind `last_run_at`, one by one.  It sends those whose lock it gets, and no others.  So nothing has to be
written down for the next leader.  Such a lock is forgotten after a while, so a fire that is older than half of
`max_ttl` is not sent.

Also considered: to hold one lock for each entry.  But its holder does not know which fires were sent.
"""

from __future__ import annotations

import contextlib
import functools
import signal
import threading
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeVar

from redlock import ConfigurationError, LockUnavailable, Masters, QuorumUnreachable, RedlockError

try:
    from celery import beat, current_task
    from celery.schedules import schedule as interval
    from celery.utils.imports import load_extension_class_names, symbol_by_name
    from celery.utils.time import maybe_make_aware
except ImportError as error:
    raise ImportError("redlock.adapters.celery needs celery: pip install celery", name="celery") from error

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from types import FrameType

    from redlock import Election, MultiLock, Term

__all__ = ["LeaderScheduler", "exclusive"]

P = ParamSpec("P")
R = TypeVar("R")

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LOOK = 0.5  # seconds between two looks of a beat that does not lead
_AGAIN = 1.0  # seconds until a fire is tried again, if too few masters answered
_RESIGNING = 5.0  # seconds that a beat waits for its own resignation at most


def LeaderScheduler(app: Any, **options: Any) -> Any:  # noqa: N802 - Celery calls it as the class of a scheduler
    """A scheduler of ``celery beat`` that sends only while it leads: ``-S redlock.adapters.celery:LeaderScheduler``.

    Start as many beats as you like.  One leads, and another one takes over when it is stopped, dies or hangs.

    - Each fire is sent once at most, whatever beats do, as long as their clocks differ by less than a quarter of
      `max_ttl`, which is 15 s.
    - A fire that came due without a leader is sent by the next leader, late.  One that is older than half of `max_ttl`,
      which is 30 s, is not sent any more.
    - A beat that dies between taking a fire and sending it takes the fire with it.

    Fires have the header ``redlock_fire``, the time at which they were due: ``self.request.redlock_fire`` in the task.

    Settings of the app:

    - ``redlock_masters``: the `Masters`.
    - ``redlock_beat_scheduler``: the scheduler to wrap, as ``-S`` takes it; ``celery.beat:PersistentScheduler``.
    - ``redlock_beat_name``: the name of the election; ``celery-beat``.  Two apps need two names.
    - ``redlock_beat_ttl``: seconds after which another beat leads if this one dies; 15.

    Raises:
        ConfigurationError: a setting cannot be right.
    """
    wrapped = app.conf.get("redlock_beat_scheduler") or "celery.beat:PersistentScheduler"
    aliases = dict(load_extension_class_names("celery.beat_schedulers"))
    # A subclass, not a wrapper around an object: a scheduler calls its own methods, and looks at its own schedule.
    leading = type("LeaderScheduler", (_Leading, symbol_by_name(wrapped, aliases=aliases)), {})
    return leading(app=app, **options)


class _Leading(beat.Scheduler):  # type: ignore[misc]  # Celery has no types
    """What a scheduler does differently if it is one of many."""

    _thread: threading.Thread | None = None
    _failed: Exception | None = None
    _heap: Any = None
    _term: Term | None = None  # the one for which the heap was made
    _taken: MultiLock | None = None  # the lock of the fire that is sent next

    def __init__(self, app: Any, **options: Any) -> None:
        masters = app.conf.get("redlock_masters")
        if not isinstance(masters, Masters):
            raise ConfigurationError(f"redlock_masters is a {type(masters).__name__}: allowed are Masters(...)")
        self._masters = masters
        self._fires = app.conf.get("redlock_beat_name", "celery-beat")
        self._oldest = timedelta(seconds=masters.max_ttl / 2)
        ttl = app.conf.get("redlock_beat_ttl", 15.0)
        self._election: Election = masters.leader(self._fires, ttl=ttl)
        if ttl > masters.max_ttl / 2:
            raise ConfigurationError(
                f"redlock_beat_ttl={ttl!r}: allowed is half of max_ttl at most, {masters.max_ttl / 2:g} s, or fires "
                "would be too old to be sent when the next beat leads"
            )
        super().__init__(app=app, **options)

    # -- leading -------------------------------------------------------------------------------------

    def tick(self, *args: Any, **kwargs: Any) -> Any:
        """Send what is due, if this beat leads.  Returns the seconds until the next tick."""
        if self._thread is None:
            thread = threading.Thread(target=self._stand, name="redlock-beat", daemon=True)
            thread.start()
            self._thread = thread
        if self._failed is not None:
            raise self._failed
        term = self._election.term
        if term is None:
            return min(_LOOK, self.max_interval)
        self.producer  # noqa: B018 - connects, which may take long: before a fire is taken, and a signal ends it
        if term is not self._term:
            self._term = term
            self._heap = None  # made anew: others have sent since
        with _signals_later():
            wait = super().tick(*args, **kwargs)
        return 0 if self._heap is None else wait

    def _stand(self) -> None:
        try:
            self._election.run(self._lead, on_new_leader=self._follow, signals=())
        except Exception as error:  # noqa: BLE001 - raised in the next tick: beat ends, and says why
            self._failed = error

    def _lead(self, term: Term) -> None:
        self.logger.info("beat: leads %s, term %d", term.name, term.number)
        term.wait_stop()
        self.logger.log(30 if term.lost else 20, "beat: term %d %s", term.number, "is lost" if term.lost else "ends")

    def _follow(self, owner: str) -> None:
        self.logger.info("beat: stands by, %s leads", owner)

    def close(self) -> None:
        """Give the leadership back at once.  Celery calls this twice."""
        self._election.stop()
        if self._thread is not None:
            self._thread.join(_RESIGNING)
        super().close()

    # -- each fire once ------------------------------------------------------------------------------

    def populate_heap(self, *args: Any, **kwargs: Any) -> None:
        """All entries start on the grid of fires, no further back than the oldest fire that may be sent."""
        for entry in self.schedule.values():
            self._skip_to(entry, self._start(entry))
        super().populate_heap(*args, **kwargs)

    def is_due(self, entry: Any) -> Any:
        """Whether a fire of the entry has to be sent, and this beat has its lock now; and when to look again."""
        ready, wait = super().is_due(entry)
        if not ready:
            return ready, wait
        fire, now = self._fire(entry), _now()
        if fire > now:  # a schedule that rounds says "due" before its fire
            return False, (fire - now).total_seconds()
        shown, name = f"{entry.name} of {fire.isoformat()}", f"{self._fires}:{entry.name}:{fire.isoformat()}"
        lock = self._masters.lock(
            name,
            ttl=self._masters.max_ttl,
            hold_at_least=self._masters.max_ttl * 0.75,
            guard=0,  # its TTL is the longest that is allowed, and is to run out
            timeout=0,
            auto_extend=False,
        )
        try:
            taken = fire >= now - self._oldest and lock.acquire() is not None
            if taken and fire >= _now() - self._oldest:
                # After a pause before this line the masters may have forgotten who sent it, and it is too old then. A
                # pause after this line does no harm: others are refused until the fire is too old. So it is sent,
                # even if the term has ended by then.
                self._taken = lock
                following = self._after(entry.schedule, fire)
                return True, max(0.0, (following - _now()).total_seconds())
            if taken or fire < now - self._oldest:
                fire = max(fire, self._start(entry))
                self.logger.warning("beat: %s is too old, and what follows until %s: not sent", shown, fire.isoformat())
            elif self._masters.status(name).token is None:  # two beats tried at once, and none has it
                return False, _AGAIN
            else:
                self.logger.info("beat: %s was sent by another beat", shown)
        except QuorumUnreachable as error:
            self.logger.warning("beat: %s is not sent yet: %s", shown, error.message)
            return False, _AGAIN
        self._skip_to(entry, fire)
        if self._fire(entry) <= fire:  # a schedule of one fire: as if it was sent
            self.reserve(entry)
        self._heap = None
        return False, 0

    def reserve(self, entry: Any) -> Any:
        fire = self._fire(entry)
        new = super().reserve(entry)
        self._skip_to(new, fire)
        return new

    def apply_entry(self, entry: Any, producer: Any = None) -> None:
        options, lock, self._taken = entry.options, self._taken, None
        headers = {**(options.get("headers") or {}), "redlock_fire": self._fire(entry).isoformat()}
        entry.options = {**options, "headers": headers}
        try:
            super().apply_entry(entry, producer=producer)
        finally:
            entry.options = options
            if lock is not None:
                with contextlib.suppress(RedlockError):  # it has ended by itself, or will
                    lock.release()

    def _start(self, entry: Any) -> datetime:
        """The time after which the fires of the entry are sent."""
        start: datetime = max(maybe_make_aware(entry.last_run_at).astimezone(UTC), _now() - self._oldest)
        if isinstance(entry.schedule, interval):
            period = _period(entry.schedule)
            return _EPOCH + (start - _EPOCH) // period * period
        return start

    def _skip_to(self, entry: Any, fire: datetime) -> None:
        entry.last_run_at = fire.astimezone(self.app.timezone)
        if hasattr(entry, "model"):  # django-celery-beat writes this one down
            entry.model.last_run_at = entry.last_run_at

    def _fire(self, entry: Any) -> datetime:
        return self._after(entry.schedule, maybe_make_aware(entry.last_run_at).astimezone(UTC))

    def _after(self, schedule: Any, moment: datetime) -> datetime:
        """The first fire after that moment.  For an interval that has to be on the grid, as `_start` and fires are."""
        if isinstance(schedule, interval):
            return moment + _period(schedule)
        now, its_clock = schedule.now(), schedule.nowfun
        schedule.nowfun = lambda: now  # a pause between two readings would give the fire another name
        try:
            left: timedelta = schedule.remaining_estimate(moment.astimezone(schedule.tz))
        finally:
            schedule.nowfun = its_clock
        seen: datetime = maybe_make_aware(now).astimezone(UTC)
        return seen + left


def _period(schedule: Any) -> timedelta:
    period: timedelta = schedule.run_every
    if period <= timedelta(0):
        raise ConfigurationError(f"a schedule of {period.total_seconds():g} s: allowed is more than 0")
    return period


def _now() -> datetime:
    return datetime.now(UTC)


@contextlib.contextmanager
def _signals_later() -> Iterator[None]:
    """When beat ends, it first sends the fire whose lock it has."""
    came: list[int] = []

    def keep(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - part of the interface
        came.append(number)

    def again() -> None:
        if came:
            signal.raise_signal(came[0])

    with contextlib.ExitStack() as all_of_them:  # puts each handler back, whatever another one raises
        if threading.current_thread() is threading.main_thread():
            all_of_them.callback(again)
            for number in (signal.SIGTERM, signal.SIGINT):
                all_of_them.callback(signal.signal, number, signal.getsignal(number))
                signal.signal(number, keep)
        yield


# -- tasks -------------------------------------------------------------------------------------------


def exclusive(
    masters: Masters,
    name: str | Callable[..., str | Sequence[str]],
    *,
    on_busy: Literal["skip", "retry", "wait", "raise"],
    **options: Any,
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Tasks that never run at once under the same name: as `Masters.synchronized` (R30), below ``@app.task``.

    A task whose lock was lost fails with `LockLost` when its body has ended; nothing interrupts the body.  A worker
    that is killed (a hard time limit) keeps the name from others for one TTL at most.

    Args:
        masters: made before the worker forks; its children may use it.
        name: a template with the arguments of the task, or a function of them.
        on_busy: what a task does if another task has its name.  ``"skip"``: it succeeds with None, and its body does
            not run.  ``"retry"``: it is sent again, as ``self.retry()`` does: after ``default_retry_delay``, and
            ``max_retries`` times at most; then it fails with `NotAcquired`.  ``"wait"``: it waits, and its worker with
            it.  ``"raise"``: it fails with `NotAcquired`.
        options: as for `Masters.synchronized`.

    Raises:
        ConfigurationError: as `Masters.synchronized`; what is decorated is a task already.
        QuorumUnreachable: when the task runs: too few masters answer.  With ``"retry"`` it is sent again as well;
            else ``autoretry_for`` takes care of it.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        if hasattr(function, "apply_async"):
            raise ConfigurationError(f"{function!r} is a task already: write exclusive(...) below @app.task")
        if on_busy != "retry":
            locked: Callable[P, R] = masters.synchronized(name, on_busy=on_busy, **options)(function)
            return locked
        once = masters.synchronized(name, on_busy="raise", **options)
        once(function)  # checks the template

        @functools.wraps(function)
        def run(*args: P.args, **kwargs: P.kwargs) -> R:
            entered = False

            @functools.wraps(function)
            def body(*args: P.args, **kwargs: P.kwargs) -> R:
                nonlocal entered
                entered = True
                return function(*args, **kwargs)

            try:
                return once(body)(*args, **kwargs)
            except LockUnavailable as error:
                if entered or not current_task:  # entered: it is the body's
                    raise
                raise current_task.retry(exc=error) from error

        return run

    return decorate
