"""A violation says how to see it again.  The broken variants are on the bench: `tests/bench/variants`."""

from __future__ import annotations

import pytest

from redlock import scripts
from tests.simulation.invariants import Violation
from tests.simulation.parameters import draw
from tests.simulation.run import simulate
from tests.simulation.variants import script

BUDGET = 500  # seeds


def many(seeds):
    for seed in seeds:
        simulate(draw(seed))


def test_a_violation_says_how_to_see_it_again():
    """The seed, every parameter that was drawn, and the end of the trace."""
    anybody = ("if found == token then", "if found then")
    with script(scripts.RELEASE, anybody), pytest.raises(Violation) as caught:
        many(range(BUDGET))
    (note,) = caught.value.__notes__
    assert "python -m tests.simulation --trace" in note
    assert "Parameters(seed=" in note
    assert "VIOLATION P8" in note
