"""The rule that is printed and the questions that are asked have what the library does."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

import redlock
from redlock import scripts
from redlock._health import rights


def commands(rule: str) -> set[str]:
    return {word[1:] for word in rule.split() if word.startswith("+")}


def test_every_command_of_every_script_is_in_the_rule():
    """A script that learns a new command must not fail for those who have granted the rule."""
    every = (*scripts.USUAL, *scripts.RECORDED)
    called = {name.lower() for script in every for name in re.findall(r"redis\.p?call\('(\w+)'", script.text)}
    assert {"set", "get", "del", "pexpire", "pttl", "publish"} <= called
    assert called - {"pubsub"} <= commands(rights.rule("redlock:"))  # of that one a subcommand, for looks


def test_every_command_of_a_connection_is_in_the_rule():
    source = (Path(redlock.__file__).parent / "_connect.py").read_text(encoding="utf-8")
    handshake = source[source.index("def _handshake") : source.index("def read_info")]
    called = set(re.findall(r'\("([A-Z]+)", "?([\w*]+)', handshake))
    granted = commands(rights.rule("")) | commands(rights.rule("", functions=True))
    assert called
    for command, argument in called:
        assert {command.lower(), f"{command}|{argument}".lower()} & granted, command
    assert {"evalsha", "eval", "fcall"} <= granted  # see `Call.words`


def test_the_rule_of_who_calls_functions_has_no_scripts():
    """R44."""
    usual, functions = commands(rights.rule("p:")), commands(rights.rule("p:", functions=True))
    assert (usual - functions, functions - usual) == ({"eval", "evalsha", "script|load"}, {"fcall"})
    assert not {one.needs for one in rights.questions("p:", "n", functions=True)} & (usual - functions)


@pytest.mark.parametrize("prefix", ["p:", ""])
def test_every_right_of_the_rule_is_asked_for(prefix):
    of_readers = {word for word in commands(rights.rule(prefix)) if word.startswith("z")}
    questions = rights.questions(prefix, "n", records=True)
    asked = {question.needs for question in questions} | {"info", "time"} | of_readers
    asked |= {*rights._OF_CONNECTIONS, *rights._OF_LOOKS}
    assert asked == commands(rights.rule(prefix))
    patterns = {question.keys for question in questions} - {""}
    assert patterns == {word for word in rights.rule(prefix).split() if word[0] in "~&"}


@pytest.mark.parametrize(("prefix", "escaped"), [
    ("redlock:", "redlock:"),
    ("\u2028é", "???é"),  # it matches bytes
    ("a*b c[", "a\\*b?c\\["),
])  # fmt: skip
def test_the_patterns_are_those_of_the_prefix(prefix, escaped):
    patterns = f"~{escaped}* ~{{{escaped}* ~redlock-max-ttl:{escaped} ~redlock-fleet:{escaped} &{escaped}*:released"
    assert [word for word in rights.rule(prefix).split() if word[0] in "~&"] == patterns.split()
    assert [word for word in rights.rule("").split() if word[0] in "~&"] == ["~*", "&*:released"]  # none after ~*


@pytest.mark.parametrize("prefix", ["redlock:", "", "it's $HOME `x` | & ~ > *"])
def test_the_rule_is_quoted_for_a_shell_and_for_redis_cli(prefix):
    """A user that had other keys and channels has them no more."""
    rule = rights.rule(prefix)
    assert rule.startswith("-@all resetkeys resetchannels ")
    assert shlex.split(rights.quoted(rule)) == rule.split()
    assert "'" not in rule  # redis-cli has no such escape as a shell has


def test_a_database_has_to_be_selected():
    assert "+select" not in rights.rule("p:").split()
    assert "+select" in rights.rule("p:", database=True).split()


@pytest.mark.parametrize(("refusal", "missing"), [
    ("NOPERM this user has no permissions to run the 'set' command", "+set"),
    ("NOPERM User u has no permissions to run the 'set' command", "+set"),
    ("NOPERM this user has no permissions to access one of the keys used as arguments", "~p:*"),
    ("NOPERM No permissions to access a key", "~p:*"),
    ("NOPERM this user has no permissions to access one of the channels used as arguments", "~p:*"),
])  # fmt: skip
def test_what_a_refusal_complains_of(refusal, missing):
    assert rights.missing(rights.Question(("SET",), "set", "~p:*"), refusal) == missing
