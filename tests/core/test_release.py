"""Giving a lock back: to whom, for how long it is owed, and what the answers prove (C8, R10, R11, R13)."""

from __future__ import annotations

from contextlib import nullcontext
from threading import Lock
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from unittest.mock import Mock, patch

import pytest

from redlock._core.abandon import abandon
from redlock._core.kernel.release import release, release_lost
from redlock._core.lease import LeaseState, PendingExtension
from redlock.errors import RedlockError
from tests.core.world import (
    GONE,
    OTHER,
    START,
    TAKEN,
    Interrupt,
    Master,
    Single,
    World,
    breaks,
    down,
    gone,
    ours,
    silent,
    taken,
    turns,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from redlock._core.effects import Send
    from redlock.errors import Reason

HAS: list[Any] = [1, 0]
ALL = frozenset({0, 1, 2})


def lacks_it() -> Master:
    """An extension gives it back there."""
    return Master(0.0, {"extend": GONE})


def late(scene: Single) -> Send:
    """What is sent for a lease that is lost."""
    return release_lost(scene.world.settings, scene.spec, scene.lease)


@pytest.mark.parametrize(("masters", "reason", "at"), [
    pytest.param([ours(), ours(0.02), ours(0.2)], None, 0.02, id="majority"),
    pytest.param([ours(), ours(), gone(0.02)], None, 0.01, id="one-lacks-it"),
    pytest.param([gone(), gone(0.02), ours(0.2)], "expired", 0.02, id="majority-lacks-it"),
    pytest.param([taken(), gone(0.02), ours(0.2)], "taken", 0.02, id="somebody-else"),
    # It was valid, and nobody has denied it.
    pytest.param([silent()] * 3, None, 0.25, id="no-answer"),
    pytest.param([down()] * 3, None, 0.0, id="all-down"),
    pytest.param([breaks()] * 3, None, 0.0, id="all-break"),
    pytest.param([gone(), ours()], None, 0.01, id="one-one"),
    pytest.param([gone(), silent(), silent()], None, 0.25, id="one-denial-is-no-proof"),
    pytest.param([taken(), taken(), ours(), ours()], None, 0.01, id="two-two"),
    # That it was ours can be excluded early; that it was not takes a majority, and is waited for.
    pytest.param([gone(0.0), down(), gone(0.1), gone(0.2), down()], "expired", 0.2, id="waits-for-the-proof"),
])  # fmt: skip
def test_whether_it_was_ours(masters: list[Master], reason: Reason | None, at: float) -> None:
    scene = Single(*masters)
    assert scene.release() == (reason is None)
    assert scene.world.after_start() == pytest.approx(at)
    assert scene.world.sent[0].to == set(range(len(masters)))
    # C8: lost stays False after a normal release; after one that found it gone it is True
    assert scene.lease.lost == (reason is not None)
    assert not scene.lease.valid
    if reason is not None:
        loss = scene.lease.loss()
        assert loss.reason == reason
        assert [vote.outcome for vote in loss.votes].count("held") > len(masters) // 2


def test_it_goes_where_a_key_may_be() -> None:
    scene = Single(*[ours()] * 5, names=("a", "b"), asked=frozenset([0, 2, 3]))
    scene.release()
    [sent] = scene.world.sent
    assert sent.to == {0, 2, 3}
    assert sent.request.call.keys == ("redlock:a", "redlock:b")
    assert sent.request.call.args == ("token-0",)


SILENT = [silent()] * 3
STRIKE = Interrupt(frozenset([0]), KeyboardInterrupt(), written=1)


@pytest.mark.parametrize(("masters", "ttl", "then", "strike", "least"), [
    pytest.param(SILENT, 10.0, None, None, 10.25, id="for-as-long-as-the-key-can-live"),
    # An extension may have made that longer, also one that was not won: the minority that obeyed has the longer TTL.
    pytest.param([ours()] * 3, 1.0, 50.0, None, 50.0, id="for-the-longest-ttl-that-a-key-may-have"),
    pytest.param(SILENT, 1.0, 50.0, None, 50.0, id="though-nobody-has-answered"),
    # Nobody waited for the answers, but the request is on its way.
    pytest.param([ours()] * 3, 1.0, 50.0, STRIKE, 50.0, id="though-it-was-interrupted"),
    # A master that missed that extension has the key for as long as before.
    pytest.param([ours()] * 3, 10.0, 1.0, None, 10.25, id="a-shorter-ttl-does-not-make-it-less"),
])  # fmt: skip
def test_how_long_it_is_owed(
    masters: list[Master], ttl: float, then: float | None, strike: Interrupt | None, least: float
) -> None:
    scene = Single(*masters, ttl=ttl)
    if then is not None:
        with nullcontext() if strike is None else pytest.raises(KeyboardInterrupt):
            scene.extend(then, strike)
    scene.release()
    assert (scene.world.sent[-1].request.owed_until or 0.0) >= START + least


@pytest.mark.parametrize("first", [KeyboardInterrupt, RedlockError])  # the latter of masters that are closed
@pytest.mark.parametrize("op", [release, abandon])
def test_interrupted_where_it_tells_its_renewer_and_once_more_it_still_goes_to_everybody(op: Any, first: Any) -> None:
    """Found by the simulation of the shipped client: the keys, and its place in line, stayed; or the Ctrl-C was lost."""
    scene = Single()
    told = [first(""), KeyboardInterrupt(), None]
    scene.lease.on_change = Mock(side_effect=told)
    with pytest.raises(KeyboardInterrupt):
        scene.world.run(op(scene.world.settings, scene.spec, scene.lease))
    assert scene.world.sent[0].to == ALL


def test_it_goes_where_a_repair_goes_at_the_same_moment() -> None:
    """P7: a renewer gives the key back to a master, in its thread, just before the lease ends."""
    scene = Single(asked=frozenset([1, 2]))
    lease, end = scene.lease, scene.lease.end

    def repaired_just_before() -> None:
        lease.may_be_on([0])
        lease.begin_extension(PendingExtension(START + 50.0, 50.0))
        end()

    with patch.object(LeaseState, "end", lambda _: repaired_just_before()):
        scene.release()
    [sent] = scene.world.sent
    assert sent.to == ALL
    assert sent.request.owed_until == START + 100.0  # R10


def test_masters_that_may_have_it_are_noted_one_at_a_time() -> None:
    """A renewer and a holder may both repair."""
    lease = Single(asked=frozenset([2])).lease
    held: list[bool] = []

    class Masters(list[int]):
        def __iter__(self) -> Iterator[int]:
            held.append(guard.locked())
            return super().__iter__()

    guard = Lock()
    with patch.object(LeaseState, "brief", SimpleNamespace(lock=guard)):
        lease.may_be_on(Masters([0, 1]))
    assert held == [True]
    assert lease.asked == ALL


@pytest.mark.parametrize("by", ["interrupted", "another thread", "renewer"])
def test_once_more_it_finds_nothing_and_that_is_no_loss(by: str) -> None:
    """C8, C9: the one before has removed the keys.

    A renewer that looks between the end of the last hold and that of the lease gives it back at the same moment (R15).
    """
    scene = Single(*[Master(0.01, {"release": turns([1, 0], GONE)})] * 3)
    world, lease = scene.world, scene.lease

    def renewer(_: bool) -> None:
        lease.on_change = None
        world.run(abandon(world.settings, scene.spec, lease))

    if by == "interrupted":
        with pytest.raises(KeyboardInterrupt):
            scene.release(Interrupt(frozenset([1]), KeyboardInterrupt()))
    elif by == "another thread":
        first: Any = scene.releasing()
        world._write(first.send(None))
    else:
        lease.on_change = renewer
    assert scene.release() is True
    assert not lease.lost


@pytest.mark.parametrize("masters", [SILENT, [ours()] * 3, [gone()] * 3])
@pytest.mark.parametrize("how", ["expired", "max_hold", "taken", "unreachable"])
def test_too_late_it_is_sent_and_not_waited_for(how: Reason, masters: list[Master]) -> None:
    """P7: keys may be left.  Whatever the masters would answer, it is lost, for the first reason; so nobody waits.

    One that expired unnoticed is lost: the release is the first look (P6).
    """
    scene = Single(*masters)
    if how == "expired":
        scene.world.now = scene.lease.valid_until
    else:
        scene.lease.lose(how)
    began = scene.world.now
    assert scene.release() is False
    assert scene.world.now == began
    [sent] = scene.world.sent
    assert (sent.verb, sent.to) == ("release", ALL)
    assert sent.request.owed_until == scene.lease.keys_until  # R10
    assert not sent.request.open  # its answers are no votes
    assert scene.lease.lost
    assert scene.lease.loss().reason == how


@pytest.mark.parametrize("lost", [False, True])
def test_one_of_a_resumed_lease_is_until_a_master_has_had_the_key(lost: bool) -> None:
    """P7: the acquire went over somebody else's connections, and may come yet."""
    scene = Single(how=World.resumed)
    if lost:
        scene.lease.lose("taken")
    scene.release()
    request = scene.world.sent[-1].request
    assert request.doubt is not None
    assert request.usual == ()  # every answer is looked at
    assert [request.doubt(0, value) for value in (GONE, TAKEN, HAS)] == [True, True, False]
    assert not request.doubt(1, "nonsense")


def test_a_master_that_was_given_the_key_back_has_it_twice() -> None:
    """R14: what an extension set there is no sign of the acquire.

    Nor is what it has left of a release that was carried out and whose answer was lost.
    """
    scene = Single(lacks_it(), ours(), ours(), how=World.resumed)
    own, other = [0, f"released:{scene.lease.token}".encode()], [0, b"released:" + OTHER.encode()]
    doubt = late(scene).doubt
    assert doubt is not None
    assert [doubt(0, value) for value in (other, own)] == [True, False]
    scene.extend(10.0)
    doubt, again = late(scene).doubt, late(scene).doubt
    assert doubt is not None
    assert again is not None
    assert [doubt(0, value) for value in (HAS, GONE, HAS)] == [True, True, False]
    assert not doubt(1, HAS)
    # What a repair has set was released, perhaps; the acquire may come when nobody is kept from the name any more.
    assert [again(master, own) for master in (0, 1)] == [True, False]


def test_one_that_was_given_back_over_other_connections_is_in_doubt_everywhere() -> None:
    """R14: extended on another loop; its own loop does not know what travels there."""
    scene = Single(lacks_it(), ours(), ours())
    with patch.object(LeaseState, "is_here", return_value=False):
        assert late(scene).doubt is not None
        scene.extend(10.0)
    assert late(scene).doubt is not None


@pytest.mark.parametrize(("least", "held", "ms"), [
    pytest.param(5.0, 0.0, "5052", id="all-of-it"),  # 1 % for the clocks, and 2 ms
    pytest.param(5.0, 3.0, "2022", id="the-rest"),
    pytest.param(5.0, 4.9999, "3", id="a-trifle"),
    pytest.param(5.0, 5.0, None, id="none"),
    pytest.param(5.0, 7.0, None, id="long-ago"),
    pytest.param(0.0, 0.0, None, id="not-asked-for"),
])  # fmt: skip
@pytest.mark.parametrize("lost", [False, True])
def test_a_release_says_for_how_long_nobody_may_have_it(least: float, held: float, ms: str | None, lost: bool) -> None:
    scene = Single()
    scene.lease.hold_at_least = least
    scene.world.now += held
    if lost:
        scene.lease.lose("max_hold")
    scene.release()
    assert scene.world.sent[-1].request.call.args == (scene.lease.token, *([ms] if ms else []))


@pytest.mark.parametrize(("who", "reason", "said"), [("token-0", "expired", "it was released"), (OTHER, "taken", "")])
def test_one_that_was_released_is_not_somebody_elses(who: str, reason: str, said: str) -> None:
    """C11: by another process, which handed it over; by somebody else it is."""
    scene = Single(*[Master(0.01, {"extend": [0, f"released:{who}".encode()]})] * 3)
    assert scene.extend() == "lost"
    assert scene.lease.loss().reason == reason
    assert said in scene.lease.loss().votes[0].reason
