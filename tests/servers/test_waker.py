"""What wakes a thread that sits in poll(): `redlock/_threads/waker.py`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from redlock._threads.waker import Waker
from tests.servers.test_close import descriptors

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_who_rings_while_it_is_closed_writes_into_no_file_of_others(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The kernel may look at the number when it is theirs already."""
    before = descriptors()
    waker = Waker()
    real = os.write
    files: list[Any] = []

    def write(fd: int, data: Any) -> int:
        waker.close()
        files.extend((tmp_path / str(number)).open("wb") for number in range(4))
        return real(fd, data)

    monkeypatch.setattr(os, "write", write)
    waker.wake()
    monkeypatch.undo()
    for file in files:
        file.close()
    assert [(tmp_path / str(number)).read_bytes() for number in range(4)] == [b""] * 4
    assert descriptors() == before
    waker.wake()  # nobody is left to hear it
    waker.close()
