"""One account in a database, reached in each of the ways that `fenced` knows."""

import contextlib
import itertools
import sqlite3
from typing import Any

import psycopg
import pymysql
import pytest
import sqlalchemy
from sqlalchemy import text
from sqlalchemy.orm import Session

from redlock import ConfigurationError
from redlock.fenced import fenced, schema

_numbers = itertools.count()
READ = "SELECT balance FROM account"
WRITE = "UPDATE account SET balance = {}"


class Bank:
    """``open``: a new session; ``run``: one statement in it; ``name``: that of the database, where it has one."""

    name = ""

    def __init__(self, kind, open_):
        self.kind = kind
        self.open = open_
        with self.session() as session:
            self.run(session, schema(kind))
            self.run(session, "CREATE TABLE account (balance INTEGER)")
            self.run(session, "INSERT INTO account VALUES (100)")
            session.commit()

    @contextlib.contextmanager
    def session(self):
        session = self.open()
        try:
            yield session
        finally:
            with contextlib.suppress(psycopg.Error, pymysql.Error, sqlalchemy.exc.DBAPIError):
                session.close()

    def run(self, session, sql):
        if isinstance(session, (Session, sqlalchemy.Connection)):
            return session.execute(text(sql))
        cursor = session.cursor()
        cursor.execute(sql)
        return cursor

    def balance(self, session):
        (balance,) = self.run(session, READ).fetchone()
        return int(balance)

    def pay(self, session, balance):
        self.run(session, WRITE.format(balance))

    @property
    def stored(self):
        """What another session reads."""
        with self.session() as session:
            return self.balance(session)

    def fences(self):
        with self.session() as session:
            rows = self.run(session, "SELECT name, fence FROM redlock_fence").fetchall()
        return {name.decode() if isinstance(name, bytes) else name: int(fence) for name, fence in rows}


def refused(lock, session, error=ConfigurationError, match=None):
    """`fenced` runs no body; what it says instead."""
    with pytest.raises(error, match=match) as told, fenced(lock, session):
        pytest.fail("the body ran")
    return told.value


def in_sqlite(folder):
    return Bank("sqlite", lambda: sqlite3.connect(folder / "bank", timeout=20))


def in_postgresql(host):
    name = new_database(host)
    bank = Bank("postgresql", lambda: psycopg.connect(host=host, user="redlock", dbname=name))
    bank.name = name
    return bank


def in_mariadb(socket):
    name = new_database(socket, mariadb=True)
    where = {"unix_socket": socket, "user": "root", "database": name}
    bank = Bank("mariadb", lambda: pymysql.connect(**where, ssl_disabled=True))  # to read certificates takes a while
    bank.name = name
    return bank


def new_database(where, *, mariadb=False):
    """An empty database.  ``where``: the folder of the socket of PostgreSQL, or the socket of MariaDB."""
    name = f"bank{next(_numbers)}"
    connection: Any
    if mariadb:
        connection = pymysql.connect(unix_socket=where, user="root", autocommit=True)
    else:
        connection = psycopg.connect(host=where, user="redlock", dbname="postgres", autocommit=True)
    with contextlib.closing(connection):
        connection.cursor().execute(f"CREATE DATABASE {name}")
    return name


def through_sqlalchemy(bank, **options):
    """The same database, with sessions of SQLAlchemy."""
    driver, pool = DRIVERS[bank.kind], sqlalchemy.pool.NullPool
    engine = sqlalchemy.create_engine(f"{driver}://", creator=bank.open, poolclass=pool, **options)
    other = object.__new__(Bank)
    other.kind, other.open = bank.kind, lambda: Session(engine)
    return other


DRIVERS = {"sqlite": "sqlite", "postgresql": "postgresql+psycopg", "mariadb": "mariadb+pymysql"}
