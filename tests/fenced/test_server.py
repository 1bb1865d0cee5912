"""What servers of databases and their drivers do to a fenced transaction (R39)."""

import contextlib
import threading

import psycopg
import pymysql
import pytest
import sqlalchemy
from sqlalchemy import create_engine, text
from sqlalchemy.orm import Session

from redlock.fenced import FenceRefused, fenced
from tests.fenced import banks, struck

ERRORS = (psycopg.Error, pymysql.Error, sqlalchemy.exc.DBAPIError)


@pytest.fixture
def server(request):
    """A new database of each server."""
    return lambda kind: (banks.in_postgresql if kind == "postgresql" else banks.in_mariadb)(
        request.getfixturevalue(kind)
    )


def newer_holder(bank):
    with bank.session() as session, fenced(struck.lock(fence=9), session):
        pass


@pytest.mark.parametrize("kind", ["postgresql", "mariadb"])
def test_a_read_is_an_open_transaction(server, kind):
    """What it has read was read without the lock.  PyMySQL does not know of it, its server does."""
    bank, lock = server(kind), struck.lock()
    with bank.session() as session:
        bank.balance(session)
        banks.refused(lock, session, match="a transaction is open on this")
        session.commit()
        with fenced(lock, session):
            bank.pay(session, 50)
    assert bank.stored == 50


@pytest.mark.parametrize("autocommit", [False, True])
def test_a_pipeline_of_psycopg(server, autocommit):
    """It counts no rows: a smaller fence had passed."""
    bank = server("postgresql")
    with bank.session() as session:
        session.autocommit = autocommit
        with session.pipeline(), fenced(struck.lock(), session):
            bank.pay(session, 50)
        with session.pipeline():
            with fenced(struck.lock(), session):
                bank.pay(session, bank.balance(session) - 1)
            assert bank.stored == 49  # committed when the lock is free, and not at the end of the pipeline
            newer_holder(bank)
            banks.refused(struck.lock(), session, FenceRefused)
            with pytest.raises(psycopg.errors.UndefinedColumn), fenced(struck.lock(fence=9), session):
                bank.pay(session, 0)
                session.execute("SELECT there_is_no_such_thing")
            assert session.autocommit == autocommit
            bank.balance(session)
            if not autocommit:
                banks.refused(struck.lock(fence=9), session, match="is open")
    assert bank.stored == 49


def that_commit_each_statement(bank):
    """Sessions on each way to such a connection, and that connection."""
    if bank.kind == "postgresql":  # those of SQLAlchemy are refused there
        session = bank.open()
        session.autocommit = True
        yield session, session
        return
    for make in (lambda engine: engine.raw_connection().dbapi_connection, sqlalchemy.Engine.connect, Session):
        driver = bank.open()
        driver.autocommit(True)
        options = {"poolclass": sqlalchemy.StaticPool, "isolation_level": "AUTOCOMMIT"}
        engine = create_engine("mysql+pymysql://", creator=lambda driver=driver: driver, **options)
        yield make(engine), driver


def commits_each_statement(driver):
    mode = driver.autocommit
    return mode if isinstance(mode, bool) else driver.get_autocommit()


def deadlocked(bank, session):
    """MariaDB rolls the whole transaction back, and each statement after that is committed."""
    met, errors = threading.Event(), []

    def other():
        with bank.session() as two:
            bank.run(two, "SET innodb_lock_wait_timeout = 60")
            bank.run(two, "UPDATE a SET id = 3")
            bank.run(two, "UPDATE a SET id = 4")
            bank.run(two, "INSERT INTO c SELECT * FROM d")  # weighs more, so it is not the victim
            met.set()
            bank.run(two, "UPDATE b SET id = 3")
            two.rollback()

    bank.run(session, "UPDATE b SET id = 2")
    thread = threading.Thread(target=other)
    thread.start()
    assert met.wait(60)
    with contextlib.suppress(*ERRORS):
        try:
            bank.run(session, "UPDATE a SET id = 2")
        except ERRORS as error:
            errors.append(error)
            raise
    thread.join()
    assert "Deadlock" in str(errors)


ENDS = {
    "its own COMMIT": lambda bank, session: bank.run(session, "COMMIT"),
    "its own commit": lambda _, session: session.commit(),
    "a statement that commits": lambda bank, session: bank.run(
        session, "CREATE TABLE IF NOT EXISTS other (id INTEGER)"
    ),
    "a deadlock": deadlocked,
}


@pytest.mark.parametrize(
    ("kind", "end"),
    [("postgresql", "its own COMMIT"), ("postgresql", "its own commit"), *(("mariadb", end) for end in ENDS)],
)
@pytest.mark.parametrize("hears", [True, False], ids=["", "and swallows the error"])
def test_a_body_that_goes_on_behind_the_end_of_its_transaction_writes_nothing(server, kind, end, hears):
    """Not even where each statement is committed: it is then in a transaction that is rolled back."""
    bank = server(kind)
    with bank.session() as session:
        for table in "abcd":
            bank.run(session, f"CREATE TABLE {table} (id INTEGER)")
            bank.run(session, f"INSERT INTO {table} VALUES (1)")  # noqa: S608
        for _ in range(8):
            bank.run(session, "INSERT INTO d SELECT * FROM d")
        session.commit()
    for session, driver in that_commit_each_statement(bank):
        before = bank.stored
        with pytest.raises(ERRORS) as told, fenced(struck.lock(), session):
            bank.pay(session, before - 1)
            ENDS[end](bank, session)
            for balance in (20, 10):
                with contextlib.suppress(*() if hears else ERRORS):
                    bank.pay(session, balance)
        assert "must not commit" in told.value.__notes__[0]
        assert commits_each_statement(driver)
        assert bank.stored == (before if end == "a deadlock" else before - 1)
        session.close()


def test_a_second_statement_that_commits_writes_what_came_between(mariadb):
    """As the page says: it is written, and told at the end."""
    bank = banks.in_mariadb(mariadb)
    with bank.session() as session:
        with pytest.raises(ERRORS) as told, fenced(struck.lock(), session):
            bank.run(session, "COMMIT")
            bank.pay(session, 20)
            bank.run(session, "CREATE TABLE other (id INTEGER)")
            bank.pay(session, 10)
        assert "or by a statement that commits, is written" in told.value.__notes__[0]
    assert bank.stored == 20


class Told(pymysql.Connection):  # type: ignore[misc]
    """Knows what it has said."""

    def _execute_command(self, command, sql):
        self.__dict__.setdefault("said", []).append(sql if isinstance(sql, str) else sql.decode())
        super()._execute_command(command, sql)


@pytest.mark.parametrize("ends", ["commit", "rollback"])
def test_the_bounds_of_mariadb_last_until_the_end(mariadb, ends):
    """A holder that was frozen between the end of its bounds and its COMMIT kept its successor waiting."""
    bank = banks.in_mariadb(mariadb)
    made = []

    def connect():
        made.append(Told(unix_socket=mariadb, user="root", database=bank.name))
        return made[-1]

    engine = create_engine("mysql+pymysql://", creator=connect, poolclass=sqlalchemy.NullPool)
    for make in (connect, engine.connect, lambda: Session(engine)):
        with contextlib.closing(make()) as session:
            with contextlib.suppress(ZeroDivisionError), fenced(struck.lock(), session):
                bank.pay(session, 50)
                if ends == "rollback":
                    1 / 0  # noqa: B018
            said = made[-1].said
        [bounds, back] = [at for at, sql in enumerate(said) if "max_statement_time =" in sql]
        assert ends.upper() in said[bounds:back]


def test_a_fresh_engine_of_mariadb(mariadb):
    """It knows that it is none of MySQL once it was connected."""
    name = banks.in_mariadb(mariadb).name
    engine = create_engine(f"mysql+pymysql://root@/{name}?unix_socket={mariadb}")
    with Session(engine) as session, fenced(struck.lock(), session):
        session.execute(text("UPDATE account SET balance = 50"))
    engine.dispose()
    engine = create_engine(f"mysql+pymysql://root@/{name}?unix_socket={mariadb}")
    with engine.connect() as connection, fenced(struck.lock(), connection):
        assert connection.execute(text("SELECT balance FROM account")).scalar_one() == 50
    engine.dispose()
