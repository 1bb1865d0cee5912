"""A lock as a register: in the words that Porcupine and Knossos read, and linearizable exactly if nobody held it twice."""

from __future__ import annotations

import re

import pytest

from chaos.export import exported
from chaos.history import Unreadable
from tests.chaos.tape import LOCK, told

# What parseJepsenLog of Porcupine's tests takes, and an operation of Knossos.
GRAMMAR = {
    "porcupine": r"INFO\s+jepsen\.util\s+-\s+(\d+)\s+:(invoke|ok)\s+:(write|cas)\s+(\d+|\[\d+\s+\d+\])",
    "knossos": r"\{:process (\d+), :type :(invoke|ok), :f :(write|cas), :value (\d+|\[\d+ \d+\])\}",
}


def register(story, form="porcupine"):
    history = told(story).history()
    matches = [re.fullmatch(GRAMMAR[form], line) for line in exported(history, LOCK, form)]
    assert all(matches)
    return [match.groups() for match in matches if match]


def linearizable(lines, value="0", invoked=frozenset(), done=frozenset()):
    """Every operation takes effect between its two lines; a checker of a few lines, for a few operations."""
    if not lines:
        return True
    (process, what, f, argument), *rest = lines
    if what == "invoke":
        invoked = invoked | {(process, f, argument)}
        if linearizable(rest, value, invoked, done):
            return True
    elif (process, f, argument) in done:
        return linearizable(rest, value, invoked, done - {(process, f, argument)})
    for one in invoked:
        old, new = one[2].strip("[]").split() if one[1] == "cas" else (value, one[2])
        if old == value and linearizable(lines if what == "ok" else rest, new, invoked - {one}, done | {one}):
            return True
    return False


@pytest.mark.parametrize("form", GRAMMAR)
def test_it_is_what_they_read(form):
    assert register("1 A held until 11, 5 A releases, 6 B held until 16, 20 A asks", form) == [
        ("0", "invoke", "write", "0"), ("0", "ok", "write", "0"),
        ("1", "invoke", "cas", "[0 1]"), ("1", "ok", "cas", "[0 1]"),
        ("1", "invoke", "cas", "[1 0]"), ("1", "ok", "cas", "[1 0]"),
        ("2", "invoke", "cas", "[0 2]"), ("2", "ok", "cas", "[0 2]"),
        ("2", "invoke", "cas", "[2 0]"), ("2", "ok", "cas", "[2 0]"),
    ]  # fmt: skip


@pytest.mark.parametrize(("story", "right"), [
    ("1 A held until 11, 11 B held until 21", True),
    ("1 A held until 11, 10 B held until 20", False),
    ("1 B asks, 2 A held until 12, 5 A releases, 6 B held until 16", True),
    ("1 A held until 11, 5 A/3 resumed until 15, 11 B held until 20", False),
    ("1 A held until 11, 5 A/3 resumed until 15, 15 B held until 20", True),
])  # fmt: skip
def test_it_can_be_linearized_exactly_if_no_two_holds_overlap(story, right):
    assert linearizable(register(story)) == right
    assert (told(story).judge("exclusive") == []) == right


def test_readers_make_no_register():
    with pytest.raises(Unreadable, match="readers share"):
        register("1 A held until 11 as shared")
