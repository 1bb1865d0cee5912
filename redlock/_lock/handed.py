"""The text of a lease, for a message to the process that takes it over (R46)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple

from redlock import options
from redlock.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Sequence


class Handed(NamedTuple):
    """All that another process needs to go on with a lease; seconds.  The names come first: an error shows these."""

    names: Sequence[str]
    token: str
    fence: int | None
    shared: bool
    ttl: float
    guard: float
    hold_at_least: float  # what is left of it (R28)
    prefix: str

    def text(self) -> str:
        return json.dumps(self._asdict())

    @classmethod
    def read(cls, text: object) -> Handed:
        """Raises ConfigurationError, which shows only the beginning: the whole text is enough to release the lock."""
        try:
            found = json.loads(text)  # type: ignore[arg-type] # a TypeError
            return cls(**{field: found[field] for field in cls._fields})
        except (ValueError, KeyError, TypeError, RecursionError):
            raise ConfigurationError(
                f"handed={options.begun(text)}: allowed is all of what lease.hand_over() returned, "
                "or with token= the names of the lock"
            ) from None
