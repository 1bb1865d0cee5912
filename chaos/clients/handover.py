"""Leases that go from one process to another: a token in a file.  The process that renames the file first takes it.

The file is named after the digits of the token: an owner may have a slash in it.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from ..history import now

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class Offer:
    lock: str
    token: str
    fence: int
    valid_until: float
    giver: str  # the process


class Handovers:
    """Offered, then taken, then confirmed: the suffix of the file says how far it has got."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def offer(self, offer: Offer) -> None:
        file = self._file(offer.token, ".new")
        file.write_text(json.dumps(asdict(offer)))
        file.rename(file.with_suffix(".offered"))

    def take(self, taker: str, at_least: float) -> Offer | None:
        """One of another process that has ``at_least`` seconds left; nobody else's from now on."""
        for file in self._directory.glob("*.offered"):
            with suppress(FileNotFoundError):  # somebody else was faster
                offer = Offer(**json.loads(file.read_text()))
                if offer.giver != taker and offer.valid_until - now() > at_least:
                    file.rename(file.with_suffix(".taken"))
                    return offer
        return None

    def confirm(self, offer: Offer) -> None:
        """It is held here now."""
        with suppress(FileNotFoundError):
            self._file(offer.token, ".taken").rename(self._file(offer.token, ".confirmed"))

    def withdraw(self, token: str) -> bool:
        """The giver's time is over.  True if nobody has confirmed, so that the hold has ended with it."""
        if self._file(token, ".confirmed").exists():
            return False
        with suppress(FileNotFoundError):
            self._file(token, ".offered").unlink()
        return True

    def _file(self, token: str, how_far: str) -> Path:
        return self._directory / (token.partition(":")[0] + how_far)
