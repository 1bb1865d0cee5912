"""Tests that need what not every machine has."""

import os
import shutil
import subprocess
from typing import NoReturn

import pytest


def missing(what) -> NoReturn:
    """Skip the test; fail it where everything is supposed to be there (``REDLOCK_TEST_REQUIRE_ALL=1``).

    So that on one machine at least nothing is skipped without anybody noticing.
    """
    if os.environ.get("REDLOCK_TEST_REQUIRE_ALL") == "1":
        pytest.fail(f"needs {what}, and REDLOCK_TEST_REQUIRE_ALL=1 forbids to skip", pytrace=False)
    pytest.skip(f"needs {what}")


def as_process_1():
    """What to write before a command that is to be the first process of a container."""
    contained = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child", "--mount-proc"]
    if (
        shutil.which("unshare") is None
        or subprocess.run([*contained, "true"], check=False, capture_output=True).returncode
    ):
        missing("unshare")
    return contained
