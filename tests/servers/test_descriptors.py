"""Out of descriptors: an outage that says so, and passes."""

from __future__ import annotations

import pytest

from tests.servers import worlds
from tests.servers.process import started


@pytest.mark.parametrize("name", worlds.NAMES)
@pytest.mark.parametrize("free", [0, 4])
def test_it_is_an_outage_that_says_what_to_do_and_passes(redlock_servers, certificate, name, free):
    """With none free nothing can be made at all; with few, no majority can be connected."""
    if free and name != "threads":
        free = 1
    command = ["-m", "tests.servers.hog", name, str(certificate), *redlock_servers.urls]
    with started(*command, environment={"FREE": str(free)}) as process:
        process.says("made", seconds=60)
        said = process.says("then")
        assert said.startswith("then: QuorumUnreachable")
        assert "Too many open files" in said
        assert "ulimit -n" in said
        assert process.says("later") == "later: granted"
        assert process.ends() == 0
