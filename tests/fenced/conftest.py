"""Databases for fenced transactions: each server is started once for all tests of a process."""

import pytest

from redlock import Masters
from tests.fenced import banks, databases


@pytest.fixture(scope="session")
def postgresql():
    with databases.postgresql() as host:
        yield host


@pytest.fixture(scope="session")
def mariadb():
    with databases.mariadb() as socket:
        yield socket


@pytest.fixture
def masters(redlock_servers):
    with Masters(redlock_servers.urls, restart_guard=False) as masters:
        yield masters


@pytest.fixture(params=["sqlite", "postgresql", "mariadb"])
def plain(request, tmp_path):
    """An account, reached by a plain connection."""
    if request.param == "sqlite":
        return banks.in_sqlite(tmp_path)
    make = banks.in_postgresql if request.param == "postgresql" else banks.in_mariadb
    return make(request.getfixturevalue(request.param))


@pytest.fixture(params=["plain", "sqlalchemy"])
def bank(request, plain):
    """The same account, reached in each way."""
    return plain if request.param == "plain" else banks.through_sqlalchemy(plain)


@pytest.fixture(params=["sqlite", "postgresql", "mariadb"])
def database(request, tmp_path):
    """The settings of a database, for Django."""
    if request.param == "sqlite":
        return {"ENGINE": "django.db.backends.sqlite3", "NAME": str(tmp_path / "db")}
    where = request.getfixturevalue(request.param)
    name = banks.new_database(where, mariadb=request.param == "mariadb")
    if request.param == "postgresql":
        return {"ENGINE": "django.db.backends.postgresql", "HOST": where, "USER": "redlock", "NAME": name}
    return {"ENGINE": "django.db.backends.mysql", "HOST": where, "USER": "root", "NAME": name}
