"""The second judge: it shares nothing with the first one, agrees with it, and can fail."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, strategies as st

from chaos import second
from chaos.__main__ import main
from chaos.second import Operation
from tests.bench.histories import told as played
from tests.bench.parameters import FAMILIES
from tests.bench.variants import VARIANTS
from tests.chaos.tape import LOCK, PROPERTY, Tape, told
from tests.chaos.test_exclusive import STORIES


def both(tape):
    """Which judge says that two held a lock at once?"""
    return tape.judge("exclusive") != [], any(second.judged(tape.lines).values())


@pytest.mark.parametrize("name", STORIES)
def test_it_says_of_each_story_what_the_first_one_says(name):
    story, found = STORIES[name]
    assert both(told(story)) == (bool(found), bool(found))


TIMES = st.integers(1, 12)
WORDS = st.one_of(
    st.tuples(TIMES, st.sampled_from("ABC"), st.just("held until"), st.integers(1, 14), st.sampled_from(("", " as shared"))),
    st.tuples(TIMES, st.sampled_from("ABC"), st.just("extended until"), st.integers(1, 14), st.just("")),
    st.tuples(TIMES, st.sampled_from(("A", "B", "A/2")), st.just("resumed until"), st.integers(1, 14), st.just("")),
    st.tuples(TIMES, st.sampled_from(("A", "B", "C", "A/2")), st.sampled_from((
        "asks", "extends", "releases", "loses", "downgrades", "takes", "ends",
    )), st.just(""), st.just("")),
)  # fmt: skip


@PROPERTY
@given(st.lists(WORDS, min_size=2, max_size=10))
def test_it_says_of_any_story_what_the_first_one_says(words):
    story = ", ".join(
        f"{t} {who} {what} {until}{mode}".strip() for t, who, what, until, mode in sorted(words, key=lambda one: one[0])
    )
    first, other = both(told(story))
    assert first == other, story


def naive(operations, had=(), done=frozenset()):
    """Any of those that nothing else had to come before may be next: Wing and Gong, word for word."""
    left = [one for one in operations if one not in done]
    ends = min(((one.answered, 2 * (one.what in ("get", "read"))) for one in left), default=(0.0, 0))
    may = [one for one in left if (one.invoked, 2 * (one.what in ("get", "read"))) <= ends]
    return not left or any(
        (has := second._after(had, one)) is not None and naive(operations, has, done | {one}) for one in may
    )


@PROPERTY
@given(st.lists(st.tuples(TIMES, st.integers(0, 4), st.integers(0, 6), st.booleans()), max_size=5))
def test_its_search_finds_an_order_where_there_is_one(claims):
    operations = [
        one
        for number, (asked, waits, holds, reads) in enumerate(claims)
        for one in (
            Operation(asked, asked + waits, "read" if reads else "get", str(number)),
            Operation(asked + waits + holds + 1, asked + waits + holds + 1, "end", str(number)),
        )
    ]
    assert (second.impossible(operations) is None) == naive(operations)


def test_of_each_grant_of_a_run_that_comes_a_moment_too_early_it_is_red():
    """A judge that cannot fail is a defect."""
    [header, *lines], overlaps = played(FAMILIES["rivals"](1))
    assert overlaps is False
    grants = [line for line in lines if (line["op"], line["phase"]) == ("acquire", "ok")]
    assert len(grants) > 5
    assert not any(second.judged(lines).values())
    for number, grant in enumerate(grants[1:]):
        before = grants[number]["token"]
        end = next(line["t"] for line in lines if line["token"] == before and line["op"] == "release")
        early = [
            line
            if line["token"] != grant["token"] or line["op"] != "acquire"
            else {**line, "t": min(line["t"], end - 1e-6)}
            for line in lines
        ]
        assert any(second.judged(early).values())
        tape = Tape(locks=tuple(header["locks"]))
        tape.lines = early
        assert tape.judge("exclusive") != []


def test_of_a_broken_library_it_is_red():
    red = 0
    for seed in range(4):
        (_, *lines), overlaps = played(FAMILIES["crowd"](seed), VARIANTS["release-without-owner-check"].patches)
        assert any(second.judged(lines).values()) == overlaps
        red += bool(overlaps)
    assert red > 1


@pytest.mark.parametrize(("story", "code", "says"), [
    ("1 A held until 11, 5 A releases, 5 B held until 15", 0, "1 locks, 0 of them held by two at once"),
    ("1 A held until 11, 5 B held until 15", 1, f"VIOLATED: {LOCK!r}: no order of what was done has room for token"),
    ("1 A asks", 2, "UNKNOWN: no lock was ever held"),
])  # fmt: skip
def test_the_command(story, code, says, tmp_path, capsys):
    tape, path = told(story), tmp_path / "history.jsonl"
    path.write_text("".join(f"{json.dumps(line)}\n" for line in (tape.header, *tape.lines)))
    assert main(["check", str(path), "--second"]) == code
    assert says in "".join(capsys.readouterr())
