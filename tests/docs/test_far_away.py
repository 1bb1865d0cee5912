"""The page on masters in three regions: what it shows happens again, and nothing is faster than its way allows."""

from __future__ import annotations

import re

import pytest

from tests.servers.punctual import punctually
from tools import far_away


def words(said):
    return [re.sub(r"\d[\d.]*", "#", " ".join(line.split())) for line in said.splitlines()]


def figures(said):
    """Of each region: milliseconds with all there, without A, without B, without C."""
    return {
        found[1]: [int(one) for one in found[2].split()]
        for found in re.finditer(r"^from (\w), \D*([\d ]+)$", said, re.MULTILINE)
    }


def least(region, gone):
    """The round trip to the second-nearest of the masters that are left."""
    return sorted(far_away.round_trip(region, other) for other in far_away.REGIONS if other != gone)[1]


@pytest.mark.longest
def test_what_the_page_shows_happens_again():
    [page] = re.findall(r"<!-- run -->\n\n```text\n(.*?)```", far_away.PAGE.read_text(encoding="utf-8"), re.DOTALL)
    said = punctually(lambda: far_away.shown(rounds=1, farther=2.0), lambda said: words(said) == words(page))
    assert words(said) == words(page)
    for found, farther in ((figures(page), 1), (figures(said), 2)):
        assert list(found) == list(far_away.REGIONS)
        for region, took in found.items():
            expected = [farther * least(region, gone) for gone in ("", *far_away.REGIONS)]
            assert all(one >= shortest for one, shortest in zip(took, expected, strict=True)), (region, took, expected)
    for region, took in figures(page).items():  # of a quiet moment
        assert all(one < 2 * least(region, gone) for one, gone in zip(took, ("", *far_away.REGIONS), strict=True))
