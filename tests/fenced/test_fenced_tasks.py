"""Fenced transactions of asyncio: sessions and connections of SQLAlchemy (R39)."""

from __future__ import annotations

import asyncio

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

from redlock import AsyncMasters, ConfigurationError, LockLost
from redlock.fenced import FenceRefused, fenced, schema
from tests.fenced import banks

READ, WRITE = text("SELECT balance FROM account"), text("UPDATE account SET balance = :balance")


@pytest.fixture(params=["sqlite", "postgresql"])
def engine(request, tmp_path):
    """Made for each test, for an engine belongs to a loop."""
    if request.param == "sqlite":
        return lambda: create_async_engine(f"sqlite+aiosqlite:///{tmp_path}/bank")
    host = request.getfixturevalue("postgresql")
    name = request.getfixturevalue("database")
    return lambda: create_async_engine(f"postgresql+psycopg://redlock@/{name}?host={host}")


@pytest.fixture
def database(postgresql):
    return banks.in_postgresql(postgresql).name


def scene(function):
    """Run a coroutine function with masters and an engine."""

    def test(redlock_servers, engine):
        async def run():
            made = engine()
            try:
                async with AsyncMasters(redlock_servers.urls, restart_guard=False) as masters:
                    async with made.begin() as connection:
                        await connection.execute(text(schema(made.dialect.name)))
                        await connection.execute(text("DROP TABLE IF EXISTS account"))
                        await connection.execute(text("CREATE TABLE account (balance INTEGER)"))
                        await connection.execute(text("INSERT INTO account VALUES (100)"))
                    await function(masters, made)
            finally:
                await made.dispose()

        asyncio.run(run())

    test.__name__ = test.__qualname__ = function.__name__
    test.__doc__ = function.__doc__
    return test


async def stored(engine):
    async with engine.connect() as connection:
        return (await connection.execute(READ)).scalar_one()


@scene
async def test_what_the_body_wrote_is_there_before_the_next_holder_reads(masters, engine):
    async def work():
        for _ in range(5):
            async with AsyncSession(engine) as session, fenced(masters.lock("account:7", timeout=60), session):
                balance = (await session.execute(READ)).scalar_one()
                await session.execute(WRITE, {"balance": balance - 1})

    await asyncio.gather(*[work() for _ in range(4)])
    assert await stored(engine) == 80


@scene
async def test_a_connection_serves_as_well_as_a_session(masters, engine):
    async with engine.connect() as connection:
        async with fenced(masters.lock("account:7"), connection) as lease:
            await connection.execute(WRITE, {"balance": 60})
        rows = (await connection.execute(text("SELECT name, fence FROM redlock_fence"))).all()
    assert [tuple(row) for row in rows] == [("account:7", lease.fence)]
    assert await stored(engine) == 60


@scene
async def test_a_body_is_cancelled_when_its_lease_is_lost_and_nothing_is_written(masters, engine):
    async with AsyncSession(engine) as session:
        with pytest.raises(LockLost):
            async with fenced(masters.lock("account:7", ttl=2.0, auto_extend=False), session):
                await session.execute(WRITE, {"balance": 0})
                await asyncio.Event().wait()
    assert await stored(engine) == 100


@scene
async def test_a_task_that_is_cancelled_rolls_back_and_gives_the_lock_back(masters, engine):
    begun = asyncio.Event()

    async def work():
        async with AsyncSession(engine) as session, fenced(masters.lock("account:7"), session):
            await session.execute(WRITE, {"balance": 0})
            begun.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(work())
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not await masters.lock("account:7").locked()
    assert await stored(engine) == 100


@scene
async def test_a_holder_that_slept_before_it_began_is_refused(masters, engine):
    async with AsyncSession(engine) as session, fenced(masters.lock("account:7"), session):
        pass
    async with masters.lock("account:7") as lease:
        async with engine.begin() as connection:
            await connection.execute(text("UPDATE redlock_fence SET fence = fence + 1000000000"))
        async with AsyncSession(engine) as session:
            with pytest.raises(FenceRefused):
                async with fenced(lease, session):
                    pytest.fail("the body ran")
    with pytest.raises(LockLost, match="was released"):  # it asks its lease as well
        async with AsyncSession(engine) as session, fenced(lease, session):
            pytest.fail("the body ran")


@scene
async def test_a_term_of_a_leader(masters, engine):
    election = masters.leader("boss")
    async for term in election.terms():
        async with term, AsyncSession(engine) as session:
            async with fenced(term, session):
                await session.execute(WRITE, {"balance": 42})
            election.stop()
    assert await stored(engine) == 42


@scene
async def test_a_session_for_threads_is_refused(masters, engine):
    with pytest.raises(ConfigurationError, match="allowed are AsyncSession and AsyncConnection"):
        fenced(masters.lock("account:7"), object())
