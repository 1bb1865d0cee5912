"""Fenced transactions in Django, and the traps that its adapter finds (R39): the real Django, in processes."""

import textwrap
from functools import partial
from pathlib import Path

import pytest

from tests.servers.process import run

ROOT = Path(__file__).parent.parent.parent

SETTINGS = """
import os, threading
import pymysql
pymysql.install_as_MySQLdb()
from django.conf import settings
settings.configure(
    INSTALLED_APPS=["redlock.adapters.django", "redlock.fenced.django"],
    DATABASES={databases},
    REDLOCK={{"MASTERS": os.environ["REDLOCK_MASTERS"].split(","), "OPTIONS": {{"restart_guard": False}}}},
    USE_TZ=True,
    {more}
)
import django
django.setup()
from django.core import checks
from django.core.management import call_command
from django.db import connection, connections, transaction
from redlock import ConfigurationError, LockLost
from redlock.adapters.django import masters
from redlock.fenced import CommitUnknown, FenceRefused
from redlock.fenced.django import fenced
call_command("migrate", verbosity=0)

def balance():
    with connection.cursor() as cursor:
        cursor.execute("SELECT balance FROM account")
        return cursor.fetchone()[0]

def pay(amount):
    with connection.cursor() as cursor:
        cursor.execute("UPDATE account SET balance = %s", [amount])

with connection.cursor() as cursor:
    cursor.execute("CREATE TABLE account (balance INTEGER)")
    cursor.execute("INSERT INTO account VALUES (100)")
"""


NESTED = (
    "a transaction is open on the database 'default': fenced(...) begins and commits its own, so it has no place "
    "inside of atomic(); with ATOMIC_REQUESTS the view needs @transaction.non_atomic_requests"
)


def printed(servers, database, program, *, more="", warnings="error", databases=None, path=""):
    """What a program prints."""
    text = SETTINGS.format(databases={"default": database, **(databases or {})}, more=more) + textwrap.dedent(program)
    environment = {"REDLOCK_MASTERS": ",".join(servers.urls), "PYTHONWARNINGS": warnings, "PYTHONPATH": str(path)}
    done = run("-c", text, cwd=ROOT, environment=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout.split("\n")[:-1] + done.stderr.split("\n")[:-1]


# What Django does by itself is the same with each database.
on_one = pytest.mark.parametrize("database", ["sqlite"], indirect=True)
on_servers = pytest.mark.parametrize("database", ["postgresql", "mariadb"], indirect=True)


@pytest.fixture
def told(redlock_servers, database):
    return partial(printed, redlock_servers, database)


def test_a_body_that_raises_and_a_lease_that_is_lost_write_nothing(told):
    balances_and_log = told("""
        try:
            with fenced(masters().lock("account:7")):
                pay(0)
                1 / 0
        except ZeroDivisionError:
            print(balance(), masters().lock("account:7").locked())
        try:
            with fenced(masters().lock("account:7", ttl=2.0, auto_extend=False)) as lease:
                pay(0)
                lease.wait_lost()
        except LockLost as lost:
            print(balance(), "was lost" in str(lost))
    """)
    *balances, logged = balances_and_log
    assert balances == ["100 False", "100 True"]
    assert logged.startswith("the lease on 'account:7' was lost")


@on_one
def test_it_is_refused_inside_of_a_transaction(told):
    assert told("""
        with transaction.atomic():
            try:
                with fenced(masters().lock("account:7")):
                    print("the body ran")
            except ConfigurationError as error:
                print(error)
        print(masters().lock("account:7").locked())
    """) == [NESTED, "False"]


@on_one
def test_what_is_hung_behind_the_commit_may_raise_and_a_commit_that_is_refused_is_told_as_it_is(told):
    """In the first case the transaction is done, and so is the lock."""
    assert told("""
        from django.db import IntegrityError
        try:
            with fenced(masters().lock("account:7")):
                pay(60)
                transaction.on_commit(lambda: 1 / 0)
        except ZeroDivisionError:
            print(balance(), masters().lock("account:7").locked())
        commit = connection._commit
        def refused():
            raise IntegrityError("deferred")
        connection._commit = refused
        try:
            with fenced(masters().lock("account:7")):
                pay(50)
        except IntegrityError as error:
            print(error, balance())
        connection._commit = commit
        with fenced(masters().lock("account:7")):
            pay(40)
        print(balance())
    """) == ["60 False", "deferred 60", "40"]


def test_a_body_that_goes_on_behind_the_end_of_its_transaction_writes_nothing(told):
    """Nor in SQLite, where Django commits each statement that is in no transaction; nor if it swallows all errors."""
    assert told("""
        from django.db import DatabaseError
        for end in ("ROLLBACK", "COMMIT"):
            try:
                with fenced(masters().lock("account:7")):
                    pay(60)
                    with connection.cursor() as cursor:
                        cursor.execute(end)
                    for amount in (20, 10):
                        try:
                            pay(amount)
                        except DatabaseError:
                            pass
            except DatabaseError as error:
                print("must not commit" in error.__notes__[0], balance())
            pay(30 if end == "COMMIT" else 100)  # commits by itself
            connection.close()
            print(balance())
    """) == ["True 100", "100", "True 60", "30"]


def test_a_transaction_that_a_program_began_by_hand_is_refused(told):
    assert told("""
        with connection.cursor() as cursor:
            cursor.execute("BEGIN")
            cursor.execute("SELECT balance FROM account")
        try:
            with fenced(masters().lock("account:7")):
                print("the body ran")
        except ConfigurationError as error:
            print("a transaction is open" in str(error))
    """) == ["True"]


@on_one
def test_tests_of_django_may_use_it(told):
    assert told("""
        from django.test import TestCase

        class Test(TestCase):
            def test(self):
                with fenced(masters().lock("account:7")):
                    pay(60)
                with masters().lock("account:7"):
                    print(balance())

        import unittest
        unittest.main(argv=["", "Test"], exit=False, verbosity=0)
        print(balance())
    """)[:2] == ["60", "100"]


def test_a_transaction_test_case_empties_the_table(told):
    """As it does with all tables of models; `makemigrations` finds nothing to do, and a table that is there stays."""
    assert told("""
        from django.test import TransactionTestCase
        from redlock.fenced.django.models import Fence

        class Test(TransactionTestCase):
            def test(self):
                with fenced(masters().lock("account:7")):
                    pay(60)
                print(Fence.objects.count())

        import unittest
        unittest.main(argv=["", "Test"], exit=False, verbosity=0)
        print(Fence.objects.count())
        call_command("makemigrations", "--check", "--dry-run", verbosity=0)
        call_command("migrate", "redlock_fenced", "zero", verbosity=0)
        print("redlock_fence" in connection.introspection.table_names())
        call_command("migrate", verbosity=0)
        print(Fence.objects.count())
    """)[:4] == ["1", "0", "False", "0"]


def test_a_forgotten_migration_is_told_in_words(told):
    assert told("""
        call_command("migrate", "redlock_fenced", "zero", verbosity=0)
        try:
            with fenced(masters().lock("account:7")):
                print("the body ran")
        except ConfigurationError as error:
            print("manage.py migrate" in str(error), masters().lock("account:7").locked(), balance())
    """) == ["True False 100"]


@on_servers
def test_a_view_that_calls_a_slow_provider_is_told_what_happened(told):
    """The database ends the transaction; SQLite does not."""
    assert told("""
        from redlock.fenced import PausedTooLong
        try:
            with fenced(masters().lock("account:7", ttl=2.0)) as lease:
                pay(60)
                lease.wait_lost(4.5)
                pay(60)
        except PausedTooLong as error:
            print(error.name)
        print(balance())
    """) == ["account:7", "100"]


@on_one
def test_a_lock_that_is_given_back_inside_of_a_transaction_is_a_warning(told):
    """As in a view with ATOMIC_REQUESTS."""
    said = told(
        """
        with transaction.atomic(), masters().lock("account:7"):
            pay(60)
        with masters().lock("account:7"), transaction.atomic():
            pay(50)
    """,
        warnings="default",
    )
    warnings = [line for line in said if "ReleasedBeforeCommit" in line]
    assert len(warnings) == 1
    assert "the lock 'account:7' was released while a transaction of the database 'default' was open" in warnings[0]


def test_the_database_is_that_to_which_a_router_writes_the_table(redlock_servers, tmp_path):
    """R39: without ``using``.  The table is made there alone, and the money has to be there as well."""
    (tmp_path / "shop_router.py").write_text("""
class Router:
    def db_for_write(self, model, **hints):
        return "bank" if model._meta.app_label == "redlock_fenced" else None
    db_for_read = db_for_write
    def allow_migrate(self, db, app_label, **hints):
        return (db == "bank") if app_label == "redlock_fenced" else None
""")
    other = {"ENGINE": "django.db.backends.sqlite3", "NAME": str(tmp_path / "bank")}
    assert printed(
        redlock_servers,
        {"ENGINE": "django.db.backends.sqlite3", "NAME": str(tmp_path / "db")},
        """
        call_command("migrate", database="bank", verbosity=0)
        for lock, alias in (("account:7", None), ("account:8", "bank")):
            with fenced(masters().lock(lock), using=alias) as lease:
                print([one.alias for one in connections.all() if one.in_atomic_block])
        for alias in ("default", "bank"):
            print("redlock_fence" in connections[alias].introspection.table_names())
        from redlock.fenced.django.models import Fence
        print(sorted(row.name for row in Fence.objects.all()))
    """,
        more='DATABASE_ROUTERS=["shop_router.Router"]',
        path=tmp_path,
        databases={"bank": other},
    ) == ["['bank']", "['bank']", "False", "True", "['account:7', 'account:8']"]


VIEWS = """
import functools
from django.db import transaction
from django.http import HttpResponse
from django.urls import path, include
from django.utils.functional import SimpleLazyObject
from django.views import View
from redlock.adapters.django import masters
from redlock.fenced.django import fenced

REGISTRY, SEEN, QUEUE = {}, set(), []
LAZY = SimpleLazyObject(lambda: 1 / 0)

def plain(request):
    SEEN.add(len(REGISTRY)), QUEUE.append(LAZY)
    return HttpResponse()

def locks(request):
    with masters().lock("account:7"):
        return HttpResponse()

def locks_inside(request):
    def work():
        return masters().lock("account:7")
    return HttpResponse(work())

@transaction.non_atomic_requests
def right(request):
    with fenced(masters().lock("account:7")):
        return HttpResponse()

class Pay(View):
    def post(self, request):
        with fenced(masters().lock("account:7")):
            return HttpResponse()

inner = [path("b", locks_inside), path("c", Pay.as_view())]
urlpatterns = [path("plain", plain), path("a", locks), path("in/", include(inner)), path("d", right)]
"""


@pytest.mark.parametrize("on", [True, False])
def test_views_that_use_a_lock_inside_of_atomic_requests_are_found(redlock_servers, tmp_path, on):
    (tmp_path / "shop_views.py").write_text(VIEWS)
    database = {"ENGINE": "django.db.backends.sqlite3", "NAME": str(tmp_path / "db"), "ATOMIC_REQUESTS": on}
    said = printed(
        redlock_servers,
        database,
        f"""
        import sys
        sys.path.append({str(tmp_path)!r})
        for message in checks.run_checks():
            print(message.id, message.msg.partition(" ")[0])
    """,
        more='ROOT_URLCONF="shop_views"',
    )
    assert said == (
        ["redlock.W001 shop_views.locks", "redlock.W001 shop_views.locks_inside", "redlock.W001 shop_views.Pay"]
        if on
        else []
    )
