"""The picture of one acquire in docs/design.md shows what runs."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from benchmarks.scripted import scripted, standstill, urls, warming
from redlock import Masters

PAGE = Path(__file__).parent.parent.parent / "docs" / "design.md"


def drawn():
    """The calls in the picture, in their order."""
    [picture] = [block for block in PAGE.read_text(encoding="utf-8").split("```") if "acquire() ->" in block]
    return re.findall(r"(\w+)\(", picture)


def called_by(what):
    """All functions that ``what`` calls, built-in ones included, in their order."""
    names: list[str] = []

    def note(frame, event, argument):
        if event in ("call", "c_call"):
            names.append(argument.__name__ if event == "c_call" else frame.f_code.co_name)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        what()
    finally:
        sys.setprofile(before)
    return names


def missing(expected, names):
    """The first of ``expected`` that ``names`` does not have behind the ones before it."""
    left = iter(names)
    return next((name for name in expected if name not in left), "")


def test_one_acquire_is_what_the_picture_shows():
    calls = drawn()
    assert len(calls) > 10
    with scripted() as wired, Masters(urls(), restart_guard=False, agreement="ignore") as masters, standstill():
        lock = masters.lock("job", ttl=10.0)
        for _ in warming(wired):
            assert lock.acquire() is not None
            lock.release()
        names = called_by(lock.acquire)
        lock.release()
    assert missing(calls, names) == ""


WIDEST = 110  # columns: two windows stand side by side


def too_wide(text):
    return [line for line in text.splitlines() if len(line) > WIDEST]


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "tests/README.md"])
def test_what_a_newcomer_reads_first_fits_a_window(page):
    assert too_wide((PAGE.parent.parent / page).read_text(encoding="utf-8")) == []


def test_so_do_the_drawings_of_the_design():
    drawings = re.findall(r"^```text\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert len(drawings) == 2
    assert [line for drawing in drawings for line in too_wide(drawing)] == []
