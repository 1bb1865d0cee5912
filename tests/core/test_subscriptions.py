"""What is heard of releases, and who is told (R24): `Subscription` and `Subscriptions`, without an operation."""

from __future__ import annotations

import pytest

from redlock._core.local_queue import Place
from redlock._core.outcomes import NEVER
from redlock._core.subscriptions import LINGER, Subscription, Subscriptions

KEY = "redlock:job"
CHANNEL = KEY + ":released"
N = 5


def announce(
    subscriptions: Subscriptions, *masters: int, token: bytes = b"t", channel: str = CHANNEL
) -> list[Subscription]:
    """Who is told to look, in the order in which it happens."""
    told = (subscriptions.announced(master, channel, token) for master in masters)
    return [subscription for subscriptions in told for subscription in subscriptions]


def confirm(subscriptions: Subscriptions, *masters: int, channel: str = CHANNEL) -> list[Subscription]:
    told = (subscriptions.confirmed(master, channel) for master in masters)
    return [subscription for subscriptions in told for subscription in subscriptions]


def listening(*keys: str) -> tuple[Subscriptions, Subscription]:
    subscriptions, subscription = Subscriptions(N), Subscription(keys or (KEY,), N)
    subscriptions.add(subscription)
    return subscriptions, subscription


# -- a majority decides ------------------------------------------------------------------------------


def test_the_third_of_five_tells_and_the_rest_says_nothing_new():
    subscriptions, subscription = listening()
    assert announce(subscriptions, 0, 1) == []
    assert announce(subscriptions, 2) == [subscription]
    assert announce(subscriptions, 3, 4) == []
    assert subscription.released == 1


@pytest.mark.parametrize(("masters", "need"), [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3), (7, 4)])
def test_a_majority_of_the_configured_masters(masters, need):
    subscription = Subscription([KEY], masters)
    assert [subscription.hear(master, b"t") for master in range(masters)] == [
        master == need - 1 for master in range(masters)
    ]


def test_one_master_that_repeats_itself_is_one_master():
    subscriptions, subscription = listening()
    assert announce(subscriptions, 0, 0, 0, 0) == []
    assert subscription.released == 0


def test_those_who_split_the_votes_and_took_them_back_count_together():
    subscriptions, subscription = listening()
    assert announce(subscriptions, 0, 1, token=b"a") == []
    assert announce(subscriptions, 2, token=b"b") == [subscription]


def test_masters_that_did_not_stand_in_the_way_say_nothing_new():
    """They granted it, or their votes do not count: what is released there changes nothing (R25)."""
    subscriptions, subscription = listening()
    subscription.refused([0, 1])
    assert announce(subscriptions, 2, 3, 4, token=b"ours") == []
    assert announce(subscriptions, 2, 3, token=b"a") == []
    assert announce(subscriptions, 4, token=b"b") == []
    assert subscription.released == 0
    assert announce(subscriptions, 1, token=b"ours") == [subscription]  # one of those that refused it
    assert announce(subscriptions, 0, 2, 3, token=b"theirs") == [subscription]


def test_what_was_announced_before_an_attempt_does_not_add_up_with_what_comes_after():
    subscriptions, subscription = listening()
    announce(subscriptions, 0, 1, token=b"a")
    subscription.attempting()
    assert announce(subscriptions, 2, token=b"b") == []


def test_the_same_release_adds_up_across_an_attempt():
    """It was on its way when the attempt was made, which may have come too early on some masters."""
    subscriptions, subscription = listening()
    announce(subscriptions, 0, 1)
    subscription.attempting()
    assert announce(subscriptions, 2) == [subscription]


def test_an_attempt_has_used_what_was_heard():
    subscriptions, subscription = listening()
    announce(subscriptions, 0, 1, 2)
    subscription.attempting()
    assert (subscription.released, subscription.look) == (0, False)
    assert announce(subscriptions, 3, 4) == []  # the same release
    assert announce(subscriptions, 0, 1, 2, token=b"next") == [subscription]


def test_tokens_are_not_remembered_for_ever():
    _, subscription = listening()
    for number in range(10_000):
        subscription.hear(0, b"%d" % number)
    assert len(subscription._heard) < 100


# -- who listens -------------------------------------------------------------------------------------


def test_subscribed_at_a_majority_one_looks_again():
    subscriptions, subscription = listening()
    assert confirm(subscriptions, 0, 1) == []
    assert not subscription.look
    assert confirm(subscriptions, 2) == [subscription]
    assert subscription.look
    assert confirm(subscriptions, 3, 4) == []


def test_several_names_are_subscribed_when_all_of_them_are():
    other = "redlock:other"
    subscriptions, subscription = listening(KEY, other)
    confirm(subscriptions, 0, 1, 2)
    assert not subscription.look
    assert confirm(subscriptions, 2, 3, 4, channel=other + ":released") == [subscription]
    assert announce(subscriptions, 0, 1, 2, channel=other + ":released", token=b"x") == [subscription]


def test_who_comes_while_the_channel_is_on_looks_again_at_once():
    subscriptions, subscription = listening()
    confirm(subscriptions, 0, 1, 2)
    subscriptions.remove(subscription, 0.0)
    following = Subscription([KEY], N)
    subscriptions.add(following)
    assert following.look
    assert announce(subscriptions, 0, 1, 2) == [following]
    assert subscription.released == 0


def test_a_connection_that_broke_confirms_anew():
    subscriptions, subscription = listening()
    confirm(subscriptions, 0, 1, 2)
    subscription.attempting()
    subscriptions.lost(2)
    assert confirm(subscriptions, 2) == [subscription]  # a release may have been missed meanwhile
    assert subscription.look


def test_what_was_unsubscribed_is_not_confirmed():
    subscriptions, subscription = listening()
    confirm(subscriptions, 0, 1)
    subscriptions.unconfirmed(1, CHANNEL)
    assert confirm(subscriptions, 2) == []
    assert confirm(subscriptions, 1) == [subscription]


def test_the_end_of_one_operation_does_not_take_the_subscription_of_the_next():
    subscriptions, subscription = listening()
    following = Subscription([KEY], N)
    subscriptions.add(following)
    subscriptions.remove(subscription, 0.0)
    assert announce(subscriptions, 0, 1, 2) == [following]


def test_channels_linger_and_go():
    subscriptions, subscription = listening()
    subscriptions.forget_idle(100.0)
    assert subscriptions.channels == [CHANNEL]
    subscriptions.remove(subscription, 100.0)
    subscriptions.forget_idle(100.0 + LINGER / 2)
    assert subscriptions.channels == [CHANNEL]
    subscriptions.forget_idle(100.0 + LINGER)
    assert not subscriptions
    assert announce(subscriptions, 0, 1, 2) == []
    assert confirm(subscriptions, 0, 1, 2) == []  # late answers


# -- collisions --------------------------------------------------------------------------------------


def test_nobody_waits_until_attempts_collide():
    _, subscription = listening()
    assert subscription.spread == 0
    subscription.tried(collided=True)
    assert subscription.spread == pytest.approx(0.0005)
    subscription.tried(collided=True)
    assert subscription.spread == pytest.approx(0.0015)
    for _ in range(8):
        subscription.tried(collided=False)
    assert subscription.spread == 0


def test_the_spread_has_a_limit():
    _, subscription = listening()
    for _ in range(100):
        subscription.tried(collided=True)
    assert 0.1 < subscription.spread < 0.2


def test_the_spread_may_be_as_long_as_many_attempts():
    """Pauses shorter than attempts keep nobody apart: far away masters had contenders split the votes for ever (R25)."""
    _, subscription = listening()
    for _ in range(100):
        subscription.tried(collided=True, took=0.1)
    assert subscription.spread == pytest.approx(1.6)
    subscription.tried(collided=True, took=0.001)
    assert 0.1 < subscription.spread < 0.2, "the attempts are short again"


def test_the_next_one_knows_how_crowded_it_is():
    subscriptions, subscription = listening()
    subscription.tried(collided=True)
    subscriptions.remove(subscription, 0.0)
    following = Subscription([KEY], N)
    subscriptions.add(following)
    assert following.spread == subscription.spread


# -- letting others go first -------------------------------------------------------------------------


def yield_until(subscriptions: Subscriptions, now: float, *, turn: bool = False) -> float:
    place = Place((KEY,))
    subscriptions.set_yield_until(place, now, turn=turn)
    return place.yield_until


def test_who_released_and_was_heard_lets_others_go_first():
    subscriptions = Subscriptions(N)
    assert not subscriptions.contended
    subscriptions.released([KEY], {0: 1, 2: 1}, took=0.001, now=10.0)
    assert subscriptions.contended
    assert yield_until(subscriptions, 10.001) == pytest.approx(10.006)  # 3 ms, and three times what the release took
    assert yield_until(subscriptions, 11.0) == NEVER  # they have had their chance
    assert yield_until(subscriptions, 11.0, turn=True) == pytest.approx(11.006)


def test_our_own_subscription_is_nobody_else():
    subscriptions, _ = listening()
    confirm(subscriptions, 0, 1, 2)
    subscriptions.released([KEY], {0: 1, 1: 1, 2: 1}, took=0.001, now=10.0)
    assert not subscriptions.contended
    subscriptions.released([KEY], {0: 1, 1: 2}, took=0.001, now=10.0)
    assert subscriptions.contended


def test_when_nobody_else_listens_any_more_nobody_is_let_first():
    subscriptions = Subscriptions(N)
    subscriptions.released([KEY], {0: 1}, took=0.001, now=10.0)
    subscriptions.released([KEY], {}, took=0.001, now=10.1)
    assert not subscriptions.contended


def test_crowds_do_not_pile_up():
    subscriptions = Subscriptions(N)
    for number in range(10_000):
        subscriptions.released([f"redlock:{number}"], {0: 1}, took=0.001, now=float(number))
    assert len(subscriptions.contended) < 100


# -- who watches -------------------------------------------------------------------------------------


def watching(subscriptions: Subscriptions) -> Subscription:
    watcher = Subscription([KEY], N, watches=True)
    subscriptions.add(watcher)
    return watcher


def test_all_who_watch_are_told_beside_the_waiter_in_line():
    subscriptions, waiter = listening()
    watchers = [watching(subscriptions), watching(subscriptions)]
    assert confirm(subscriptions, 0, 1, 2) == [waiter, *watchers]
    assert announce(subscriptions, 0, 1, 2) == [waiter, *watchers]
    subscriptions.remove(waiter, 0.0)
    assert announce(subscriptions, 0, 1, 2, token=b"next") == watchers
    subscriptions.remove(watchers[0], 0.0)
    subscriptions.remove(watchers[0], 0.0)
    assert announce(subscriptions, 0, 1, 2, token=b"another") == watchers[1:]


def test_a_channel_is_forgotten_when_the_last_one_has_gone():
    subscriptions, waiter = listening()
    watcher = watching(subscriptions)
    subscriptions.remove(waiter, 0.0)
    subscriptions.forget_idle(2 * LINGER)
    assert subscriptions.channels == [CHANNEL]
    subscriptions.remove(watcher, 2 * LINGER)
    subscriptions.forget_idle(2.5 * LINGER)
    assert subscriptions.channels == [CHANNEL]
    subscriptions.forget_idle(3 * LINGER)
    assert subscriptions.channels == []


def test_who_watches_leaves_the_pauses_of_the_waiters_alone():
    subscriptions, waiter = listening()
    watcher = watching(subscriptions)
    waiter.tried(collided=True)
    subscriptions.remove(waiter, 0.0)
    subscriptions.remove(watcher, 0.0)
    following = Subscription([KEY], N)
    subscriptions.add(following)
    assert following.level == 1
