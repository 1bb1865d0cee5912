"""Only type-checked, never run: what users write must pass mypy and pyright in strict mode."""

from __future__ import annotations

from typing import Literal, assert_type

import redis
import redis.asyncio
from tenacity import wait_fixed

from redlock import (
    AsyncElection,
    AsyncLease,
    AsyncMasters,
    AsyncMultiLock,
    AsyncTerm,
    Election,
    Finding,
    Health,
    Lease,
    LockLost,
    LockStatus,
    LockUnavailable,
    Masters,
    MultiLock,
    NotAcquired,
    Probe,
    QuorumUnreachable,
    Term,
    Vote,
)
from redlock.observe import all_of
from redlock.observe.otel import OpenTelemetryObserver
from redlock.observe.prometheus import PrometheusObserver
from redlock.observe.traces import TraceObserver

masters = Masters(["redis://10.0.0.1:6379", redis.Redis()], node_timeout=0.1, restart_guard=False)
assert_type(Masters.from_env("LOCKS", max_ttl=30.0), Masters)

lock = masters.lock("invoice:42", ttl=10, retry=wait_fixed(1))
masters.lock("invoice:42", tll=10)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
masters.lock("invoice:42", ttl="10")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
masters.lock("invoice:42", cancel_on_loss=True)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
Masters.from_env(max_tll=10)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
assert_type(lock, MultiLock)
assert_type(lock.acquire(), Lease | None)
assert_type(lock.acquire(blocking=False), Lease | None)
assert_type(lock.extend(3.0), Lease)
assert_type(lock.locked(), bool)
assert_type(lock.lease, Lease | None)

with lock as lease:
    assert_type(lease, Lease)
    assert_type(lease.fence, int | None)
    assert_type(lease.names, tuple[str, ...])
    assert_type(lease.votes, tuple[Vote, ...])
    assert_type(lease.remaining(), float)
    assert_type(lease.wait_lost(1.0), bool)
    lease.ensure(at_least=2)


@lock
def pay(amount: int, *, currency: str = "EUR") -> str:
    return f"{amount} {currency}"


assert_type(pay(1, currency="USD"), str)


@masters.synchronized("invoice:{number}", ttl=10)
def send(number: int, *, urgent: bool = False) -> str:
    return f"{number} {urgent}"


def both(number: int) -> list[str]:
    return ["a", f"b:{number}"]


@masters.synchronized(both, on_busy="skip")
def skipped(number: int) -> str:
    return f"{number}"


class Account:
    number = 1

    @masters.synchronized("account:{self.number}")
    def close(self, reason: str) -> bool:
        return bool(reason)


assert_type(send(1, urgent=True), str)
assert_type(skipped(1), str | None)
assert_type(Account().close("moved"), bool)
send("1")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
send(1, slow=True)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
masters.synchronized("{number}", tll=10)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
masters.synchronized("{number}", busy=0)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
masters.synchronized("{number}", on_busy="ignore")  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
masters.synchronized(5)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]

status = masters.status("invoice:42")
assert_type(status, LockStatus)
assert_type(status.token, str | None)
assert_type(status.remaining, float)

health = masters.check(timeout=1, probe=False)
assert_type(health, Health)
assert_type(health.quorum.probe, Probe | None)
assert_type(health.masters[0].findings, tuple[Finding, ...])
if health.status == "CRITICAL":
    print(health.summary)

try:
    pay(2)
except QuorumUnreachable as error:
    assert_type(error.votes, tuple[Vote, ...])
except NotAcquired as error:
    assert_type(error.kind, Literal["held", "nobody", "crowded"])
except LockUnavailable as error:
    assert_type(error.name, str)
except LockLost as error:
    print(error.reason)


# -- asyncio -----------------------------------------------------------------------------------------

async_masters = AsyncMasters(["redis://10.0.0.1:6379", redis.asyncio.Redis()], node_timeout=0.1)
assert_type(AsyncMasters.from_env("LOCKS", max_ttl=30.0), AsyncMasters)
async_lock = async_masters.lock(["a", "b"], ttl=10, retry=wait_fixed(1))
async_masters.lock("a", cancel_on_loss=False)
async_masters.lock("a", cancel_on_loss=0.5)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
assert_type(async_lock, AsyncMultiLock)
assert_type(AsyncMultiLock("a", ["redis://10.0.0.1"]), AsyncMultiLock)


@async_masters.synchronized(both, on_busy="skip")
async def skipped_later(number: int) -> str:
    return f"{number}"


@async_masters.synchronized("invoice:{number}", on_busy="skip", busy=0)
async def counted_later(number: int) -> str:
    return f"{number}"


async_masters.synchronized("{n}", cancel_on_loss=False)(pay)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


# -- leaders -----------------------------------------------------------------------------------------

election = masters.leader("scheduler", ttl=15, max_hold=3600)
assert_type(election, Election)
masters.leader("scheduler", fencing=False)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
assert_type(election.term, Term | None)
assert_type(election.status(), LockStatus)


def lead(term: Term) -> None:
    assert_type(term.number, int)
    assert_type(term.wait_stop(1.0), bool)


async def lead_later(term: AsyncTerm) -> None:
    assert_type(term.lease, AsyncLease)


election.run(lead, on_stopped=lead, on_new_leader=print, signals=(), on_error="retry")
election.run(lead_later)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
for one in election.terms():
    with one as entered:
        assert_type(entered, Term)


async def main() -> None:
    async_election = async_masters.leader("scheduler")
    assert_type(async_election, AsyncElection)
    await async_election.run(lead_later, on_stopped=lead_later)
    async for one in async_election.terms():
        async with one as entered:
            assert_type(entered, AsyncTerm)
    assert_type(await async_lock.acquire(blocking=False), AsyncLease | None)
    assert_type(await async_lock.extend(3.0), AsyncLease)
    assert_type(await async_lock.locked(), bool)
    async with async_lock as async_lease:
        assert_type(async_lease, AsyncLease)
        assert_type(async_lease.fence, int | None)
        assert_type(await async_lease.wait_lost(1.0), bool)
    assert_type(await skipped_later(1), str | None)
    assert_type(await counted_later(1), str | int)
    await skipped_later("1")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    async with AsyncMasters(["redis://10.0.0.1"]) as mine:
        assert_type(mine, AsyncMasters)
        assert_type(await mine.status("invoice:42"), LockStatus)
        assert_type(await mine.check(), Health)
    await async_masters.close()


# -- metrics -----------------------------------------------------------------------------------------

observer = all_of(
    PrometheusObserver(label=lambda name: name.partition(":")[0]), OpenTelemetryObserver(), TraceObserver(), print
)
assert_type(Masters(["redis://10.0.0.1"], observer=observer), Masters)
