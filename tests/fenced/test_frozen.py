"""Two processes in PostgreSQL, one of them stopped between its read and its write for longer than its lease lives (R39)."""

import signal

from tests.fenced import banks
from tests.owners import witness
from tests.servers.process import started

pytestmark = witness("R39")

PAYS = """
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
FIRST = """
def between():
    print("read", flush=True)
    os.kill(os.getpid(), signal.SIGSTOP)

try:
    pay(masters.lock("account:7", ttl=2.0), 20, between)
except Exception as error:
    print("refused", type(error).__name__, flush=True)
else:
    print("committed", flush=True)
"""
SECOND = """
pay(masters.lock("account:7", timeout=60), 5, lambda: None)
"""


def test_one_that_is_frozen_between_its_read_and_its_write_loses_nobody_s_update(postgresql, redlock_servers):
    """The database ends its transaction: that bounds how long the other one waits, and the frozen one cannot commit."""
    bank = banks.in_postgresql(postgresql)
    program = PAYS.format(urls=redlock_servers.urls, name=bank.name, host=postgresql)
    with started("-c", program + FIRST) as frozen:
        frozen.says("read")
        with started("-c", program + SECOND) as other:
            assert other.ends() == 0, other.lines
        assert bank.stored == 95  # its statements have read what the frozen one had read
        frozen.popen.send_signal(signal.SIGCONT)
        assert frozen.ends() == 0, frozen.lines
    [_, refused] = frozen.lines
    assert refused.startswith("refused ")
    assert bank.stored == 95
