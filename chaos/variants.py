"""Broken locks, by name: what the harness must be able to see through real clients and real servers.

Each breaks one rule by patching one small thing of the library, in client processes only.  A scenario that
is green for all of these would prove nothing by being green.
"""

from __future__ import annotations

import asyncio
import math
import secrets
import time
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

from redlock import scripts
from redlock._core import extend_many, renewals, wire
from redlock._core.fair import target as fair
from redlock._core.kernel import attempt, ballot as ballots, extension as extending, quorum, validity
from redlock._core.kernel.extension import Extension
from redlock._core.kernel.release import Claim
from redlock._core.lease import LeaseState, PendingExtension
from redlock._core.modes import EXCLUSIVE
from redlock._core.rates import Rates
from redlock._io import deployment
from redlock._lock import election_async as asyncio_election, election_threads as threads_election, lock as locks
from redlock._system import clock
from redlock.fenced import _store as fenced_store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from redlock._core.effects import Op
    from redlock._core.kernel.rounds import Round
    from redlock._core.settings import LockSpec, MastersSettings

    from .history import Must


@dataclass(frozen=True, slots=True)
class Variant:
    """One way to get it wrong.  In ``scenario`` it has to break ``breaks``."""

    name: str
    what: str
    scenario: str
    breaks: Must
    apply: Callable[[], None]


VARIANTS: Final[dict[str, Variant]] = {}


def _variant(name: str, *, scenario: str, breaks: Must) -> Callable[[Callable[[], None]], None]:
    def add(apply: Callable[[], None]) -> None:
        VARIANTS[name] = Variant(name, (apply.__doc__ or "").strip().removesuffix("."), scenario, breaks, apply)

    return add


@_variant("minority", scenario="partition", breaks="exclusive")
def _() -> None:
    """Less than half of the masters are enough (R1)"""
    _patch(quorum, "majority", lambda masters: max(1, masters // 2))


@_variant("no-owner-check", scenario="stop-clients", breaks="exclusive")
def _() -> None:
    """A release removes the key, whoever holds it (P8)"""
    _patch_script("RELEASE", ("redis.pcall('GET', KEYS[1]) == ARGV[1]", "redis.pcall('GET', KEYS[1])"))


@_variant("no-rollback", scenario="crowd", breaks="live")
def _() -> None:
    """A failed attempt leaves its keys to their TTL (R9)"""

    def rollback(spec: LockSpec, token: str, round_: Round) -> Iterator[Any]:  # noqa: ARG001
        yield from ()

    _patch(attempt, "rollback", rollback)


@_variant("wall-clock", scenario="jumping-clocks", breaks="prompt")
def _() -> None:
    """Validity is measured on a clock that somebody sets (R5)"""
    # Equal to the right one until somebody does, so that the times in the history can be compared.
    ahead = time.time() - clock.now()
    _patch(clock, "now", lambda: time.time() - ahead)


@_variant("one-token", scenario="overrun", breaks="exclusive")
def _() -> None:
    """All attempts of a process have one token: a late release of one removes the key of the next (R8)"""
    # On the masters.  A lease still shows one of its own, or nobody could tell in the history whose it was.
    token = secrets.token_hex(20)

    def with_one(correct: Callable[..., Any]) -> Callable[..., Any]:
        return lambda keys, _, *rest: correct(keys, token, *rest)

    each: dict[str, Any] = {
        name: with_one(getattr(EXCLUSIVE, name)) for name in ("acquire", "extend", "repair", "release")
    }
    broken: Any = EXCLUSIVE._replace(**each)
    _patch(deployment, "EXCLUSIVE", broken)
    _patch(wire, "fence", with_one(wire.fence))
    renew = wire.renew
    _patch(wire, "renew", lambda leases, fence_ttl: renew([(keys, token, ttl) for keys, _, ttl in leases], fence_ttl))


@_variant("fence-by-maximum", scenario="skewed-clocks", breaks="fenced")
def _() -> None:
    """A fence greater than all that were seen, which no majority has stored (R17)"""
    correct = ballots.Ballot.next_round

    def at_once(at: float) -> Op[float]:
        yield from ()
        return at

    def next_round(self: ballots.Ballot, spec: LockSpec, token: str) -> Any:
        second = correct(self, spec, token)
        asks = partial(at_once, self.sent_at)
        return second and SimpleNamespace(proposal=second.proposal, tally=self.tally, ask=lambda _: asks())

    _patch(ballots.Ballot, "next_round", next_round)


@_variant("resurrecting-extension", scenario="stop-clients", breaks="exclusive")
def _() -> None:
    """An extension sets keys that are gone, and a lease whose time is over is valid again (R12)"""

    def extend(
        settings: MastersSettings,
        spec: LockSpec,
        lease: LeaseState,
        ttl: float,
        now: float,  # noqa: ARG001
        **_: bool,
    ) -> Op[Extension]:
        claim = Claim(settings, wire.extend(spec.keys, lease.token, ttl, settings.fence_ttl))
        pending = PendingExtension(float("inf"), ttl)
        lease.begin_extension(pending)
        at = yield from claim.ask()
        if claim.tally.won:
            lease._lost = None
            valid_until = validity.valid_until(claim.sent_at, ttl, settings.drift_factor)
            lease.extended(pending, valid_until, claim.tally.votes)
        lease.end_extension(pending)
        return Extension("extended" if claim.tally.won else "unanswered", at, claim.tally)

    def renew(settings: MastersSettings, ends: dict[Any, Extension], now: float) -> Op[None]:
        for member in ends:
            ends[member] = yield from extend(settings, member.spec, member.lease, member.lease.ttl, now)

    _patch_script(
        "EXTEND",
        ("if redis.pcall('GET', KEYS[i]) ~= token", "if (redis.pcall('GET', KEYS[i]) or token) ~= token"),
        ("redis.call('PEXPIRE', KEYS[i], ttl)", "redis.call('SET', KEYS[i], token, 'PX', ttl)"),
    )
    for module in (extending, renewals, locks):
        _patch(module, "extend", extend)
    for module in (extend_many, renewals):
        _patch(module, "renew", renew)
    _patch(LeaseState, "over", property(lambda lease: lease.released))


@_variant("no-repair", scenario="rolling-restart", breaks="kept")
def _() -> None:
    """A master that forgot a key is never given it back (R14)"""

    def repair(*_: object) -> Iterator[Any]:
        yield from ()

    _patch(extending, "repair", repair)


@_variant("repair-by-fence", scenario="rolling-restart", breaks="kept")
def _() -> None:
    """A waiter's attempt has left a greater fence on a master that forgot a key, and keeps it away from there (R14)"""
    refuse = "if tonumber(redis.call('GET', KEYS[i]) or '0') > fence then return {0} end"
    _patch_script(
        "REPAIR",
        ("for i = 1, n do\n  local found", f"for i = n + 1, #KEYS do {refuse} end\nfor i = 1, n do\n  local found"),
    )


@_variant("counts-no-readers", scenario="readers", breaks="exclusive")
def _() -> None:
    """A writer takes the name although somebody reads (R33)"""
    _patch_script("ACQUIRE", ("return 'shared:', left", "return nil, -2"))


@_variant("slots-counted", scenario="slots", breaks="slots")
def _() -> None:
    """Each master counts holders, and gives any slot that is free there for the one that was asked for (R32)"""
    any_slot = """for i = 1, slots do
    if redis.call('EXISTS', KEYS[slot]) == 1 then slot = i end
  end
  local found, _, wrong = holder(KEYS[slot])"""
    wherever = """for i = 1, n do
  for slot = 0, 2 do
    local there = string.gsub(KEYS[i], '%d$', slot)
    if redis.call('GET', there) == token then KEYS[i] = there end
  end"""
    _patch_script("OCCUPY", ("local found, _, wrong = holder(KEYS[slot])", any_slot))
    _patch_script("VACATE", ("for i = 1, n do", wherever))


@_variant("slots-no-owner-check", scenario="slots", breaks="exclusive")
def _() -> None:
    """A rollback removes the key of a slot, whoever holds it (P8, R32)"""
    _patch_script("VACATE", ("if redis.pcall('GET', KEYS[i]) == token then", "if redis.pcall('GET', KEYS[i]) then"))


@_variant("trusts-expiry", scenario="kleppmann-confirmed", breaks="exclusive")
def _() -> None:
    """A record whose lock key has vanished is taken for a free name, and nobody confirms it (R35)"""
    _patch_script(
        "ACQUIRE_RECORDED",
        ("elseif stamp and not found then", "elseif false then"),
        ("ARGV[2], 'NX', 'PX', ARGV[6]", "ARGV[2], 'PX', ARGV[6]"),
    )


@_variant("records-every-list", scenario="masters-too-early", breaks="exclusive")
def _() -> None:
    """Masters record a list that does not go with one in use, so both work (R34)"""
    _patch_script("FLEET", ("return majority(#ARGV - 5) + majority(size) > all", "return true"))


@_variant("rates-ignored", scenario="slewed", breaks="exclusive")
def _() -> None:
    """The vote of a master counts however fast its clock runs (R43)"""
    _patch(Rates, "votes_from", lambda *_: -math.inf)


@_variant("library-missing", scenario="functions", breaks="live")
def _() -> None:
    """No master has the functions of this version of the wire (R44)"""
    _patch(scripts, "LIBRARY", "redlock_0")


@_variant("resigns-late", scenario="leaders", breaks="handover")
def _() -> None:
    """A leader that has ended keeps the lock for two seconds (R31)"""
    release, release_async = threads_election.ThreadCandidate.release, asyncio_election.TaskCandidate.release

    def late(candidate: Any) -> Any:
        time.sleep(2.0)
        return release(candidate)

    async def late_async(candidate: Any) -> Any:
        await asyncio.sleep(2.0)
        return await release_async(candidate)

    _patch(threads_election.ThreadCandidate, "release", late)
    _patch(asyncio_election.TaskCandidate, "release", late_async)


@_variant("without-fence-row", scenario="transactions", breaks="fenced")
def _() -> None:
    """A transaction raises no fence row, so a successor reads what a commit that is under way will change (R39)"""
    _patch(fenced_store.Store, "raise_fence", lambda *_: None)


@_variant("tickets-by-the-clock", scenario="in-order", breaks="order")
def _() -> None:
    """A ticket has the number that the clock of its client shows, and masters take any number (R42)"""
    look = fair.Ticket.look

    def by_the_clock(ticket: fair.Ticket, settings: MastersSettings) -> Op[tuple[fair.Standing, float]]:
        if not ticket.number:
            ticket.number, ticket._settled = settings.fences._wall_ns() // 1000, True
        return (yield from look(ticket, settings))

    _patch(fair.Ticket, "look", by_the_clock)


@_variant("dead-waiters-stay", scenario="in-order", breaks="live")
def _() -> None:
    """The ticket of a waiter that has died stays for as long as others wait (R42)"""
    ended = "redis.call('ZRANGE', key, string.format('%.0f', -now), '(0', 'BYSCORE', 'LIMIT', 0, 1000),"
    for name in ("TICKET", "ACQUIRE_FAIR"):
        _patch_script(name, (ended, ""))


@_variant("a-holder-jumps-the-queue", scenario="in-order", breaks="order")
def _() -> None:
    """A client that asks again is granted a free name although others wait in order (R42)"""
    _patch_script("ACQUIRE_FAIR", ("elseif turn then", "elseif false then"))


def _patch(where: Any, name: str, value: Any) -> None:
    """There has to be something to be patched, or the variant would not be broken."""
    getattr(where, name)
    setattr(where, name, value)


def _patch_script(name: str, *changes: tuple[str, str]) -> None:
    correct: scripts.Script = getattr(scripts, name)
    text = correct.text
    for old, new in changes:
        if old not in text:
            raise ValueError(f"{correct.name}.lua has no {old!r} any more")
        text = text.replace(old, new)
    correct.__init__(correct.name, text)  # type: ignore[misc]  # wherever it is in use
