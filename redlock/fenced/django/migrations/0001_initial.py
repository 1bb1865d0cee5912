"""Makes the table of fences with the statement of `redlock.fenced.schema`, the same one as elsewhere."""

from __future__ import annotations

from typing import Any

from django.db import migrations, models

from redlock.fenced import schema
from redlock.fenced._sql import TABLE
from redlock.fenced.django.models import NameField


def make(_: Any, editor: Any) -> None:
    """Run the statement on databases in which the router has this table."""
    from django.db import router  # noqa: PLC0415 - a migration is loaded before the settings are

    if router.allow_migrate(editor.connection.alias, "redlock_fenced", model_name="fence"):
        editor.execute(schema(editor.connection.vendor))


def drop(_: Any, editor: Any) -> None:
    editor.execute(f"DROP TABLE IF EXISTS {TABLE}")


class Migration(migrations.Migration):  # type: ignore[misc]
    initial = True
    operations = [  # noqa: RUF012 - as Django reads it
        migrations.SeparateDatabaseAndState(
            state_operations=[
                migrations.CreateModel(
                    name="Fence",
                    fields=[
                        ("name", NameField(max_length=512, primary_key=True, serialize=False)),
                        ("fence", models.BigIntegerField()),
                        ("owner", models.CharField(max_length=255)),
                        ("raised_at", models.DateTimeField()),
                    ],
                    options={"db_table": TABLE},
                ),
            ],
        ),
        migrations.RunPython(make, drop, atomic=False),  # MySQL changes no table inside of a transaction
    ]
