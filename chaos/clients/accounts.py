"""The store that checks fences, in PostgreSQL: a version for each lock, read and written back in one fenced transaction.

The table of fences and its statements are those of `redlock.fenced`, and so is the order.  There is no fence in what this
store itself does.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import NullPool, create_engine, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import create_async_engine

from redlock import LockLost
from redlock.fenced import FenceRefused, PausedTooLong, fenced, schema

from ..history import now
from .stores import Written

if TYPE_CHECKING:
    from collections.abc import Iterable
    from random import Random

    from .worlds import World

# A commit takes as long as its row says: as with a slow disk, or a replica that has to have it first.
_TABLE: Final = """
CREATE TABLE account (lock TEXT PRIMARY KEY, version BIGINT, commit_takes DOUBLE PRECISION);
CREATE FUNCTION take_time() RETURNS trigger LANGUAGE plpgsql AS
  'BEGIN PERFORM pg_sleep(NEW.commit_takes); RETURN NULL; END';
CREATE CONSTRAINT TRIGGER slow AFTER UPDATE ON account DEFERRABLE INITIALLY DEFERRED
  FOR EACH ROW EXECUTE FUNCTION take_time();
"""
_READ: Final = text("SELECT version FROM account WHERE lock = :lock")
_WRITE: Final = text("UPDATE account SET version = :version, commit_takes = :commit_takes WHERE lock = :lock")


class Accounts:
    """``host``: the folder of the server's socket.  ``tasks``: it is used in the world of asyncio.

    To make an engine imports its driver, which is nothing to be done on a loop that has leases to keep.
    """

    def __init__(self, host: str, *, tasks: bool = False) -> None:
        make: Any = create_async_engine if tasks else create_engine
        self._engine = make(f"postgresql+psycopg://redlock@/postgres?host={host}", poolclass=NullPool)

    def create(self, locks: Iterable[str]) -> None:
        with self._engine.begin() as connection:
            connection.execute(text(schema("postgresql")))
            connection.execute(text(_TABLE))
            for lock in locks:
                connection.execute(text("INSERT INTO account VALUES (:lock, 0, 0)"), {"lock": lock})

    async def add_one(self, world: World, lease: Any, chance: Random, longest: float) -> Written:
        """Read the version, take one's time, write it back greater by one, commit; ``longest`` seconds for each of both.

        Raises:
            CommitUnknown: nobody knows.
        """
        found: list[Written] = []

        async def connected(connection: Any) -> None:
            await world.within(fenced(lease, connection), partial(body, connection))

        async def body(connection: Any, _: Any) -> None:
            version = (await world.result(connection.execute(_READ, {"lock": lease.name}))).scalar_one()
            await world.sleep(chance.uniform(0, longest))
            values = {"lock": lease.name, "version": version + 1, "commit_takes": chance.uniform(0, longest)}
            await world.result(connection.execute(_WRITE, values))
            found.append(Written(now(), True, {"read": version}))  # the row is locked: this is the order of the store

        try:
            await world.within(self._engine.connect(), connected)
        except (FenceRefused, LockLost, PausedTooLong, DBAPIError) as error:
            return Written(now(), False, f"rolled back: {_why(error)}")
        return found[0]


def _why(error: Exception) -> str:
    """A `DBAPIError` wraps what the driver has raised."""
    return type(getattr(error, "orig", None) or error).__name__
