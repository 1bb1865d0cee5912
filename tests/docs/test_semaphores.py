"""How many holders a counter for each master admits: computed by trying, and compared with the page."""

from __future__ import annotations

import re

import pytest

from redlock._core.kernel.quorum import majority
from tests.docs.pages import DOCS

PAGE = DOCS / "concepts" / "semaphores.md"
LIMITS = range(1, 6)


def admits(masters, limit):
    """Let one more in as long as it finds a majority: it takes the masters that have the most room."""
    room, holders = [limit] * masters, 0
    while True:
        room.sort(reverse=True)
        if not room[majority(masters) - 1]:
            return holders
        for master in range(majority(masters)):
            room[master] -= 1
        holders += 1


def table():
    rows = re.findall(r"^\| (\d+) \| (.+) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    return {int(masters): cells.split(" | ") for masters, cells in rows}


@pytest.mark.parametrize("masters", [3, 5, 7])
def test_the_table_is_what_a_counter_admits(masters):
    holders = [admits(masters, limit) for limit in LIMITS]
    assert holders == [limit * masters // majority(masters) for limit in LIMITS]
    expected = [f"**{found}**" if found > limit else str(found) for limit, found in zip(LIMITS, holders, strict=True)]
    assert table()[masters] == expected
