"""Which changes of the list of masters may be deployed while clients run: computed, and compared with the page.

That lists are compatible if and only if their majorities meet is proved in `core/test_fleet.py`.
"""

from __future__ import annotations

from redlock._core.fleet import compatible
from redlock._core.kernel.quorum import majority
from tests.docs.pages import DOCS

PAGE = DOCS / "howto" / "masters.md"
COLUMNS = ["Masters", "Majority", "Add one", "Remove one", "Replace one", "Two in a row", "Two side by side"]


def removed(masters):
    """Each list that has one of ``masters`` less."""
    return [masters - {old} for old in sorted(masters) if len(masters) > 1]


def steps(masters, new):
    """What one change can make of it, if it adds or removes one."""
    return [masters | {new}, *removed(masters)]


def verdict(pairs):
    found = {compatible(one, other) for one, other in pairs}
    return "-" if not found else "safe" if found == {True} else "**no**"


def row(size):
    now = frozenset(f"old{number}" for number in range(size))
    replaced = [now - {old} | {"new1"} for old in sorted(now)]
    in_a_row = [(now, last) for first in steps(now, "new1") for last in steps(first, "new2")]
    side_by_side = [(one, other) for one in steps(now, "new1") for other in steps(now, "new2")]
    return [
        str(size), str(majority(size)), verdict([(now, now | {"new1"})]),
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
