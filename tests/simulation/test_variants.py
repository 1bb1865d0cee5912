"""The simulation sees: every broken variant is caught, by an invariant that fits."""

from __future__ import annotations

from collections import Counter

import pytest

from redlock import scripts
from tests.simulation.invariants import ALL, Violation
from tests.simulation.parameters import draw
from tests.simulation.run import Run, simulate
from tests.simulation.variants import VARIANTS, script

BUDGET = 500  # seeds; README.md says how many each typically needs
# Those that few seeds catch begin shortly before one that does: minutes are saved, and a change of the model costs no more
# than these.
FIRST = {
    "keys-without-a-guard": 54,
    "listed-from-the-first-master": 42, "one-answer-for-all": 13,
    "max-hold-keeps-the-keys": 70, "kept-without-drift": 60,
    "renewer-after-release": 20, "answers-of-others": 6,
    "alone-and-forgotten": 6, "watched-free-where-one-says-so": 12,
}  # fmt: skip


@pytest.mark.parametrize("name", VARIANTS)
def test_is_caught(name):
    variant = VARIANTS[name]
    seen: Counter[str] = Counter()
    with variant.applied():
        first = FIRST.get(name, 0)
        for seed in range(first, first + BUDGET):
            try:
                Run(variant.parameters(seed)).play()
            except Violation as violation:
                seen[violation.invariant] += 1
                if violation.invariant in variant.expected:
                    return
    pytest.fail(f"{name} ({variant.why}) was not caught by {sorted(variant.expected)}; seen: {dict(seen)}")


@pytest.mark.parametrize("name", VARIANTS)
def test_what_is_caught_is_the_variant_and_not_its_parameters(name):
    """Where a round trip takes longer than a master has to answer nothing is ever granted, and nothing can be live."""
    for seed in range(BUDGET):
        parameters = VARIANTS[name].parameters(seed)
        assert 2 * parameters.delay < parameters.node_timeout <= parameters.ttl / 3, seed
        assert parameters.ttl <= parameters.max_ttl <= parameters.fence_ttl, seed


@pytest.mark.parametrize("name", VARIANTS)
def test_it_finds_what_it_breaks(name):
    """Tells in a moment that something has another name now."""
    with VARIANTS[name].applied():
        pass


def test_what_is_expected_are_invariants():
    """Those that no variant here breaks are broken by scenes and variants of the bench."""
    assert set().union(*(variant.expected for variant in VARIANTS.values())) <= set(ALL)


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
