"""An acquire that waits (R24, R25, C4): when it looks again, and that it never depends on a message."""

from __future__ import annotations

import math
from typing import Any

import pytest
from tenacity.wait import wait_base

from redlock._core.acquire import Grant, Refusal
from redlock._core.effects import Leave, Listen, Send, Wait
from redlock._core.release import release
from redlock._core.voters import Facts
from tests.core.world import GRANTS, OTHER, START, Master, World, down, held, turns

NOT = [0, b"0", OTHER.encode(), 5000]  # an acquire that is refused
PAUSE = 0.5  # of `World.spec`


def frees(times: int = 1, after: float = 0.0) -> Master:
    """Refuses so many times, then grants."""
    return Master(after, {"acquire": turns(*[NOT] * times, GRANTS["acquire"])})


def attempts(world: World) -> list[float]:
    return [round(sent.at - START, 6) for sent in world.all("acquire")]


def acquire(world: World, patience: float = 10.0, **spec: Any) -> Grant | Refusal:
    return world.run(world.acquire(world.spec(**spec), deadline=START + patience))


def names_of(world: World) -> list[str]:
    return [name for name, _ in world.effects]


# -- when to look again ------------------------------------------------------------------------------


def test_a_majority_that_announces_ends_the_pause():
    world = World(*[frees() for _ in range(5)])
    for master in range(5):
        world.announce(0.1 + 0.01 * master, master, "t")
    assert isinstance(acquire(world), Grant)
    assert attempts(world) == [0.0, 0.12]


def test_a_minority_does_not():
    world = World(*[frees() for _ in range(5)])
    world.announce(0.1, 0, "t")
    world.announce(0.1, 1, "t")
    assert isinstance(acquire(world), Grant)
    assert attempts(world) == [0.0, PAUSE]


def test_what_it_has_taken_back_itself_is_no_reason_to_hurry():
    """One master refuses, one grants, the third one restarted and does not vote: the two that granted announce our own
    rollback, and nothing has changed (R25).
    """
    world = World(held(), Master(), Master(), guard=True)
    world.settings.voters.admit(1, Facts(run_id="another", uptime=0), START)
    for number in range(1, 100):
        for master in (1, 2):
            world.announce(0.1 * number, master, f"token-{number}")
    assert isinstance(acquire(world, patience=2.0, pause=0.6), Refusal)
    assert attempts(world) == [0.0, 0.6, 1.2, 1.8, 2.0]


def test_nor_is_what_others_have_taken_back_there():
    world = World(held(), Master(), Master(), guard=True)
    world.settings.voters.admit(1, Facts(run_id="another", uptime=0), START)
    for number in range(20):
        world.announce(0.1 * number, 1, f"theirs-{number}")
        world.announce(0.1 * number, 2, f"theirs-{number}")
    assert isinstance(acquire(world, patience=2.0, pause=0.6), Refusal)
    assert attempts(world) == [0.0, 0.6, 1.2, 1.8, 2.0]


def test_the_holder_of_the_master_that_refused_it_releases():
    """Its other key was on the master that does not vote."""
    world = World(frees(), Master(), Master(), guard=True)
    world.settings.voters.admit(1, Facts(run_id="another", uptime=0), START)
    world.announce(0.1, 1, OTHER)
    world.announce(0.2, 0, OTHER)
    assert isinstance(acquire(world), Grant)
    assert attempts(world) == [0.0, 0.2]


def test_without_any_message_it_is_tried_again_all_the_same():
    world = World(*[frees(3) for _ in range(5)])
    assert isinstance(acquire(world), Grant)
    assert attempts(world) == [0.0, PAUSE, 2 * PAUSE, 3 * PAUSE]


def test_what_is_announced_during_an_attempt_is_not_forgotten():
    world = World(*[frees(2, after=0.1) for _ in range(5)])
    for master in range(3):
        world.announce(0.65, master, "t")  # the second attempt is under way from 0.6 to 0.7
    assert isinstance(acquire(world), Grant)
    assert attempts(world) == [0.0, 0.6, 0.7]


def test_subscribed_it_looks_again():
    """What was released between the refusal and the subscription is announced to nobody."""
    world = World(*[frees() for _ in range(5)])
    for master in range(5):
        world.subscribe(0.01 * (master + 1), master)
    assert isinstance(acquire(world), Grant)
    assert attempts(world) == [0.0, 0.03]


def test_a_lease_that_nobody_releases_is_not_waited_for_longer_than_it_lives():
    soon = [0, b"0", OTHER.encode(), 200]
    world = World(*[Master(0.0, {"acquire": turns(soon, GRANTS["acquire"])}) for _ in range(5)])
    assert isinstance(acquire(world, pause=5.0), Grant)
    assert attempts(world) == [0.0, 0.202]


def test_the_deadline_is_not_moved_by_messages():
    world = World(*[held() for _ in range(5)])
    for number in range(50):
        for master in range(3):
            world.announce(0.05 * number, master, f"t{number}")
    refusal = acquire(world, patience=1.0)
    assert isinstance(refusal, Refusal)
    assert refusal.at == START + 1.0


# -- who listens -------------------------------------------------------------------------------------


def test_who_is_granted_the_lock_at_once_never_listens():
    world = World(*[Master() for _ in range(5)])
    assert isinstance(acquire(world), Grant)
    assert "Listen" not in names_of(world)


def test_who_tries_once_does_not_listen():
    world = World(*[held() for _ in range(5)])
    assert isinstance(acquire(world, patience=0.0), Refusal)
    assert "Listen" not in names_of(world)


def test_an_outage_is_nothing_to_listen_to():
    world = World(*[down() for _ in range(5)])
    assert isinstance(acquire(world, patience=2.0), Refusal)
    assert "Listen" not in names_of(world)


def test_one_subscription_for_all_attempts():
    world = World(*[frees(4) for _ in range(5)])
    acquire(world)
    assert names_of(world).count("Listen") == 1


# -- collisions --------------------------------------------------------------------------------------


def test_after_a_collision_one_is_late_by_chance():
    """Two masters each, and one: nobody has a majority.  ``World`` draws the latest that it can be."""
    rivals = [[0, b"0", token, 5000] for token in (b"a", b"a", b"b")]
    world = World(
        *[Master(0.0, {"acquire": turns(NOT, not_, GRANTS["acquire"])}) for not_ in rivals], frees(2), frees(2)
    )
    for master in range(3):
        world.announce(0.1, master, "first")
        world.announce(0.2, master, "second")
    assert isinstance(acquire(world), Grant)
    assert attempts(world) == [0.0, 0.1, 0.2005]


def test_a_clear_refusal_is_no_collision():
    world = World(*[frees(2) for _ in range(5)])
    for master in range(3):
        world.announce(0.1, master, "first")
        world.announce(0.2, master, "second")
    assert isinstance(acquire(world), Grant)
    assert attempts(world) == [0.0, 0.1, 0.2]


class Counted(wait_base):
    def __init__(self) -> None:
        self.asked: list[int] = []

    def __call__(self, retry_state: Any) -> float:
        self.asked.append(retry_state.attempt_number)
        return 0.5


def test_the_wait_object_is_asked_after_every_refusal_and_begins_anew_with_a_release():
    """C4.  Who lost a race after a release has not waited in vain for long: pauses begin small again."""
    world = World(*[frees(4) for _ in range(5)])
    for master in range(3):
        world.announce(0.6, master, "t")
    counted = Counted()
    spec = world.spec()._replace(retry=counted)
    assert isinstance(world.run(world.acquire(spec, deadline=START + 10)), Grant)
    assert counted.asked == [1, 2, 1, 2]


# -- letting others go first -------------------------------------------------------------------------


def released_in_a_crowd(heard: int = 1) -> World:
    world = World(*[Master(0.001, {"release": [1, heard]}) for _ in range(5)])
    spec = world.spec()
    grant = world.run(world.acquire(spec, deadline=START))
    assert isinstance(grant, Grant)
    lease = world.lease(spec, place=grant.place)
    assert world.run(release(world.settings, spec, lease)) is True
    world.sent.clear()
    return world


def test_who_was_heard_by_others_lets_them_go_first():
    world = released_in_a_crowd()
    began = world.now
    assert isinstance(acquire(world), Grant)
    assert world.all("acquire")[0].at - began == pytest.approx(0.006)


def test_who_was_heard_by_nobody_does_not():
    world = released_in_a_crowd(heard=0)
    began = world.now
    acquire(world)
    assert world.all("acquire")[0].at == began


def test_it_goes_when_they_have_been():
    world = released_in_a_crowd()
    began = world.now
    for master in range(3):
        world.announce(0.001, master, "ours")
        world.announce(0.004, master, "theirs")
    acquire(world)
    assert world.all("acquire")[0].at - began == pytest.approx(0.004)


@pytest.mark.parametrize("patience", [0.0, 0.005])
def test_who_has_no_time_has_none_for_others(patience):
    world = released_in_a_crowd()
    began = world.now
    outcome = world.run(world.acquire(world.spec(), deadline=began + patience))
    assert isinstance(outcome, Grant)
    assert world.all("acquire")[0].at == began


def test_an_interruption_of_the_courtesy_leaves_the_line():
    world = released_in_a_crowd()
    op = world.acquire(world.spec(), deadline=math.inf)
    effect = next(op)
    while not isinstance(effect, Wait):
        if isinstance(effect, Send):
            world._send(effect)
        else:
            assert isinstance(effect, Listen)
            world._perform_local(effect)
        effect = op.send(None)
    leave = op.throw(KeyboardInterrupt())
    assert isinstance(leave, Leave)
    world._perform_local(leave)
    with pytest.raises(KeyboardInterrupt):
        op.send(None)
    assert len(world.local_queue) == 0
