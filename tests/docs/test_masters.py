"""Which changes of the list of masters may be deployed while clients run: computed, and compared with the page.

Two clients exclude each other if each majority of the one's masters meets each majority of the other's.
"""

from __future__ import annotations

import re
from itertools import combinations
from typing import TYPE_CHECKING

from redlock._core.kernel.quorum import majority
from tests.docs.pages import DOCS

if TYPE_CHECKING:
    List = frozenset[str]

PAGE = DOCS / "howto" / "masters.md"
COLUMNS = ["Masters", "Majority", "Add one", "Remove one", "Replace one", "Two in a row", "Two side by side"]


def meet(one, other):
    """Look at every majority of the one list, and at what it leaves of the other."""
    return all(
        len(other - set(votes)) < majority(len(other)) for votes in combinations(sorted(one), majority(len(one)))
    )


def added(masters, new):
    return masters | {new}


def removed(masters):
    """Each list that has one of ``masters`` less."""
    return [masters - {old} for old in sorted(masters) if len(masters) > 1]


def steps(masters, new):
    """What one change can make of it, if it adds or removes one."""
    return [added(masters, new), *removed(masters)]


def verdict(pairs):
    found = {meet(one, other) for one, other in pairs}
    return "-" if not found else "safe" if found == {True} else "**no**"


def row(size):
    now = frozenset(f"old{number}" for number in range(size))
    replaced = [added(now - {old}, "new1") for old in sorted(now)]
    in_a_row = [(now, last) for first in steps(now, "new1") for last in steps(first, "new2")]
    side_by_side = [(one, other) for one in steps(now, "new1") for other in steps(now, "new2")]
    return [
        str(size), str(majority(size)), verdict([(now, added(now, "new1"))]),
        verdict((now, fewer) for fewer in removed(now)), verdict((now, other) for other in replaced), verdict(in_a_row),
        verdict(side_by_side),
    ]  # fmt: skip


def test_the_table_of_changes_is_what_the_majorities_say():
    page = PAGE.read_text(encoding="utf-8")
    cells = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in page.splitlines() if line.startswith("|")
    ]
    begin = cells.index(COLUMNS) + 2  # below the line under the heads
    assert cells[begin : begin + 5] == [row(size) for size in range(1, 6)]


def test_the_arithmetic_of_the_page_is_that_of_the_sets():
    """a + b > the number of addresses in both lists together."""
    assert re.search(
        r"sum of the two majorities is greater than the number of addresses",
        " ".join(PAGE.read_text(encoding="utf-8").split()),
    )
    everybody = [
        frozenset(f"m{number}" for number in numbers)
        for size in range(1, 7)
        for numbers in combinations(range(6), size)
    ]
    for one, other in combinations(everybody, 2):
        assert meet(one, other) == (majority(len(one)) + majority(len(other)) > len(one | other))
