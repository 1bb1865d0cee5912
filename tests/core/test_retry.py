"""The delays between attempts (R25)."""

from __future__ import annotations

import math
import random
from typing import TYPE_CHECKING

import pytest
import tenacity

from redlock import Masters, QuorumUnreachable
from redlock._core.retry import BETWEEN_ATTEMPTS, BETWEEN_CONNECTIONS, delay

if TYPE_CHECKING:
    from tenacity.wait import wait_base


@pytest.mark.parametrize(("strategy", "delays"), [
    pytest.param(tenacity.wait_fixed(0.5), [0.5] * 4, id="fixed"),
    pytest.param(tenacity.wait_incrementing(start=1, increment=2), [1, 3, 5, 7], id="incrementing"),
    pytest.param(tenacity.wait_exponential(multiplier=0.1, max=0.5), [0.1, 0.2, 0.4, 0.5], id="exponential"),
    pytest.param(tenacity.wait_none(), [0.0] * 4, id="none"),
    pytest.param(tenacity.wait_chain(tenacity.wait_fixed(1), tenacity.wait_fixed(2)), [1, 2, 2, 2], id="chain"),
    pytest.param(tenacity.wait_fixed(1) + tenacity.wait_fixed(0.5), [1.5] * 4, id="sum"),
    pytest.param(lambda state: 2.0**-state.attempt_number, [0.5, 0.25, 0.125, 0.0625], id="a-function"),
    pytest.param(lambda _: 3, [3.0] * 4, id="an-int"),
    pytest.param(lambda _: -1.0, [0.0] * 4, id="negative"),
])  # fmt: skip
def test_it_is_asked_with_the_number_of_failures(strategy: wait_base, delays: list[float]) -> None:
    given = [delay(strategy, failed) for failed in range(1, 5)]
    assert given == pytest.approx(delays)
    assert all(type(seconds) is float for seconds in given)


@pytest.mark.parametrize(
    ("strategy", "highest"),
    [(BETWEEN_ATTEMPTS, [0.025, 0.05, 0.1, 0.2, 0.4, 0.5, 0.5]), (BETWEEN_CONNECTIONS, [0.1, 0.2, 0.4, 0.8, 1.0, 1.0])],
    ids=["attempts", "connections"],
)
def test_ours_are_random_up_to_a_limit(strategy: wait_base, highest: list[float]) -> None:
    for failed, limit in enumerate(highest, 1):
        seen = {delay(strategy, failed) for _ in range(50)}
        assert len(seen) > 25  # those who were refused together do not come back together
        assert 0 <= min(seen) < 0.75 * limit < max(seen) <= limit + 1e-9


@pytest.mark.parametrize("failed", [100, 10_000, 10**6])
def test_after_very_many_attempts_it_is_still_a_delay(failed: int) -> None:
    assert 0 <= delay(BETWEEN_ATTEMPTS, failed) <= 0.5
    assert not math.isnan(delay(BETWEEN_CONNECTIONS, failed))


def test_the_application_s_own_random_numbers_are_not_drawn_from() -> None:
    """Processes with one seed would wait alike and collide again; and a seeded experiment has to stay the same."""
    before = random.getstate()
    with Masters(f"redis://127.0.0.1:{port}" for port in (1, 2, 3)) as masters, pytest.raises(QuorumUnreachable):
        masters.lock("job").acquire(timeout=0.2)
    assert random.getstate() == before
