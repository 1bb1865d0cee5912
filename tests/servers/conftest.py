"""What the tests with real servers share."""

from __future__ import annotations

import threading

import pytest


@pytest.fixture(autouse=True)
def _no_thread_left():
    """Whoever starts threads ends them: `close()` leaves none (section 8)."""
    before = set(threading.enumerate())
    yield
    left = [thread for thread in threading.enumerate() if thread not in before and "redlock" in thread.name]
    assert not left
