"""What the locks protect: a version for each lock, in a store that checks fencing tokens and in one that does not.

Both are outside of the quorum, and both are used by read-modify-write: read the version, write it back
greater by one.  Two that are based on the same version have lost one of their updates.
"""

from __future__ import annotations

import contextlib
import sqlite3
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..history import now

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from ..history import Store

_PATIENCE = 0.5  # seconds for others to be done; one that was stopped in the middle may not be


class Busy(Exception):  # noqa: N818 - named for what is the case
    """Somebody else keeps the store from answering: nothing was written."""


@dataclass(frozen=True, slots=True)
class Written:
    """``t``: when, in the order of the store, whatever happened to the writer between that and its record.

    ``detail``: the version that was read, where it was written; else why not, where that is known.
    """

    t: float
    accepted: bool
    detail: object = None


class Stores:
    def __init__(self, path: Path) -> None:
        self._path = path

    def create(self, locks: Iterable[str]) -> sqlite3.Connection:
        """The connection is to be kept until the end: while there is one nobody has to tidy up."""
        keeper = sqlite3.connect(self._path, isolation_level=None)
        keeper.execute("PRAGMA journal_mode = WAL")
        for store in ("fenced", "plain"):
            keeper.execute(f"CREATE TABLE {store} (lock TEXT PRIMARY KEY, version INTEGER, fence INTEGER)")
            keeper.executemany(f"INSERT INTO {store} VALUES (?, 0, 0)", [(lock,) for lock in locks])  # noqa: S608
        return keeper

    def read(self, store: Store, lock: str, fence: int | None) -> int | None:
        """The version; None: the fence is too small.

        The fenced store takes note of the fence when it is read from already: otherwise a smaller one
        could still write between this read and the write that belongs to it.
        """
        with self._transaction() as connection:
            if store == "fenced":
                noted = connection.execute(
                    "UPDATE fenced SET fence = :fence WHERE lock = :lock AND fence <= :fence",
                    {"lock": lock, "fence": fence},
                )
                if not noted.rowcount:
                    return None
            (version,) = connection.execute(f"SELECT version FROM {store} WHERE lock = ?", (lock,)).fetchone()  # noqa: S608
            return int(version)

    def write(self, store: Store, lock: str, fence: int | None, version: int) -> Written:
        """The next version after the one that was read; in one statement, as a service would."""
        values = {"lock": lock, "fence": fence, "version": version + 1}
        with self._transaction() as connection:
            if store == "fenced":
                written = connection.execute(
                    "UPDATE fenced SET version = :version, fence = :fence WHERE lock = :lock AND fence <= :fence",
                    values,
                )
            else:
                written = connection.execute("UPDATE plain SET version = :version WHERE lock = :lock", values)
            return Written(now(), written.rowcount == 1, {"read": version})

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with contextlib.closing(sqlite3.connect(self._path, timeout=_PATIENCE, isolation_level=None)) as connection:
            try:
                connection.execute("PRAGMA synchronous = OFF")
                connection.execute("BEGIN IMMEDIATE")
                yield connection
                connection.execute("COMMIT")
            except sqlite3.OperationalError as error:
                raise Busy(str(error)) from error
