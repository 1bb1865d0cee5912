"""Tests that need what not every machine has."""

from __future__ import annotations

import os
from typing import NoReturn

import pytest


def missing(what: str) -> NoReturn:
    """Skip the test; fail it where everything is supposed to be there (``REDLOCK_TEST_REQUIRE_ALL=1``).

    So that on one machine at least nothing is skipped without anybody noticing.
    """
    if os.environ.get("REDLOCK_TEST_REQUIRE_ALL") == "1":
        pytest.fail(f"needs {what}, and REDLOCK_TEST_REQUIRE_ALL=1 forbids to skip", pytrace=False)
    pytest.skip(f"needs {what}")
