"""A payment worker: several of them share a few accounts, and each payment is a read, some thought, and a write.

    python worker.py work DATABASE      pays until SIGTERM; the masters are in REDLOCK_MASTERS
    python worker.py audit DATABASE     one line for each account; exit 1 if a payment was lost

The database is outside of the quorum and looks at the fencing token itself, in the statement that writes: a worker that
was stopped while its lease ran out, and writes before it looks, is refused there.

With METRICS_PORT, the metrics of `redlock.observe.prometheus` are served on that port.
"""

from __future__ import annotations

import logging
import os
import random
import signal
import socket
import sqlite3
import sys
import time
from contextlib import closing
from pathlib import Path

from redlock import LockLost, LockUnavailable, Masters

ACCOUNTS = 3
TTL = 5.0
THOUGHT = 0.05  # seconds that a payment takes: what other workers could do harm in

log = logging.getLogger(socket.gethostname())

TABLES = """
    CREATE TABLE IF NOT EXISTS account (id INTEGER PRIMARY KEY, balance INTEGER NOT NULL, fence INTEGER NOT NULL);
    CREATE TABLE IF NOT EXISTS payment (account INTEGER NOT NULL, fence INTEGER NOT NULL, worker TEXT NOT NULL);
"""


class Refused(Exception):  # noqa: N818 - no error of ours: the ledger did what it is for
    """The account has seen a greater fencing token."""


def opened(path: Path) -> sqlite3.Connection:
    """The database, with all of its accounts.  Any number of processes may do so at once."""
    database = sqlite3.connect(path, timeout=30, isolation_level=None)
    database.executescript(TABLES)
    with database:
        database.execute("BEGIN IMMEDIATE")
        for account in range(ACCOUNTS):
            database.execute("INSERT OR IGNORE INTO account VALUES (?, 0, 0)", (account,))
    return database


def write(database: sqlite3.Connection, account: int, balance: int, fence: int, worker: str) -> None:
    """The balance and the record of the payment, or neither.

    Raises:
        Refused: somebody had the lock later than we.
    """
    with database:
        database.execute("BEGIN IMMEDIATE")
        done = database.execute(
            "UPDATE account SET balance = ?, fence = ? WHERE id = ? AND fence <= ?", (balance, fence, account, fence)
        )
        if done.rowcount == 0:
            raise Refused(f"account {account} refuses {fence}")
        database.execute("INSERT INTO payment VALUES (?, ?, ?)", (account, fence, worker))


def pay(database: sqlite3.Connection, masters: Masters, account: int) -> None:
    """One coin into an account."""
    with masters.lock(f"account:{account}", ttl=TTL, timeout=10) as lease:
        assert lease.fence is not None  # noqa: S101 - for the type checker: fencing is on
        [balance] = database.execute("SELECT balance FROM account WHERE id = ?", (account,)).fetchone()
        time.sleep(THOUGHT)
        lease.ensure(at_least=0.5)
        write(database, account, balance + 1, lease.fence, socket.gethostname())


def work(path: Path) -> None:
    observer = None
    if port := os.environ.get("METRICS_PORT"):
        import prometheus_client  # noqa: PLC0415 - only where metrics are wanted

        from redlock.observe.prometheus import PrometheusObserver  # noqa: PLC0415

        prometheus_client.start_http_server(int(port))
        observer = PrometheusObserver(label=lambda name: name.partition(":")[0])
    with closing(opened(path)) as database, Masters.from_env(observer=observer) as masters:
        while True:
            account = random.randrange(ACCOUNTS)  # noqa: S311 - no secret
            try:
                pay(database, masters, account)
            except LockUnavailable as error:  # held for too long, or too few masters took part
                log.warning("%s", error)
            except (LockLost, Refused) as error:
                log.warning("nothing was paid: %s", error)


def audit(path: Path) -> int:
    """Every payment adds one, so a balance is the number of its payments; else one was overwritten."""
    lost = 0
    with closing(opened(path)) as database:
        for account, balance, payments, workers in database.execute(
            "SELECT account.id, balance, count(payment.fence), count(DISTINCT worker)"
            " FROM account LEFT JOIN payment ON payment.account = account.id GROUP BY account.id"
        ).fetchall():
            print(f"account {account}: balance {balance}, {payments} payments by {workers} workers")
            lost += payments - balance
    print("no payment was lost" if lost == 0 else f"LOST: {lost} payments")
    return int(lost != 0)


def main() -> int:
    match sys.argv[1:]:
        case ["work", path]:
            # An exception, so that the lock is given back; as process 1 of a container it would be ignored.
            signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
            logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
            work(Path(path))
            return 0
        case ["audit", path]:
            return audit(Path(path))
    print("usage: worker.py work|audit DATABASE", file=sys.stderr)
    return 64


if __name__ == "__main__":
    sys.exit(main())
