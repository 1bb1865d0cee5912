"""What a fenced transaction costs (R39), beside the same transaction under a plain lock, and beside it alone.

PostgreSQL as it is installed: each commit waits for the disk.  Read a row, write it back, commit, on one connection.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from benchmarks.lab import TTL
from benchmarks.records import Record, ratio
from chaos import databases
from redlock import Masters
from redlock.fenced import fenced, schema

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from benchmarks.lab import Lab

TITLE = "Fenced transactions, in PostgreSQL"
_MEASURE = "read, write, commit"
_ALONE, _LOCKED, _FENCED = "a transaction alone", "a transaction under a lock", "a fenced transaction"


def run(lab: Lab) -> Iterator[Record]:
    why = databases.unavailable()
    if why is not None:
        yield Record("transactions", "", _FENCED, _MEASURE, "×", None, note=why)
        return
    import psycopg  # noqa: PLC0415 - not every machine has it

    lab.reset()
    with (
        databases.postgresql(fsync=True) as host,
        psycopg.connect(host=host, user="redlock", dbname="postgres") as connection,
        Masters(lab.servers.urls[:5], restart_guard=False) as masters,
    ):
        yield from _compared(lab, masters, connection)


def _compared(lab: Lab, masters: Masters, connection: Any) -> Iterator[Record]:
    connection.execute(schema("postgresql"))
    connection.execute("CREATE TABLE account (balance BIGINT)")
    connection.execute("INSERT INTO account VALUES (0)")
    connection.commit()

    def work() -> None:
        (balance,) = connection.execute("SELECT balance FROM account").fetchone()
        connection.execute("UPDATE account SET balance = %s", (balance + 1,))

    def alone() -> None:
        work()
        connection.commit()

    def locked() -> None:
        with masters.lock("account", ttl=TTL):
            alone()

    def with_fence() -> None:
        with fenced(masters.lock("account", ttl=TTL), connection):
            work()

    ways = {_ALONE: alone, _LOCKED: locked, _FENCED: with_fence}
    for way in ways.values():
        _seconds(way, 2)
    rounds = []
    for number in range(lab.effort.rounds):
        lab.progress(f"round {number + 1} of {lab.effort.rounds}")
        titles = lab.random.sample(sorted(ways), len(ways))
        rounds.append({title: _seconds(ways[title], lab.effort.cycles) for title in titles})
    lab.progress("")
    for case, subject, baseline in (
        ("what the fence adds", _FENCED, _LOCKED),
        ("what lock and fence add", _FENCED, _ALONE),
        ("what the lock adds", _LOCKED, _ALONE),
    ):
        pairs = [(one[subject], one[baseline]) for one in rounds]
        yield ratio("transactions", case, subject, _MEASURE, pairs, baseline=baseline)


def _seconds(way: Callable[[], None], times: int) -> float:
    """Of one."""
    began = time.perf_counter()
    for _ in range(times):
        way()
    return (time.perf_counter() - began) / times
