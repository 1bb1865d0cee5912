"""A database with transactions and row locks, and what must hold in it (R39): it knows no clock of ours.

Statements and answers take a while, and get lost with the connection.  A transaction in which nothing happens ends by
itself after the time that its client has set, as PostgreSQL and MariaDB see to that.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulation.invariants import Judge

NO_UPDATE_LOST = "R39 no update is lost"
FENCES_RISE = "R39 fences rise"
WHILE_VALID = "R39 no lost lease commits"
BEFORE_RELEASE = "R39 committed before the release"
ALL = (NO_UPDATE_LOST, FENCES_RISE, WHILE_VALID, BEFORE_RELEASE)


class BrokenError(Exception):
    """The connection is gone, or the database has ended the transaction."""


class RefusedError(Exception):
    """A greater fence is there."""


@dataclass(eq=False)
class Row:
    """One row of the table of fences, and the data that it protects."""

    fence: int = 0
    value: int = 0  # how many transactions have added one
    committed: int = 0  # the greatest fence that has
    owner: Transaction | None = None  # who has its lock
    waiting: list[tuple[Transaction, Callable[[], None]]] = field(default_factory=list)


@dataclass(eq=False)
class Transaction:
    """``seen``: what it has read, by name.  ``raised``: the fences that it raises, which nobody sees before its end."""

    idle: float  # the longest pause between two statements
    seen: dict[str, int] = field(default_factory=dict)
    raised: dict[str, int] = field(default_factory=dict)
    open: bool = True
    statements: int = 0


class Database:
    """All statements of all clients, one after the other."""

    def __init__(self, judge: Judge) -> None:
        self.judge = judge
        self.world = judge.world
        self.rows: dict[str, Row] = {}
        self.commits = 0
        self.refused = 0
        self._open: list[Transaction] = []

    def begin(self, idle: float) -> Transaction:
        transaction = Transaction(idle)
        self._open.append(transaction)
        return transaction

    def settle(self) -> None:
        """End all transactions, as an operator would who waits for nobody."""
        for transaction in self._open:
            self.end(transaction)
        self._open.clear()

    def ask(self, statement: Callable[[Callable[[Any], None]], None], answer: Callable[[Any], None]) -> None:
        """Send a statement; ``answer`` gets what comes of it, an exception included."""
        self._later(lambda: statement(lambda result: self._later(answer, result)))

    def _later(self, call: Callable[..., None], *arguments: Any) -> None:
        self.world.after(self.world.random.expovariate(1 / self.judge.parameters.delay), call, *arguments)

    # -- statements ----------------------------------------------------------------------------------

    def raise_fence(self, transaction: Transaction, name: str, fence: int, answer: Callable[[Any], None]) -> None:
        """Raise the row, or wait for its lock first."""
        if not self._goes_on(transaction, answer):
            return
        row = self.rows.setdefault(name, Row())
        if row.owner not in (None, transaction):
            row.waiting.append((transaction, lambda: self.raise_fence(transaction, name, fence, answer)))
            return
        self.locks(row, transaction)
        if fence < row.fence:
            self.refused += 1
            self.end(transaction)
            answer(RefusedError())
            return
        transaction.raised[name] = fence
        answer(None)

    def locks(self, row: Row, transaction: Transaction) -> None:
        row.owner = transaction

    def read(self, transaction: Transaction, name: str, answer: Callable[[Any], None]) -> None:
        if self._goes_on(transaction, answer):
            transaction.seen[name] = self.rows.setdefault(name, Row()).value
            answer(None)

    def commit(self, transaction: Transaction, answer: Callable[[Any], None]) -> None:
        if not self._goes_on(transaction, answer):
            return
        for name, seen in transaction.seen.items():
            row, fence = self.rows[name], transaction.raised[name]
            if seen != row.value:
                self.judge.fail(NO_UPDATE_LOST, f"{name}: a transaction read {seen}, and {row.value} is there now")
            if fence < row.committed:
                self.judge.fail(FENCES_RISE, f"{name}: {fence} is committed after {row.committed}")
            row.value, row.committed = seen + 1, fence
            row.fence = max(row.fence, fence)
        self.commits += 1
        self.end(transaction)
        answer(None)

    def end(self, transaction: Transaction) -> None:
        """Its locks go to who waits for them."""
        transaction.open = False
        for row in self.rows.values():
            if row.owner is transaction:
                row.owner = None
            # Who was ended while it waited hears so, and the first one that goes on gets the lock.
            while row.waiting and (row.owner is None or not row.waiting[0][0].open):
                waiter, goes_on = row.waiting.pop(0)
                goes_on()
                if waiter.open:
                    break

    def _goes_on(self, transaction: Transaction, answer: Callable[[Any], None]) -> bool:
        """Whether the transaction is open; it may be idle from now on."""
        if not transaction.open:
            answer(BrokenError())
            return False
        transaction.statements += 1
        self.world.after(transaction.idle, self._idle, transaction, transaction.statements)
        return True

    def _idle(self, transaction: Transaction, statements: int) -> None:
        if transaction.open and transaction.statements == statements:
            self.world.log("the database ends a transaction")
            self.end(transaction)
