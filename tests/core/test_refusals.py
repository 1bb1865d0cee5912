"""Error replies: is it worth trying again, is it somebody's job, and what to tell a person."""

from __future__ import annotations

import pytest

from redlock._core.outcomes import ErrorReply


@pytest.mark.parametrize(("text", "passing", "configuration"), [
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
    ("BADMAXTTL x does not hold the max_ttl of a client: delete it", False, True),
    ("CROSSSLOT Keys in request don't hash to the same slot", False, True),
    ("ERR unknown command 'EVALSHA', with args beginning with: ", False, True),
    ("ERR unknown command `EVALSHA`, with args beginning with: ", False, True),
    ("unknown command 'EVAL', with args beginning with: ", False, True),  # as redis-py hands it on
    ("ERR unknown subcommand", False, False),
    ("NOSCRIPT No matching script.", False, False),
    ("", False, False),
    # the code is the whole first word
    ("BUSYGROUP exists", False, False),
])  # fmt: skip
def test_what_it_means(text: str, passing: bool, configuration: bool) -> None:
    reply = ErrorReply(text)
    failure = reply.failure()
    assert reply.passing == passing
    assert failure.configuration == configuration
    assert (failure.outcome, failure.sent) == ("error", True)
    assert failure.reason.startswith(text)


@pytest.mark.parametrize("code", [
    "BADFENCE", "BUSY", "CROSSSLOT", "ERR unknown command", "LOADING", "MISCONF", "MOVED", "NOAUTH", "NOPERM",
    "NOREPLICAS", "OOM", "READONLY", "WRONGTYPE",
])  # fmt: skip
def test_what_is_common_is_explained(code: str) -> None:
    assert ErrorReply(f"{code} text").failure().reason.startswith(f"{code} text (")


def test_a_novel_is_cut_short() -> None:
    reason = ErrorReply("ERR " + "x" * 100_000).failure().reason
    assert len(reason) < 300
    assert reason.endswith("…")


CALL = "ERR Error running script (call to f_0123456789abcdef0123456789abcdef01234567)"


@pytest.mark.parametrize(("text", "read"), [
    (f"{CALL}: @user_script:1: @user_script: 1: -OOM command not allowed", "OOM command not allowed"),
    (f"{CALL}: @user_script:17: @user_script: 17: -MISCONF Redis is\r\nunable", r"MISCONF Redis is\r\nunable"),
    (f"{CALL}: @user_script:19: WRONGTYPE Operation against a key", "WRONGTYPE Operation against a key"),
    (f"{CALL}: @user_script:2: @user_script: 2: The user executing the script can't run this command",
     "NOPERM The user executing the script can't run this command"),
    # Redis 7, Valkey: without a code.
    ("ERR The user executing the script can't run this command or subcommand script: ab, on @user_script:3.",
     "NOPERM The user executing the script can't run this command or subcommand script: ab, on @user_script:3."),
    ("ERR ACL failure in script: User locks has no permissions to run the 'set' command script: ab",
     "NOPERM ACL failure in script: User locks has no permissions to run the 'set' command script: ab"),
    # Nothing is wrapped in these.
    ("OOM command not allowed", "OOM command not allowed"),
    ("BADFENCE @user_script:1: x", "BADFENCE @user_script:1: x"),
    ("ERR Error running script: no idea", "ERR Error running script: no idea"),
    ("", ""),
])  # fmt: skip
def test_what_an_older_master_wraps_is_unwrapped(text: str, read: str) -> None:
    """Redis before 7 hides the code of what goes wrong inside a script, which decides what it means."""
    assert ErrorReply.read(text) == ErrorReply(read)
