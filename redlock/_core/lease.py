"""What a holder has: a promise about time, and the fencing token that holds when time does not."""

from __future__ import annotations

import math
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

from redlock.errors import LockLost, Reason, Vote

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from contextlib import AbstractContextManager

    from redlock._core.acquire import Grant

_NOBODY_ELSE = nullcontext()


@dataclass(slots=True, eq=False)
class Ceiling:
    """What an extension makes of the validity at most, from the moment on when it may be sent (C6).

    One for all leases that are extended at once to one TTL.
    """

    valid_until: float
    ttl: float
    dropped: bool = False  # with its operation: nobody says when it ends


class LeaseState:
    """A lock held until `valid_until`, as far as this process can know.

    A promise about time, not about the resource: after a long pause the holder may act on what
    already belongs to somebody else.  The first look at the lease then says so, but a look is not a
    barrier; `fence` is: hand it to whatever you write to, and let that refuse smaller ones.
    `token` names this claim; being random, it orders nothing.

    Attributes:
        name: the name of the lock; several names are joined by ", ".
        names: the names, in the order in which they were given.
        token: the random value of the keys on the masters.
        fence: the fencing token, strictly increasing from grant to grant; None without fencing.
        ttl: seconds, of the last acquire or extension that was won.
        valid_until: on the clock of rule R5 (it counts while the machine sleeps).
    """

    # Slots keep thousands of held leases small; a wrong attribute is an error instead of a surprise.
    __slots__ = (
        "__weakref__",
        "_asked",
        "_astray",
        "_ceilings",
        "_clock",
        "_holds",
        "_keys_until",
        "_late",
        "_lost",
        "_mine",
        "_on_change",
        "_released",
        "_repaired",
        "_resumed",
        "_said",
        "_since",
        "_tells",
        "_ticket",
        "_votes",
        "fence",
        "names",
        "token",
        "ttl",
        "valid_until",
    )

    def __init__(
        self,
        names: tuple[str, ...],
        ttl: float,
        grant: Grant,
        *,
        clock: Callable[[], float],
        mine: Callable[[], bool],
        resumed: bool = False,
    ) -> None:
        self.names = names
        self.token = grant.token
        self.fence = grant.fence
        self.ttl = ttl
        self.valid_until = grant.valid_until
        self._votes = grant.votes
        self._said = (
            grant.votes
        )  # what the masters said last, to an extension or a release, won or not: why it was lost
        self._since = grant.decided_at
        self._ticket = grant.ticket  # its place in line (R23)
        self._asked = grant.asked  # masters that may have a key of ours
        self._keys_until = max(grant.valid_until, grant.decided_at) + ttl  # by then every one of them has expired
        self._astray = resumed  # what sets its keys has not all travelled on one connection to each master (R10)
        self._repaired: frozenset[int] = frozenset()  # masters that may have been given it back (R14)
        # Of all extensions that overlapped, until none is under way; True: this one is yet.
        self._ceilings: dict[Ceiling, bool] = {}
        self._clock = clock
        self._mine = mine  # False in a process that was forked off the holder
        self._released = False
        self._lost: Reason | None = None
        self._late: Reason = "expired"  # what it is called when its time has run out
        self._resumed = resumed  # handed over by a token, and not confirmed by an extension yet (C11)
        # Told whenever its end may have moved (see `Keeping.due`), and by `_left_behind`, with True.
        self._on_change: Callable[[bool], None] | None = None
        self._tells: tuple[Callable[[Any], object], ...] = ()  # `on_lost` of those who entered it again
        self._holds: list[Any] = []  # every `Hold` of it that was not given back: see redlock/_base/holds.py

    @property
    def name(self) -> str:
        return ", ".join(self.names)

    @property
    def votes(self) -> tuple[Vote, ...]:
        """What each master said in the last round that was won."""
        return self._votes()

    def remaining(self) -> float:
        """Seconds for which this is still valid; 0 when it is not.  No I/O."""
        if self._released or self._lost is not None or not self._mine():
            return 0.0
        return max(0.0, self.valid_until - self._clock())

    @property
    def valid(self) -> bool:
        """Whether nobody else can hold the lock now.  No I/O; right also after a pause of any length."""
        return self.remaining() > 0

    @property
    def lost(self) -> bool:
        """Whether it ended without being released.  False for good after a normal release (C8)."""
        if self._lost is not None:
            return True
        if self._released or self._resumed or self._clock() < self.valid_until or not self._mine():
            return False
        self._lost = self._late
        return True

    def ensure(self, at_least: float = 0.0) -> None:
        """Raise `LockLost` unless more than `at_least` seconds remain.

        It does so for a lease that is valid for less than that as well, which can be released as usual.
        Call it right before a step that cannot be undone.  It cannot protect what happens after a
        pause between this look and that step; the fencing token can.
        """
        left = self.remaining()
        if left > at_least:
            return
        if left > 0:
            text = f"the lease on {self.name!r} has only {left:.3f} s left, {at_least:g} s are needed"
            raise LockLost(text, name=self.name, votes=self.votes, reason="expired")
        raise self.loss()

    def loss(self) -> LockLost:
        """The error that says how this lease ended."""
        how = {
            "expired": "it expired",
            "taken": "somebody else holds it",
            "unreachable": "it could not be renewed in time",
            "max_hold": "it was held for as long as it may be",
        }
        if self.lost:
            assert self._lost is not None  # noqa: S101 - for the type checker: `lost` just set it
            text = f"the lease on {self.name!r} was lost: {how[self._lost]}"
            return LockLost(text, name=self.name, votes=self._said(), reason=self._lost)
        if self._resumed and self._mine():
            why = "extend() has not confirmed yet that it is ours"
            return LockLost(f"the lease on {self.name!r} is not valid: {why}", name=self.name, reason="expired")
        why = "it was released" if self._released else "it belongs to the process that forked this one"
        return LockLost(f"the lease on {self.name!r} has ended: {why}", name=self.name, reason="expired")

    # -- told by the operations ----------------------------------------------------------------------

    @property
    def _over(self) -> bool:
        return self._released or self.lost

    def _extendable(self, now: float) -> bool:
        """Valid, or perhaps so: one that was handed over is known to be only when it has been extended."""
        if self._released or self._lost is not None or not self._mine():
            return False
        return now < self.valid_until or self._resumed

    @property
    def _held_for(self) -> float:
        """Seconds until now, or until its time was over."""
        return max(0.0, min(self._clock(), self.valid_until) - self._since)

    @property
    def _ends_at(self) -> float:
        """When it is lost unless it is extended."""
        return math.inf if self._resumed else self.valid_until

    @staticmethod
    def _guard() -> AbstractContextManager[object]:
        """With it extensions begin, are won and end: where threads extend the same leases, one of them at a time."""
        return _NOBODY_ELSE

    def _extension_begins(self, ceiling: Ceiling) -> bool:
        """An extension is about to be sent.  True: it lasts shorter from now on."""
        if self._ceilings:
            for other in list(self._ceilings):
                if other.dropped:
                    self._extension_ends(other)
        self._ceilings[ceiling] = True
        valid_until = ceiling.valid_until
        self._keys_until = max(self._keys_until, valid_until + ceiling.ttl)
        if valid_until >= self.valid_until:
            return False
        self.valid_until = valid_until
        return True

    def _extended(self, ceiling: Ceiling, valid_until: float, votes: Callable[[], tuple[Vote, ...]]) -> None:
        """An extension was won.

        Others that overlapped it, whichever was sent first, may have left the keys with less.
        """
        ttl = ceiling.ttl
        if len(self._ceilings) > 1:
            others = ((other.valid_until, other.ttl) for other in list(self._ceilings) if other is not ceiling)
            valid_until, ttl = min([(valid_until, ttl), *others])
        self.valid_until, self.ttl = valid_until, ttl
        self._votes = votes
        self._late, self._resumed = "expired", False

    def _extension_ends(self, ceiling: Ceiling) -> None:
        """It is over, won or not.  Once more does no harm."""
        ceilings = self._ceilings
        if ceiling in ceilings:
            ceilings[ceiling] = False
            if True not in ceilings.values():
                ceilings.clear()

    def _extension_dropped(self, ceiling: Ceiling) -> None:
        """Its operation was thrown away.

        By the collector perhaps, in a thread that it has stopped in the middle of anything: so this takes no lock and
        tells nobody.  If others overlap it, the next one that begins finds out that it is over.
        """
        ceiling.dropped = True
        if len(self._ceilings) == 1:
            self._ceilings.pop(ceiling, None)

    def _unanswered(self) -> None:
        """An extension was: if it runs out now, that is why."""
        self._late = "unreachable"

    def _lose(self, reason: Reason) -> None:
        if self._lost is None and not self._released:
            self._lost, self._resumed = reason, False
            self._changed()

    def _end(self) -> None:
        """Released by its holder: from now on neither valid nor lost.  `_changed` is to be called as well."""
        if not self.lost:
            self._released, self._resumed = True, False

    def _let_go(self) -> None:
        """Released, and nobody waits for the answers."""
        self._end()
        self._said = tuple

    def _found_gone(self, reason: Reason) -> None:
        """The release found the keys gone (C8)."""
        self._released, self._resumed, self._lost = False, False, reason
        self._changed()

    def _changed(self) -> None:
        """It has ended, or lasts longer or shorter: for a shell that lets somebody wait for that."""
        if self._on_change is not None:
            self._on_change(False)

    def _left_behind(self, _: object = None) -> None:
        """One of its holders has gone without giving it back.  Called by the collector: takes no lock, and only tells its keeper."""
        if self._on_change is not None:
            self._on_change(True)

    def _may_be_on(self, masters: Iterable[int]) -> None:
        with self._guard():  # its holder may extend it in a thread of its own, and repair others
            masters = frozenset(masters)
            self._repaired |= masters
            self._asked |= masters
            self._astray = self._astray or not self._is_here()

    @property
    def _in_order(self) -> bool:
        """Whether a release that is sent here stands behind all that may set a key (R10)."""
        return not self._astray and self._is_here()

    def _is_here(self) -> bool:
        """Whether the caller asks the masters over the connections that carried the acquire."""
        return True

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"{self!r} cannot be copied or pickled, it ends here: hand over its token and fence (lock(..., token=, fence=))"
        )

    def __repr__(self) -> str:
        if self._released:
            state = "released"
        elif self._resumed:
            state = "not confirmed"
        elif self.lost:
            state = f"lost: {self._lost}"
        else:
            state = f"{self.remaining():.3f} s left"
        return f"<{type(self).__name__} {self.name!r} fence={self.fence} {state}>"
