"""A few bytes that a session shares with one client: in force at once, and no call that could block."""

from __future__ import annotations

import mmap
import struct
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

# What a client is to do: work, short sections only, come to an end.
WORK, SETTLE, END = 0, 1, 2

_LAYOUT: Final = struct.Struct("dq")


class Control:
    def __init__(self, file: Path, *, new: bool = False) -> None:
        if new:
            file.write_bytes(bytes(_LAYOUT.size))
        with file.open("r+b") as opened:
            self._shared = mmap.mmap(opened.fileno(), _LAYOUT.size)

    def tell(self, wrong_by: float, phase: int) -> None:
        _LAYOUT.pack_into(self._shared, 0, wrong_by, phase)

    @property
    def wrong_by(self) -> float:
        """Seconds that the client's wall clock is to be ahead."""
        seconds: float = _LAYOUT.unpack_from(self._shared)[0]
        return seconds

    @property
    def phase(self) -> int:
        phase: int = _LAYOUT.unpack_from(self._shared)[1]
        return phase
