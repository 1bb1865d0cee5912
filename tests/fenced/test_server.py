"""What servers of databases and their drivers do to a fenced transaction (R39)."""

import contextlib

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


ENDS = {
    "its own COMMIT": lambda bank, session: bank.run(session, "COMMIT"),
    "its own commit": lambda _, session: session.commit(),
    "a statement that commits": lambda bank, session: bank.run(
        session, "CREATE TABLE IF NOT EXISTS other (id INTEGER)"
    ),
    "its own ROLLBACK": lambda bank, session: bank.run(session, "ROLLBACK"),  # as a deadlock is one
}


@pytest.mark.parametrize(
    ("kind", "end"),
    [("postgresql", "its own COMMIT"), ("postgresql", "its own commit"), *(("mariadb", end) for end in ENDS)],
)
@pytest.mark.parametrize("hears", [True, False], ids=["", "and swallows the error"])
def test_a_body_that_goes_on_behind_the_end_of_its_transaction_writes_nothing(server, kind, end, hears):
    """Not even where each statement is committed: it is then in a transaction that is rolled back."""
    bank = server(kind)
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
        assert bank.stored == (before if end == "its own ROLLBACK" else before - 1)
        session.close()


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
