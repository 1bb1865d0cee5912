"""Transactions under a lock, in a database that knows no clock of ours (R39): rows, their locks, and what was committed."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from tests.bench import At, Steps, scene
from tests.owners import proves

if TYPE_CHECKING:
    from collections.abc import Callable

TTL = 3.0


class BusyError(Exception):
    """Another transaction has the lock of the row: ask again."""


@dataclass
class Database:
    """One row of the table of fences, and the number that it protects.  It commits what it is sent, however late."""

    fence: int = 0
    value: int = 0
    owner: Any = None  # the transaction that has the lock of the row
    commits: list[int] = field(default_factory=list)  # the fence of each

    def store(self, at: At, *, slow: float = 0.0) -> Any:
        """What `fenced` has of a session.  ``slow``: seconds for which its process stands still with the COMMIT on its way."""
        return made(at, self, slow)


def made(at: At, database: Database, slow: float) -> Any:
    class Store(at.library["fenced._store"].Store):  # type: ignore[misc]
        open, raised, seen = False, 0, 0

        def check(self) -> None: ...

        def _begin(self) -> None:
            self.open = True

        def _execute(self, sql: str, parameters: dict[str, Any]) -> int:
            if "fence" in parameters:
                if database.owner not in (None, self):
                    raise BusyError
                if parameters["fence"] < database.fence:
                    return 0
                self.raised = parameters["fence"]
                database.owner = self if self.open else None  # each statement by itself is a transaction
            return 1

        def _look(self, sql: str, parameters: object) -> list[int]:
            return [database.fence]

        def read(self) -> None:
            self.seen = database.value

        def _commit(self) -> None:
            self._sends()
            at.block(slow)
            database.fence, database.value = max(database.fence, self.raised), self.seen + 1
            database.commits.append(self.raised)
            self._over()

        def _rollback(self) -> bool:
            self._over()
            return True

        def _throw_away(self) -> None:
            self._over()

        def _over(self) -> None:
            self.open = False
            database.owner = None if database.owner is self else database.owner

    return Store("sqlite")


def fenced(at: At, lock: Any, store: Any, body: Callable[[Any], Steps]) -> Callable[[], Any]:
    """``with fenced(lock, session) as lease``, or its asynchronous form, with a store of ours."""

    def waits(function: Callable[..., Any], *arguments: Any) -> Steps:
        while True:
            try:
                return function(*arguments)
            except BusyError:
                yield at.sleep(0.01)

    def run(function: Callable[..., Any], *arguments: Any) -> Any:
        return at.client.kind.drive(waits(function, *arguments))

    kind = at.library["fenced"].Fenced if at.threads else at.library["fenced"].AsyncFenced
    return at.within(kind(lock, store, run), body)


def adds_one(at: At, store: Any, lasts: float = 0.0) -> Callable[[Any], Steps]:
    def body(_: Any) -> Steps:
        store.read()
        yield at.sleep(lasts)

    return body


def adds(at: At, database: Database, *, slow: float = 0.0, lasts: float = 0.0, ttl: float = 30.0) -> Steps:
    """A transaction that adds one, with a lease that is not renewed."""
    store = database.store(at, slow=slow)
    yield fenced(at, at.masters.lock("job", ttl=ttl, auto_extend=False), store, adds_one(at, store, lasts))


def adds_next(at: At, database: Database, *, at_once: bool, ends: float = 0.0) -> Steps:
    """``at_once``: masters whose clocks have jumped give the lock away."""
    yield at.sleep(1.0)
    if at_once:
        at.put("redlock:job", None)
    yield from adds(at, database)
    if ends:
        assert at.exactly(ends)
        assert database.value == 2
        assert database.commits == sorted(database.commits)


@proves("R39")
@scene()
def test_a_commit_that_outlives_its_lease_is_there_before_the_next_holder_reads() -> list[Any]:
    database = Database()
    second = partial(adds_next, database=database, at_once=False, ends=2 * TTL)
    return [partial(adds, database=database, slow=2 * TTL, ttl=TTL), second]


@scene()
def test_of_two_that_hold_a_lock_at_once_the_second_waits_for_the_transaction_of_the_first() -> list[Any]:
    database = Database()
    return [partial(adds, database=database, lasts=2.0), partial(adds_next, database=database, at_once=True, ends=2.0)]


@scene()
def test_a_transaction_that_begins_behind_one_with_a_greater_fence_is_refused() -> list[Any]:
    """Its lease is valid for all that it knows: masters whose clocks have jumped have given it away."""
    database = Database()

    def first(at: At) -> Steps:
        store = database.store(at)
        lock = at.masters.lock("job", ttl=30.0, auto_extend=False)
        begin = store.begin

        def late(*of: Any) -> None:
            at.block(2.0)
            begin(*of)

        store.begin = late
        with contextlib.suppress(at.library["fenced"].FenceRefused):
            yield fenced(at, lock, store, adds_one(at, store))
        assert len(database.commits) == 1

    return [first, partial(adds_next, database=database, at_once=True)]


@scene()
def test_a_lease_that_was_lost_in_the_body_commits_nothing(at: At) -> Steps:
    database = Database()
    store = database.store(at)

    def body(_: Any) -> Steps:
        at.block(2 * TTL)
        yield partial(int)

    lock = at.masters.lock("job", ttl=TTL, auto_extend=False)
    yield from at.raises(at.errors.LockLost, fenced(at, lock, store, body))
    assert not database.commits


@scene()
def test_what_a_transaction_has_written_is_there_when_the_lock_is_given_back() -> list[Any]:
    database = Database()

    def second(at: At) -> Steps:
        yield at.sleep(1.0)
        lock, _ = yield from at.held("job", ttl=30.0)
        assert database.value == 1
        assert at.exactly(2.0)
        yield lock.release

    return [partial(adds, database=database, slow=2.0), second]
