"""Waiting for a lock, and for a name to be free (R24, R25, C4): when it looks again, and that no message is needed.

A waiter for the lock tries to acquire it; a waiter for it to be free asks for its status.  The times are the same.
"""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from tenacity.wait import wait_fixed

from redlock._core.watch import wait_until_free
from tests.core.world import GRANTS, OTHER, START, WALL, Master, World, down, turns

if TYPE_CHECKING:
    from redlock._core.kernel.quorum import Tally
    from redlock._core.protocols import Observing

FREE: list[Any] = [b"", -2, b"0"]
PAUSE = 0.5  # of `World.spec`
HELD = 60_000  # ms for which its holder has it


def busy(times: float = 1, *, ms: int = HELD, after: float = 0.0, by: str = OTHER) -> Master:
    """Held for so many looks, then free."""
    held = {"acquire": [0, b"0", by.encode(), ms], "status": [by.encode(), ms, b"0"]}
    free = {"acquire": GRANTS["acquire"], "status": FREE}
    if times == math.inf:
        return Master(after, dict(held))
    return Master(after, {verb: turns(*[held[verb]] * int(times), free[verb]) for verb in held})


def all_(times: float = 1, **options: Any) -> list[Master]:
    return [busy(times, **options) for _ in range(5)]


def acquire(world: World, **spec: Any) -> None:
    world.granted(world.acquire(world.spec()._replace(**spec), deadline=START + 10))


def free(world: World, patience: float = 10.0, *names: str, pause: float = PAUSE, **options: Any) -> Any:
    """The first name that is not, or None; and the votes."""
    op = wait_until_free(
        world.settings, names or ("invoice:42",), "redlock:", START + patience, START, wait_fixed(pause)
    )
    found: tuple[str | None, Tally] = world.run(op, **options)
    return found


def looks(world: World, verb: str = "") -> list[float]:
    if not verb:  # to wait for a name takes nothing, and changes nothing
        assert set(world.verbs()) == {"status"}
    return [round(sent.at - START, 6) for sent in world.all(verb or "status")]


def announces(at: float, *masters: int) -> list[tuple[float, int, str]]:
    return [(at, master, "t") for master in masters]


@pytest.mark.parametrize("operation", ["acquire", "status"])
@pytest.mark.parametrize(("masters", "heard", "at"), [
    pytest.param({}, [(0.1 + 0.01 * master, master, "t") for master in range(5)], [0.0, 0.12],
        id="a-majority-that-announces-ends-the-pause"),
    pytest.param({}, announces(0.1, 0, 1), [0.0, PAUSE], id="a-minority-does-not"),
    pytest.param({"times": 2}, announces(0.1, 0, 1, 2), [0.0, 0.1, 0.1 + PAUSE], id="it-is-believed-only-if-the-masters-say-so"),
    pytest.param({"times": 3}, [], [0.0, PAUSE, 2 * PAUSE, 3 * PAUSE], id="without-any-message-it-is-tried-all-the-same"),
    pytest.param({"times": 2, "after": 0.1}, announces(0.65, 0, 1, 2), [0.0, 0.6, 0.7],  # the second look is under way from 0.6 to 0.7
        id="what-is-announced-during-a-look-is-not-forgotten"),
    # What was released between the refusal and the subscription is announced to nobody.
    pytest.param({}, [(0.01 * (master + 1), master, None) for master in range(5)], [0.0, 0.03],
        id="subscribed-it-looks-again"),
    pytest.param({"ms": 200}, [], [0.0, 0.202], id="a-lease-that-nobody-releases-ends-by-itself"),
])  # fmt: skip
def test_when_it_looks_again(
    operation: str, masters: dict[str, Any], heard: list[tuple[float, int, str | None]], at: list[float]
) -> None:
    world = World(*all_(**masters))
    for when, master, token in heard:
        if token is None:
            world.subscribe(when, master)
        else:
            world.announce(when, master, token)
    if operation == "acquire":
        acquire(world)
        assert looks(world, "acquire") == at
    else:
        assert free(world)[0] is None
        assert looks(world) == at


def test_who_loses_only_the_race_of_fences_tries_again_soon_whatever_the_pause_is() -> None:
    """C4: nobody has it.  Two readers are woken at once, and the fence of one is greater."""
    greater, greatest = (str(WALL + more).encode() for more in (10, 20))
    world = World(
        *[Master(0.01, {"acquire": turns([2, greater], GRANTS["acquire"]), "fence": [0, greatest]}) for _ in range(3)]
    )
    acquire(world, retry=wait_fixed(5.0))
    assert looks(world, "acquire") == [0.0, pytest.approx(0.04)]


@pytest.mark.parametrize(("patience", "told"), [(10.0, ["WaitBegan", "WaitEnded"]), (0.0, [])])
def test_an_observer_is_told_of_each_wait_and_of_no_single_try(patience: float, told: list[str]) -> None:
    world = World(*all_())
    seen: list[str] = []
    world.settings.observer = cast("Observing", SimpleNamespace(tell=lambda kind, *_: seen.append(kind)))
    world.run(world.acquire(world.spec(), deadline=START + patience))
    assert seen == told  # R40


def test_the_wait_object_is_asked_after_every_refusal_and_begins_anew_with_a_release() -> None:
    """C4.  A client that lost a race after a release has not waited in vain for long: pauses begin small again."""
    world = World(*all_(4))
    for master in range(3):
        world.announce(0.6, master, "t")
    asked: list[int] = []

    def retry(state: Any) -> float:
        asked.append(state.attempt_number)
        return PAUSE

    acquire(world, retry=retry)
    assert asked == [1, 2, 1, 2]


@pytest.mark.parametrize(("already", "at"), [(2, 0.302), (0, 0.602)])
def test_a_holder_that_has_crashed_is_not_waited_for_longer_than_its_keys_live(already: int, at: float) -> None:
    """The least of them that have to go: where two of five masters are free already, one more is enough."""
    world = World(*[busy(ms=ms) for ms in (900, 300, 600)], *[Master()] * already)
    assert free(world, pause=2.0)[0] is None
    assert looks(world) == [0.0, at]


def test_all_of_several_names() -> None:
    """It waits for one after the other, and all of them are free at its last looks."""
    held = [OTHER.encode(), HELD, b"0"]
    first, second = turns(FREE, held, FREE), turns(held, FREE)
    world = World(Master(0.0, {"status": lambda call: (first if call.keys[0] == "redlock:a" else second)(call)}))
    for key in ("a", "b"):
        world.announce(0.1, 0, "t", name=key)
        world.announce(0.3, 0, "u", name=key)
    assert free(world, 10.0, "a", "b")[0] is None
    assert [(sent.request.call.keys[0], round(sent.at - START, 6)) for sent in world.sent] == [
        ("redlock:a", 0.0), ("redlock:b", 0.0), ("redlock:a", 0.1), ("redlock:a", 0.3), ("redlock:b", 0.3),
    ]  # fmt: skip


@pytest.mark.parametrize(("masters", "times"), [(all_(math.inf), 2), ([down()] * 5, 0)])
def test_an_election_is_told_of_each_refusal_by_which_others_hold_it(masters, times):
    world = World(*masters)
    seen: list[Any] = []
    world.run(world.acquire(world.spec()._replace(refused=seen.append), deadline=START + 0.3))
    assert [one.kind for one in seen] == ["held"] * times
