"""A lock that is given back while a transaction is open is a warning (R39)."""

import asyncio
import gc
import warnings

import pytest
import sqlalchemy
from sqlalchemy import text
from sqlalchemy.ext.asyncio import create_async_engine

from redlock import AsyncMasters, LockReleased, Masters
from redlock.fenced import OpenTransactions, ReleasedBeforeCommit
from tests.servers.look import Doing


@pytest.fixture
def engine(tmp_path):
    engine = sqlalchemy.create_engine(f"sqlite:///{tmp_path}/bank")
    yield engine
    engine.dispose()


def test_a_session_that_commits_behind_the_lock(redlock_servers, engine):
    with Masters(redlock_servers.urls, restart_guard=False, observer=OpenTransactions(engine)) as masters:
        what = "the lock 'account:7' was released while a transaction was open"
        with pytest.warns(ReleasedBeforeCommit, match=what), engine.begin() as connection, masters.lock("account:7"):
            connection.execute(text("SELECT 1"))


def test_a_commit_and_a_rollback_before_the_release_are_no_trap(redlock_servers, engine):
    with (
        Masters(redlock_servers.urls, restart_guard=False, observer=OpenTransactions(engine)) as masters,
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("error")
        with masters.lock("account:7"), engine.connect() as connection:
            connection.execute(text("SELECT 1"))
            connection.commit()
            connection.execute(text("SELECT 1"))
            connection.rollback()


def test_the_transaction_of_another_thread_is_its_own_affair(redlock_servers, engine):
    events: list[object] = []
    with Masters(
        redlock_servers.urls, restart_guard=False, observer=OpenTransactions(engine, then=events.append)
    ) as masters:

        async def other():
            with engine.begin() as connection:
                connection.execute(text("SELECT 1"))
                await asyncio.to_thread(one)

        def one():
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                with masters.lock("account:7"):
                    pass

        asyncio.run(other())
    assert [event.name for event in events if isinstance(event, LockReleased)] == ["account:7"]


async def test_tasks_of_asyncio(redlock_servers, tmp_path):
    engine = create_async_engine(f"sqlite+aiosqlite:///{tmp_path}/bank")
    observer = OpenTransactions(engine.sync_engine)
    async with AsyncMasters(redlock_servers.urls, restart_guard=False, observer=observer) as masters:
        with pytest.warns(ReleasedBeforeCommit):
            async with engine.begin() as connection, masters.lock("account:7"):
                await connection.execute(text("SELECT 1"))
    await engine.dispose()


def test_threads_that_drop_their_connections_give_them_back(redlock_servers, tmp_path):
    """They were kept for the observer: the pool was empty, and threads of the same number were warned for them."""
    engine = sqlalchemy.create_engine(f"sqlite:///{tmp_path}/bank", pool_size=2, max_overflow=0, pool_timeout=5)
    with Masters(redlock_servers.urls, restart_guard=False, observer=OpenTransactions(engine)) as masters:

        def drops():
            engine.connect().execute(text("SELECT 1"))

        def locks():
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                with masters.lock("account:7"):
                    pass

        for _ in range(5):
            assert Doing(drops).end() is None
            gc.collect()
        with engine.connect() as kept:  # by another thread, which then ends; its number may be given to the next one
            assert Doing(lambda: bool(kept.execute(text("SELECT 1")))).end() is True
            assert Doing(locks).end() is None
    engine.dispose()
