"""What a holder has: a promise about time, and a fencing token that protects also when time does not."""

from __future__ import annotations

import itertools
import math
from contextlib import nullcontext
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias

from redlock import options
from redlock._core import attributes, readings
from redlock._core.kernel.validity import drift
from redlock._core.outcomes import NEVER
from redlock._core.stop import Watchers
from redlock.errors import LockLost, Reason, Vote

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from redlock._core.kernel.ballot import Grant
    from redlock._core.kernel.quorum import Tally
    from redlock._core.kernel.rounds import Round
    from redlock._core.local_queue import Place
    from redlock._core.settings import LockSpec, MastersSettings, Mode
    from redlock._core.wire import Call

ExtensionEnd: TypeAlias = Literal["extended", "lost", "unanswered"]

_NUMBERS = itertools.count(1)


@dataclass(slots=True, eq=False)
class PendingExtension:
    """An extension under way, of leases with one TTL: it limits the validity from when it may be sent on (C6)."""

    valid_until: float
    ttl: float
    renews: bool = False  # the renewer extends it, and its holder did not ask for that
    # In the order of writing; 0: not written yet; -1: written by another event loop, which has no order.
    number: int = 0
    dropped: bool = False  # its operation was dropped, and calls `end_extension` no more

    def may_be_written(self, request: Round, leases: Sequence[LeaseState]) -> bool:
        """The `Send.only_if` of the request that extends ``leases`` (R12)."""
        if self.number:
            return request.open and not any(lease.overtaken(self) for lease in leases)
        if self.renews and any(lease.ttl != self.ttl or len(lease.all_pending) > 1 for lease in leases):
            return False
        self.number = next(_NUMBERS) if leases[0].is_here() else -1
        return True

    def limits(self, other: PendingExtension) -> bool:
        """Whether it may have left keys with its TTL that ``other`` had extended."""
        return not 0 < self.number < other.number if self.number else not self.renews


class LeaseState:
    """What operations, the renewer and holds know of a lease.  `redlock._lock.lease` says what it promises."""

    kind: ClassVar[str] = "Lease"  # the name of the public class, for `repr`
    # Its lock is held while extensions begin, are won and end: several threads may extend the same leases.
    brief: ClassVar[Any] = SimpleNamespace(lock=nullcontext())

    # Class attributes: most leases end with these.
    token: str
    fence: int | None
    valid_until: float
    keys_until: float  # by then all its keys have expired
    place: Place | None  # its place in line (R23)
    asked: frozenset[int]  # masters that may have its keys
    last_votes: Callable[[], tuple[Vote, ...]]  # for an extension or a release: they tell why it was lost
    mode: Mode  # a downgrade changes it (R33)
    slot: int | None = None  # which one of a group (R32)
    hold_at_least = 0.0  # seconds after the grant in which no other client gets it, released or not (R28)
    guarded: float  # seconds for which masters keep its keys beyond the validity (R36)
    repaired: frozenset[int] = frozenset()  # masters to which a repair may have given the key back (R14)
    renewed: bool  # its lock asks for renewals
    released = False
    handed_over = False  # another process goes on with it: it is treated as released, and its keys stay (C11)
    abandoned = False  # released in place of its holder, who may release it as well
    given_back = False  # only the release, in time, showed that it was lost
    scattered = False  # its extensions have no common order (R35)
    listened = False  # it waited for releases to be announced, and not all masters have granted it (R37)
    extensions = 0  # that were begun
    _won = 0  # the `PendingExtension.number` that was won last
    _bare = 0.0  # see `count_bare`; since `pop_bare` was called last
    last: Tally | None = None  # the votes of the grant, or of the last extension that was won
    _last_at = _mended_at = math.inf  # when these votes were decided; when a repair added to them
    # Called with False whenever its end may have moved (see `Renewal.due`), and by `holder_gone` with True.
    on_change: Callable[[bool], None] | None = None
    nested_on_lost: tuple[Callable[[Any], object], ...] = ()  # an `on_lost` for each re-entry
    _astray = False  # requests that set its keys may have gone over several connections to a master (R10)
    _watchers: Watchers | None = None  # see `watchers`
    _lost: Reason | None = None
    _lost_at = math.inf
    _late: Reason = "expired"  # the reason to give if its time runs out
    begun = False  # a majority has granted it

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        attributes.declare(
            cls, "names", "keys", "ttl", "mode", "guarded", "renewed", "clock", "mine", "all_pending", "holds", "token",
            "fence", "valid_until", "_votes", "last_votes", "_since", "place", "asked", "keys_until", "begun", "last",
            "_last_at", "on_change", "released", "extensions", "_won", "_late", "_mended_at", "listened",
        )  # fmt: skip

    def __init__(
        self, spec: LockSpec, grant: Grant | None = None, *, clock: Callable[[], float], mine: Callable[[], bool]
    ) -> None:
        self.names, self.keys = spec.names, spec.keys.locks
        self.ttl = spec.ttl  # of the last acquire or extension that was won
        self.mode = spec.mode
        self.guarded = spec.guard
        self.renewed = spec.auto_extend
        self.clock = clock
        self.mine = mine  # False in a process that was forked off the holder
        self.all_pending: dict[PendingExtension, bool] = {}  # overlapping ones, until all have ended; True: not ended
        self.holds: list[Any] = []  # every `Hold` of it that was not given back: see redlock/_lock/holds.py
        if grant is not None:
            self.granted(grant)

    def taken_over(self, grant: Grant) -> None:
        """It was granted to another process, and requests of that one may be on their way (C11)."""
        self.granted(grant)
        self._astray = True

    def granted(self, grant: Grant) -> None:
        self.token = grant.token
        self.fence = grant.fence
        self.valid_until = grant.valid_until
        self._votes = grant.votes
        self.last_votes = grant.votes
        self._since = grant.decided_at
        self.place = grant.place
        self.asked = grant.asked
        self.keys_until = max(grant.valid_until, grant.decided_at) + self.ttl + self.guarded
        self.begun = True
        self.last, self._last_at = grant.tally, grant.decided_at

    @property
    def name(self) -> str:
        return ", ".join(self.names)

    @property
    def shown(self) -> str:
        return options.named(self.names)

    @property
    def votes(self) -> tuple[Vote, ...]:
        return self._votes()

    def remaining(self) -> float:
        if self.released or self._lost is not None or not self.mine():
            return 0.0
        return max(0.0, self.valid_until - self.clock())

    @property
    def valid(self) -> bool:
        return self.remaining() > 0

    @property
    def lost(self) -> bool:
        if self._lost is not None:
            return True
        if self.released or not self.begun or self.clock() < self.valid_until or not self.mine():
            return False
        self._lost, self._lost_at = self._late, self.valid_until
        return True

    def ensure(self, at_least: float = 0.0) -> None:
        left = self.remaining()
        if left > at_least:
            return
        if left > 0:
            text = f"the lease on {self.shown} has only {left:.3f} s left, {at_least:g} s are needed"
            raise self._loss(text, "expired", self.votes)
        raise self.loss()

    def loss(self) -> LockLost:
        """The error that says how this lease ended, or that it has not."""
        how = {
            "expired": "it expired",
            "taken": "another client holds it",
            "unreachable": "it could not be renewed in time",
            "max_hold": "max_hold was reached",
        }
        if self.lost:
            assert self._lost is not None  # noqa: S101 - for the type checker: `lost` just set it
            text = f"the lease on {self.shown} was lost: {how[self._lost]}"
            return self._loss(text, self._lost, self.last_votes())
        if self.released:
            so = f"has ended: it was {'handed over' if self.handed_over else 'released'}"
        elif not self.mine():
            so = "has ended: it belongs to the process that forked this one"
        else:
            so = f"has not ended: it is valid for another {self.remaining():.3f} s"
        return self._loss(f"the lease on {self.shown} {so}")

    def _loss(self, text: str, reason: Reason = "expired", votes: tuple[Vote, ...] = ()) -> LockLost:
        error = LockLost(text, name=self.name, votes=votes, reason=reason)
        error._token = self.token  # noqa: SLF001 - not for users
        return error

    @property
    def over(self) -> bool:
        return self.released or self.lost

    def extendable(self, now: float) -> bool:
        """Whether an extension may be tried: the lease is valid."""
        if self.released or self._lost is not None or not self.mine():
            return False
        return now < self.valid_until

    @property
    def guarded_until(self) -> float:
        """The end of its guard: keys of a lost lease are left alone until then, for work under way (R36)."""
        return self._lost_at + self.guarded

    @property
    def guards(self) -> bool:
        """Whether its keys are left alone now: it is lost, or was handed over (R36, C11)."""
        return self.handed_over or (bool(self.guarded) and self.lost and self.clock() < self.guarded_until)

    @property
    def held_for(self) -> float:
        """For how many seconds it has been held, up to now or up to the end of its validity."""
        return max(0.0, min(self.clock(), self.valid_until) - self._since)

    @property
    def reserved(self) -> float:
        """Seconds for which no other client may get it yet, although it is released now (R28); 0 or less: none."""
        return self._since + self.hold_at_least - self.clock()

    def keys_stay(self, drift_factor: float) -> float:
        """Seconds for which a release lets its keys live, as others may not get it yet (R28), with the drift."""
        left = self.reserved
        return left + drift(left, drift_factor) if left > 0 else 0.0

    def keeps_keys(self, spec: LockSpec) -> bool:
        """Whether it is lost and its holder gives its keys back all the same: a term ended by `max_hold` (R31)."""
        return spec.keeps_keys and not self.guards and self.clock() < self.valid_until

    def others_until(self, spec: LockSpec, node_timeout: float) -> float:
        """Until when others go first. The renewer gives back the keys of a term after its guard (R31, R36)."""
        return self.guarded_until + node_timeout if spec.keeps_keys and self.guards else NEVER

    def extension_call(self, settings: MastersSettings, spec: LockSpec, ttl: float) -> Call:
        """The request that extends it; on record with a stamp that no other extension of it has (R35, `expiry`)."""
        # `guarded`, not the guard of `spec`: that may be the one of a lock that entered again (R26).
        args = spec.keys, self.token, ttl + self.guarded, settings.fence_ttl
        if not spec.keys.grants:
            return self.mode.extend(*args)
        self.scattered = self.scattered or not self.in_order
        stamp = f"r{settings.token()[:16]}" if self.scattered else str(settings.stamp())
        return self.mode.extend(*args, stamp, self.fence)

    def begin_extension(self, pending: PendingExtension) -> None:
        """An extension is about to be sent.  From then on the keys may have its shorter TTL (C6)."""
        with self.brief.lock:
            for other in list(self.all_pending):
                if other.dropped:
                    self._end_extension(other)
            self.all_pending[pending] = True
            self.extensions += 1
            valid_until = pending.valid_until
            self.keys_until = max(self.keys_until, valid_until + pending.ttl + self.guarded)
            shorter = valid_until < self.valid_until
            if shorter:
                self.valid_until = valid_until
        if shorter:
            self.changed()

    def conclude(
        self, pending: PendingExtension, valid_until: float, tally: Tally, reason: Reason = "expired"
    ) -> ExtensionEnd:
        """Apply the votes for an extension.  ``reason``: why the lease is lost, if they prove that (R13)."""
        denied = False
        end: ExtensionEnd = "lost"
        with self.brief.lock:
            self.last_votes = tally
            if not self.extendable(self.clock()):  # it ended while we asked: the votes come too late
                pass
            elif tally.won:
                if not 0 < pending.number < self._won:  # else the keys have the TTL of a later one by now
                    self.extended(pending, valid_until, tally)
                    self.count_bare()
                    self.last, self._mended_at = tally, math.inf
                end = "extended"
            elif tally.denied:
                denied = True
            else:
                self.unanswered()
                end = "unanswered"
            self._end_extension(pending)
        if denied:
            self.lose(reason)
        return end

    def extended(self, pending: PendingExtension, valid_until: float, votes: Callable[[], tuple[Vote, ...]]) -> None:
        """An extension was won.  Others that overlapped may have left a shorter TTL, unless written before it (R10)."""
        ttl = pending.ttl
        if len(self.all_pending) > 1:
            others = (
                (other.valid_until, other.ttl)
                for other in list(self.all_pending)
                if other is not pending and other.limits(pending)
            )
            valid_until, ttl = min([(valid_until, ttl), *others])
        self.valid_until, self.ttl, self._won = valid_until, ttl, max(self._won, pending.number)
        self._votes = votes
        self._late = "expired"

    def overtaken(self, pending: PendingExtension) -> bool:
        return 0 < pending.number < max(self._won, *(other.number for other in list(self.all_pending)), 0)

    def end_extension(self, pending: PendingExtension) -> None:
        """The extension has ended, won or not.  A second time does no harm."""
        if pending in self.all_pending and not pending.dropped:
            with self.brief.lock:
                self._end_extension(pending)

    def _end_extension(self, pending: PendingExtension) -> None:
        all_pending = self.all_pending
        if pending in all_pending:
            all_pending[pending] = False
            if True not in all_pending.values():
                all_pending.clear()

    def drop_extension(self, pending: PendingExtension) -> None:
        """The garbage collector dropped its operation, in any thread: no lock is taken; the next one finds it."""
        pending.dropped = True
        if len(self.all_pending) == 1:
            self.all_pending.pop(pending, None)

    def unanswered(self) -> None:
        """Too few masters answered an extension.  If the time runs out now, that is the reason."""
        self._late = "unreachable"

    def lose(self, reason: Reason) -> None:
        if self._lost is None and not self.released:
            self._lost, self._lost_at = reason, min(self.clock(), self.valid_until)
            self.changed()

    def end(self) -> bool:
        """Its holder releases it: it is neither valid nor lost.  The caller calls `changed`.  False: it was lost."""
        if self.lost:
            return False
        self.released = True
        return True

    def found_gone(self, reason: Reason) -> None:
        """The release found the keys gone (C8)."""
        self.released, self._lost, self.given_back = False, reason, True
        self._lost_at = -math.inf  # it was released: its holder has no work under way
        self.changed()

    def changed(self) -> None:
        """The lease has ended, or its end has moved: inform the renewer, and wake the waiters for its end."""
        if (tell := self.on_change) is not None:  # read once: another thread may take it away
            tell(False)
        if self._watchers is not None:
            self._watchers.wake()

    @property
    def watchers(self) -> Watchers:
        """The waiters for its end.  Made on demand, as few have any; in one step, as several may begin at once."""
        watchers: Watchers = vars(self).setdefault("_watchers", Watchers())
        return watchers

    def holder_gone(self) -> None:
        """The garbage collector has freed one of its holders: take no lock, and only inform the renewer."""
        if self.on_change is not None:
            self.on_change(True)

    def repaired_at(self, at: float) -> None:
        self._mended_at = min(self._mended_at, at)

    def count_bare(self) -> None:
        """Add the time since the last call in which no more than a bare majority was known to have its keys (R37)."""
        now = min(self.clock(), self.valid_until)
        if self.last is not None and readings.bare(self.last):
            self._bare += max(0.0, min(now, self._mended_at) - self._last_at)
        self._last_at = now

    def pop_bare(self) -> float:
        bare, self._bare = self._bare, 0.0
        return bare

    def may_be_on(self, masters: Iterable[int]) -> None:
        with self.brief.lock:  # its holder may extend and repair it in another thread at the same time
            masters = frozenset(masters)
            self.repaired |= masters
            self.asked |= masters
            self._astray = self._astray or not self.is_here()

    @property
    def in_order(self) -> bool:
        """Whether a release that is sent from here comes after all requests that may set a key (R10)."""
        return not self._astray and self.is_here()

    def is_here(self) -> bool:
        """Whether the caller asks the masters over the connections that carried the acquire."""
        return True

    def __repr__(self) -> str:
        if self.released:
            state = "handed over" if self.handed_over else "released"
        elif self.lost:
            state = f"lost: {self._lost}"
        else:
            state = f"{self.remaining():.3f} s left"
        return f"<{self.kind} {self.shown} fence={self.fence} {state}>"
