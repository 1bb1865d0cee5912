"""The table of fences, made in the ways that people make tables (R39)."""

from __future__ import annotations

from typing import Any

from alembic.migration import MigrationContext
from alembic.operations import Operations

from redlock.fenced import fenced, schema
from tests.fenced import banks


def test_a_migration_of_alembic(plain, masters):
    """As the page says it; the table that is there already stays, with its rows."""
    bank = banks.through_sqlalchemy(plain)
    with fenced(masters.lock("account:7"), bank.open()) as lease:
        pass
    for drop in (False, True):
        with bank.session() as session:
            op: Any = Operations(MigrationContext.configure(session.connection()))
            if drop:
                op.drop_table("redlock_fence")
            op.execute(schema(op.get_bind().dialect.name))
            session.commit()
        assert bank.fences() == ({} if drop else {"account:7": lease.fence})
    with fenced(masters.lock("account:7"), bank.open()) as session:
        pass
