"""A lease is made whole soon after its grant: who gets the key, when, and what that counts for (R37)."""

from __future__ import annotations

import math
from typing import Any

import pytest

from redlock._core.renewals import tasks
from redlock._core.whole import AGAIN
from tests.core.renewer import renewal_of
from tests.core.world import NEVER, Master, Single, World, down, held, refuses, turns

TTL = 12.0
FIRST = 0.25  # `node_timeout`
STEP = FIRST / 4  # many leases are looked at together


class Scene(Single):
    """One lease, granted just now, and its renewal."""

    def __init__(self, *masters: Master, renew: bool = False, listened: bool = False) -> None:
        super().__init__(*masters, ttl=TTL, how=World.acquired)
        self.granted_at = self.world.now
        self.lease.listened = listened
        self.renewal, _ = renewal_of(self.world, self.spec, self.lease, renew=renew)

    def passes(self, seconds: float) -> None:
        """So much time passes, and whatever is due is done."""
        until = self.world.now + seconds
        while (due := self.renewal.due) <= until and not self.lease.over:
            self.world.listen(max(0.0, due - self.world.now))
            for task, _ in tasks([self.renewal], self.world.now):
                self.world.run(task)
        self.world.listen(until - self.world.now)

    def repairs(self) -> list[tuple[Any, set[int]]]:
        """When, after the grant, and to whom."""
        return [(round(sent.at - self.granted_at, 3), set(sent.to)) for sent in self.world.all("repair")]


def around(seconds: float) -> Any:
    return pytest.approx(seconds + STEP / 2, abs=STEP / 2 + 1e-6)


@pytest.mark.parametrize(("last", "lacks"), [
    pytest.param(Master(0.1), False, id="granted-late"),
    pytest.param(Master(0.1, {"acquire": [2, b"1800000000000000"]}), False, id="granted-late-with-another-fence"),
    pytest.param(held(0.1), True, id="refused-late"),
    pytest.param(Master(NEVER), True, id="said-nothing"),
    pytest.param(down(), True, id="down"),
    pytest.param(refuses(after=0.1), True, id="an-error"),
])  # fmt: skip
def test_who_lacks_it(last: Master, lacks: bool) -> None:
    """And nobody renews it for that: the first renewal is due after a third of the TTL (R15)."""
    scene = Scene(*[Master()] * 2, last, renew=True)
    scene.passes(3.0)
    assert [to for _, to in scene.repairs()] == [{2}] * 2 * lacks
    assert not scene.world.all("extend")


@pytest.mark.parametrize(("last", "bare"), [
    pytest.param(Master(0.1), 0.0, id="granted-late"),
    pytest.param(held(), FIRST, id="repaired"),
    pytest.param(Master(0.0, {"acquire": [0, b"0", b"x", 5000], "repair": turns([0], [1])}), FIRST + AGAIN, id="then"),
    pytest.param(Master(NEVER), 3.0, id="never"),
])  # fmt: skip
def test_for_how_long_a_bare_majority_had_it(last: Master, bare: float) -> None:
    scene = Scene(Master(), Master(), last)
    scene.passes(3.0)
    scene.lease.count_bare()
    assert scene.lease.pop_bare() == (pytest.approx(bare) if bare in (0.0, 3.0) else around(bare))
    assert scene.lease.pop_bare() == 0.0


def test_where_a_release_is_announced_it_gets_the_key_at_once() -> None:
    scene = Scene(*[Master()] * 3, held(), held(), listened=True)
    world = scene.world
    for after, master in ((0.05, 0), (0.1, 4)):  # the first one has the key
        world.announce(after, master, "of somebody else")
    world.later(0.15, lambda: scene.lease.end() and None)  # its release is on its way
    world.announce(0.2, 0, scene.lease.token)
    ((task, _),) = tasks([scene.renewal], world.now)
    world.run(task)
    assert scene.repairs() == [(0.1, {4})]
    assert world.now - scene.granted_at == pytest.approx(0.2), "its own release ends it"
    assert scene.renewal.due == -math.inf
