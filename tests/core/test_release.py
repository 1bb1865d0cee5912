"""Giving a lock back: to whom, for how long it is owed, and what the answers prove (C8, R10, R11, R13)."""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import pytest

from redlock._core.extend import extend
from redlock._core.lease import LeaseState, PendingExtension
from redlock._core.release import release, release_lost
from tests.core.world import NEVER, OTHER, START, Interrupt, Master, World, breaks, down, turns

if TYPE_CHECKING:
    from collections.abc import Iterator

    from redlock.errors import Reason

GONE: list[Any] = [0, b""]
TAKEN: list[Any] = [0, OTHER.encode()]


def gone(after: float = 0.01) -> Master:
    return Master(after, {"release": GONE})


def taken(after: float = 0.01) -> Master:
    return Master(after, {"release": TAKEN})


def ours(after: float = 0.01) -> Master:
    return Master(after)


@pytest.mark.parametrize(
    ("masters", "reason", "at"),
    [
        pytest.param([ours(), ours(0.02), ours(0.2)], None, 0.02, id="majority"),
        pytest.param([ours(), ours(), gone(0.02)], None, 0.01, id="one-lacks-it"),
        pytest.param([gone(), gone(0.02), ours(0.2)], "expired", 0.02, id="majority-lacks-it"),
        pytest.param([taken(), gone(0.02), ours(0.2)], "taken", 0.02, id="somebody-else"),
        # It was valid, and nobody has denied it.
        pytest.param([Master(NEVER)] * 3, None, 0.25, id="no-answer"),
        pytest.param([down()] * 3, None, 0.0, id="all-down"),
        pytest.param([breaks()] * 3, None, 0.0, id="all-break"),
        pytest.param([gone(), ours()], None, 0.01, id="one-one"),
        pytest.param([gone(), Master(NEVER), Master(NEVER)], None, 0.25, id="one-denial-is-no-proof"),
        pytest.param([taken(), taken(), ours(), ours()], None, 0.01, id="two-two"),
        # That it was ours can be excluded early; that it was not takes a majority, and is waited for.
        pytest.param([gone(0.0), down(), gone(0.1), gone(0.2), down()], "expired", 0.2, id="waits-for-the-proof"),
    ],
)
def test_whether_it_was_ours(masters: list[Master], reason: Reason | None, at: float) -> None:
    world = World(*masters)
    spec = world.spec()
    lease = world.lease(spec)
    assert world.run(release(world.settings, spec, lease)) == (reason is None)
    assert world.after_start() == pytest.approx(at)
    # C8: lost stays False after a normal release; after one that found it gone it is True
    assert lease.lost == (reason is not None)
    assert not lease.valid
    if reason is not None:
        loss = lease.loss()
        assert loss.reason == reason
        assert [vote.outcome for vote in loss.votes].count("held") > len(masters) // 2


def test_it_ends_before_the_first_byte_is_sent() -> None:
    world = World(*[ours()] * 3)
    spec = world.spec()
    lease = world.lease(spec)
    operation = release(world.settings, spec, lease)
    operation.send(None)
    assert not lease.valid
    assert not lease.lost


def test_it_goes_where_a_key_may_be() -> None:
    world = World(*[ours()] * 5)
    spec = world.spec("a", "b")
    lease = world.lease(spec, asked=frozenset([0, 2, 3]))
    world.run(release(world.settings, spec, lease))
    [sent] = world.sent
    assert sent.to == {0, 2, 3}
    assert sent.request.call.keys == ("redlock:a", "redlock:b")
    assert sent.request.call.args == ("token-0",)


def test_it_goes_where_a_repair_went() -> None:
    world = World(Master(0.0, {"extend": GONE}), ours(), ours())
    spec = world.spec()
    lease = world.lease(spec, asked=frozenset([1, 2]))
    world.run(extend(world.settings, spec, lease, spec.ttl, world.now))
    world.run(release(world.settings, spec, lease))
    assert world.all("release")[0].to == {0, 1, 2}


def test_masters_that_do_not_answer_owe_it_for_as_long_as_the_key_can_live() -> None:
    world = World(*[Master(NEVER)] * 3)
    spec = world.spec(ttl=10.0)
    lease = world.lease(spec)
    world.run(release(world.settings, spec, lease))
    [sent] = world.sent
    assert sent.request.owed_until is not None
    assert sent.request.owed_until >= START + 10.0 + world.settings.node_timeout


@pytest.mark.parametrize("answers", [True, False], ids=["won", "unanswered"])
def test_it_is_owed_for_the_longest_ttl_that_a_key_may_have(answers: bool) -> None:
    """R10: until the token's TTL has passed, and an extension may have made that longer.

    Also one that was not won: the minority that obeyed has the longer TTL.
    """
    world = World(*[ours() if answers else Master(NEVER)] * 3)
    spec = world.spec(ttl=1.0)
    lease = world.lease(spec)
    world.run(extend(world.settings, spec, lease, 50.0, world.now))
    sent_at = world.all("extend")[0].at
    world.run(release(world.settings, spec, lease))
    owed_until = world.all("release")[0].request.owed_until
    assert owed_until is not None
    assert owed_until >= sent_at + 50.0


def test_it_is_owed_for_a_ttl_that_was_asked_for_until_an_interruption() -> None:
    """R10: nobody waited for the answers, but the request is on its way."""
    world = World(*[ours()] * 3)
    spec = world.spec(ttl=1.0)
    lease = world.lease(spec)
    interrupt = Interrupt(frozenset([0]), KeyboardInterrupt(), written=1)
    with pytest.raises(KeyboardInterrupt):
        world.run(extend(world.settings, spec, lease, 50.0, world.now), interrupt)
    world.run(release(world.settings, spec, lease))
    owed_until = world.all("release")[0].request.owed_until
    assert owed_until is not None
    assert owed_until >= world.all("extend")[0].at + 50.0


def test_a_shorter_ttl_does_not_make_it_owed_for_less() -> None:
    """A master that missed that extension has the key for as long as before."""
    world = World(*[ours()] * 3)
    spec = world.spec(ttl=10.0)
    lease = world.lease(spec)
    world.run(extend(world.settings, spec, lease, 1.0, world.now))
    world.run(release(world.settings, spec, lease))
    owed_until = world.all("release")[0].request.owed_until
    assert owed_until is not None
    assert owed_until >= START + 10.0 + world.settings.node_timeout


@pytest.mark.parametrize("masters", [[ours()] * 3, [gone()] * 3])
def test_one_that_was_lost_before_is_released_all_the_same(masters: list[Master]) -> None:
    """P7: keys of ours may be left on some masters.  The reason of the loss stays the first one."""
    world = World(*masters)
    spec = world.spec()
    lease = world.lease(spec)
    lease.lose("unreachable")
    assert world.run(release(world.settings, spec, lease)) is False
    assert world.verbs() == ["release"]
    assert lease.lost
    assert lease.loss().reason == "unreachable"


def test_one_that_expired_unnoticed_is_lost() -> None:
    """After a pause nobody has looked yet: the release is the first look (P6)."""
    world = World(*[ours()] * 3)
    spec = world.spec()
    lease = world.lease(spec)
    world.now = lease.valid_until + 1.0
    assert world.run(release(world.settings, spec, lease)) is False
    assert lease.lost
    assert lease.loss().reason == "expired"


@pytest.mark.parametrize("again", [False, True], ids=["once", "twice"])
@pytest.mark.parametrize("written", [None, 1, 3])
@pytest.mark.parametrize("number", range(2))
def test_interrupted_it_still_goes_to_everybody(number: int, written: int | None, again: bool) -> None:
    """R11: the Send, and the wait for the answers."""
    world = World(*[ours()] * 3)
    spec = world.spec()
    lease = world.lease(spec)
    at = frozenset([number, number + 1] if again else [number])
    error = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt) as caught:
        world.run(release(world.settings, spec, lease), Interrupt(at, error, written))
    assert caught.value is error
    assert any(sent.to == {0, 1, 2} for sent in world.sent)
    assert {sent.token for sent in world.sent} == {"token-0"}
    assert all(sent.request.owed_until is not None for sent in world.sent)
    assert not lease.valid
    assert not lease.lost


def test_it_goes_where_a_repair_goes_at_the_same_moment() -> None:
    """P7: a renewer gives the key back to a master, in its thread, just before the lease ends."""
    world = World(*[ours()] * 3)
    spec = world.spec()
    lease = world.lease(spec, asked=frozenset([1, 2]))
    end = lease.end

    def repaired_just_before() -> None:
        lease.may_be_on([0])
        lease.begin_extension(PendingExtension(START + 50.0, 50.0))
        end()

    with patch.object(LeaseState, "end", lambda _: repaired_just_before()):
        world.run(release(world.settings, spec, lease))
    [sent] = world.sent
    assert sent.to == {0, 1, 2}
    assert sent.request.owed_until == START + 100.0  # R10


def test_interrupted_before_it_is_known_where_it_goes_it_still_goes_there() -> None:
    """R11."""
    world = World(*[ours()] * 3)
    spec = world.spec()
    lease = world.lease(spec, asked=frozenset([1, 2]))
    with patch("redlock._core.release.Claim", side_effect=KeyboardInterrupt), pytest.raises(KeyboardInterrupt):
        world.run(release(world.settings, spec, lease))
    assert world.verbs() == ["release"]
    assert world.sent[0].to == {1, 2}
    assert not lease.valid


def test_masters_that_may_have_it_are_noted_one_at_a_time() -> None:
    """A renewer and a holder may both repair."""
    world = World(*[ours()] * 3)
    lease = world.lease(world.spec(), asked=frozenset([2]))
    held: list[bool] = []

    class Masters(list[int]):
        def __iter__(self) -> Iterator[int]:
            held.append(guard.locked())
            return super().__iter__()

    guard = Lock()
    with patch.object(LeaseState, "guard", lambda _: guard):
        lease.may_be_on(Masters([0, 1]))
    assert held == [True]
    assert lease.asked == {0, 1, 2}


@pytest.mark.parametrize("interrupted", [True, False])
def test_once_more_it_finds_nothing_and_that_is_no_loss(interrupted: bool) -> None:
    """C8, C9: the one before has removed the keys.  It was interrupted, or is another thread's."""
    world = World(*[Master(0.01, {"release": turns([1, 0], GONE)})] * 3)
    spec = world.spec()
    lease = world.lease(spec)
    if interrupted:
        with pytest.raises(KeyboardInterrupt):
            world.run(release(world.settings, spec, lease), Interrupt(frozenset([1]), KeyboardInterrupt()))
    else:
        first: Any = release(world.settings, spec, lease)
        world._write(first.send(None))
    assert world.run(release(world.settings, spec, lease)) is True
    assert not lease.lost


# -- too late ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["expired", "max_hold", "taken"])
def test_too_late_it_is_sent_and_not_waited_for(how: Reason) -> None:
    """P7: keys may be left.  Whatever the masters would answer, it is lost; so nobody waits."""
    world = World(*[Master(NEVER)] * 3)
    spec = world.spec()
    lease = world.lease(spec)
    if how == "expired":
        world.now = lease.valid_until
    else:
        lease.lose(how)
    began = world.now
    assert world.run(release(world.settings, spec, lease)) is False
    assert world.now == began
    [sent] = world.sent
    assert sent.verb == "release"
    assert sent.to == {0, 1, 2}
    assert sent.request.owed_until == lease.keys_until  # R10
    assert not sent.request.open  # its answers are no votes
    assert lease.loss().reason == how


@pytest.mark.parametrize("written", [None, 0, 1])
def test_too_late_and_interrupted_it_still_goes_to_everybody(written: int | None) -> None:
    """R11."""
    world = World(*[ours()] * 3)
    spec = world.spec()
    lease = world.lease(spec)
    world.now = lease.valid_until
    error = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt) as caught:
        world.run(release(world.settings, spec, lease), Interrupt(frozenset([0]), error, written))
    assert caught.value is error
    assert world.sent[-1].to == {0, 1, 2}


def test_release_lost() -> None:
    """To whoever may have a key, for as long as any may live; also after a repair, and a longer TTL (R10)."""
    world = World(Master(0.0, {"extend": GONE}), ours(), ours())
    spec = world.spec(ttl=10.0)
    lease = world.lease(spec, asked=frozenset([1, 2]))
    assert release_lost(world.settings, spec, lease).to == frozenset([1, 2])
    assert release_lost(world.settings, spec, lease).owed_until == lease.valid_until + 10.0
    world.run(extend(world.settings, spec, lease, 50.0, world.now))
    request = release_lost(world.settings, spec, lease)
    assert request.to == frozenset([0, 1, 2])
    assert request.owed_until == lease.valid_until + 50.0
    assert request.call.args == (lease.token,)
    assert request.only_if is None  # nothing may keep it from being written


# -- resumed by a token (C11) --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("masters", "reason"),
    [
        pytest.param([ours()] * 3, None, id="ours"),
        pytest.param([Master(NEVER)] * 3, None, id="nobody-has-denied-it"),
        pytest.param([gone(), gone(), ours(0.2)], "expired", id="gone"),
        pytest.param([taken(), gone(), ours(0.2)], "taken", id="taken"),
    ],
)
def test_a_resumed_lease_is_released_without_an_extension(masters: list[Master], reason: Reason | None) -> None:
    world = World(*masters)
    spec = world.spec()
    lease = world.resumed(spec)
    assert world.run(release(world.settings, spec, lease)) == (reason is None)
    assert world.sent[0].to == {0, 1, 2}
    assert lease.lost == (reason is not None)
    assert not lease.valid
    if reason is not None:
        assert lease.loss().reason == reason


def test_the_release_of_a_resumed_lease_is_owed_as_well() -> None:
    """R10: where its keys are is known to nobody here, but they live for as long as those of any other."""
    world = World(*[down()] * 3)
    spec = world.spec(ttl=10.0)
    world.run(release(world.settings, spec, world.resumed(spec)))
    owed_until = world.sent[0].request.owed_until
    assert owed_until is not None
    assert owed_until >= START + 10.0


HAS: list[Any] = [1, 0]


def test_a_release_that_stands_behind_its_acquire_is_not_in_doubt() -> None:
    """R10: what the masters answer proves what it seems to."""
    world = World(Master(0.0, {"extend": GONE}), ours(), ours())
    spec = world.spec()
    lease = world.lease(spec)
    world.run(extend(world.settings, spec, lease, 10.0, world.now))
    assert lease.repaired == {0}
    assert release_lost(world.settings, spec, lease).doubt is None
    world.run(release(world.settings, spec, lease))
    assert world.sent[-1].request.doubt is None


@pytest.mark.parametrize("lost", [False, True])
def test_one_of_a_resumed_lease_is_until_a_master_has_had_the_key(lost: bool) -> None:
    """R10, P7: the acquire went over somebody else's connections, and may come yet."""
    world = World(*[ours()] * 3)
    spec = world.spec()
    lease = world.resumed(spec)
    if lost:
        lease.lose("taken")
    world.run(release(world.settings, spec, lease))
    request = world.sent[-1].request
    assert request.doubt is not None
    assert request.usual == ()  # every answer is looked at
    assert [request.doubt.remains(0, value) for value in (GONE, TAKEN, HAS)] == [True, True, False]
    assert not request.doubt.remains(1, "nonsense")


def test_a_master_that_was_given_the_key_back_has_it_twice() -> None:
    """R14: what an extension set there is no sign of the acquire."""
    world = World(Master(0.0, {"extend": GONE}), ours(), ours())
    spec = world.spec()
    lease = world.resumed(spec)
    world.run(extend(world.settings, spec, lease, 10.0, world.now))
    doubt = release_lost(world.settings, spec, lease).doubt
    assert doubt is not None
    assert [doubt.remains(0, value) for value in (HAS, GONE, HAS)] == [True, True, False]
    assert not doubt.remains(1, HAS)


def test_one_that_was_given_back_over_other_connections_is_in_doubt_everywhere() -> None:
    """R10, R14: extended on another loop; its own loop does not know what travels there."""
    world = World(Master(0.0, {"extend": GONE}), ours(), ours())
    spec = world.spec()
    lease = world.lease(spec)
    with patch.object(LeaseState, "is_here", return_value=False):
        assert release_lost(world.settings, spec, lease).doubt is not None
        world.run(extend(world.settings, spec, lease, 10.0, world.now))
    assert release_lost(world.settings, spec, lease).doubt is not None


def test_dropped_it_says_nothing() -> None:
    world = World(*[ours()] * 3)
    spec = world.spec()
    operation = release(world.settings, spec, world.lease(spec))
    operation.send(None)
    operation.close()  # a generator that yields now makes this a RuntimeError


# -- at least for so long (R28) ------------------------------------------------------------------------


def kept(world: World, seconds: float, **changes: Any) -> LeaseState:
    lease = world.lease(world.spec(ttl=10.0), **changes)
    lease.hold_at_least = seconds
    return lease


@pytest.mark.parametrize(
    ("least", "held", "ms"),
    [
        pytest.param(5.0, 0.0, "5052", id="all-of-it"),  # 1 % for the clocks, and 2 ms
        pytest.param(5.0, 3.0, "2022", id="the-rest"),
        pytest.param(5.0, 4.9999, "3", id="a-trifle"),
        pytest.param(5.0, 5.0, None, id="none"),
        pytest.param(5.0, 7.0, None, id="long-ago"),
        pytest.param(0.0, 0.0, None, id="not-asked-for"),
    ],
)
@pytest.mark.parametrize("lost", [False, True])
def test_a_release_says_for_how_long_nobody_may_have_it(least: float, held: float, ms: str | None, lost: bool) -> None:
    world = World(*[ours()] * 3)
    lease = kept(world, least)
    world.now += held
    if lost:
        lease.lose("max_hold")
    world.run(release(world.settings, world.spec(ttl=10.0), lease))
    assert world.sent[-1].request.call.args == (lease.token, *([ms] if ms else []))


def test_one_that_was_released_is_not_somebody_elses() -> None:
    """C11: by another process, which handed it over."""
    world = World(*[Master(0.01, {"extend": [0, b"released:token-0"]})] * 3)
    spec = world.spec()
    lease = world.lease(spec)
    assert world.run(extend(world.settings, spec, lease, 10.0, world.now)).kind == "lost"
    assert lease.loss().reason == "expired"
    assert lease.loss().votes[0].reason == "not ours any more: it was released"


def test_one_that_somebody_else_released_is_taken() -> None:
    world = World(*[Master(0.01, {"extend": [0, b"released:" + OTHER.encode()]})] * 3)
    spec = world.spec()
    lease = world.lease(spec)
    assert world.run(extend(world.settings, spec, lease, 10.0, world.now)).kind == "lost"
    assert lease.loss().reason == "taken"


def test_a_release_in_doubt_that_was_carried_out_is_not_sent_for_ever() -> None:
    """R10: its answer was lost, and the next one finds what it has left."""
    world = World(Master(0.0, {"extend": GONE}), ours(), ours())
    spec = world.spec()
    lease = world.resumed(spec)
    own = [0, f"released:{lease.token}".encode()]
    doubt = release_lost(world.settings, spec, lease).doubt
    assert doubt is not None
    assert not doubt.remains(0, own)
    assert doubt.remains(0, [0, b"released:" + OTHER.encode()])
    # What a repair has set was released, perhaps; the acquire may come when nobody is kept from the name any more.
    world.run(extend(world.settings, spec, lease, 10.0, world.now))
    doubt = release_lost(world.settings, spec, lease).doubt
    assert doubt is not None
    assert doubt.remains(0, own)
    assert not doubt.remains(1, own)
