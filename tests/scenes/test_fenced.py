"""Transactions under a lock, in a database that knows no clock of ours (R39): rows, their locks, and what was committed."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from tests.bench import scene
from tests.owners import proves

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

    def store(self, at, *, slow=0.0):
        """What `fenced` has of a session.  ``slow``: seconds for which its process stands still with the COMMIT on its way."""
        return made(at, self, slow)


def made(at, database, slow):
    class Store(at.library["fenced._store"].Store):  # type: ignore[misc]
        open, raised, seen = False, 0, 0

        def check(self): ...

        def _begin(self):
            self.open = True

        def _execute(self, sql, parameters):
            if "fence" in parameters:
                if database.owner not in (None, self):
                    raise BusyError
                if parameters["fence"] < database.fence:
                    return 0
                self.raised = parameters["fence"]
                database.owner = self if self.open else None  # each statement by itself is a transaction
            return 1

        def _look(self, sql, parameters):
            return [database.fence]

        def read(self):
            self.seen = database.value

        def _commit(self):
            self._sends()
            at.block(slow)
            database.fence, database.value = max(database.fence, self.raised), self.seen + 1
            database.commits.append(self.raised)
            self._over()

        def _rollback(self):
            self._over()
            return True

        def _throw_away(self):
            self._over()

        def _over(self):
            self.open = False
            database.owner = None if database.owner is self else database.owner

    return Store("sqlite")


def fenced(at, lock, store, body):
    """``with fenced(lock, session) as lease``, or its asynchronous form, with a store of ours."""

    def waits(function, *arguments):
        while True:
            try:
                return function(*arguments)
            except BusyError:
                yield at.sleep(0.01)

    def run(function, *arguments):
        return at.client.kind.drive(waits(function, *arguments))

    kind = at.library["fenced"].Fenced if at.threads else at.library["fenced"].AsyncFenced
    return at.within(kind(lock, store, run), body)


def adds_one(at, store, lasts=0.0):
    def body(_):
        store.read()
        yield at.sleep(lasts)

    return body


def adds(at, database, *, slow=0.0, lasts=0.0, ttl=30.0):
    """A transaction that adds one, with a lease that is not renewed."""
    store = database.store(at, slow=slow)
    yield fenced(at, at.masters.lock("job", ttl=ttl, auto_extend=False), store, adds_one(at, store, lasts))


def adds_next(at, database, *, at_once, ends=0.0):
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
def test_a_commit_that_outlives_its_lease_is_there_before_the_next_holder_reads():
    database = Database()
    second = partial(adds_next, database=database, at_once=False, ends=2 * TTL)
    return [partial(adds, database=database, slow=2 * TTL, ttl=TTL), second]


@scene()
def test_of_two_that_hold_a_lock_at_once_the_second_waits_for_the_transaction_of_the_first():
    database = Database()
    return [partial(adds, database=database, lasts=2.0), partial(adds_next, database=database, at_once=True, ends=2.0)]


@scene()
def test_a_transaction_that_begins_behind_one_with_a_greater_fence_is_refused():
    """Its lease is valid for all that it knows: masters whose clocks have jumped have given it away."""
    database = Database()

    def first(at):
        store = database.store(at)
        lock = at.masters.lock("job", ttl=30.0, auto_extend=False)
        begin = store.begin

        def late(*of):
            at.block(2.0)
            begin(*of)

        store.begin = late
        with contextlib.suppress(at.library["fenced"].FenceRefused):
            yield fenced(at, lock, store, adds_one(at, store))
        assert len(database.commits) == 1

    return [first, partial(adds_next, database=database, at_once=True)]


@scene()
def test_a_lease_that_was_lost_in_the_body_commits_nothing(at):
    database = Database()
    store = database.store(at)

    def body(_):
        at.block(2 * TTL)
        yield partial(int)

    lock = at.masters.lock("job", ttl=TTL, auto_extend=False)
    yield from at.raises(at.errors.LockLost, fenced(at, lock, store, body))
    assert not database.commits


@scene()
def test_what_a_transaction_has_written_is_there_when_the_lock_is_given_back():
    database = Database()

    def second(at):
        yield at.sleep(1.0)
        lock, _ = yield from at.held("job", ttl=30.0)
        assert database.value == 1
        assert at.exactly(2.0)
        yield lock.release

    return [partial(adds, database=database, slow=2.0), second]
