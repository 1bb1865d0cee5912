"""Who believed to hold which lock, from when until when."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..history import Event, History


@dataclass(eq=False, slots=True)
class Hold:
    """What one process held with one token, from ``began`` on.

    It is half open (C25): from the ``t`` of ``began`` to the earliest of ``release`` invoked, ``lost`` told,
    the last ``valid_until``.  ``passed_on`` is where the hold went on: with the same token in another
    process (``resume``, C32), or taken anew by this one.
    """

    began: Event
    renewed: Event  # what set `valid_until` last: `began` itself, or an `extend`
    lock: str
    token: str
    fence: int | None
    valid_until: float
    release: Event | None = None
    lost: Event | None = None
    passed_on: Event | None = None
    asked_for: Event | None = None  # the ``resume`` of that, as it was invoked: it had been given away by then
    shared_from: float = math.inf  # from then on others may read (R33)

    @property
    def process(self) -> str:
        return self.began.process

    @property
    def start(self) -> float:
        return self.began.t

    @property
    def end(self) -> float:
        """Never before `start`."""
        until = self.valid_until
        if self.passed_on is not None:
            # Handed over it is one hold, so what lies between the end of its time here and the hand-over
            # belongs to it, as it does to an extension that comes too late.
            until = self.passed_on.t if self.passed_on.op == "resume" else min(until, self.passed_on.t)
        ends = (event.t for event in (self.release, self.lost) if event is not None)
        return max(self.start, min([until, *ends]))

    @property
    def alone_until(self) -> float:
        """Until then it is held by nobody else, not by a reader either.  Never before `start`."""
        return max(self.start, min(self.end, self.shared_from))

    @property
    def stopped_by(self) -> Event | None:
        """The event by which this process was done with it, if there is one."""
        events = [event for event in (self.release, self.passed_on, self.asked_for) if event is not None]
        return min(events, key=lambda event: event.t, default=None)

    def alive(self, t: float) -> bool:
        return self.start <= t < self.end


def holds(history: History) -> list[Hold]:
    """All of them, in the order in which they began."""
    return _Ledger(history).holds


class _Ledger:
    def __init__(self, history: History) -> None:
        self.holds: list[Hold] = []
        # By lock and token: those which are neither released nor passed on, and the last one of each process.
        self._open: dict[tuple[str, str], list[Hold]] = {}
        self._latest: dict[tuple[str, str], dict[str, Hold]] = {}
        self._locks: dict[str, dict[str, None]] = {}  # of a token, for events that name only that
        # Invoked: what, by whom, of which token.
        self._invoked: dict[tuple[str, str, str | None, str | None], Event] = {}
        for event in history.events:
            if event.by_client:
                self._read(event)

    def _read(self, event: Event) -> None:
        who = event.op, event.process, event.worker, event.token
        invoked = None if event.phase == "invoke" else self._invoked.pop(who, None)
        match event.op, event.phase:
            case (("acquire" | "resume"), "ok"):
                self._begin(event, invoked)
            case (("extend" | "resume"), "invoke"):
                self._invoked[who] = event
            case "resume", "fail":
                # Who gave it away does not use it, and who cannot go on with it has the masters told that it is over.
                self._let_go(invoked or event)
            case "extend", "ok":
                for of in self._meant(event):
                    self._renew(of, event, invoked)
            case (("downgrade" | "release"), "invoke"):
                self._let_go(event)
            case "lost", "info":
                for of in self._meant(event):
                    self._tell(of, event)

    def _let_go(self, event: Event) -> None:
        """Of all, or of being alone (R33)."""
        for of in self._meant(event):
            if event.op == "downgrade":
                for hold in self._open.get(of, ()):
                    hold.shared_from = min(hold.shared_from, event.t)
            else:
                for hold in self._open.pop(of, ()):
                    hold.release = event

    def _begin(self, event: Event, invoked: Event | None) -> None:
        """``event`` says that its process holds from now on."""
        assert event.lock is not None and event.token is not None  # noqa: PT018, S101 - the reader sees to it
        of = event.lock, event.token
        self._locks.setdefault(event.token, {})[event.lock] = None
        fence, shared = event.fence, event.mode == "shared"
        for before in self._open.pop(of, ()):
            before.passed_on, before.asked_for = event, invoked
            fence = before.fence if fence is None else fence
            shared = shared or before.shared_from < math.inf
        self._add(of, event, fence, shared=shared)

    def _add(self, of: tuple[str, str], event: Event, fence: int | None, *, shared: bool) -> None:
        assert event.valid_until is not None  # noqa: S101 - likewise
        hold = Hold(event, event, *of, fence, event.valid_until)
        if shared:
            hold.shared_from = event.t
        self.holds.append(hold)
        self._open.setdefault(of, []).append(hold)
        self._latest.setdefault(of, {})[event.process] = hold

    def _renew(self, of: tuple[str, str], event: Event, invoked: Event | None) -> None:
        hold = self._of(of, event.process)
        if hold is None:
            return
        over = min((one.t for one in (hold.release, hold.lost) if one is not None), default=None)
        if over is not None and invoked is not None and invoked.t > over:
            # Asked for when it was over, and won: it is held again.  One that was under way when the
            # hold ended, as a renewer's may be, brings nothing back.
            self._add(of, event, hold.fence, shared=hold.shared_from < math.inf)
            return
        assert event.valid_until is not None  # noqa: S101 - likewise
        hold.renewed, hold.valid_until = event, event.valid_until

    def _tell(self, of: tuple[str, str], event: Event) -> None:
        """The process of ``event`` knows; whoever else has the token was told nothing."""
        hold = self._latest.get(of, {}).get(event.process)
        if hold is not None and hold.lost is None:
            hold.lost = event

    def _meant(self, event: Event) -> list[tuple[str, str]]:
        """The lock of the event, or every lock of its token."""
        if event.token is None:
            return []
        if event.lock is not None:
            return [(event.lock, event.token)]
        return [(lock, event.token) for lock in self._locks.get(event.token, ())]

    def _of(self, of: tuple[str, str], process: str) -> Hold | None:
        """The last one of that process; where it has none, the last of all with that token."""
        latest = self._latest.get(of, {})
        return latest.get(process) or next(reversed(latest.values()), None)
