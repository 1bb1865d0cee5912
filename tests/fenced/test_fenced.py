"""Fenced transactions on databases as they run (R39)."""

import contextlib
import sqlite3

import psycopg
import pymysql
import pytest
import sqlalchemy

from redlock import ConfigurationError
from redlock.fenced import FenceRefused, fenced
from tests.fenced import banks
from tests.servers.look import at_once

DATABASE_ERRORS = (psycopg.Error, pymysql.Error, sqlite3.Error, sqlalchemy.exc.DBAPIError)


def newer_holder(bank, name="account:7"):
    """Somebody with a greater fence has begun a transaction."""
    with bank.session() as session:
        bank.run(session, "UPDATE redlock_fence SET fence = fence + 1000000000")
        session.commit()
    assert name in bank.fences()


def begun(masters, bank, name="account:7"):
    """One transaction, so that the name has its row."""
    with bank.session() as session, fenced(masters.lock(name), session):
        pass


def test_what_the_body_wrote_is_there_before_the_next_holder_reads(masters, bank):
    """Four threads read, and write one less.  None of it is lost."""

    def work():
        for _ in range(5):
            with bank.session() as session, fenced(masters.lock("account:7", timeout=60), session):
                bank.pay(session, bank.balance(session) - 1)

    at_once([work] * 4)
    assert bank.stored == 80


def test_a_holder_that_slept_before_it_began_is_refused(masters, bank):
    """It has the lock, and sleeps; its successor has come and gone when it begins."""
    begun(masters, bank)
    with masters.lock("account:7") as lease:
        newer_holder(bank)
        with bank.session() as session:
            refused = banks.refused(lease, session, FenceRefused)
            assert refused.fence == lease.fence
            assert "account:7" in str(refused)
            bank.pay(session, 1)  # the session is in no transaction
            session.rollback()


def test_a_transaction_that_is_open_is_refused_before_the_lock_is_asked_for(masters, bank):
    """Also one that has only read: PyMySQL does not know of it, its server does.  SQLite begins none for a read."""
    with bank.session() as session:
        if bank.kind == "sqlite":
            bank.pay(session, 1)
        else:
            bank.balance(session)
        banks.refused(masters.lock("account:7"), session, match="a transaction is open on this")
        assert not masters.lock("account:7").locked()
        session.rollback()
        with fenced(masters.lock("account:7"), session):
            bank.pay(session, 50)
    assert bank.stored == 50


def test_two_sessions_under_one_lease(masters, bank):
    """Re-entry, R26: the same fence, and equal is allowed (R18).  The lock is given back by the outer one."""
    with masters.lock("account:7") as outer, bank.session() as session:
        for balance in (70, 60):
            with fenced(masters.lock("account:7"), session) as lease:
                assert lease.fence == outer.fence
                bank.pay(session, balance)
        assert outer.valid
    assert bank.stored == 60


def test_several_names_have_a_row_each(masters, bank):
    with bank.session() as session, fenced(masters.lock(["b", "a"]), session) as lease:
        pass
    assert bank.fences() == {"a": lease.fence, "b": lease.fence}


def test_one_of_several_names_that_is_refused_raises_none(masters, bank):
    begun(masters, bank, "b")
    newer_holder(bank, "b")
    with bank.session() as session:
        banks.refused(masters.lock(["a", "b"]), session, error=FenceRefused, match="'b'")
    assert "a" not in bank.fences()


def test_a_slot_has_the_row_of_that_slot(masters, bank):
    with bank.session() as session, fenced(masters.slots("pool", limit=2), session) as lease:
        slot = f"pool#{lease.slot}"
    assert bank.fences() == {slot: lease.fence}


def test_a_term_of_a_leader(masters, bank):
    election = masters.leader("boss")
    for term in election.terms():
        with term, bank.session() as session:
            with fenced(term, session):
                bank.pay(session, 42)
            assert term.valid
            election.stop()
    assert bank.fences() == {"boss": term.number}
    assert bank.stored == 42


@pytest.mark.parametrize(
    ("options", "why"), [({"shared": True}, "shared with other readers"), ({"fencing": False}, "no fencing token")]
)
def test_locks_whose_fences_cannot_be_compared_are_refused(masters, bank, options, why):
    with bank.session() as session:
        with pytest.raises(ConfigurationError, match=why), fenced(masters.lock("account:7", **options), session):
            pytest.fail("the body ran")
    assert not masters.lock("account:7").locked()


def test_a_body_that_goes_on_after_an_error_of_the_database(masters, bank):
    """Where that ends the transaction, the work before it is not lost without a word: PostgreSQL commits nothing then."""
    errors = []
    with bank.session() as session:
        try:
            with fenced(masters.lock("account:7"), session):
                bank.pay(session, 50)
                with contextlib.suppress(*DATABASE_ERRORS):
                    bank.run(session, "SELECT there_is_no_such_thing")
        except DATABASE_ERRORS as error:
            errors.append(error)
        with fenced(masters.lock("account:7"), session):
            pass
    assert bank.stored == (100 if errors else 50)
    assert all("committed nothing" in error.__notes__[0] for error in errors)


@pytest.mark.parametrize("end", ["commit", "rollback"])
@pytest.mark.parametrize("goes_on", [False, True], ids=["and ends", "and goes on"])
def test_a_body_that_ends_the_transaction_itself(masters, bank, end, goes_on):
    """What it writes after that would be behind no row.  So it is not committed, and the program is told."""
    with bank.session() as session:
        with pytest.raises(DATABASE_ERRORS) as told, fenced(masters.lock("account:7"), session):
            bank.pay(session, 50)
            getattr(session, end)()
            if goes_on:
                bank.pay(session, 20)
        assert "must not commit" in told.value.__notes__[0]
        with fenced(masters.lock("account:7"), session):
            pass
    assert bank.stored == (50 if end == "commit" else 100)


def test_a_session_that_was_closed_before(masters, plain):
    """No transaction is open on it, as a text once said."""
    session = plain.open()
    session.close()
    banks.refused(masters.lock("account:7"), session, DATABASE_ERRORS)
    assert not masters.lock("account:7").locked()


class FromPython312(sqlite3.Connection):
    """As Python 3.12 makes it with ``autocommit=True``, in each Python."""

    autocommit = True

    def commit(self):
        """Does nothing then."""

    rollback = commit


def test_sqlite_that_commits_each_statement(masters, tmp_path):
    bank = banks.in_sqlite(tmp_path)
    session = sqlite3.connect(tmp_path / "bank", isolation_level=None, factory=FromPython312)
    with fenced(masters.lock("account:7"), session):
        bank.pay(session, 50)
    assert bank.stored == 50
    with pytest.raises(ZeroDivisionError), fenced(masters.lock("account:7"), session):
        bank.pay(session, 0)
        1 / 0  # noqa: B018
    assert bank.stored == 50


IN_A_HURRY = {"sqlite": "PRAGMA busy_timeout = 0", "mariadb": "SET innodb_lock_wait_timeout = 1"}


def test_sqlalchemy_that_commits_each_statement(masters, plain):
    """Its `begin` then begins nothing in the database: no row would be locked, and nothing be rolled back."""
    bank = banks.through_sqlalchemy(plain, isolation_level="AUTOCOMMIT")
    with bank.session() as session:
        if plain.kind == "postgresql":
            banks.refused(masters.lock("account:7"), session, error=DATABASE_ERRORS, match="AUTOCOMMIT")
            return
        with pytest.raises(ZeroDivisionError), fenced(masters.lock("account:7"), session):
            with plain.session() as newer, pytest.raises(DATABASE_ERRORS):
                plain.run(newer, IN_A_HURRY[plain.kind])
                plain.run(newer, "UPDATE redlock_fence SET fence = fence + 1")
            bank.pay(session, 50)
            1 / 0  # noqa: B018
        assert plain.stored == 100
        with fenced(masters.lock("account:7"), session):
            bank.pay(session, 50)
    assert plain.stored == 50


def test_a_program_that_begins_by_itself(masters, tmp_path):
    """As SQLAlchemy advises for SQLite."""
    plain = banks.in_sqlite(tmp_path)
    plain.open = lambda: sqlite3.connect(tmp_path / "bank", isolation_level=None)
    bank = banks.through_sqlalchemy(plain)
    with bank.session() as session:
        sqlalchemy.event.listen(session.get_bind(), "begin", lambda connection: connection.exec_driver_sql("BEGIN"))
        with fenced(masters.lock("account:7"), session):
            bank.pay(session, 50)
    assert plain.stored == 50


def test_sqlite_that_is_always_in_a_transaction(masters, tmp_path):
    """To commit it, as the text for others says, would not help: the next one is open at once."""
    session = sqlite3.connect(tmp_path / "bank", factory=FromPython312)
    session.autocommit = False
    banks.refused(masters.lock("account:7"), session, match="connect without it")


def test_a_connection_of_another_library_is_refused(masters):
    for other in object(), None, sqlite3.connect(":memory:").cursor(), object.__new__(psycopg.AsyncConnection):
        with pytest.raises(ConfigurationError, match="allowed are connections of psycopg, PyMySQL and sqlite3"):
            fenced(masters.lock("account:7"), other)
