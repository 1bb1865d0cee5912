"""Runs of the client as it ships take no step that the specification forbids; a lock that is broken takes one."""

from __future__ import annotations

import pytest

from tests.bench.judge import Violation
from tests.bench.library import Patch
from tests.bench.replay import Recorder, Replay, drawn

pytestmark = pytest.mark.long

SEEDS = 24


@pytest.mark.parametrize("first", range(4))
def test_each_step_is_one_of_the_specification(first):
    for seed in range(first, SEEDS, 4):
        judge = Replay(drawn(seed)).play().judge
        assert isinstance(judge, Recorder)
        assert judge.steps > 100
        assert judge.proofs.compared > 0


# Some are seen by the judge of promises only when somebody is harmed; each step of them is already wrong.
@pytest.mark.broken
@pytest.mark.parametrize(("rule", "first", "patch"), [
    ("R1", 0, Patch("redlock._core.kernel.quorum", "return masters // 2 + 1", "return max(1, masters // 2)")),
    ("R8", 0, Patch("redlock._core.kernel.attempt", "    token = settings.token()", "    token = 'one'")),
    ("R12", 80, Patch("redlock._core.lease", """_lost is not None or not self.mine():
            return False
        return now < self.valid_until
""", "released:\n            return False\n        return True\n")),
], ids=lambda value: value if isinstance(value, str) else "")  # fmt: skip
def test_a_broken_lock_takes_a_step_that_is_none(rule, first, patch):
    for seed in range(first, first + 100):
        try:
            Replay(drawn(seed), (patch,)).play()
        except Violation as violation:
            if violation.invariant == f"{rule} by the specification":
                return
    pytest.fail(f"in 100 seeds no step broke {rule}")
