"""The table of fences: made in the ways that people make tables, and whose row is whose (R39)."""

import contextlib
import re
import threading
import time
from pathlib import Path
from typing import Any

import psycopg
import pymysql
import pytest
import sqlalchemy
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.operations import Operations
from sqlalchemy import create_engine

from redlock import Masters
from redlock.fenced import FenceRefused, fenced, schema
from tests.fenced import banks, struck
from tests.servers.look import at_once


def test_a_migration_of_alembic(plain, masters):
    """As the page says it; the table that is there already stays, with its rows."""
    bank = banks.through_sqlalchemy(plain)
    with fenced(masters.lock("account:7"), bank.open()) as lease:
        pass
    for drop in (False, True):
        with bank.session() as session:
            op: Any = Operations(MigrationContext.configure(session.connection()))
            if drop:
                op.drop_table("redlock_fence")
            op.execute(schema(op.get_bind().dialect.name))
            session.commit()
        assert bank.fences() == ({} if drop else {"account:7": lease.fence})
    with fenced(masters.lock("account:7"), bank.open()) as session:
        pass


def test_autogenerate_of_alembic_leaves_the_table_alone(plain):
    """With the function of the page; without it the table would be dropped."""
    page = Path("docs/howto/transactions.md").read_text(encoding="utf-8")
    (function,) = re.findall(r"def include_object.*?\n```", page, re.DOTALL)
    known: dict[str, Any] = {}
    exec(function.removesuffix("```"), known)  # noqa: S102
    bank = banks.through_sqlalchemy(plain)
    for opts, dropped in (
        ({}, ["account", "redlock_fence"]),
        ({"include_object": known["include_object"]}, ["account"]),
    ):
        with bank.session() as session:
            context = MigrationContext.configure(session.connection(), opts=opts)
            found = compare_metadata(context, sqlalchemy.MetaData())
        assert sorted(change[1].name for change in found if change[0] == "remove_table") == dropped


@pytest.mark.parametrize("kind", ["postgresql", "mariadb"])
def test_eight_processes_of_a_deployment_make_it_at_once(request, kind):
    """PostgreSQL does not see with IF NOT EXISTS what another one has not committed yet: it failed for half of them."""
    bank = (banks.in_postgresql if kind == "postgresql" else banks.in_mariadb)(request.getfixturevalue(kind))
    for _ in range(5):
        errors: list[BaseException] = []
        together = threading.Barrier(8)

        def make(errors=errors, together=together):
            try:
                with bank.session() as session:
                    together.wait()
                    bank.run(session, schema(kind))
                    session.commit()
            except (psycopg.Error, pymysql.Error) as error:
                errors.append(error)

        with bank.session() as session:
            bank.run(session, "DROP TABLE redlock_fence")
            session.commit()
        at_once([make] * 8)
        assert errors == []
        assert bank.fences() == {}


def test_a_forgotten_table_is_told_in_words(bank):
    lock = struck.lock()
    with bank.session() as session:
        bank.run(session, "DROP TABLE redlock_fence")
        session.commit()
        told = banks.refused(lock, session, match=r"redlock\.fenced\.schema\('")
        assert told.__cause__ is not None
        assert lock.free


def test_names_under_two_prefixes_have_a_row_each(redlock_servers, plain):
    """They shared one, and refused each other.  A row that is there already stays that of the default prefix."""
    with contextlib.ExitStack() as stack:
        shop, crm, usual = (
            stack.enter_context(Masters(redlock_servers.urls, restart_guard=False, prefix=prefix))
            for prefix in ("shop:", "crm:", "redlock:")
        )
        first, second = stack.enter_context(plain.session()), stack.enter_context(plain.session())
        with shop.lock("account:7") as early, crm.lock("account:7") as late:
            for lease, session in ((late, second), (early, first)):
                with fenced(lease, session):
                    pass
            with fenced(usual.lock("account:7"), first) as lease:
                pass
        assert plain.fences() == {"shop:account:7": early.fence, "crm:account:7": late.fence, "account:7": lease.fence}
        with usual.lock(["b", "a"]) as lease, fenced(lease, first):
            pass
        assert {"a", "b"} < set(plain.fences())


def test_a_row_that_is_refused_is_told_by_the_name_of_the_lock(redlock_servers, plain):
    with Masters(redlock_servers.urls, restart_guard=False, prefix="shop:") as masters, plain.session() as session:
        with fenced(masters.lock("account:7"), session):
            pass
        plain.run(session, "UPDATE redlock_fence SET fence = fence + 86400000000")  # a day
        session.commit()
        told = banks.refused(masters.lock("account:7"), session, error=FenceRefused, match=r"is 86[34]")
        assert told.name == "account:7"
        assert "s ahead of it" in str(told)


def test_a_row_of_tomorrow_is_set_back_as_the_runbook_says(masters, plain):
    """And no other row: one that is lowered would let a holder through that its successor has passed."""
    page = Path("docs/howto/runbook.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```sql\n(.*?)```", page, re.DOTALL)
    kinds = {"postgresql": "-- PostgreSQL", "mariadb": "-- MariaDB", "sqlite": "-- SQLite"}
    (statement,) = [one for one in block.split(";") if kinds[plain.kind] in one]
    now, day = time.time_ns() // 1000, 86_400_000_000
    rows = {
        "tomorrow": now + day,
        "account:7": now + day,
        "a minute ago": now - 60_000_000,
        "in a moment": now + 2_000_000,
    }
    with plain.session() as session:
        for name, fence in rows.items():
            plain.run(session, f"INSERT INTO redlock_fence VALUES ('{name}', {fence}, 'me', CURRENT_TIMESTAMP)")  # noqa: S608
        session.commit()
        banks.refused(masters.lock("account:7"), session, error=FenceRefused, match="see the runbook, clocks")
        plain.run(session, statement)
        session.commit()
        with fenced(masters.lock("account:7"), session) as lease:
            pass
    fences = plain.fences()
    assert fences.pop("account:7") == lease.fence
    assert now - 2_000_000 < fences.pop("tomorrow") < time.time_ns() // 1000 + 1
    assert fences == {name: rows[name] for name in ("a minute ago", "in a moment")}


@pytest.mark.parametrize("way", ["plain", "sqlalchemy"])
def test_clients_with_other_character_sets_share_a_row(redlock_servers, mariadb, way):
    bank = banks.in_mariadb(mariadb)
    where = {"unix_socket": mariadb, "user": "root", "database": bank.name}
    with Masters(redlock_servers.urls, restart_guard=False) as masters:
        for charset in ("utf8mb4", "latin1", "utf8mb3"):
            driver = pymysql.connect(**where, charset=charset)
            session: Any = driver
            if way == "sqlalchemy":
                pool = sqlalchemy.StaticPool
                session = create_engine("mysql+pymysql://", creator=lambda d=driver: d, poolclass=pool).connect()
            for name in ("café", "☃"):
                with fenced(masters.lock(name, owner="Zoë ☃"), session):
                    pass
            session.close()
    assert set(bank.fences()) == {"café", "☃"}
    with bank.session() as session:
        assert bank.run(session, "SELECT DISTINCT owner FROM redlock_fence").fetchall() == (("Zoë ☃",),)


ROWS = {
    "namedtuple_row": lambda connection: setattr(connection, "row_factory", psycopg.rows.namedtuple_row),
    "class_row": lambda connection: setattr(connection, "row_factory", psycopg.rows.class_row(dict)),
    "dict_row": lambda connection: setattr(connection, "row_factory", psycopg.rows.dict_row),
}


@pytest.mark.parametrize("rows", list(ROWS))
@pytest.mark.parametrize("pipeline", [False, True])
def test_rows_that_a_program_has_made_into_something_else(postgresql, rows, pipeline):
    bank = banks.in_postgresql(postgresql)
    with bank.session() as session:
        ROWS[rows](session)
        with session.pipeline() if pipeline else contextlib.nullcontext():
            with fenced(struck.lock(fence=7), session):
                bank.pay(session, 50)
            banks.refused(struck.lock(fence=6), session, FenceRefused)
    assert bank.stored == 50


def test_rows_of_sqlite_and_of_pymysql_that_are_something_else(tmp_path, mariadb):
    one, two = banks.in_sqlite(tmp_path), banks.in_mariadb(mariadb)
    with one.session() as session:
        session.row_factory = lambda cursor, row: {"all": row}
        with fenced(struck.lock(fence=7), session):
            one.pay(session, 50)
        banks.refused(struck.lock(fence=6), session, FenceRefused)
    with two.session() as session:
        session.cursorclass = pymysql.cursors.SSDictCursor
        with fenced(struck.lock(fence=7), session):
            two.run(session, "UPDATE account SET balance = 50")
    assert one.stored == two.stored == 50
