"""Error replies: is it worth trying again, is it somebody's job, and what to tell a person."""

from __future__ import annotations

import pytest

from redlock._core.refusals import ErrorReply


@pytest.mark.parametrize(
    ("text", "passing", "configuration"),
    [
        ("BUSY Redis is busy running a script.", True, False),
        ("CLUSTERDOWN Hash slot not served", True, False),
        ("LOADING Redis is loading the dataset in memory", True, False),
        ("MASTERDOWN Link with MASTER is down", True, False),
        ("MISCONF Errors writing to the AOF file", True, False),
        ("NOREPLICAS Not enough good replicas to write.", True, False),
        ("OOM command not allowed when used memory > 'maxmemory'.", True, False),
        ("READONLY You can't write against a read only replica.", True, False),
        ("TRYAGAIN Multiple keys request", True, False),
        ("NOAUTH Authentication required.", False, True),
        ("NOPERM this user has no permissions", False, True),
        ("WRONGPASS invalid username-password pair", False, True),
        ("WRONGTYPE Operation against a key", False, True),
        ("BADFENCE x does not hold a fencing token", False, True),
        ("MOVED 3999 127.0.0.1:6381", False, True),
        ("ERR unknown command", False, False),
        ("NOSCRIPT No matching script.", False, False),
        ("", False, False),
        # the code is the whole first word
        ("BUSYGROUP exists", False, False),
    ],
)
def test_what_it_means(text: str, passing: bool, configuration: bool) -> None:
    reply = ErrorReply(text)
    failure = reply.failure()
    assert reply.passing == passing
    assert failure.configuration == configuration
    assert (failure.outcome, failure.sent) == ("error", True)
    assert failure.reason.startswith(text)


@pytest.mark.parametrize("code", ["BUSY", "LOADING", "MISCONF", "MOVED", "NOAUTH", "NOPERM", "NOREPLICAS", "OOM", "READONLY", "WRONGTYPE"])
def test_what_is_common_is_explained(code: str) -> None:
    assert ErrorReply(f"{code} text").failure().reason.startswith(f"{code} text (")


def test_a_novel_is_cut_short() -> None:
    reason = ErrorReply("ERR " + "x" * 100_000).failure().reason
    assert len(reason) < 300
    assert reason.endswith("…")
