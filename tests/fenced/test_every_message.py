"""Each message of a fenced transaction is struck, before it arrives and before its answer does (R39).

Whatever strikes, the answer is true, nothing is left on the connection, and the next holder has its turn.
"""

import asyncio
import contextlib
import signal
import threading
from collections.abc import Callable
from typing import Any

import psycopg
import pymysql
import pytest
import sqlalchemy
from sqlalchemy import create_engine, text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from redlock import LockLost
from redlock.fenced import CommitUnknown, FenceRefused, PausedTooLong, fenced
from tests.fenced import banks, struck
from tests.fenced.test_django import printed
from tests.servers.relay import Relay

ERRORS = (psycopg.Error, pymysql.Error, sqlalchemy.exc.DBAPIError)
HURRY = {"postgresql": "SET lock_timeout = '20s'", "mariadb": "SET innodb_lock_wait_timeout = 20"}
LIMITS = {
    "postgresql": "SELECT current_setting('statement_timeout'), current_setting('idle_in_transaction_session_timeout')",
    "mariadb": "SELECT @@autocommit, @@in_transaction, @@max_statement_time, @@idle_write_transaction_timeout, "
    "@@innodb_lock_wait_timeout",
}
ALLOWED: dict[str, tuple[type[BaseException], ...]] = {
    "the connection breaks": (CommitUnknown, *ERRORS),
    "the lease ends": (LockLost,),
    "the client is frozen": (LockLost, FenceRefused, PausedTooLong, CommitUnknown),
    "Ctrl-C": (KeyboardInterrupt,),
    "the task is cancelled": (asyncio.CancelledError,),
}
SOCKET = ".s.PGSQL.5432"  # in a folder, as PostgreSQL wants it


class Attack:
    """One transaction after the other; `strikes` makes each next one be struck at its next message."""

    def __init__(self, bank, relay, what):
        self.bank, self.relay, self.what = bank, relay, what
        self.fence = 0
        self.place = b""  # the message that was struck
        self.followed = False
        self.ended: BaseException | None = None
        self.lock: Any = None
        self.interrupt: Callable[[], object] = lambda: None
        self._next: Callable[..., object] | None = None

    def strikes(self):
        for number in range(100):
            for when in ("before", "after"):
                while True:  # a database may have ended a frozen client's transaction before this message came
                    self.relay.await_closed()
                    self.place, self.followed = b"", False
                    self._next = lambda *now, at=(number, when): now == at and self._strike()
                    yield
                    if self.place or self.ended is None:
                        break
                if not self.place:
                    assert number > 5
                    return

    def _strike(self):
        self.place = self.relay.said[-1]
        if self.what in ("the lease ends", "the client is frozen"):
            self.lock.lost, self.lock.lease.valid = True, False
        if self.what == "the client is frozen":
            self.follow()
        self.interrupt()
        return self.what == "the connection breaks"

    def lease(self, lock):
        self.fence += 1
        lock.lease.fence = self.fence
        remaining = 1.0 if self._next and self.what == "the client is frozen" else 60.0
        lock.lease.remaining = lambda: remaining
        self.relay.said.clear()
        self.relay.strike, self._next = self._next, None
        self.lock = lock
        return lock

    def follow(self):
        """The next holder: it waits until the database ends a transaction that is frozen, and for nothing else."""
        self.fence += 1
        with self.bank.session() as session:
            self.bank.run(session, HURRY[self.bank.kind])
            session.commit()
            with fenced(struck.lock(self.fence), session):
                self.bank.pay(session, self.bank.balance(session) - 1000)
        self.followed = True

    def judge(self, before, ended):
        self.relay.strike, self.ended = None, ended
        told = (self.place, repr(ended), getattr(ended, "__notes__", []))
        assert self.relay.said, told
        assert self.place or ended is None or self.what == "the client is frozen", told
        if self.place != self.relay.said[0]:
            assert self.lock.free, told
        if not self.followed:
            self.follow()
        paid = before - self.bank.stored
        assert paid in (1000, 1001), told  # no update was lost
        committed, notes = paid == 1001, getattr(ended, "__notes__", [])
        if ended is None:
            assert committed, told
        elif isinstance(ended, CommitUnknown) or any("got no answer" in note for note in notes):
            assert b"COMMIT" in self.place, told
            if isinstance(ended, CommitUnknown):
                assert (ended.name, ended.fence) == ("account:7", self.lock.lease.fence), told
        else:
            assert committed == any("was committed" in note for note in notes), told
        assert ended is None or isinstance(ended, ALLOWED[self.what]), told


@pytest.fixture
def bank(request):
    return (banks.in_postgresql if request.param == "postgresql" else banks.in_mariadb)(
        request.getfixturevalue(request.param)
    )


@pytest.fixture
def relay(request, bank, tmp_path):
    where = request.getfixturevalue(bank.kind)
    relay = Relay(f"{where}/{SOCKET}" if bank.kind == "postgresql" else where, f"{tmp_path}/{SOCKET}")
    with relay:
        yield relay


@pytest.fixture
def connect(bank, relay, tmp_path):
    """Opens a connection through the relay."""
    if bank.kind == "postgresql":
        return lambda **options: psycopg.connect(host=str(tmp_path), user="redlock", dbname=bank.name, **options)
    where = {"unix_socket": f"{tmp_path}/{SOCKET}", "user": "root", "database": bank.name, "ssl_disabled": True}
    return lambda **options: pymysql.connect(**where, **options)


def plain(bank, connect, **options):
    """A session, and what the next user of its connection has."""
    connection = connect(**options)
    with contextlib.ExitStack() as stack:
        if bank.kind == "postgresql":
            stack.callback(connection.close)
        else:
            stack.callback(lambda: connection.open and connection.close())

        def next_user():
            is_open = connection.open if bank.kind == "mariadb" else not connection.closed
            return contextlib.nullcontext(connection if is_open else None)

        yield connection, next_user


def pooled(bank, connect, make=Session, **options):
    engine = create_engine(
        f"{banks.DRIVERS[bank.kind]}://", creator=connect, pool_size=1, max_overflow=0, pool_timeout=5, **options
    )
    session = make(engine)

    def next_user():
        session.close()
        return engine.connect()

    yield session, next_user
    session.close()
    engine.dispose()


FORMS: dict[str, Callable[..., Any]] = {
    "plain": plain,
    "autocommit": lambda *where: plain(*where, autocommit=True),
    "Connection": lambda bank, connect: pooled(bank, connect, sqlalchemy.Engine.connect),
    "Session": pooled,
    "Session, AUTOCOMMIT": lambda *where: pooled(*where, isolation_level="AUTOCOMMIT"),
}


KINDS = [
    (kind, form) for kind in LIMITS for form in FORMS if (kind, form) != ("postgresql", "Session, AUTOCOMMIT")
]  # refused
WHAT = ["the connection breaks", "the lease ends", "Ctrl-C"]
STRUCK = [(*kind, what) for kind in KINDS for what in WHAT]
# That takes a second for each message.  Which limits each form sets is looked at in test_limits.py.
FROZEN = [(kind, form, "the client is frozen") for kind in LIMITS for form in ("plain", "Session")]


@pytest.mark.parametrize(("bank", "form", "what"), STRUCK + FROZEN, indirect=["bank"])
def test_a_thread(bank, relay, connect, form, what):
    attack = Attack(bank, relay, what)
    if what == "Ctrl-C":
        here: Any = threading.main_thread().ident
        attack.interrupt = lambda: signal.pthread_kill(here, signal.SIGINT)
    with interruptible():
        for _ in attack.strikes():
            with contextlib.contextmanager(FORMS[form])(bank, connect) as (session, next_user):
                limits = bank.run(session, LIMITS[bank.kind]).fetchall()
                session.rollback()
                before, ended = bank.stored, None
                try:
                    with fenced(attack.lease(struck.lock()), session):
                        bank.pay(session, bank.balance(session) - 1)
                except BaseException as error:  # noqa: BLE001 - any may come
                    ended = error
                attack.judge(before, ended)
                with next_user() as user:
                    if user is not None:
                        assert bank.run(user, LIMITS[bank.kind]).fetchall() == limits, attack.place
                        user.rollback()
                        with fenced(attack.lease(struck.lock()), user):
                            bank.balance(user)


@contextlib.contextmanager
def interruptible():
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


MAKE: dict[str, Callable[..., Any]] = {"AsyncSession": AsyncSession, "AsyncConnection": lambda engine: engine.connect()}


@pytest.mark.parametrize("bank", ["postgresql"], indirect=True)
@pytest.mark.parametrize("make", list(MAKE))
@pytest.mark.parametrize("what", ["the connection breaks", "the lease ends", "the task is cancelled"])
def test_a_task(bank, relay, tmp_path, make, what):
    attack = Attack(bank, relay, what)

    async def pay(engine):
        task: Any = asyncio.current_task()
        loop, done = asyncio.get_running_loop(), threading.Event()

        def interrupt():
            for function in (task.cancel, done.set):
                loop.call_soon_threadsafe(function)
            done.wait()

        if what != "the connection breaks":
            attack.interrupt = interrupt
        async with MAKE[make](engine) as session, fenced(attack.lease(struck.awaited_lock()), session):
            balance = (await session.execute(text(banks.READ))).scalar_one()
            await session.execute(text(banks.WRITE.format(balance - 1)))

    async def run():
        where = f"postgresql+psycopg://redlock@/{bank.name}?host={tmp_path}"
        engine = create_async_engine(where, pool_size=1, max_overflow=0, pool_timeout=5)

        async def limits():
            async with engine.connect() as user:
                return (await user.execute(text(LIMITS[bank.kind]))).all()

        first, before, ended = await limits(), bank.stored, None
        try:
            await asyncio.create_task(pay(engine))
        except BaseException as error:  # noqa: BLE001 - any may come
            ended = error
        attack.judge(before, ended)
        assert await limits() == first
        async with engine.connect() as user, fenced(attack.lease(struck.awaited_lock()), user):
            await user.execute(text(banks.READ))
        await engine.dispose()

    for _ in attack.strikes():
        asyncio.run(run())


DJANGO = """
    import functools, signal, sys, threading
    from pathlib import Path
    import django.db
    import psycopg
    from tests.fenced import banks, struck, test_every_message as messages
    from tests.servers.relay import Relay

    folder, what, kind = {folder!r}, {what!r}, {kind!r}
    here = connection.settings_dict
    bank = object.__new__(banks.Bank)
    bank.kind = kind
    if kind == "postgresql":
        bank.open = functools.partial(psycopg.connect, host=here["HOST"], user="redlock", dbname=here["NAME"])
    else:
        bank.open = functools.partial(
            pymysql.connect, unix_socket=here["HOST"], user="root", database=here["NAME"], ssl_disabled=True
        )
        here["OPTIONS"]["ssl_disabled"] = True
    path = f"{{folder}}/{{messages.SOCKET}}"
    relay = Relay(f"{{here['HOST']}}/{{messages.SOCKET}}" if kind == "postgresql" else here["HOST"], path)
    here["HOST"] = folder if kind == "postgresql" else path
    messages.ALLOWED["the connection breaks"] += (django.db.Error,)
    messages.ALLOWED["Ctrl-C"] += (django.db.Error, messages.CommitUnknown)  # Django: the connection is busy
    attack = messages.Attack(bank, relay, what)
    if what == "Ctrl-C":
        attack.interrupt = lambda: signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    def limits():
        with connection.cursor() as cursor:
            cursor.execute(messages.LIMITS[kind])
            return cursor.fetchall()

    connection.close()
    for _ in attack.strikes():
        first, before, ended = limits(), bank.stored, None
        try:
            with fenced(attack.lease(struck.lock())):
                pay(balance() - 1)
        except BaseException as error:
            ended = error
        attack.judge(before, ended)
        assert limits() == first, attack.place
        with fenced(attack.lease(struck.lock())):
            balance()
        connection.close()
    relay.close()
    print("all")
"""


@pytest.mark.parametrize("database", ["postgresql", "mariadb"], indirect=True)
@pytest.mark.parametrize("what", WHAT)
def test_django(redlock_servers, database, tmp_path, what):
    kind = "postgresql" if "postgresql" in database["ENGINE"] else "mariadb"
    program = DJANGO.format(folder=str(tmp_path), what=what, kind=kind)
    assert printed(redlock_servers, database, program) == ["all"]
