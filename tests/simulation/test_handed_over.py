"""A lease that one client acquired and another one releases: what order no connection keeps (R10, P7).

The first client's link to one master lags, so the release of the second is there before the acquire.
"""

from __future__ import annotations

import math
from unittest import mock

import pytest

from redlock._core import extend as extending, release as releasing
from redlock._core.ballots import Grant
from redlock._core.lease import LeaseState
from redlock._core.release import ReleaseDoubt
from tests.simulation.actor import Actor, spec_for
from tests.simulation.network import REQUESTS
from tests.simulation.scene import client_of, quiet

TTL = 10.0
LONGEST_PAUSE = 8  # of the node timeout: so long the key may be there


class Unordered(set[tuple[int, str]]):
    """Masters that have seen the release: the judge expects no acquire behind it, as none comes within one client."""

    def update(self, *_: object) -> None:
        pass


def released_elsewhere(lags: float, *, extended: bool, order: int) -> tuple[bool, bool]:
    """Whether the lagging master has the key when the acquire has come, and when its release was due at last."""
    run = quiet(several=0.0)
    run.world.random.seed(order)
    first, second = client_of(run), client_of(run)
    first.closing = False
    slow = first.links[-1]
    slow.cut(REQUESTS)
    actor = Actor(first)
    actor.acquire(["lock-0"], TTL, 0.0)
    run.world.run(run.world.now + 0.1)
    hold = actor.hold
    assert hold is not None
    hold.attempt.released_on = Unordered()
    actor.hold = None  # the second client has it from now on
    grant = Grant(
        hold.lease.token, hold.lease.fence, -math.inf, second.clock(), frozenset(range(len(run.masters))), tuple
    )
    spec = spec_for(second, ["lock-0"], TTL)
    lease = LeaseState(spec, grant, clock=second.clock, mine=lambda: True, resumed=True)
    for _ in range(2 * extended):  # a master that answers last gets the key back one extension later
        second.run(extending.extend(second.settings, spec, lease, TTL, second.clock()), lambda *_: None, hold.attempt)
        run.world.run(run.world.now + 0.1)
    run.judge.ended(hold)
    second.run(releasing.release(second.settings, spec, lease), lambda *_: None, hold.attempt)
    run.world.run(run.world.now + lags)
    slow.heal(REQUESTS)
    key = spec.keys.locks[0]
    come = False
    until = run.world.now + (LONGEST_PAUSE + 1) * run.parameters.node_timeout
    while run.world.now < until:
        run.world.run(run.world.now + 0.0005)
        come = come or key in run.masters[-1].keys
    return come, any(key in master.keys for master in run.masters)


LAGS = [0.0, 0.01, 0.2, 1.0, 0.8 * TTL]  # seconds; longer than a key lives it is not owed


@pytest.mark.parametrize("extended", [False, True])
@pytest.mark.parametrize("lags", LAGS)
def test_the_acquire_comes_after_the_release(lags, extended):
    ends = [released_elsewhere(lags, extended=extended, order=order) for order in range(10)]
    assert not any(left for _, left in ends)
    assert any(come for come, _ in ends) or lags == 0.0  # else it was never behind


@pytest.mark.parametrize(("broken", "extended"), [
    # Once, as where it stands behind its acquire.
    (lambda: mock.patch.object(releasing, "_doubted", lambda request, _: request), False),
    # A key that an extension has set is taken for that of the acquire.
    (lambda: mock.patch.object(ReleaseDoubt, "__init__", lambda doubt, _: setattr(doubt, "_repaired", set())), True),
])  # fmt: skip
def test_it_would_be_seen(broken, extended):
    with broken():
        assert any(released_elsewhere(1.0, extended=extended, order=order) == (True, True) for order in range(10))
