"""How long a transaction may take: the lease, the operator and a body that waits for something else (R39)."""

import asyncio
import contextlib
import time

import psycopg
import pymysql
import pytest
import sqlalchemy
from sqlalchemy import text
from sqlalchemy.ext.asyncio import create_async_engine

from redlock.fenced import PausedTooLong, fenced
from tests.fenced import banks, struck

ERRORS = (psycopg.Error, pymysql.Error, sqlalchemy.exc.DBAPIError)
PAUSE = 1.0


@pytest.fixture(params=["postgresql", "mariadb"])
def server(request):
    """A new database of each server."""
    return (banks.in_postgresql if request.param == "postgresql" else banks.in_mariadb)(
        request.getfixturevalue(request.param)
    )


def short_lock():
    """A lease that is renewed, and had a second left when the transaction began."""
    lock = struck.lock()
    lock.lease.remaining = lambda: PAUSE
    return lock


def provider(bank, session):
    """It takes so long that the database has ended the session meanwhile."""
    ((me,),) = bank.run(session, "SELECT pg_backend_pid()" if bank.kind == "postgresql" else "SELECT CONNECTION_ID()")
    mine = (
        f"SELECT pid FROM pg_stat_activity WHERE pid = {me}"  # noqa: S608
        if bank.kind == "postgresql"
        else f"SELECT id FROM information_schema.processlist WHERE id = {me}"  # noqa: S608
    )
    with bank.session() as other:
        while list(bank.run(other, mine)):
            other.rollback()  # PostgreSQL shows one transaction one state
            time.sleep(0.1)


@pytest.mark.parametrize("writes", [True, False], ids=["and writes then", "and has written before"])
@pytest.mark.parametrize("way", ["plain", "Connection", "Session"])
def test_a_body_that_calls_a_slow_provider_is_told_what_happened(server, way, writes):
    """It was the driver's error, at the next statement or at the end, at every retry."""
    other = banks.through_sqlalchemy(server)
    make = {"plain": server.open, "Connection": lambda: other.open().get_bind().connect(), "Session": other.open}[way]
    session = make()
    lock = short_lock()
    with pytest.raises(PausedTooLong) as told, fenced(lock, session):
        server.pay(session, 50)
        provider(server, session)
        if writes:
            server.pay(session, 40)
    assert told.value.name == "account:7"
    assert "a pause between two statements may last 1.0 s" in str(told.value)
    assert "between two fenced(lease, ...) of one lease" in str(told.value)
    assert isinstance(told.value.__cause__, ERRORS)
    assert lock.free
    assert server.stored == 100


async def test_a_task_that_calls_a_slow_provider_is_told_what_happened(async_masters, postgresql):
    bank = banks.in_postgresql(postgresql)
    engine = create_async_engine(f"postgresql+psycopg://redlock@/{bank.name}?host={postgresql}")
    async with async_masters.lock("account:7", ttl=2.0) as lease, engine.connect() as session:
        with pytest.raises(PausedTooLong):
            async with fenced(lease, session):
                await session.execute(text("UPDATE account SET balance = 50"))
                await asyncio.sleep(3.0)
        assert lease.valid
    await engine.dispose()
    assert bank.stored == 100


def test_a_connection_that_is_lost_sooner_is_told_as_it_is(server):
    end = "SELECT pg_terminate_backend({})" if server.kind == "postgresql" else "KILL CONNECTION {}"
    with server.session() as session, server.session() as other, pytest.raises(ERRORS), fenced(struck.lock(), session):
        me = session.info.backend_pid if server.kind == "postgresql" else session.thread_id()
        server.run(other, end.format(me))
        server.pay(session, 50)
    assert server.stored == 100


def test_an_error_of_a_body_that_is_slow_is_told_as_it_is(server):
    with server.session() as session, pytest.raises(ZeroDivisionError), fenced(short_lock(), session):
        provider(server, session)
        1 / 0  # noqa: B018


LIMITS = {
    "postgresql": {"statement_timeout": ("700ms", "30s"), "idle_in_transaction_session_timeout": ("1500ms", "1h")},
    "mariadb": {
        "max_statement_time": ("0.7", "30.0"),
        "idle_write_transaction_timeout": ("1", "40"),
        "idle_transaction_timeout": ("1", "40"),
        "wait_timeout": ("1", "40"),
        "innodb_lock_wait_timeout": ("0", "30"),
    },
}


@pytest.mark.parametrize(("kind", "limit"), [(kind, limit) for kind, limits in LIMITS.items() for limit in limits])
@pytest.mark.parametrize("way", ["plain", "sqlalchemy"])
def test_the_smaller_limit_counts(request, kind, limit, way):
    """An operator had limited what a role may do, and `fenced` made that wider."""
    bank = (banks.in_postgresql if kind == "postgresql" else banks.in_mariadb)(request.getfixturevalue(kind))
    ours = {"max_statement_time": "10.0", "statement_timeout": "10s", "idle_in_transaction_session_timeout": "10s"}
    smaller, larger = LIMITS[kind][limit]
    make = bank.open if way == "plain" else banks.through_sqlalchemy(bank).open().get_bind().connect
    with contextlib.closing(make()) as session:

        def shown(name):
            show = f"SELECT current_setting('{name}')" if kind == "postgresql" else f"SELECT @@SESSION.{name}"
            return str(bank.run(session, show).fetchone()[0])

        for value, counts in ((smaller, smaller), (larger, ours.get(limit, "10"))):
            bank.run(session, f"SET SESSION {limit} = '{value}'" if kind == "postgresql" else f"SET {limit} = {value}")
            session.commit()
            lock = struck.lock()
            lock.lease.remaining = lambda: 10.0
            counted = (
                "idle_write_transaction_timeout" if limit in ("idle_transaction_timeout", "wait_timeout") else limit
            )
            with fenced(lock, session):
                assert shown(counted) == counts
            assert shown(limit) == value
            session.rollback()
