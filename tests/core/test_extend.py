"""Extensions: kept, lost, or unanswered (R12-R14, C6)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from unittest.mock import Mock, patch

import pytest

from redlock._core.effects import Send
from redlock._core.extend import Extension, extend
from redlock._core.lease import LeaseState
from redlock._core.outcomes import NEVER as EFFECTS_NEVER
from tests.core.world import NEVER, OTHER, START, Interrupt, Master, World, breaks, down, outcomes

if TYPE_CHECKING:
    from redlock._core.settings import LockSpec
    from redlock.errors import Reason

GONE: list[Any] = [0, b""]
TAKEN: list[Any] = [0, OTHER.encode()]


def gone(after: float = 0.01) -> Master:
    return Master(after, {"extend": GONE})


def taken(after: float = 0.01) -> Master:
    return Master(after, {"extend": TAKEN})


def ours(after: float = 0.01) -> Master:
    return Master(after)


def silent() -> Master:
    return Master(NEVER)


def extended(world: World, spec: LockSpec, lease: LeaseState, ttl: float | None = None) -> Extension:
    return world.run(extend(world.settings, spec, lease, spec.ttl if ttl is None else ttl, world.now))


@pytest.mark.parametrize(
    ("masters", "kind", "reason", "at"),
    [
        pytest.param([ours(), ours(), ours(0.02), silent(), silent()], "kept", None, 0.02, id="third-of-five"),
        pytest.param([ours()], "kept", None, 0.01, id="one-master"),
        pytest.param([ours(), ours(), gone(0.02)], "kept", None, 0.01, id="not-waiting-for-the-denial"),
        pytest.param([gone(0.0), ours(), ours()], "kept", None, 0.01, id="one-denies"),
        # R13: for want of answers nothing is taken away
        pytest.param([ours(), silent(), silent()], "unanswered", None, 0.25, id="two-hang"),
        pytest.param([down(), down(), ours()], "unanswered", None, 0.0, id="majority-down"),
        pytest.param([breaks(), breaks(), breaks()], "unanswered", None, 0.0, id="all-break"),
        pytest.param([gone(), gone(), silent(), silent(), silent()], "unanswered", None, 0.25, id="two-of-five-deny"),
        pytest.param([taken(), ours(), silent()], "unanswered", None, 0.25, id="one-each"),
        pytest.param([gone(), gone(), down(), down(), ours(0.1)], "unanswered", None, 0.1, id="no-proof-is-possible"),
        # ... but a majority that denies it is proof, and says why
        pytest.param([gone(), gone(), gone(0.02), ours(0.1), ours(0.1)], "lost", "expired", 0.02, id="three-deny"),
        pytest.param([gone(), gone(), taken(0.02), ours(0.1), ours(0.1)], "lost", "taken", 0.02, id="one-has-another"),
        pytest.param([taken(), taken(), ours(0.1)], "lost", "taken", 0.01, id="taken"),
        pytest.param([gone()], "lost", "expired", 0.01, id="one-master-denies"),
        # Two noes of five end an acquire with three of four; here the rest may still deny.
        pytest.param([gone(), down(), gone(0.1), gone(0.2), down()], "lost", "expired", 0.2, id="waits-for-the-proof"),
        # even N: half is neither
        pytest.param([ours(), gone()], "unanswered", None, 0.01, id="one-one"),
        pytest.param([gone(), gone()], "lost", "expired", 0.01, id="two-of-two"),
        pytest.param([gone(0.1), down()], "unanswered", None, 0.0, id="one-of-two-down"),
        pytest.param([ours(), ours(), taken(), taken(0.03)], "unanswered", None, 0.03, id="two-two"),
        pytest.param([taken(), taken(), taken(), ours()], "lost", "taken", 0.01, id="three-of-four"),
        pytest.param([ours(), ours(), ours(), taken(0.03)], "kept", None, 0.01, id="three-of-four-ours"),
    ],
)
def test_kept_lost_or_unanswered(masters: list[Master], kind: str, reason: Reason | None, at: float) -> None:
    world = World(*masters)
    spec = world.spec()
    lease = world.lease(spec)
    had = lease.valid_until
    world.now += 3.0
    asked_at = world.now
    extension = extended(world, spec, lease)
    assert extension.kind == kind
    assert world.now - asked_at == pytest.approx(at)
    if kind == "kept":
        # R12: the TTL is set, not added; counted from before the first byte
        assert lease.valid_until == pytest.approx(asked_at + 10 - 0.102)
    else:
        assert lease.valid_until == had
    assert lease.lost == (kind == "lost")
    assert lease.valid == (kind != "lost")
    if reason is not None:
        assert lease.loss().reason == reason


@pytest.mark.parametrize(
    ("masters", "said"),
    [
        pytest.param([ours(), silent(), down()], ["granted", "timeout", "error"], id="unanswered"),
        pytest.param([taken(), taken(), ours(0.1)], ["held", "held", "pending"], id="denied"),
    ],
)
def test_the_loss_says_what_the_masters_said_to_the_extension_not_to_the_acquire(
    masters: list[Master], said: list[str]
) -> None:
    world = World(*masters)
    spec = world.spec()
    lease = world.lease(spec)
    granted = lease.votes
    extended(world, spec, lease)
    world.now = lease.valid_until
    assert [vote.outcome for vote in lease.loss().votes] == said
    assert lease.votes == granted  # of the last round that was won, as it says


def test_everybody_is_asked_also_those_that_missed_the_acquire() -> None:
    world = World(*[ours()] * 3)
    spec = world.spec()
    extended(world, spec, world.lease(spec, asked=frozenset([0, 1])))
    [sent] = world.sent
    assert (sent.verb, sent.token) == ("extend", "token-0")
    assert sent.to == {0, 1, 2}
    assert sent.request.call.keys == spec.keys.locks + spec.keys.fences  # R20: the fence keys live on
    assert sent.request.owed_until is None


def test_the_fence_and_the_token_stay() -> None:
    """R19."""
    world = World(*[ours()] * 3)
    spec = world.spec()
    lease = world.lease(spec)
    before = lease.token, lease.fence
    extended(world, spec, lease, 20.0)
    assert (lease.token, lease.fence) == before
    assert lease.ttl == 20.0
    assert outcomes(lease.votes) == ["granted", "granted", "pending"]


# -- time --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("masters", [[ours()] * 3, [silent()] * 3, [gone()] * 3], ids=["kept", "unanswered", "lost"])
def test_a_shorter_ttl_counts_from_before_it_is_sent(masters: list[Master]) -> None:
    """C6: the first master may obey long before the answer is here."""
    world = World(*masters)
    spec = world.spec(ttl=10.0)
    lease = world.lease(spec)
    operation = extend(world.settings, spec, lease, 2.0, world.now)
    operation.send(None)  # the Send, not carried out yet
    assert lease.valid_until == pytest.approx(START + 2 - 0.022)
    operation.close()

    lease = world.lease(spec)
    extension = extended(world, spec, lease, 2.0)
    assert lease.valid_until == pytest.approx(START + 2 - 0.022)
    assert lease.ttl == (2.0 if extension.kind == "kept" else 10.0)


def test_a_longer_ttl_counts_only_once_it_is_won() -> None:
    world = World(*[silent()] * 3)
    spec = world.spec(ttl=10.0)
    lease = world.lease(spec)
    had = lease.valid_until
    assert extended(world, spec, lease, 50.0).kind == "unanswered"
    assert lease.valid_until == had


def test_the_time_that_the_answers_took_is_not_given_away() -> None:
    world = World(*[ours(0.2)] * 3)
    spec = world.spec()
    lease = world.lease(spec)
    world.now += 5.0
    extended(world, spec, lease)
    assert lease.remaining() == pytest.approx(10 - 0.102 - 0.2)


@pytest.mark.parametrize("beyond", [0.0, 0.001, 100.0])
def test_a_lease_that_is_over_is_not_even_asked_for(beyond: float) -> None:
    """R12: never revived."""
    world = World(*[ours()] * 3)
    spec = world.spec()
    lease = world.lease(spec)
    world.now = lease.valid_until + beyond
    assert extended(world, spec, lease).kind == "lost"
    assert world.sent == []
    assert lease.lost
    assert lease.loss().reason == "expired"


def test_answers_that_come_after_the_end_revive_nothing() -> None:
    world = World(*[ours(0.2)] * 3)
    spec = world.spec()
    lease = world.lease(spec)
    end = lease.valid_until
    world.now = end - 0.1  # asked in time, answered 0.1 s too late
    assert extended(world, spec, lease).kind == "lost"
    assert lease.valid_until == end
    assert (lease.lost, lease.valid) == (True, False)
    assert world.verbs() == ["extend"]  # and nothing is repaired for a lease that is over


@pytest.mark.parametrize("masters", [[ours()] * 3, [gone()] * 3, [ours(), ours(), gone(0.0)]])
def test_released_while_it_was_asked_for(masters: list[Master]) -> None:
    """The holder has released in another thread: no repair may stand behind that release."""
    world = World(*masters)
    spec = world.spec()
    lease = world.lease(spec)
    operation = extend(world.settings, spec, lease, 10.0, world.now)
    world._write(operation.send(None))  # type: ignore[arg-type]
    lease.end()
    world.run(rest(operation))
    assert world.verbs() == ["extend"]
    assert not lease.lost


def rest(operation: Any) -> Any:
    """What is left of an operation whose Send has been carried out."""
    effect = operation.send(None)
    while True:
        event = yield effect
        try:
            effect = operation.send(event)
        except StopIteration as stop:
            return stop.value


def test_an_earlier_extension_does_not_undo_a_later_shortening() -> None:
    """C6 with two at once: the renewer's extension is under way while the holder asks for a shorter TTL.

    Both reach the masters in that order, so that the keys have the shorter TTL.  The renewer's answers
    arrive, those of the holder's extension are lost: the lease must not count on the longer TTL.
    """
    world = World(*[ours()] * 3)
    spec = world.spec(ttl=10.0)
    lease = world.lease(spec)
    renewer = extend(world.settings, spec, lease, 10.0, world.now)
    world._write(renewer.send(None))  # type: ignore[arg-type]
    holder = extend(world.settings, spec, lease, 1.0, world.now)
    holder.send(None)  # sent; its answers will not come
    world.run(rest(renewer))
    assert lease.valid_until <= START + 1.0


@pytest.mark.parametrize("number", range(3))
def test_interrupted_it_takes_nothing_away(number: int) -> None:
    """A failed renewal is not rolled back: the lease may still have its majority (R13)."""
    world = World(*[ours()] * 3)
    spec = world.spec()
    lease = world.lease(spec)
    had = lease.valid_until
    operation = extend(world.settings, spec, lease, 10.0, world.now)
    if number < 2:
        with pytest.raises(KeyboardInterrupt):
            world.run(operation, Interrupt(frozenset([number]), KeyboardInterrupt()))
    else:
        world.run(operation, Interrupt(frozenset([number]), KeyboardInterrupt()))
    assert lease.valid
    assert lease.valid_until == pytest.approx(had)
    assert "release" not in world.verbs()


# -- repair (R14) ------------------------------------------------------------------------------------


def test_masters_without_the_key_get_it_back_for_what_is_left() -> None:
    world = World(gone(0.0), taken(0.01), gone(0.02), ours(0.1), ours(0.1), ours(0.1), ours(0.2))
    spec = world.spec(ttl=10.0)
    lease = world.lease(spec, asked=frozenset([1, 3, 4, 5, 6]))
    assert extended(world, spec, lease).kind == "kept"
    sent, repair = world.sent
    assert sent.verb == "extend"
    assert repair.verb == "repair"
    # not to the one where somebody else is, nor to those that have it
    assert repair.to == {0, 2}
    assert repair.token == lease.token
    # the key must not outlive those of the majority: 0.2 s of the 10 have passed
    assert repair.request.call.args == ("1", "token-0", "9800", str(lease.fence), "3600000")
    assert repair.request.call.keys == spec.keys.locks + spec.keys.fences
    assert not repair.request.open  # not counted, and not revived behind a release
    assert repair.request.owed_until is None
    # and they are to be released with the others
    assert lease.asked == {0, 1, 2, 3, 4, 5, 6}


@pytest.mark.parametrize(
    "masters",
    [
        pytest.param([ours()] * 3, id="nobody-lacks-it"),
        pytest.param([taken(0.0), ours(), ours()], id="somebody-else-is-there"),
        pytest.param([down(), ours(), ours()], id="down"),
        pytest.param([gone(), silent(), silent()], id="not-won"),
        pytest.param([gone(), gone(), ours(0.1)], id="lost"),
    ],
)
def test_nothing_to_repair(masters: list[Master]) -> None:
    world = World(*masters)
    spec = world.spec()
    extended(world, spec, world.lease(spec))
    assert world.verbs() == ["extend"]


def test_who_answers_after_the_majority_gets_it_back_at_once() -> None:
    """R14: not one extension later.  Nobody waits for that: the operation is over."""
    world = World(*[ours()] * 4, gone(0.1), taken(0.1), gone(0.4))
    spec = world.spec(ttl=10.0)
    lease = world.lease(spec, asked=frozenset(range(4)))
    assert extended(world, spec, lease).kind == "kept"
    assert world.verbs() == ["extend"]
    assert lease.asked == {0, 1, 2, 3}
    world.listen(1.0)
    first, second = world.all("repair")
    assert (first.at, first.to, second.at, second.to) == (START + 0.1, frozenset([4]), START + 0.4, frozenset([6]))
    # for what is left by then, and it is to be released there with the others
    assert first.args == ("1", "token-0", "9900", str(lease.fence), "3600000")
    assert second.args[2] == "9600"
    assert lease.asked == {0, 1, 2, 3, 4, 6}
    # with an extension as with the first
    assert extended(world, spec, lease).kind == "kept"
    world.listen(1.0)
    assert len(world.all("repair")) == 4


@pytest.mark.parametrize("says", [TAKEN, [1], [0], b"nonsense", [0, b"", 1]])
def test_who_says_anything_else_after_the_majority_is_given_nothing(says: Any) -> None:
    world = World(*[ours()] * 4, Master(0.1, {"extend": says}))
    spec = world.spec()
    assert extended(world, spec, world.lease(spec)).kind == "kept"
    world.listen(1.0)
    assert world.verbs() == ["extend"]


@pytest.mark.parametrize(
    "masters",
    [
        pytest.param([ours(), silent(), gone(0.3)], id="unanswered"),
        pytest.param([gone(), gone(), gone(0.1)], id="lost"),
    ],
)
def test_a_late_answer_to_an_extension_that_was_not_won_gives_nothing_back(masters: list[Master]) -> None:
    """R14: nobody has confirmed the token."""
    world = World(*masters)
    spec = world.spec()
    extended(world, spec, world.lease(spec))
    world.listen(1.0)
    assert world.verbs() == ["extend"]


@pytest.mark.parametrize("how", ["released", "lost", "expired", "too-late"])
def test_a_late_answer_gives_nothing_back_to_a_lease_that_is_over(how: str) -> None:
    """R14; too late: the keys of the others have expired by then, whatever another extension has made of the lease."""
    world = World(*[ours()] * 4, gone(0.1 if how != "too-late" else 10.0))
    spec = world.spec(ttl=10.0)
    lease = world.lease(spec, asked=frozenset(range(4)))
    assert extended(world, spec, lease).kind == "kept"
    if how == "released":
        lease.end()
    elif how == "lost":
        lease.lose("max_hold")
    else:
        lease.valid_until = START + (100.0 if how == "too-late" else 0.1)
    world.listen(20.0)
    assert world.verbs() == ["extend"]


def test_a_release_that_comes_between_a_late_answer_and_its_repair_is_seen_or_goes_there_as_well() -> None:
    """P7: another thread ends the lease at any moment, and reads which masters to tell when it has ended."""
    for moment in ("before", "asking", "after"):
        world = World(*[ours()] * 4, gone(0.1))
        spec = world.spec(ttl=10.0)
        lease = world.lease(spec, asked=frozenset(range(4)))
        assert extended(world, spec, lease).kind == "kept"
        released: list[frozenset[int]] = []

        def release(lease: LeaseState = lease, released: list[frozenset[int]] = released) -> None:
            lease.end()
            released.append(lease.asked)

        if moment == "before":
            release()
        if moment == "asking":
            noted = lease.may_be_on

            def note(masters: Any, noted: Any = noted, release: Any = release) -> None:
                release()
                noted(masters)

            with patch.object(LeaseState, "may_be_on", side_effect=note):
                world.listen(1.0)
        else:
            world.listen(1.0)
        if moment == "after":
            release()
        assert bool(world.all("repair")) == (4 in released[0]) == (moment == "after")


def test_a_repair_is_no_vote() -> None:
    """Two of five still have it.  That the others would take it back makes no majority (R12, R14)."""
    world = World(ours(), ours(), gone(), gone(), silent())
    spec = world.spec()
    lease = world.lease(spec)
    assert extended(world, spec, lease).kind == "unanswered"
    assert world.verbs() == ["extend"]


@pytest.mark.parametrize("how", ["released", "lost", "expired"])
def test_a_repair_is_dropped_where_it_would_stand_behind_the_end(how: str) -> None:
    """R14: another thread ends the lease between the moment in which this was decided and its writing."""
    world = World(gone(0.0), ours(), ours())
    spec = world.spec()
    lease = world.lease(spec)
    operation = extend(world.settings, spec, lease, spec.ttl, world.now)
    world._write(operation.send(None))  # type: ignore[arg-type]
    effect: Any = operation.send(None)
    while not isinstance(effect, Send):
        effect = operation.send(world._next(effect))
    assert effect.only_if is not None
    assert effect.only_if()
    if how == "released":
        lease.end()
    elif how == "lost":
        lease.lose("max_hold")
    else:
        world.now = lease.valid_until
    assert not effect.only_if()
    world._write(effect)
    assert world.verbs() == ["extend"]
    assert effect.sent_at == EFFECTS_NEVER
    with pytest.raises(StopIteration) as stop:  # it goes on as if it had been sent
        operation.send(None)
    assert stop.value.value.kind == "kept"


def test_only_a_repair_asks_whether_it_may_be_written() -> None:
    world = World(gone(0.0), ours(), ours())
    spec = world.spec()
    extended(world, spec, world.lease(spec))
    assert [sent.verb for sent in world.sent if sent.request.only_if is not None] == ["repair"]


# -- the end, while it is asked for (P6) ---------------------------------------------------------------


@pytest.mark.parametrize("left", [0.0001, 0.1, 0.2499])
def test_no_longer_than_the_lease_lasts(left: float) -> None:
    """P6: whoever waits for this is told of the loss in time, though every master hangs."""
    world = World(*[silent()] * 3)
    spec = world.spec()
    lease = world.lease(spec)
    end = lease.valid_until
    world.now = end - left
    assert extended(world, spec, lease).kind == "lost"
    assert world.now == pytest.approx(end)
    assert lease.loss().reason == "expired"


def test_no_longer_than_a_lease_lasts_that_it_shortens_itself() -> None:
    """C6 and P6: the shorter TTL counts, so it also ends the waiting."""
    world = World(*[silent()] * 3)
    spec = world.spec()
    lease = world.lease(spec)
    assert extended(world, spec, lease, 0.1).kind == "lost"
    assert world.now == pytest.approx(START + 0.1 - 0.003)


def test_why_it_ran_out() -> None:
    """R13: that nobody answered is said, unless an extension has been won since."""
    world = World(*[silent()] * 3)
    spec = world.spec()
    lost, kept = world.lease(spec), world.lease(spec)
    for lease in (lost, kept):
        assert extended(world, spec, lease).kind == "unanswered"
    world.masters = (ours(),) * 3
    assert extended(world, spec, kept).kind == "kept"
    world.now = kept.valid_until
    assert lost.loss().reason == "unreachable"
    assert kept.loss().reason == "expired"


# -- resumed by a token (C11) --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("masters", "kind", "reason"),
    [
        pytest.param([ours(), ours(), silent()], "kept", None, id="confirmed"),
        pytest.param([ours(), silent(), silent()], "unanswered", None, id="nobody-knows"),
        pytest.param([down()] * 3, "unanswered", None, id="down"),
        pytest.param([gone(), gone(), ours(0.2)], "lost", "expired", id="gone"),
        pytest.param([gone(), taken(), ours(0.2)], "lost", "taken", id="taken"),
    ],
)
def test_the_first_extension_of_a_resumed_lease(masters: list[Master], kind: str, reason: Reason | None) -> None:
    world = World(*masters)
    spec = world.spec()
    lease = world.resumed(spec)
    assert extended(world, spec, lease).kind == kind
    assert lease.valid == (kind == "kept")
    assert lease.lost == (kind == "lost")
    assert world.sent[0].token == lease.token
    if kind == "kept":
        assert lease.valid_until == pytest.approx(START + 10 - 0.102)
    if reason is not None:
        assert lease.loss().reason == reason


def test_a_resumed_lease_may_be_tried_again_until_it_is_confirmed() -> None:
    """It has no time of its own that could run out; the masters know (C11)."""
    world = World(*[silent()] * 3)
    spec = world.spec()
    lease = world.resumed(spec)
    for _ in range(3):
        began = world.now
        assert extended(world, spec, lease).kind == "unanswered"
        assert world.now == pytest.approx(began + 0.25)
        world.now += 100.0
    world.masters = (ours(),) * 3
    assert extended(world, spec, lease).kind == "kept"
    world.now = lease.valid_until  # from now on it is one like all others (R12)
    assert extended(world, spec, lease).kind == "lost"


def test_the_repair_of_a_resumed_lease() -> None:
    """It is valid by then."""
    world = World(gone(0.0), ours(), ours())
    spec = world.spec()
    assert extended(world, spec, world.resumed(spec)).kind == "kept"
    assert world.verbs() == ["extend", "repair"]


def test_a_lease_that_is_renewed_for_days_stays_small() -> None:
    world = World(*[ours()] * 3)
    spec = world.spec()
    lease = world.lease(spec)
    for _ in range(1000):
        world.run(extend(world.settings, spec, lease, spec.ttl, world.now))
        world.now += 3
    assert len(lease.all_pending) < 10


def test_two_extensions_that_leave_in_the_other_order() -> None:
    """Two threads: numbered (and asked) in one order, written in the other."""
    world = World(*[ours()] * 3)
    spec = world.spec(ttl=10.0)
    lease = world.lease(spec)
    short = extend(world.settings, spec, lease, 1.0, world.now)
    short_send: Any = short.send(None)
    long = extend(world.settings, spec, lease, 10.0, world.now)
    long_send: Any = long.send(None)
    world._write(long_send)
    world._write(short_send)  # the last word on every master: 1 s
    world.run(rest(long))  # the answers to the short one are lost
    assert lease.valid_until <= START + 1.0


# -- thrown away -------------------------------------------------------------------------------------


def test_thrown_away_it_takes_no_lock_and_tells_nobody() -> None:
    """The collector may do so in a thread that holds any of them, and would wait for itself."""
    world = World(*[silent()] * 3)
    spec = world.spec()
    lease = world.lease(spec)
    operation: Any = extend(world.settings, spec, lease, 10.0, START)
    operation.send(None)
    operation.send(None)  # it waits for the answers
    lease.on_change = Mock(side_effect=AssertionError)
    with patch.object(LeaseState, "guard", side_effect=AssertionError):
        operation.close()


@pytest.mark.parametrize("overlapping", [1, 3])
def test_thrown_away_it_does_not_limit_the_next_one(overlapping: int) -> None:
    """C6: only what overlaps it does."""
    world = World(*[ours()] * 3)
    spec = world.spec(ttl=10.0)
    lease = world.lease(spec)
    operations = [extend(world.settings, spec, lease, 10.0, world.now) for _ in range(overlapping)]
    for operation in operations:
        operation.send(None)
    for operation in operations:
        operation.close()
    world.now += 5.0
    assert extended(world, spec, lease).kind == "kept"
    assert lease.valid_until == pytest.approx(START + 5.0 + 10.0 * 0.99 - 0.002)
    assert not lease.all_pending


def test_thrown_away_it_limits_those_that_overlap_it() -> None:
    """C6: its request may be on its way, and shorten the keys behind theirs."""
    world = World(*[ours()] * 3)
    spec = world.spec(ttl=10.0)
    lease = world.lease(spec)
    other = extend(world.settings, spec, lease, 10.0, world.now)
    world._write(other.send(None))  # type: ignore[arg-type]
    short = extend(world.settings, spec, lease, 1.0, world.now)
    world._write(short.send(None))  # type: ignore[arg-type]
    short.close()
    world.run(rest(other))
    assert lease.valid_until <= START + 1.0
