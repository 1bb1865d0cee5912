"""What a worker does with locks, again and again, at random from its seed."""

from __future__ import annotations

import math
import random
import threading
import time
from asyncio import CancelledError
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from tenacity import wait_random

from redlock import (
    LeaseExtended,
    LockAcquired,
    LockLost,
    LockReleased,
    LockUnavailable,
    NotExtended,
    QuorumUnreachable,
)
from redlock.fenced import CommitUnknown

from ..history import now
from .handover import Handovers, Offer
from .stores import Busy, Stores, Written
from .votes import WRITES, told

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from ..history import Phase, Store, Writer
    from ..settings import Settings, Work
    from .accounts import Accounts
    from .stage import Stage
    from .votes import Votes
    from .watch import Pulse
    from .worlds import World

# What is done in each kind of work, and how often.
_OFTEN: Final[dict[Work, dict[str, int]]] = {
    "mixed": {
        "short": 6, "long": 2, "expiring": 2, "extending": 2, "entering_twice": 2, "block": 2, "impatient": 2,
        "giving": 2, "taking": 3, "cancelled": 3,
    },
    "lasting": {"short": 3, "long": 2, "expiring": 4, "extending": 2},
    "visited": {"long": 1, "expiring": 1, "extending": 6},
    "overrun": {"short": 1, "expiring": 4},
    "brief": {"short": 1},
    "steady": {"steady": 1},
    "naive": {"naive": 1},
    "leading": {"leading": 1},
    "transactions": {"transacting": 1},
    "queueing": {"queueing": 1},
    "sharing": {
        "short": 6, "long": 2, "expiring": 2, "extending": 2, "entering_twice": 2, "block": 2, "impatient": 2,
        "downgrading": 4, "cancelled": 3,
    },
    "slots": {
        "short": 6, "long": 2, "expiring": 2, "extending": 2, "entering_twice": 2, "block": 2, "impatient": 2, "cancelled": 3,
    },
}  # fmt: skip
_READS: Final = 0.7  # share of those who read
_YIELDS: Final = 20.0  # a worker that is woken late rests so many times as long before it does the next thing


@dataclass(slots=True)
class Held:
    lock: Any
    lease: Any


class Worker:
    """``held`` is shared by the workers of a process: who has the lease with this token.

    ``accounts``: the store that checks fences, if it is not that of `stores`.
    """

    def __init__(
        self,
        name: str,
        world: World,
        settings: Settings,
        stage: Stage,
        record: Writer,
        directory: Path,
        held: dict[str, tuple[Worker, Any]],
        votes: Votes,
        accounts: Accounts | None,
        pulse: Pulse,
    ) -> None:
        self._world = world
        self._settings = settings
        self._stage = stage
        self._process = record.process
        self._write = partial(record.write, worker=name)
        self._held = held
        self._votes = votes
        self._stores = Stores(directory / "stores.sqlite")
        self._accounts = accounts
        self._pulse = pulse
        self._handovers = Handovers(directory / "handovers")
        self.leading = False
        self._given: dict[str, Held] = {}  # kept: a lock that is not bound gives back what it holds when it is dropped
        self._random = random.Random(f"work {settings.seed} {record.process} {name}")
        often = {act: n for act, n in _OFTEN[settings.work].items() if act != "cancelled" or world.can_cancel}
        if settings.work == "visited" and name != "1":
            often = {"impatient": 1}
        if settings.work == "steady" and name != "1":
            often = {"impatient": 4, "short": 1}
        self._acts: list[Callable[[str], Awaitable[None]]] = [getattr(self, f"_{act}") for act in often]
        self._often = list(often.values())

    async def perform(self) -> None:
        settings = self._settings
        WRITES.set(self._write)
        late = 0.0
        while not self._stage.over:
            name = self._random.choice(settings.wanted_names)
            act = self._random.choices(self._acts, self._often)[0]
            await (act if self._stage.working else self._short)(name)
            rest = 0.002 if settings.work in ("brief", "queueing") else 0.03
            if not self._stage.working:
                rest = settings.ttl / 4  # every lock is asked for soon, and the machine has time for that
            rest = self._random.uniform(0, rest) + min(_YIELDS * late, settings.ttl / 2)
            began = now()
            await self._world.sleep(rest)
            late = max(0.0, now() - began - rest - 0.001)  # an event loop may be a millisecond late at any time

    def lost(self, lease: Any) -> None:
        """The term of a candidate: it has no `on_lost` of its own."""
        if self.leading:
            self._lost(lease)

    def extended(self, lease: Any) -> None:
        """By its holder or by its renewer, in whatever thread; nothing, if that is written down."""
        votes = self._votes.of(LeaseExtended, lease.token)
        if votes is not None:
            self._write("extend", "ok", lock=lease.name, token=lease.token, valid_until=lease.valid_until, votes=votes)

    # -- what can be done ------------------------------------------------------------------------------

    async def _short(self, name: str) -> None:
        held = await self._take(name)
        if held is not None:
            try:
                await self._work(held, self._random.uniform(0, 0.03))
            finally:
                await self._give_back(held)

    async def _long(self, name: str) -> None:
        """Longer than the TTL, kept by the library."""
        held = await self._take(name)
        if held is not None:
            await self._work(held, self._settings.ttl * self._random.uniform(1.2, 2.0))
            await self._give_back(held)

    async def _steady(self, name: str) -> None:
        """For as long as there are faults, kept by the library."""
        held = await self._take(name)
        if held is not None:
            await self._work(held, math.inf)
            await self._give_back(held)

    async def _expiring(self, name: str) -> None:
        """Longer than the TTL, kept by nobody: it is lost."""
        held = await self._take(name, auto_extend=False)
        if held is not None:
            await self._work(held, self._settings.ttl * self._random.uniform(1.1, 1.4), until_lost=False)
            await self._give_back(held)

    async def _extending(self, name: str) -> None:
        """Longer than the TTL, extended by hand."""
        held = await self._take(name, auto_extend=False)
        if held is None:
            return
        for _ in range(self._random.randint(2, 8)):
            await self._work(held, self._settings.ttl * self._random.uniform(0.1, 0.4))
            if not self._stage.working or not await self._extend(held):
                break
            if not held.lease.valid:  # nobody has said no: perhaps a little later
                await self._world.sleep(self._random.uniform(0.02, 0.1))
        await self._give_back(held)

    async def _downgrading(self, name: str) -> None:
        """Alone, and then together with readers, for as long as both take."""
        held = await self._take(name, shared=False)
        if held is None:
            return
        await self._work(held, self._random.uniform(0, 0.03))
        lease = held.lease
        self._write("downgrade", "invoke", lock=name, token=lease.token)
        try:
            await self._world.result(lease.downgrade())
        except (NotExtended, LockLost) as error:
            self._write("downgrade", "fail", lock=name, token=lease.token, detail=type(error).__name__)
        await self._work(held, self._settings.ttl * self._random.uniform(0.0, 1.2))
        await self._give_back(held)

    async def _entering_twice(self, name: str) -> None:
        """R26; and if it has been lost in between, the second time is a new hold."""
        held = await self._take(name)
        if held is None:
            return
        before = now()
        again = None
        with suppress(QuorumUnreachable):
            again = await self._world.result(held.lock.acquire(blocking=False))
        if again is held.lease:
            await self._work(held, self._random.uniform(0, 0.03))
            with suppress(LockLost):  # the second release will say so as well
                await self._world.result(held.lock.release())  # the first of two: nothing is released
            await self._work(held, self._random.uniform(0, 0.03))
        elif held.lease.valid:
            raise AssertionError(f"{name} is held by {held.lease!r}, and was not entered again but gave {again!r}")
        elif again is not None:
            self._write("acquire", "invoke", t=before, lock=name)
            anew = Held(held.lock, again)
            self._got(anew)
            await self._give_back(anew)
        await self._give_back(held)

    async def _block(self, name: str) -> None:
        """In a ``with``, whose body is cancelled by the library if the lease is lost, in asyncio."""
        lock = self._lock(name, timeout=self._patience())
        self._write("acquire", "invoke", lock=name)
        entered: list[Held] = []

        async def body(lease: Any) -> None:
            entered.append(Held(lock, lease))
            self._got(entered[0])
            try:
                await self._work(entered[0], self._settings.ttl * self._random.uniform(0.0, 1.3))
            finally:
                self._write("release", "invoke", lock=lease.name, token=lease.token)

        try:
            await self._world.within(lock, body)
        except LockLost as lost:
            lease = entered[0].lease
            self._write("release", "fail", lock=lease.name, token=lease.token, reason=lost.reason)
        except LockUnavailable as refused:
            self._write("acquire", "fail", lock=name, detail=_why(refused))
        else:
            self._released(entered[0].lease)
        finally:
            for held in entered:
                self._held.pop(held.lease.token, None)

    async def _impatient(self, name: str) -> None:
        held = await self._take(name, patience=0.0)
        if held is not None:
            await self._work(held, self._random.uniform(0, 0.05))
            await self._give_back(held)

    async def _cancelled(self, name: str) -> None:
        """Cancelled at any moment, wherever it is then."""
        await self._world.cancel_after(self._random.uniform(0, 0.2), self._short(name))

    async def _giving(self, name: str) -> None:
        """To another process, by token and fence, without a release."""
        held = await self._take(name, auto_extend=False, bound=False)
        if held is None:
            return
        await self._work(held, self._random.uniform(0, 0.03))
        lease = held.lease
        if lease.remaining() > 0.6 * self._settings.ttl:
            self._given[lease.token] = held
            self._handovers.offer(Offer(name, lease.token, lease.fence, lease.valid_until, self._process))
        else:
            await self._give_back(held)

    async def _taking(self, name: str) -> None:
        """From another process; if nothing is offered it takes the lock ``name`` instead."""
        offer = self._handovers.take(self._process, at_least=self._settings.ttl / 2)
        if offer is None:
            return await self._short(name)
        lock = self._world.masters.resume(
            offer.lock, token=offer.token, fence=offer.fence, ttl=self._settings.ttl, on_lost=self._lost
        )
        self._write("resume", "invoke", lock=offer.lock, token=offer.token)
        try:
            lease = await self._world.result(lock.acquire())
        except (LockLost, QuorumUnreachable) as error:
            self._write("resume", "fail", lock=offer.lock, token=offer.token, detail=type(error).__name__)
            return None
        held = Held(lock, lease)
        self._held[offer.token] = self, lease
        self._write(
            "resume", "ok", lock=offer.lock, token=offer.token, fence=offer.fence, valid_until=lease.valid_until,
            votes=self._votes.of(LeaseExtended, offer.token),
        )  # fmt: skip
        self._handovers.confirm(offer)
        await self._work(held, self._settings.ttl * self._random.uniform(0.0, 1.5))
        return await self._give_back(held)

    async def _naive(self, name: str) -> None:
        """Looks at its lease, then takes its time, then writes: what happens in between it cannot see."""
        held = await self._take(name, auto_extend=False)
        if held is None:
            return
        await self._use(
            held,
            self._random.choice(("fenced", "plain", "plain")),
            takes=self._random.uniform(0.05, 0.2) * self._settings.ttl,
        )
        await self._give_back(held)

    async def _transacting(self, name: str) -> None:
        """One transaction, which takes about as long as the lease: it is kept by the library, or it runs out."""
        held = await self._take(name, auto_extend=self._random.random() < 0.5)  # noqa: PLR2004 - one of two
        if held is None:
            return
        await self._use(held, "fenced", takes=self._settings.ttl * self._random.uniform(0.1, 0.8))
        await self._give_back(held)

    async def _queueing(self, name: str) -> None:
        """Long enough for all that wait in line."""
        held = await self._take(name)
        if held is not None:
            await self._work(held, self._random.uniform(0.05, 0.3))
            await self._give_back(held)

    async def _leading(self, name: str) -> None:
        """A candidate for a few terms, until it is stopped."""
        election = self._world.masters.leader(name, ttl=self._settings.ttl, retry=None)
        stop_at = now() + self._settings.ttl * self._random.uniform(0.5, 4.0)
        threading.Thread(target=self._stop_at, args=(election, stop_at), daemon=True).start()
        self.leading = True
        self._write("acquire", "invoke", lock=name)

        async def body(term: Any) -> None:
            held = Held(None, term.lease)
            self._got(held)
            try:
                await self._work(held, self._settings.ttl * self._random.uniform(0.0, 1.5))
            finally:
                self._write("release", "invoke", lock=name, token=term.lease.token)

        def after(term: Any) -> None:
            self._held.pop(term.lease.token, None)
            phase: Phase = "fail" if term.lost else "ok"
            self._write("release", phase, lock=name, token=term.lease.token)
            self._write("acquire", "invoke", lock=name)

        await self._world.lead(election, body, after)
        self._write("acquire", "fail", lock=name, detail="stopped")
        self.leading = False

    def _stop_at(self, election: Any, t: float) -> None:
        """In a thread of its own: a body of threads waits for nobody."""
        while now() < t and self._stage.working and not self._stage.over:
            time.sleep(0.01)
        election.stop()

    # -- the steps -------------------------------------------------------------------------------------

    def _patience(self) -> float:
        longest = 4.0 if self._settings.work == "queueing" else 1.0
        return self._random.uniform(0.05, longest) * self._settings.ttl

    def _lock(self, name: str, **options: Any) -> Any:
        if self._settings.wait is not None:
            options["retry"] = wait_random(0, self._settings.wait)
        if self._settings.work == "sharing":
            options.setdefault("shared", self._random.random() < _READS)
        if self._settings.work == "queueing":
            options["fair"] = True
        if self._settings.slots:
            options["limit"] = self._settings.slots
        make = self._world.masters.slots if self._settings.slots else self._world.masters.lock
        return make(name, ttl=self._settings.ttl, on_lost=self._lost, **options)

    async def _take(self, name: str, *, patience: float | None = None, **options: Any) -> Held | None:
        lock = self._lock(name, **options)
        self._write("acquire", "invoke", lock=name)
        try:
            if patience == 0.0:
                lease = await self._world.result(lock.acquire(blocking=False))
            else:
                lease = await self._world.result(lock.acquire(timeout=self._patience()))
        except QuorumUnreachable as error:
            self._write("acquire", "fail", lock=name, detail=_why(error))
            return None
        except CancelledError:
            self._write("acquire", "info", lock=name, detail="cancelled")
            raise
        if lease is None:
            self._write("acquire", "fail", lock=name, detail="held")
            return None
        held = Held(lock, lease)
        self._got(held)
        return held

    def _got(self, held: Held) -> None:
        """On a busy machine it may have been renewed before its holder comes to this."""
        lease = held.lease
        self._held[lease.token] = self, lease
        heard, until = self._votes.granted.pop(lease.token)
        self._write(
            "acquire", "ok", t=heard, lock=lease.name, token=lease.token, fence=lease.fence,
            valid_until=min(until, lease.valid_until),
            mode="shared" if lease.shared else None, votes=self._votes.of(LockAcquired, lease.token),
            settled=self._votes.settled.pop(lease.token, None),
        )  # fmt: skip
        self.extended(lease)

    async def _give_back(self, held: Held) -> None:
        lease = held.lease
        self._write("release", "invoke", lock=lease.name, token=lease.token)
        try:
            await self._world.result(held.lock.release())
        except LockLost as lost:
            self._write("release", "fail", lock=lease.name, token=lease.token, reason=lost.reason)
        else:
            self._released(lease)
        finally:
            self._held.pop(lease.token, None)

    def _released(self, lease: Any) -> None:
        votes = self._votes.of(LockReleased, lease.token)
        self._write("release", "ok", lock=lease.name, token=lease.token, votes=votes)

    async def _extend(self, held: Held) -> bool:
        """Whether there is anything left to go on with.  That it was won is written by `extended`."""
        lease = held.lease
        self._write("extend", "invoke", lock=lease.name, token=lease.token)
        try:
            await self._world.result(held.lock.extend())
        except NotExtended:
            self._write("extend", "info", lock=lease.name, token=lease.token, detail="unanswered")
        except LockLost as lost:
            self._write("extend", "fail", lock=lease.name, token=lease.token, reason=lost.reason)
            return False
        return True

    def _lost(self, lease: Any) -> None:
        """Told by the library, in whatever thread."""
        if lease.token in self._given and not self._handovers.withdraw(lease.token):
            return  # it is somebody else's, who will be told
        loss = lease.loss()
        self._pulse.look()  # the nemesis may kill this client now, before its next note
        self._write("lost", "info", lock=lease.name, token=lease.token, reason=loss.reason, votes=told(loss.votes))

    async def _work(self, held: Held, seconds: float, *, until_lost: bool = True) -> None:
        """Use what the lock protects now and then, for as long as the lease is valid."""
        until = now() + seconds
        while await self._use(held, "fenced") and await self._use(held, "plain"):
            if now() >= until or self._stage.over or not self._stage.working:
                return
            await self._world.sleep(min(self._random.uniform(0, 0.1), max(0.0, until - now())))
        while not until_lost and now() < until and self._stage.working:
            await self._world.sleep(0.01)

    async def _use(self, held: Held, store: Store, *, takes: float = 0.0) -> bool:
        """One read-modify-write; False: the lease is not valid any more."""
        lease = held.lease
        t = now()  # first the time, then the look: it was valid then
        if not lease.valid:
            return False
        what = {"lock": lease.name, "token": lease.token, "fence": lease.fence, "store": store}
        self._write("use", "invoke", t=t, **what)
        try:
            if store == "fenced" and self._accounts is not None:
                written = await self._accounts.add_one(self._world, lease, self._random, takes)
            else:
                written = await self._in_steps(store, lease, takes)
        except Busy:
            self._write("use", "info", **what, detail="the store is busy")
        except CommitUnknown:
            self._write("use", "info", **what, detail="the commit got no answer")
        except CancelledError:
            self._write("use", "info", **what, detail="cancelled")
            raise
        else:
            self._write("use", "ok", t=written.t, **what, accepted=written.accepted, detail=written.detail)
        return True

    async def _in_steps(self, store: Store, lease: Any, takes: float) -> Written:
        version = await self._world.aside(self._stores.read, store, lease.name, lease.fence)
        if takes:
            await self._world.sleep(takes)
        if version is None:
            return Written(now(), accepted=False)
        return await self._world.aside(self._stores.write, store, lease.name, lease.fence, version)


def _why(refused: LockUnavailable) -> str:
    return "unreachable" if isinstance(refused, QuorumUnreachable) else "held"
