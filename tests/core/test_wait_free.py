"""Waiting until a name is free: when it looks, and how it ends; with exact times, and without servers."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pytest
from tenacity.wait import wait_fixed

from redlock._core.voters import Facts
from redlock._core.wait_free import wait_free
from tests.core.world import NEVER, OTHER, START, Interrupt, Master, World, down, refuses, turns

if TYPE_CHECKING:
    from redlock._core.quorum import Tally

FREE: list[Any] = [b"", -2, b"0"]
PAUSE = 2.0


def holds(ms: int = 60_000) -> list[Any]:
    return [OTHER.encode(), ms, b"0"]


def free(after: float = 0.0) -> Master:
    return Master(after, {"status": FREE})


def held(*then: Any, ms: int = 60_000, after: float = 0.0) -> Master:
    """Held at the first look; ``then``: what it says at the following ones."""
    return Master(after, {"status": turns(holds(ms), *then)})


def waiting(world: World, patience: float = 10.0, *names: str, **options: Any) -> tuple[str | None, Tally]:
    op = wait_free(world.settings, names or ("invoice:42",), "redlock:", START + patience, wait_fixed(PAUSE))
    return world.run(op, **options)


def looks(world: World) -> list[float]:
    assert set(world.verbs()) == {"status"}  # nothing is taken, nothing is changed
    return [round(sent.at - START, 6) for sent in world.sent]


@pytest.mark.parametrize("patience", [0.0, 10.0, math.inf])
@pytest.mark.parametrize("masters", [
    [free(), free(), free()],
    [free(), free(), held()],
    [free(), free(), down()],
    [free(), free(), Master(NEVER)],  # nobody waits for the minority
])  # fmt: skip
def test_free_at_the_first_look(masters, patience):
    world = World(*masters)
    assert waiting(world, patience)[0] is None
    assert looks(world) == [0.0]
    assert world.now == START


def test_a_timeout_of_0_looks_once():
    world = World(held(), held(), free())
    assert waiting(world, 0.0)[0] == "invoice:42"
    assert looks(world) == [0.0]


def test_a_majority_that_announces_makes_it_look():
    world = World(*[held(FREE) for _ in range(5)])
    for master in range(5):
        world.announce(0.1 + 0.01 * master, master, OTHER)
    assert waiting(world)[0] is None
    assert looks(world) == [0.0, 0.12]


def test_a_minority_does_not():
    world = World(*[held(FREE) for _ in range(5)])
    world.announce(0.1, 0, OTHER)
    world.announce(0.1, 1, OTHER)
    assert waiting(world)[0] is None
    assert looks(world) == [0.0, PAUSE]


def test_masters_on_which_it_was_free_announce_nothing_new():
    """They, and one that does not vote, announce what somebody else has tried there, and taken back (R25)."""
    world = World(held(), held(), free(), free(), free(), guard=True)
    world.settings.voters.admit(4, Facts(run_id="another", uptime=0), START)
    for number in range(10):
        for master in (2, 3, 4):
            world.announce(0.1 * number, master, f"theirs-{number}")
    assert waiting(world, 3.0)[0] == "invoice:42"
    assert looks(world) == [0.0, PAUSE, 3.0]


def test_an_announcement_is_believed_only_if_the_masters_say_so():
    world = World(*[held(holds(), FREE) for _ in range(5)])
    for master in range(5):
        world.announce(0.1, master, "forged")
    assert waiting(world)[0] is None
    assert looks(world) == [0.0, 0.1, 0.1 + PAUSE]


def test_what_is_announced_during_a_look_is_not_forgotten():
    world = World(*[held(holds(), FREE, after=0.1) for _ in range(5)])
    for master in range(3):
        world.announce(2.15, master, "t")  # the second look is under way from 2.1 to 2.2
    assert waiting(world)[0] is None
    assert looks(world) == [0.0, 2.1, 2.2]


def test_subscribed_it_looks_again():
    """What was released between the look and the subscription is announced to nobody."""
    world = World(*[held(FREE) for _ in range(5)])
    for master in range(5):
        world.subscribe(0.01 * (master + 1), master)
    assert waiting(world)[0] is None
    assert looks(world) == [0.0, 0.03]


def test_a_holder_that_has_crashed_is_not_waited_for_longer_than_its_keys_live():
    """The least of them that have to go: two of five masters are free already, so one more is enough."""
    world = World(held(FREE, ms=900), held(FREE, ms=300), held(FREE, ms=600), free(), free())
    assert waiting(world)[0] is None
    assert looks(world) == [0.0, 0.302]
    world = World(held(FREE, ms=900), held(FREE, ms=300), held(FREE, ms=600))
    assert waiting(world)[0] is None
    assert looks(world) == [0.0, 0.602]


def test_without_messages_it_looks_after_a_pause():
    world = World(*[held(holds(), FREE) for _ in range(5)])
    assert waiting(world)[0] is None
    assert looks(world) == [0.0, PAUSE, 2 * PAUSE]


def test_at_the_deadline_it_looks_once_more():
    world = World(*[held(FREE) for _ in range(5)])
    assert waiting(world, 0.5)[0] is None
    assert looks(world) == [0.0, 0.5]
    world = World(*[held() for _ in range(5)])
    assert waiting(world, 0.5)[0] == "invoice:42"
    assert world.after_start() == 0.5


def test_all_of_several_names():
    """It waits for one after the other, and all of them are free at its last looks."""
    first = turns(FREE, holds(), FREE)
    world = World(*[Master(0.0, {"status": lambda call: first(call) if call.keys[0] == "redlock:a" else second(call)})])
    second = turns(holds(), FREE)
    for key in ("a", "b"):
        world.announce(0.1, 0, "t", name=key)
        world.announce(0.3, 0, "u", name=key)
    assert waiting(world, 10.0, "a", "b")[0] is None
    assert [(sent.request.call.keys[0], round(sent.at - START, 6)) for sent in world.sent] == [
        ("redlock:a", 0.0), ("redlock:b", 0.0), ("redlock:a", 0.1), ("redlock:a", 0.3), ("redlock:b", 0.3),
    ]  # fmt: skip


# -- outages -----------------------------------------------------------------------------------------


def test_too_few_masters_answer_at_the_deadline():
    world = World(free(), free(), down(), down(), down())
    name, tally = waiting(world, 5.0)
    assert name == "invoice:42"
    assert tally.unreachable
    assert looks(world) == [0.0, PAUSE, 2 * PAUSE, 5.0]


def test_an_outage_that_passes():
    failure = down().says["status"]
    world = World(*[Master(0.0, {"status": turns(failure, FREE)}) for _ in range(3)])
    for master in range(3):
        world.announce(0.1, master, "t")  # no release ends an outage
    assert waiting(world)[0] is None
    assert looks(world) == [0.0, PAUSE]


def test_a_wrong_password_is_not_waited_for():
    """C1."""
    world = World(*[refuses("wrong user or password") for _ in range(3)])
    name, tally = waiting(world)
    assert name is not None
    assert tally.unreachable
    assert looks(world) == [0.0]


def test_a_master_that_may_have_forgotten_says_nothing():
    world = World(free(), free(), held(), guard=True)
    world.settings.voters.admit(0, Facts(run_id="another", uptime=0), START)
    assert waiting(world, 0.5)[0] == "invoice:42"


@pytest.mark.parametrize("at", range(5))
def test_an_interruption_ends_it(at):
    world = World(*[held() for _ in range(3)])
    with pytest.raises(KeyboardInterrupt):
        waiting(world, interrupt=Interrupt(frozenset([at]), KeyboardInterrupt()))
    assert len(world.effects) == at + 1  # there is nothing to clean up
