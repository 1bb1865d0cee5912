"""Runs take no step that the specification forbids; a lock that is broken takes one."""

from __future__ import annotations

import pytest

from tests.simulation.invariants import Violation
from tests.simulation.parameters import confirmed, draw, guarded
from tests.simulation.replay import ALONE, FAMILIES, Recorder, Replay, drawn
from tests.simulation.variants import VARIANTS

SEEDS = 4 * len(FAMILIES)
# Two extensions of one lease overlap, both find no key on one master, and each gives it back there; an answer of a
# master that may not vote yet is read when it may (R21); a key that was over had seconds left, for no time had passed; the
# clock of a master steps, by no more than a guard (R36); a holder leaves a lost lease to its renewer, which
# keeps it until its guard ends (R36).
KNOWN = (
    confirmed(93, **ALONE), draw(519, **ALONE), confirmed(5037, **ALONE),
    *(guarded(seed, **ALONE) for seed in (5008, 5029, 5274, 5391)),
)  # fmt: skip


@pytest.mark.parametrize("runs", [*(map(drawn, range(first, SEEDS, 4)) for first in range(4)), KNOWN])
def test_each_step_is_one_of_the_specification(runs):
    for parameters in runs:
        judge = Replay(parameters).play().judge
        assert isinstance(judge, Recorder)
        assert judge.steps > 100


# Some are seen by the judge of promises only when somebody is harmed; each step of them is already wrong.
@pytest.mark.parametrize(("name", "rule"), [
    ("minority", "R1"),
    ("one-token", "R8"),
    ("rollback-only-where-granted", "R9"),
    ("extension-resurrects", "R12"),
])  # fmt: skip
def test_a_broken_lock_takes_a_step_that_is_none(name, rule):
    variant = VARIANTS[name]
    with variant.applied():
        for seed in range(60):
            try:
                Replay(variant.drawn(seed, **(variant.fixed | ALONE))).play()
            except Violation as violation:
                if violation.invariant.startswith(rule):
                    return
    pytest.fail(f"{name} was never seen to break {rule}")
