"""The whole vocabulary between an operation and whoever drives it.

An operation is a generator.  It yields what it wants and is resumed with what happened:

    Send    ask masters to run a script; resumes at once with None, answers come through `Wait`
    Wait    resume with the next event: a `Reply`, a `Turn`, or `Timeout` when none came in time
    Enter   stand in line in this process; resumes at once, a `Turn` comes if it is not one's turn yet
    Leave   ... no longer; resumes at once
    Listen  hear of releases from now on, until the operation is over; resumes at once, `Heard` comes
            whenever its `Ear` has reason to look
    Crowd   tell how many others heard of a release; resumes at once

A driver must: set ``Send.sent_at`` before the first byte leaves; answer a `Send` towards a master
that is down with a failed `Reply` at once; ask ``Send.only_if`` when it writes; throw into the generator whatever interrupts a wait, and
then go on driving it, for that is how an operation cleans up (R11).
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

if TYPE_CHECKING:
    from redlock._core.listen import Ear
    from redlock._core.lobby import Ticket
    from redlock._core.wire import Call

T = TypeVar("T")

NEVER = float("-inf")   # when a request was sent that was not


@dataclass(slots=True, eq=False)
class Send:
    """Run ``call`` on the masters in ``to`` (None: on all).  One `Send` is one round: identity counts.

    With ``owed_until`` it is a release that must arrive: where the connection breaks before the
    answer, or the master cannot do it now, it is sent again until that time (R10).

    With ``only_if`` it is dropped unless that is true in the moment in which it is written, with nothing
    written in between: what must not stand behind a release that somebody else sends asks so.
    """

    call: Call
    to: frozenset[int] | None = None
    owed_until: float | None = None
    only_if: Callable[[], bool] | None = None
    sent_at: float = NEVER
    open: bool = True       # somebody still counts the answers; cleared when the round is decided


@dataclass(slots=True, eq=False)
class Wait:
    """Resume with the next event, or with `Timeout` once ``until`` has passed.

    ``quiet``: masters are not asked anything, so whoever waits need not listen to them.
    ``few``: fewer events than these change nothing, so nobody has to be woken for less; at ``until`` it gets
    what there is, one after the other.  A hint: a driver may resume it sooner.
    """

    until: float
    quiet: bool = False
    few: int = 1


@dataclass(slots=True, eq=False)
class Enter:
    """Stand in line with ``ticket``."""

    ticket: Ticket


@dataclass(slots=True, eq=False)
class Leave:
    """Let others pass.  Twice does no harm."""

    ticket: Ticket


@dataclass(slots=True, eq=False)
class Listen:
    """Tell ``ear`` what is announced on its channels."""

    ear: Ear


@dataclass(slots=True, eq=False)
class Crowd:
    """``heard``: how many connections each master told of the release of ``keys``, which took ``took`` seconds."""

    keys: tuple[str, ...]
    heard: dict[int, int]
    took: float


@dataclass(slots=True, frozen=True)
class Failure:
    """Why a master has no answer.

    ``sent`` False: not one byte of the request left, so there is nothing to roll back there.
    ``configuration`` True: waiting will not help, somebody has to change a setting.
    """

    outcome: Literal["error", "timeout"]
    reason: str
    sent: bool = True
    configuration: bool = False


@dataclass(slots=True, eq=False)
class Reply:
    """What one master answered to one `Send`, or why it did not."""

    request: Send
    master: int
    at: float
    value: Any
    failure: Failure | None = None


@dataclass(slots=True, eq=False)
class Turn:
    """One is first in line now."""

    at: float


@dataclass(slots=True, eq=False)
class Heard:
    """One's `Ear` has reason to look."""

    at: float


@dataclass(slots=True, eq=False)
class Timeout:
    """``Wait.until`` has passed."""

    at: float


Aside: TypeAlias = Enter | Leave | Listen | Crowd       # what concerns no master
Effect: TypeAlias = Send | Wait | Aside
Event: TypeAlias = Reply | Turn | Heard | Timeout
Op: TypeAlias = Generator[Effect, Event | None, T]


def wait(until: float, *, quiet: bool = False) -> Op[Event]:
    """A `Wait` whose event is typed: a generator has but one type for all it is sent."""
    event = yield Wait(until, quiet)
    assert event is not None  # noqa: S101 - a driver that forgets the event is broken, not unlucky
    return event
