"""Elections: one candidate leads at a time, for a term (R31).  This file is the order of what one candidate does.

`election` is a generator: it yields each step, and is resumed with what came of it.  Threads and asyncio do the steps.
The order is the promise: the next leader never meets the body of this one, and one candidate never has two bodies.
Only a lost lease ends a term without us; then the fence keeps the body from doing harm.  A candidate that was frozen at
the moment of the grant begins no body, and stands again.

An interruption may strike between two steps: a Ctrl-C, or what a signal handler raises.  So what carries the steps out
notes in a `Progress` what has begun, right before it begins, and `unfinished` has the steps that are left.  To throw
the interruption into `election` would not do: it may strike the generator itself, and then that has ended.

A stop in a campaign is thrown into the acquire where that waits (`until_stopped`), so that takes its keys back and
ends, as with a Ctrl-C (R11).  No operation has to know of it, and no wait looks at a deadline that can be moved.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

from redlock._core.effects import Event, Op, WakeOnStop
from redlock._core.retry import delay
from redlock._core.stop import Stop, Stopped

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from tenacity.wait import wait_base

T = TypeVar("T")


@dataclass(slots=True, eq=False)
class Progress:
    """How far a candidate has come."""

    stands: Any = None  # the candidate that has the lock, or is about to get it; None: it was given back
    begun: Any = None  # the term of a body that was begun, until `on_stopped` is called


class Campaign(NamedTuple):
    """Wait to be elected.  Resumed with the term, or with None if the election was stopped before."""


class Lead(NamedTuple):
    """Call the body, and wait until it has ended.  Resumed with what it raised, or None."""

    term: Any


class SayStopped(NamedTuple):
    """Call `on_stopped`.  Resumed with what it raised, or None."""

    term: Any


class Resign(NamedTuple):
    """Give the lock back, if it is held.  Resumed with what that raised, or None; a term that was lost is no error."""


class Pause(NamedTuple):
    """Report ``error`` of a body, and wait before the next campaign, until the election is stopped at most."""

    seconds: float
    error: BaseException


Step: TypeAlias = Campaign | Lead | SayStopped | Resign | Pause


def election(
    stop: Stop, pauses: wait_base | None, passes: Callable[[BaseException], bool] = lambda it: isinstance(it, Exception)
) -> Generator[Step, Any, BaseException | None]:
    """One term after the other, until ``stop``, or an error that it returns.  ``pauses``: after one that ``passes``."""
    failed = 0  # failed terms, one after the other
    while not stop.requested():
        term = yield Campaign()
        if term is None:
            break
        errors: list[BaseException | None] = []
        if term.lease.valid and not stop.requested():
            errors = [(yield Lead(term)), (yield SayStopped(term))]
        errors.append((yield Resign()))
        error = _first(errors)
        if error is None:
            failed = 0
        elif pauses is None or not passes(error):
            return error
        else:
            failed += 1
            yield Pause(0.0 if stop.requested() else delay(pauses, failed), error)
    return None


def unfinished(progress: Progress, interruption: BaseException) -> Generator[Step, Any, BaseException]:
    """The steps that are left of a term after ``interruption``.  Returns the error that ends the election."""
    errors: list[BaseException | None] = [interruption]
    if progress.begun is not None:
        errors.append((yield SayStopped(progress.begun)))
    if progress.stands is not None:
        errors.append((yield Resign()))
    error = _first(errors)
    assert error is not None  # noqa: S101 - for the type checker
    return error


def _first(errors: list[BaseException | None]) -> BaseException | None:
    """The first error, with a note of each other one.  One that is no `Exception`, as a Ctrl-C, goes first."""
    raised = sorted((error for error in errors if error is not None), key=lambda error: isinstance(error, Exception))
    for other in raised[1:]:
        raised[0].add_note(f"besides, {type(other).__name__}: {other}")
    return raised[0] if raised else None


def until_stopped(op: Op[T], stop: Stop) -> Op[T]:
    """Run ``op``.  Raises `Stopped` if ``stop`` is requested before it has ended."""
    event: Event | None = None
    error: BaseException | None = None
    stopped = False
    wake_on_stop = WakeOnStop(stop)
    try:
        yield wake_on_stop
        while True:
            if stop.requested() and error is None and not stopped:
                stopped, error = True, Stopped()
            effect = op.send(event) if error is None else op.throw(error)
            event = error = None
            try:
                event = yield effect
            except GeneratorExit:
                op.close()
                raise
            except BaseException as interruption:  # noqa: BLE001 - thrown into the operation, which raises it again
                error = interruption
    except StopIteration as end:
        result: T = end.value
        return result
    except GeneratorExit:
        raise
    except BaseException as interruption:
        yield from _ended_with(op, interruption)
        raise
    finally:
        stop.unsubscribe(wake_on_stop)


def _ended_with(op: Any, interruption: BaseException) -> Op[None]:
    """Unless ``op`` has ended: it takes its keys back, and raises ``interruption``, or the next one, again (R11)."""
    if op.gi_frame is None:
        return
    try:
        effect = op.throw(interruption)
        while True:
            effect = op.send((yield effect))
    except GeneratorExit:
        raise
    except BaseException as latest:
        yield from _ended_with(op, latest)
        raise
