"""Who watches a name sees it change, never back, and free only if it was (R41)."""

from __future__ import annotations

import pytest

from tests.simulation.parameters import periods, readers_and_writers
from tests.simulation.run import simulate


@pytest.mark.parametrize("family", [periods, readers_and_writers])
def test_names_that_are_watched(family):
    told = 0
    for seed in range(30):
        told += simulate(family(seed, watches=0.5)).judge.watches
    assert told > 30, "so little is told that nothing can be wrong"
