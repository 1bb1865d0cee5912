"""The whole vocabulary between an operation and whoever drives it.

An operation is a generator.  It yields what it wants and is resumed with what happened:

    Send    ask masters to run a script; resumes at once with None.  Answers are told to the `Send` itself
            (`Send.voted`, `Send.answered`); once it says that they decide, it is the event that a `Wait` resumes with
    Wait    resume with the next event: a `Send` that is decided, a `Turn`, or `Timeout` when none came in time
    Enter   stand in line in this process; resumes at once, a `Turn` comes if it is not one's turn yet
    Leave   ... no longer; resumes at once
    Listen  hear of releases from now on, until the operation is over; resumes at once, `Notified` comes
            whenever its `Subscription` has reason to look
    ReleaseHeard   tell how many others heard of a release; resumes at once

A driver must: set ``Send.sent_at`` before the first byte leaves; tell a `Send`, when it is to be written, of masters that are
down (`Send.failed`), at once or soon; ask ``Send.only_if`` when it writes; tell it of one answer at a time, and of none while its operation
sees a `Timeout` (``Wait.closes``); write what an answer asks for (``Send.more``) before anything else to that master; throw into the
generator whatever interrupts a wait, and then go on driving it, for that is how an operation cleans up (R11).
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar

from redlock._core.outcomes import NEVER

if TYPE_CHECKING:
    from redlock._core.local_queue import Place
    from redlock._core.outcomes import Failure
    from redlock._core.subscriptions import Subscription
    from redlock._core.wire import Call

T = TypeVar("T")


class Send:
    """Run ``call`` on the masters in ``to`` (None: on all), and do not look at what they answer: see `Round`.

    With ``owed_until`` it is a release that must arrive: where the connection breaks before the
    answer, or the master cannot do it now, it is sent again until that time (R10).

    With a ``doubt`` it stands behind nothing: a master that does not say that it was ours is asked again until that time (R10).

    With ``only_if`` it is dropped unless that is true in the moment in which it is written, with nothing
    written in between: what must not stand behind a release that somebody else sends asks so.

    Told of an answer it leaves in ``more`` what that master is to be asked because of it, as a rule nothing.
    """

    __slots__ = ("call", "doubt", "more", "only_if", "open", "owed_until", "sent_at", "to")

    def __init__(
        self,
        call: Call,
        to: frozenset[int] | None = None,
        owed_until: float | None = None,
        only_if: Callable[[], bool] | None = None,
    ) -> None:
        self.call = call
        self.to = to
        self.owed_until = owed_until
        self.only_if = only_if
        self.doubt: Doubt | None = None
        self.more: tuple[Send, ...] = ()
        self.sent_at = NEVER
        self.open = False  # somebody still counts the answers: `voted`, `answered` and `failed` are told, else `late`

    def voted(self, master: int, at: float) -> bool:  # noqa: ARG002 - nobody counts
        """A master gave the usual answer (`Call.usual`); True: that decides."""
        return False

    def answered(self, master: int, value: Any, at: float) -> bool:  # noqa: ARG002 - nobody counts
        """A master answered ``value``, which may be the usual answer as well; True: that decides."""
        return False

    def late(self, master: int, value: Any, at: float) -> None:
        """A master answered ``value``, which is not the usual answer, when nobody counted any more."""

    def failed(self, master: int, failure: Failure, at: float) -> bool:  # noqa: ARG002 - nobody counts
        """A master will not answer; True: that decides."""
        return False


class Doubt(Protocol):
    """Masters that may see what sets a key later than its release: another connection carries it."""

    def remains(self, master: int, value: Any) -> bool:
        """Whether it does although ``master`` has answered ``value`` to the release."""


@dataclass(slots=True, eq=False)
class Wait:
    """Resume with the next event, or with `Timeout` once ``until`` has passed.

    ``quiet``: masters are not asked anything, so whoever waits need not listen to them.
    ``closes``: with a `Timeout` it is told of no more answers.
    """

    until: float
    quiet: bool = False
    closes: Send | None = None


@dataclass(slots=True, eq=False)
class Enter:
    """Stand in line with ``place``."""

    place: Place


@dataclass(slots=True, eq=False)
class Leave:
    """Let others pass.  Twice does no harm."""

    place: Place


@dataclass(slots=True, eq=False)
class Listen:
    """Tell ``subscription`` what is announced on its channels."""

    subscription: Subscription


@dataclass(slots=True, eq=False)
class ReleaseHeard:
    """``heard``: how many connections each master told of the release of ``keys``, which took ``took`` seconds."""

    keys: tuple[str, ...]
    heard: dict[int, int]
    took: float


@dataclass(slots=True, eq=False)
class Turn:
    """One is first in line now."""

    at: float


@dataclass(slots=True, eq=False)
class Notified:
    """One's `Subscription` has reason to look."""

    at: float


@dataclass(slots=True, eq=False)
class Timeout:
    """``Wait.until`` has passed."""

    at: float


LocalEffect: TypeAlias = Enter | Leave | Listen | ReleaseHeard  # what concerns no master
Effect: TypeAlias = Send | Wait | LocalEffect
Event: TypeAlias = Send | Turn | Notified | Timeout
Op: TypeAlias = Generator[Effect, Event | None, T]


def wait(until: float, *, quiet: bool = False) -> Op[Event]:
    """A `Wait` whose event is typed: a generator has but one type for all it is sent."""
    event = yield Wait(until, quiet)
    assert event is not None  # noqa: S101 - a driver that forgets the event is broken, not unlucky
    return event
