"""The whole vocabulary between an operation and its driver.

An operation is a generator.  It yields effects, and is resumed with events.  An effect resumes at once, with None, but
for a `Wait` and a `Send` with ``wait_for``.  The driver hands the answers to the `Send` itself (`Send.voted`,
`Send.answered`); once that returns True, the `Send` is the next event of the operation.

What every driver must do:

- It sets ``Send.sent_at`` before it sends the first byte.
- When it is to write a `Send`, it calls `Send.failed` for each master that is down, at once or soon.
- It asks ``Send.only_if`` at the moment at which it writes.
- It enters the line before it writes, and leaves it after that (``Send.enters``, ``Send.leaves``).
- It hands a `Send` one answer at a time, and none while the operation sees a `Timeout` (``Wait.closes``).
- It writes what an answer asks for (``Send.more``) before anything else to that master.
- It throws into the generator whatever interrupts a wait, and goes on driving it: so an operation cleans up (R11).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

from redlock._core.outcomes import NEVER, Failure

if TYPE_CHECKING:
    from redlock._core.kernel.quorum import Tally
    from redlock._core.local_queue import Place
    from redlock._core.protocols import Inbox
    from redlock._core.stop import Stop
    from redlock._core.subscriptions import Subscription
    from redlock._core.wire import Call

T = TypeVar("T")


class Send:
    """Run ``call`` on the masters in ``to`` (None: on all).  This class ignores the answers; a `Round` counts them.

    - ``owed_until``: it is a release that must arrive.  If the connection breaks before the answer, or the master
      cannot do it now, it is sent again until then (R10).  ``NEVER``: also from `Masters` that close, but not again.
    - ``doubt``: another connection carries the acquire, which the release may overtake.  A master that does not say
      that the key was ours is asked again until ``owed_until`` (R10), while this returns True for it and its answer.
    - ``only_if``: the request is dropped unless this is true when it is written, with nothing written in between.  So a
      repair cannot follow the release of another thread.
    - ``more``: requests to the same master that an answer calls for.  As a rule there are none.
    - ``enters``: join the line with this place first.  The request is not sent unless the place is at the front and no
      other process is to go first (`Place.yield_until`).  Else ``sent_at`` stays `NEVER`, and it waits for nothing.
    - ``leaves``: leave the line with this place as soon as the request is written.
    - ``wait_for``: resume with the next event, or so many seconds after the sending with a `Timeout`: no answers then.
    - ``meanwhile``: called when it was sent, or waits in line: what need not be done before, while masters answer.
    - ``usual``: see `Call.usual`.  ``counts``: the tally in which usual answers are counted in place, without a call of
      `voted`.  ``inbox``: where its driver reports the decision.  ``open``: answers are still counted; `voted`,
      `answered` and `failed` are called, else `late`.
    """

    # Class attributes: a request that does without them need not set them.
    doubt: Callable[[int, Any], bool] | None = None
    enters: Place | None = None
    leaves: Place | None = None
    wait_for: float | None = None
    meanwhile: Callable[[], object] | None = None
    more: tuple[Send, ...] = ()
    sent_at = NEVER
    open = False
    counts: Tally | None = None
    inbox: Inbox  # set by its driver
    only_if: Callable[[], bool] | None = None

    def __init__(
        self,
        call: Call,
        to: frozenset[int] | None = None,
        owed_until: float | None = None,
        only_if: Callable[[], bool] | None = None,
    ) -> None:
        self.call = call
        self.usual = call.usual
        self.to = to
        self.owed_until = owed_until
        self.only_if = only_if

    def voted(self, master: int, at: float) -> bool:  # noqa: ARG002 - a plain `Send` counts nothing
        """A master gave the usual answer (`Call.usual`).  True: that decides."""
        return False

    def decides(self, at: float) -> bool:  # noqa: ARG002 - a plain `Send` counts nothing
        """Usual answers were counted in place, the last ones at ``at``.  True: they decide."""
        return False

    def answered(self, master: int, value: Any, at: float) -> bool:  # noqa: ARG002 - a plain `Send` counts nothing
        """A master answered ``value``, which may be the usual answer as well.  True: that decides."""
        return False

    def late(self, master: int, value: Any, at: float) -> None:
        """A master answered ``value`` after the counting had ended.  Not called for every usual answer."""

    def failed(self, master: int, failure: Failure, at: float) -> bool:  # noqa: ARG002 - a plain `Send` counts nothing
        """A master will not answer.  True: that decides."""
        return False


class Wait(NamedTuple):
    """Resume with the next event, or with `Timeout` once ``until`` has passed."""

    until: float
    quiet: bool = False  # no answer of a master is awaited, so the driver need not read for it
    closes: Send | None = None  # it is handed no more answers once the `Timeout` comes


class Leave(NamedTuple):
    """Leave the line with ``place``; a second time does no harm."""

    place: Place
    stays: bool = False  # as a reader instead, and readers behind it get their turn (R33)
    others_until: float = NEVER  # new operations let others go first until then (R24)


@dataclass(slots=True, eq=False)
class LookAhead:
    """Set ``learned`` to what those ahead of ``place`` know of the masters; their next answer puts a `Turn`."""

    place: Place
    learned: Sequence[Any] = ()


class WakeBehind(NamedTuple):
    """Wake the operations behind ``place`` that have looked ahead: it has an answer."""

    place: Place


class Listen(NamedTuple):
    """Get announcements until the operation ends: a `Notified` when ``subscription`` has reason to look."""

    subscription: Subscription


class ReleaseHeard(NamedTuple):
    """The release of ``keys`` took ``took`` seconds, and that many other connections got it, by master."""

    keys: tuple[str, ...]
    heard: Mapping[int, int]
    took: float


@dataclass(slots=True, eq=False)
class WakeOnStop:
    """Put a `Turn` into the inbox of the operation whenever ``stop`` wakes (`Stop.subscribe`), from any thread."""

    stop: Stop


class Turn(NamedTuple):
    """The operation is first in line now, or should check whether it is."""

    at: float


class Notified(NamedTuple):
    """The `Subscription` of the operation has reason to look."""

    at: float


class Timeout(NamedTuple):
    """``Wait.until`` has passed."""

    at: float


LocalEffect: TypeAlias = Leave | LookAhead | WakeBehind | Listen | ReleaseHeard | WakeOnStop  # these concern no master
Effect: TypeAlias = Send | Wait | LocalEffect
Event: TypeAlias = Send | Turn | Notified | Timeout
Op: TypeAlias = Generator[Effect, Event | None, T]


def wait(until: float, *, quiet: bool = False) -> Op[Event]:
    """A `Wait` whose event has a type of its own: a generator has one type for all that is sent into it."""
    event = yield Wait(until, quiet)
    assert event is not None  # noqa: S101 - a driver that forgets the event is broken, not unlucky
    return event


def sleep(until: float, *, quiet: bool = True) -> Op[None]:
    """Wait until then.  Late events of an earlier round end no sleep."""
    while not isinstance((yield from wait(until, quiet=quiet)), Timeout):
        pass
