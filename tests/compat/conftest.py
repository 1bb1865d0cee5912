"""What the tests of the old calls share: nothing is left behind."""

from __future__ import annotations

import threading

import pytest

from tests.servers.look import eventually


@pytest.fixture(autouse=True)
def _no_thread_left():
    before = set(threading.enumerate())
    yield
    eventually(lambda: not set(threading.enumerate()) - before)
