"""``REDLOCK_MASTERS=local``: one set of masters for each user of a machine, found or started (docs/howto/laptop.md)."""

from typing import Final

LOCAL: Final = "local"  # in place of addresses
