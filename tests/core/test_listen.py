"""What is heard of releases, and who is told (R24): `Ear` and `Listeners`, without an operation."""

from __future__ import annotations

import pytest

from redlock._core.listen import LINGER, Ear, Listeners
from redlock._core.lobby import Ticket
from redlock._core.outcomes import NEVER

KEY = "redlock:job"
CHANNEL = KEY + ":released"
N = 5


def announce(listeners: Listeners, *masters: int, token: bytes = b"t", channel: str = CHANNEL) -> list[Ear]:
    """Who is told to look, in the order in which it happens."""
    told = (listeners.announced(master, channel, token) for master in masters)
    return [ear for ear in told if ear is not None]


def confirm(listeners: Listeners, *masters: int, channel: str = CHANNEL) -> list[Ear]:
    told = (listeners.confirmed(master, channel) for master in masters)
    return [ear for ear in told if ear is not None]


def listening(*keys: str) -> tuple[Listeners, Ear]:
    listeners, ear = Listeners(N), Ear(keys or (KEY,), N)
    listeners.add(ear)
    return listeners, ear


# -- a majority decides ------------------------------------------------------------------------------


def test_the_third_of_five_tells_and_the_rest_says_nothing_new():
    listeners, ear = listening()
    assert announce(listeners, 0, 1) == []
    assert announce(listeners, 2) == [ear]
    assert announce(listeners, 3, 4) == []
    assert ear.released == 1


@pytest.mark.parametrize(("masters", "need"), [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3), (7, 4)])
def test_a_majority_of_the_configured_masters(masters, need):
    ear = Ear([KEY], masters)
    assert [ear.hear(master, b"t") for master in range(masters)] == [master == need - 1 for master in range(masters)]


def test_one_master_that_repeats_itself_is_one_master():
    listeners, ear = listening()
    assert announce(listeners, 0, 0, 0, 0) == []
    assert ear.released == 0


def test_those_who_split_the_votes_and_took_them_back_count_together():
    listeners, ear = listening()
    assert announce(listeners, 0, 1, token=b"a") == []
    assert announce(listeners, 2, token=b"b") == [ear]


def test_masters_that_did_not_stand_in_the_way_say_nothing_new():
    """They granted it, or their votes do not count: what is released there changes nothing (R25)."""
    listeners, ear = listening()
    ear.refused([0, 1])
    assert announce(listeners, 2, 3, 4, token=b"ours") == []
    assert announce(listeners, 2, 3, token=b"a") == []
    assert announce(listeners, 4, token=b"b") == []
    assert ear.released == 0
    assert announce(listeners, 1, token=b"ours") == [ear]  # one of those that refused it
    assert announce(listeners, 0, 2, 3, token=b"theirs") == [ear]


def test_what_was_announced_before_an_attempt_does_not_add_up_with_what_comes_after():
    listeners, ear = listening()
    announce(listeners, 0, 1, token=b"a")
    ear.attempting()
    assert announce(listeners, 2, token=b"b") == []


def test_the_same_release_adds_up_across_an_attempt():
    """It was on its way when the attempt was made, which may have come too early on some masters."""
    listeners, ear = listening()
    announce(listeners, 0, 1)
    ear.attempting()
    assert announce(listeners, 2) == [ear]


def test_an_attempt_has_used_what_was_heard():
    listeners, ear = listening()
    announce(listeners, 0, 1, 2)
    ear.attempting()
    assert (ear.released, ear.look) == (0, False)
    assert announce(listeners, 3, 4) == []  # the same release
    assert announce(listeners, 0, 1, 2, token=b"next") == [ear]


def test_tokens_are_not_remembered_for_ever():
    _, ear = listening()
    for number in range(10_000):
        ear.hear(0, b"%d" % number)
    assert len(ear._heard) < 100


# -- who listens -------------------------------------------------------------------------------------


def test_subscribed_at_a_majority_one_looks_again():
    listeners, ear = listening()
    assert confirm(listeners, 0, 1) == []
    assert not ear.look
    assert confirm(listeners, 2) == [ear]
    assert ear.look
    assert confirm(listeners, 3, 4) == []


def test_several_names_are_subscribed_when_all_of_them_are():
    other = "redlock:other"
    listeners, ear = listening(KEY, other)
    confirm(listeners, 0, 1, 2)
    assert not ear.look
    assert confirm(listeners, 2, 3, 4, channel=other + ":released") == [ear]
    assert announce(listeners, 0, 1, 2, channel=other + ":released", token=b"x") == [ear]


def test_who_comes_while_the_channel_is_on_looks_again_at_once():
    listeners, ear = listening()
    confirm(listeners, 0, 1, 2)
    listeners.remove(ear, 0.0)
    following = Ear([KEY], N)
    listeners.add(following)
    assert following.look
    assert announce(listeners, 0, 1, 2) == [following]
    assert ear.released == 0


def test_a_connection_that_broke_confirms_anew():
    listeners, ear = listening()
    confirm(listeners, 0, 1, 2)
    ear.attempting()
    listeners.lost(2)
    assert confirm(listeners, 2) == [ear]  # a release may have been missed meanwhile
    assert ear.look


def test_what_was_unsubscribed_is_not_confirmed():
    listeners, ear = listening()
    confirm(listeners, 0, 1)
    listeners.unconfirmed(1, CHANNEL)
    assert confirm(listeners, 2) == []
    assert confirm(listeners, 1) == [ear]


def test_the_end_of_one_operation_does_not_take_the_ear_of_the_next():
    listeners, ear = listening()
    following = Ear([KEY], N)
    listeners.add(following)
    listeners.remove(ear, 0.0)
    assert announce(listeners, 0, 1, 2) == [following]


def test_channels_linger_and_go():
    listeners, ear = listening()
    listeners.forget_idle(100.0)
    assert listeners.channels == [CHANNEL]
    listeners.remove(ear, 100.0)
    listeners.forget_idle(100.0 + LINGER / 2)
    assert listeners.channels == [CHANNEL]
    listeners.forget_idle(100.0 + LINGER)
    assert not listeners
    assert announce(listeners, 0, 1, 2) == []
    assert confirm(listeners, 0, 1, 2) == []  # late answers


# -- collisions --------------------------------------------------------------------------------------


def test_nobody_waits_until_attempts_collide():
    _, ear = listening()
    assert ear.spread == 0
    ear.tried(collided=True)
    assert ear.spread == pytest.approx(0.0005)
    ear.tried(collided=True)
    assert ear.spread == pytest.approx(0.0015)
    for _ in range(8):
        ear.tried(collided=False)
    assert ear.spread == 0


def test_the_spread_has_a_limit():
    _, ear = listening()
    for _ in range(100):
        ear.tried(collided=True)
    assert 0.1 < ear.spread < 0.2


def test_the_next_one_knows_how_crowded_it_is():
    listeners, ear = listening()
    ear.tried(collided=True)
    listeners.remove(ear, 0.0)
    following = Ear([KEY], N)
    listeners.add(following)
    assert following.spread == ear.spread


# -- letting others go first -------------------------------------------------------------------------


def courtesy(listeners: Listeners, now: float, *, turn: bool = False) -> float:
    ticket = Ticket([KEY])
    listeners.tell_courtesy(ticket, now, turn=turn)
    return ticket.courtesy


def test_who_released_and_was_heard_lets_others_go_first():
    listeners = Listeners(N)
    assert not listeners.crowded
    listeners.released([KEY], {0: 1, 2: 1}, took=0.001, now=10.0)
    assert listeners.crowded
    assert courtesy(listeners, 10.001) == pytest.approx(10.006)  # 3 ms, and three times what the release took
    assert courtesy(listeners, 11.0) == NEVER  # they have had their chance
    assert courtesy(listeners, 11.0, turn=True) == pytest.approx(11.006)


def test_our_own_subscription_is_nobody_else():
    listeners, _ = listening()
    confirm(listeners, 0, 1, 2)
    listeners.released([KEY], {0: 1, 1: 1, 2: 1}, took=0.001, now=10.0)
    assert not listeners.crowded
    listeners.released([KEY], {0: 1, 1: 2}, took=0.001, now=10.0)
    assert listeners.crowded


def test_when_nobody_else_listens_any_more_nobody_is_let_first():
    listeners = Listeners(N)
    listeners.released([KEY], {0: 1}, took=0.001, now=10.0)
    listeners.released([KEY], {}, took=0.001, now=10.1)
    assert not listeners.crowded


def test_crowds_do_not_pile_up():
    listeners = Listeners(N)
    for number in range(10_000):
        listeners.released([f"redlock:{number}"], {0: 1}, took=0.001, now=float(number))
    assert len(listeners._crowds) < 100
