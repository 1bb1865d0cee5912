"""A connection that breaks, and a lease that ends, before and after each statement of a fenced transaction (R39)."""

import contextlib
import sqlite3

import pytest
import sqlalchemy
from sqlalchemy import event
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, sessionmaker
from sqlalchemy.pool import StaticPool

from redlock import ConfigurationError, LockLost
from redlock.fenced import CommitUnknown, FenceRefused, fenced
from tests.fenced import banks, struck

BROKEN = (sqlite3.Error, sqlalchemy.exc.SQLAlchemyError)


class Base(DeclarativeBase):
    pass


class Account(Base):
    __tablename__ = "account"
    balance: Mapped[int] = mapped_column()
    id: Mapped[int] = mapped_column("rowid", primary_key=True)


FORMS = {
    "plain": ({}, lambda connection: connection),
    "that commits each statement": ({"isolation_level": None}, lambda connection: connection),
    "of SQLAlchemy": ({}, lambda connection: _engine(connection).connect()),
    "of SQLAlchemy, AUTOCOMMIT": ({}, lambda connection: _engine(connection, isolation_level="AUTOCOMMIT").connect()),
    "Session": ({}, lambda connection: Session(_engine(connection))),
    "Session, AUTOCOMMIT": ({}, lambda connection: Session(_engine(connection, isolation_level="AUTOCOMMIT"))),
}


def _engine(connection, **options):
    return sqlalchemy.create_engine("sqlite://", creator=lambda: connection, poolclass=StaticPool, **options)


@pytest.fixture(params=list(FORMS))
def form(request, tmp_path):
    """Makes a connection that can be struck, and a session on it."""
    options, session_of = FORMS[request.param]
    bank = struck.bank_in(tmp_path, **options)

    def make():
        connection = bank.open()
        session = session_of(connection)
        if isinstance(session, Session):
            session.connection()  # that sets the level
            session.rollback()
        return connection, session

    return bank, make


def pay(bank, session, balance):
    if isinstance(session, Session):
        session.get_one(Account, 1).balance = balance  # written by the flush, inside of the commit
    else:
        bank.balance(session)
        bank.pay(session, balance)


def run(bank, make, balance, *, at, loses_connection):
    """One transaction that is struck at its event ``at``.  Returns what it ended with, and the event."""
    connection, session = make()
    lock, events = struck.lock(), []

    def strike(sql, when):
        events.append((sql, when))
        if len(events) == at + 1:
            if loses_connection:
                connection.lose()
            lock.lost = True

    ended = None
    try:
        connection.strike = strike
        with fenced(lock, session):
            pay(bank, session, balance)
    except Exception as error:  # noqa: BLE001 - any may come
        ended = error
    del connection.strike
    assert lock.free
    if not loses_connection and connection is session:
        assert not connection.in_transaction
    with contextlib.suppress(*BROKEN):
        session.close()
    connection.close()
    return ended, events[at] if at < len(events) else None


@pytest.mark.parametrize("loses_connection", [True, False], ids=["the connection", "the lease"])
def test_whatever_is_lost_the_answer_is_true(form, loses_connection):
    """No error: it is written.  `CommitUnknown`: the COMMIT was sent.  All else: nothing is written."""
    bank, make = form
    seen = []
    ended: BaseException | None = None
    for at in range(100):
        before = bank.stored
        ended, place = run(bank, make, before - 1, at=at, loses_connection=loses_connection)
        written = bank.stored != before
        told = (at, place, ended)
        if place is None:
            break
        seen.append(type(ended))
        if ended is None:
            assert written, told
        elif isinstance(ended, CommitUnknown):
            assert place[0] == "COMMIT", told
            assert loses_connection, told
        else:
            assert not written, told
            assert isinstance(ended, BROKEN if loses_connection else LockLost), told
            if loses_connection and place[0] == "COMMIT":
                pytest.fail(f"nobody knows: {told}")
    assert ended is None
    assert (CommitUnknown if loses_connection else LockLost) in seen


def test_a_hook_that_raises_before_the_commit_leaves_no_transaction_open(tmp_path):
    """A connection of SQLAlchemy sends no ROLLBACK then."""
    bank, lock = struck.bank_in(tmp_path), struck.lock()
    engine = _engine(bank.open())
    event.listen(engine, "commit", lambda _: 1 / 0)
    with engine.connect() as session:
        with pytest.raises(ZeroDivisionError), fenced(lock, session):
            bank.pay(session, 50)
        with bank.session() as other:  # no row is locked
            bank.pay(other, 90)
            other.commit()
    assert bank.stored == 90


@pytest.mark.parametrize("raises", [ZeroDivisionError(), sqlite3.OperationalError("of another database")])
def test_a_hook_that_raises_behind_the_commit_is_told_as_it_is(tmp_path, raises):
    """Of the class of the session: it comes before each hook of the session itself."""
    bank = struck.bank_in(tmp_path)
    make = sessionmaker(_engine(bank.open()))

    def hook(_):
        raise raises

    event.listen(make, "after_commit", hook)
    lock = struck.lock()
    with make() as session:
        with pytest.raises(type(raises)) as told, fenced(lock, session):
            session.get_one(Account, 1).balance = 50
        assert told.value is raises
        assert not session.in_transaction()
    assert lock.free
    assert bank.stored == 50


def test_a_commit_that_the_database_refuses_is_rolled_back(tmp_path):
    """SQLite keeps the transaction open then, and a connection of SQLAlchemy sends no ROLLBACK."""
    bank, lock = struck.bank_in(tmp_path), struck.lock()
    with bank.session() as one:
        bank.run(one, "PRAGMA foreign_keys = ON")
        bank.run(one, "CREATE TABLE a (id INTEGER PRIMARY KEY)")
        bank.run(one, "CREATE TABLE b (id INTEGER REFERENCES a DEFERRABLE INITIALLY DEFERRED)")
        for session in (one, _engine(one).connect(), Session(_engine(one))):
            with pytest.raises((sqlite3.IntegrityError, sqlalchemy.exc.IntegrityError)), fenced(lock, session):
                bank.run(session, "INSERT INTO b VALUES (1)")
            assert not one.in_transaction


def test_objects_that_a_session_has_read_before_the_lock_are_read_again(tmp_path):
    """An update was lost: with expire_on_commit=False the session showed what another holder had changed."""
    bank = struck.bank_in(tmp_path)
    with Session(_engine(bank.open()), expire_on_commit=False) as session:
        with fenced(struck.lock(), session):
            account = session.get_one(Account, 1)
            account.balance += 1
        with bank.session() as other:
            bank.pay(other, 1101)
            other.commit()
        with fenced(struck.lock(), session):
            assert session.get_one(Account, 1) is account
            account.balance += 1
    assert bank.stored == 1102


class CountsNothing(sqlite3.Cursor):
    """As psycopg in a pipeline, and whoever says -1 as PEP 249 allows."""

    rowcount = -1


def test_a_driver_that_does_not_count(tmp_path):
    """One row is yes, and all else is no answer: a smaller fence had passed."""
    bank = struck.bank_in(tmp_path)
    with bank.session() as session:
        with fenced(struck.lock(fence=9), session):
            pass
        session.cursor = lambda: sqlite3.Connection.cursor(session, CountsNothing)
        banks.refused(struck.lock(fence=8), session, FenceRefused)
        with fenced(struck.lock(fence=10), session):
            bank.pay(session, 50)
    assert bank.stored == 50
    assert bank.fences() == {"account:7": 10}


MODES = ["conditional_savepoint", "rollback_only", "control_fully", "create_savepoint"]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("nested", [False, True], ids=["in a transaction", "in a savepoint"])
def test_a_session_on_a_connection_that_is_in_a_transaction_is_refused(tmp_path, mode, nested):
    """It returned, the lock was free, and nothing was committed."""
    bank, lock = struck.bank_in(tmp_path), struck.lock()
    with _engine(bank.open()).connect() as connection:
        bank.pay(connection, 1)
        if nested:
            connection.begin_nested()
        session = Session(connection, join_transaction_mode=mode)
        banks.refused(lock, session, match="a transaction is open on this Con")
        assert not lock.free  # nobody has asked for it
        connection.rollback()
        with fenced(lock, session):
            bank.pay(session, 50)
    assert bank.stored == 50


def test_a_session_of_two_phases_is_refused(tmp_path):
    bank = struck.bank_in(tmp_path)
    session = Session(_engine(bank.open()), twophase=True)
    banks.refused(struck.lock(), session, match="twophase")


def test_a_body_that_goes_on_behind_a_flush_that_has_failed(tmp_path):
    bank = struck.bank_in(tmp_path)
    with Session(_engine(bank.open())) as session:
        with pytest.raises(sqlalchemy.exc.PendingRollbackError) as told, fenced(struck.lock(), session):
            session.add(Account(id=1, balance=1))
            with contextlib.suppress(sqlalchemy.exc.IntegrityError):
                session.flush()
        assert "committed nothing" in told.value.__notes__[0]
    assert bank.stored == 100


def test_a_session_with_binds_alone_is_told_what_it_needs(tmp_path):
    """It knows the database of a class, and not that of the fences."""
    engine = _engine(struck.bank_in(tmp_path).open())
    with pytest.raises(ConfigurationError, match="bind=engine as well"):
        fenced(struck.lock(), Session(binds={Account: engine}))
    with Session(engine, binds={Account: engine}) as session, fenced(struck.lock(), session):
        session.get_one(Account, 1).balance = 50


ENDS = {
    "COMMIT": lambda bank, session: bank.run(session, "COMMIT"),
    "its own commit": lambda _, session: session.commit(),
    "its own rollback": lambda _, session: session.rollback(),
    "OR ROLLBACK": lambda bank, session: bank.run(
        session, "INSERT OR ROLLBACK INTO redlock_fence VALUES (NULL, 1, 1, 1)"
    ),
}


@pytest.mark.parametrize("end", list(ENDS))
@pytest.mark.parametrize("hears", [True, False], ids=["", "and swallows the error"])
def test_a_body_that_goes_on_behind_the_end_of_its_transaction_writes_nothing(form, end, hears):
    """Not even where each statement is committed: it is then in a transaction that is rolled back."""
    bank, make = form
    connection, session = make()
    level = connection.isolation_level
    lock = struck.lock()
    with pytest.raises(BROKEN) as told, fenced(lock, session):
        bank.pay(session, 90)
        with contextlib.suppress(sqlite3.IntegrityError, sqlalchemy.exc.IntegrityError):
            ENDS[end](bank, session)
        for balance in (20, 10):
            with contextlib.suppress(*() if hears else BROKEN):
                bank.pay(session, balance)
    assert "must not commit" in told.value.__notes__[0]
    assert lock.free
    assert not connection.in_transaction
    assert bank.stored in ((90,) if end in ("COMMIT", "its own commit") else (100,))
    bank.pay(session, 70)
    session.commit()
    assert bank.stored == 70  # and the session goes on
    if session is not connection:
        session.close()
    assert connection.isolation_level == level
    connection.close()


def test_what_is_committed_behind_the_end_of_the_transaction_all_the_same(form):
    """As the page says: it is written, and told at the end."""
    bank, make = form
    connection, session = make()
    lock = struck.lock()
    with pytest.raises(BROKEN) as told, fenced(lock, session):
        bank.run(session, "COMMIT")
        bank.pay(session, 20)
        bank.run(session, "COMMIT")
        bank.pay(session, 10)
    assert "committed itself, or by a statement that commits, is written" in told.value.__notes__[0]
    assert lock.free
    assert bank.stored == 20
    session.close()
    connection.close()


@pytest.mark.parametrize("ending", ["commit", "an error", "a lost lease", "its own commit", "its own close"])
def test_a_connection_is_as_it_was_afterwards(form, ending):
    bank, make = form
    connection, session = make()
    level, lock = connection.isolation_level, struck.lock()
    with contextlib.suppress(LockLost, ZeroDivisionError, *BROKEN), fenced(lock, session):
        bank.pay(session, 50)
        lock.lost = ending == "a lost lease"
        if ending.startswith("its own"):
            getattr(session, ending.split()[-1])()
        if ending == "an error":
            1 / 0  # noqa: B018
    with contextlib.suppress(*BROKEN):  # it was closed
        assert connection.isolation_level == level
        assert not connection.in_transaction
