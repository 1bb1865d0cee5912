"""Two processes in PostgreSQL, one of them stopped between its read and its write for longer than its lease lives (R39)."""

import signal
import textwrap
from pathlib import Path

import pytest

from tests.fenced import banks
from tests.owners import witness
from tests.servers.process import started

pytestmark = witness("R39")

ROOT = Path(__file__).parent.parent.parent
TTL = 2.0

SQLALCHEMY = """
import logging, os, signal
logging.getLogger("redlock").addHandler(logging.NullHandler())
from sqlalchemy import create_engine, text
from redlock import Masters
from redlock.fenced import fenced

masters = Masters({urls!r}, restart_guard=False)
engine = create_engine("postgresql+psycopg://redlock@/{name}?host={host}")

def pay(lock, amount, between):
    with engine.connect() as connection, fenced(lock, connection):
        (balance,) = connection.execute(text("SELECT balance FROM account")).one()
        between()
        connection.execute(text("UPDATE account SET balance = :balance"), {{"balance": balance - amount}})
"""

DJANGO = """
import logging, os, signal
logging.getLogger("redlock").addHandler(logging.NullHandler())
from django.conf import settings
settings.configure(
    INSTALLED_APPS=["redlock.adapters.django", "redlock.fenced.django"],
    DATABASES={{"default": {{"ENGINE": "django.db.backends.postgresql", "HOST": {host!r}, "USER": "redlock", "NAME": {name!r}}}}},
    REDLOCK={{"MASTERS": {urls!r}, "OPTIONS": {{"restart_guard": False}}}},
)
import django
django.setup()
from django.db import connection
from redlock.adapters.django import masters as masters_of_settings
from redlock.fenced.django import fenced

masters = masters_of_settings()

def pay(lock, amount, between):
    with fenced(lock), connection.cursor() as cursor:
        cursor.execute("SELECT balance FROM account")
        (balance,) = cursor.fetchone()
        between()
        cursor.execute("UPDATE account SET balance = %s", [balance - amount])
"""

FIRST = """
def between():
    print("read", flush=True)
    os.kill(os.getpid(), signal.SIGSTOP)

try:
    pay(masters.lock("account:7", ttl={ttl}), 20, between)
except Exception as error:
    print("refused", type(error).__name__, flush=True)
else:
    print("committed", flush=True)
"""

SECOND = """
pay(masters.lock("account:7", timeout=60), 5, lambda: None)
print("committed", flush=True)
"""


@pytest.fixture(params=[SQLALCHEMY, DJANGO], ids=["sqlalchemy", "django"])
def programs(request, postgresql, redlock_servers):
    """The account, and what the two processes run."""
    bank = banks.in_postgresql(postgresql)
    if request.param is DJANGO:  # it has the table by a migration
        with bank.session() as session:
            bank.run(session, "DROP TABLE redlock_fence")
            session.commit()
        migrate = "from django.core.management import call_command\ncall_command('migrate', verbosity=0)"
        with started("-c", _program(request.param, migrate, bank, postgresql, redlock_servers), cwd=ROOT) as process:
            assert process.ends() == 0, process.lines
    first, second = (_program(request.param, what, bank, postgresql, redlock_servers) for what in (FIRST, SECOND))
    return bank, first, second


def _program(library, what, bank, host, servers):
    text = library + textwrap.dedent(what).replace("{ttl}", str(TTL)).replace("{", "{{").replace("}", "}}")
    return text.format(urls=servers.urls, name=bank.name, host=host)


def test_one_that_is_frozen_between_its_read_and_its_write_loses_nobody_s_update(programs):
    """The database ends its transaction: that bounds how long the other one waits, and the frozen one cannot commit."""
    bank, first, second = programs
    with started("-c", first, cwd=ROOT) as frozen:
        frozen.says("read")
        with started("-c", second, cwd=ROOT) as other:
            assert other.ends() == 0, other.lines
        assert bank.stored == 95  # its statements have read what the frozen one had read
        frozen.popen.send_signal(signal.SIGCONT)
        assert frozen.ends() == 0, frozen.lines
    [_, refused] = frozen.lines
    assert refused.startswith("refused ")
    assert bank.stored == 95
