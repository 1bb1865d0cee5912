"""Fenced transactions of asyncio: sessions and connections of SQLAlchemy (R39)."""

import asyncio
import contextlib
import time
from typing import Any

import pytest
from sqlalchemy import AsyncAdaptedQueuePool, text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

from redlock import ConfigurationError
from redlock.fenced import fenced
from tests.fenced import banks, struck

READ, WRITE = text("SELECT balance FROM account"), text("UPDATE account SET balance = :balance")


@pytest.fixture(params=["sqlite", "postgresql"])
def engine(request, tmp_path):
    """Of an account in either database."""
    if request.param == "sqlite":
        banks.in_sqlite(tmp_path)
        return create_async_engine(f"sqlite+aiosqlite:///{tmp_path}/bank")
    return in_postgresql(request.getfixturevalue("postgresql"))


def in_postgresql(host):
    return create_async_engine(f"postgresql+psycopg://redlock@/{banks.in_postgresql(host).name}?host={host}")


@pytest.fixture
def sqlite(tmp_path):
    """Its connection can be struck."""
    banks.in_sqlite(tmp_path)
    driver = {"connect_args": {"factory": struck.Struck}, "poolclass": AsyncAdaptedQueuePool, "pool_size": 1}
    return create_async_engine(f"sqlite+aiosqlite:///{tmp_path}/bank", **driver)


async def stored(engine):
    async with engine.connect() as connection:
        return (await connection.execute(READ)).scalar_one()


async def test_a_connection_serves_as_well_as_a_session(async_masters, engine):
    async with engine.connect() as connection:
        async with fenced(async_masters.lock("account:7"), connection) as lease:
            await connection.execute(WRITE, {"balance": 60})
        rows = (await connection.execute(text("SELECT name, fence FROM redlock_fence"))).all()
    assert [tuple(row) for row in rows] == [("account:7", lease.fence)]
    assert await stored(engine) == 60


async def test_a_session_for_threads_is_refused(async_masters, engine):
    with pytest.raises(ConfigurationError, match="allowed are AsyncSession and AsyncConnection"):
        fenced(async_masters.lock("account:7"), object())


async def test_a_connection_that_was_not_started_is_told_in_words(async_masters, engine):
    """`AsyncConnection` was refused, and said to be allowed."""
    connection = engine.connect()
    with pytest.raises(ConfigurationError, match=r"await connection\.start\(\)"):
        fenced(async_masters.lock("account:7"), connection)
    await connection.start()
    async with fenced(async_masters.lock("account:7"), connection):
        await connection.execute(WRITE, {"balance": 42})
    await connection.close()
    assert await stored(engine) == 42


def once(statement, condition):
    """Strikes before the first such statement: its thread waits for something."""
    left = [statement]

    def strike(sql, when):
        if sql in left:
            left.clear()
            while not condition():
                time.sleep(0.01)

    return strike


async def driver_of(session):
    """The connection that can be struck."""
    connection: Any = await session.connection() if isinstance(session, AsyncSession) else session
    return (await connection.get_raw_connection()).driver_connection._conn


async def test_a_lease_that_is_lost_while_the_commit_is_on_its_way(async_masters, sqlite):
    """It was cancelled, and the body was told that it was rolled back, though it was committed."""
    task: Any = asyncio.current_task()
    for made in AsyncSession(sqlite), sqlite.connect():
        async with made as session, fenced(async_masters.lock("account:7", ttl=1.0, auto_extend=False), session):
            driver = await driver_of(session)
            driver.strike = once("COMMIT", task.cancelling)
            balance = (await session.execute(READ)).scalar_one()
            await session.execute(WRITE, {"balance": balance - 1})
        assert not task.cancelling()
    assert await stored(sqlite) == 98


async def test_an_election_that_is_stopped_while_the_commit_is_on_its_way(async_masters, sqlite):
    """Nobody would hear that the outcome is not known: a body that is told to end may end in that way."""
    task: Any = asyncio.current_task()
    loop, election = asyncio.get_running_loop(), async_masters.leader("boss")
    ended = []

    def stopped():
        loop.call_soon_threadsafe(election.stop)
        return task.cancelling()

    async for term in election.terms():
        async with term, AsyncSession(sqlite) as session:
            try:
                async with fenced(term, session):
                    (await driver_of(session)).strike = once("COMMIT", stopped)
                    await session.execute(WRITE, {"balance": 50})
            except asyncio.CancelledError as cancelled:
                ended.append(getattr(cancelled, "__notes__", []))
                raise
    assert ended == [["the transaction under 'boss' was committed before that"]]
    assert await stored(sqlite) == 50


async def test_a_body_that_raises_when_its_lease_has_ended(async_masters, sqlite):
    """Its own error wins.  The loss had cancelled the rollback, and with it went the error."""
    task: Any = asyncio.current_task()
    for made in AsyncSession(sqlite), sqlite.connect():
        with pytest.raises(ZeroDivisionError):
            async with made as session, fenced(async_masters.lock("account:7", ttl=1.0, auto_extend=False), session):
                driver = await driver_of(session)
                await session.execute(WRITE, {"balance": 0})
                driver.strike = once("ROLLBACK", task.cancelling)
                1 / 0  # noqa: B018
        assert not task.cancelling()
        assert not driver.in_transaction
    assert await stored(sqlite) == 100


async def test_a_commit_that_is_cancelled_from_outside(async_masters, sqlite):
    """C13: that goes on, at once.  It says that the outcome is not known."""
    loop, came = asyncio.get_running_loop(), asyncio.Event()
    may_go_on: list[bool] = []

    async def work():
        async with AsyncSession(sqlite) as session, fenced(async_masters.lock("account:7"), session):
            driver = await driver_of(session)

            def committing():
                loop.call_soon_threadsafe(came.set)
                return may_go_on

            driver.strike = once("COMMIT", committing)
            await session.execute(WRITE, {"balance": 50})

    task = asyncio.create_task(work())
    await came.wait()
    task.cancel()
    loop.call_later(0.1, may_go_on.append, True)
    with pytest.raises(asyncio.CancelledError) as cancelled:
        await task
    assert "look in the database" in cancelled.value.__notes__[0]
    assert not await async_masters.lock("account:7").locked()


async def test_an_asynchronous_generator_that_is_closed(async_masters, sqlite):
    """It may wait: the lock is free when the transaction is over, and the next user of the connection finds it as it was."""
    seen = {}

    async def generator():
        async with AsyncSession(sqlite) as session, fenced(async_masters.lock("account:7"), session) as lease:
            driver = seen["driver"] = await driver_of(session)
            driver.strike = lambda sql, when: seen.setdefault(sql, lease.valid)
            await session.execute(WRITE, {"balance": 0})
            yield

    async with sqlite.connect() as connection:
        level = (await driver_of(connection)).isolation_level
    async with contextlib.aclosing(generator()) as rows:
        async for _ in rows:
            break
    assert seen["ROLLBACK"] is True  # it had the lock then
    assert seen["driver"].isolation_level == level
    assert not seen["driver"].in_transaction
    del seen["driver"].strike
    assert not await async_masters.lock("account:7").locked()
    assert await stored(sqlite) == 100


async def test_a_coroutine_that_is_thrown_away(async_masters, sqlite):
    """It must not wait.  Who has the session ends the transaction, and the connection is as it was."""
    inside = []

    async def work(session):
        async with fenced(async_masters.lock("account:7"), session):
            await session.execute(WRITE, {"balance": 0})
            inside.append(await driver_of(session))
            await asyncio.sleep(0)

    async with sqlite.connect() as connection:
        level = (await driver_of(connection)).isolation_level
    async with AsyncSession(sqlite) as session:
        coroutine = work(session)
        while not inside:
            future = coroutine.send(None)
            if future is not None:
                future._asyncio_future_blocking = False
                await asyncio.wait([future])
        coroutine.close()
        await session.rollback()
        assert inside[0].isolation_level == level
        assert not inside[0].in_transaction
        assert (await session.execute(READ)).scalar_one() == 100  # the session goes on
