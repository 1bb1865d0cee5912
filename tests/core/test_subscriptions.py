"""What is heard of releases, and who is told (R24): `Subscription` and `Subscriptions`, without an operation."""

from __future__ import annotations

import pytest

from redlock._core.local_queue import LocalQueue
from redlock._core.subscriptions import Subscription, Subscriptions

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


def another(subscriptions: Subscriptions, *keys: str, watches: bool = False) -> Subscription:
    subscription = Subscription(keys or (KEY,), N, watches=watches)
    subscriptions.add(subscription)
    return subscription


def listening(*keys: str) -> tuple[Subscriptions, Subscription]:
    subscriptions = Subscriptions(N)
    return subscriptions, another(subscriptions, *keys)


@pytest.mark.parametrize(("heard", "refused"), [
    pytest.param("t0 t1 t2! t3 t4", None, id="the-third-of-five-tells-and-the-rest-says-nothing-new"),
    pytest.param("t0 t0 t0 t0", None, id="one-master-that-repeats-itself-is-one-master"),
    pytest.param("a0 a1 b2!", None, id="those-who-split-the-votes-and-took-them-back-count-together"),
    # They granted it, or their votes do not count: what is released there changes nothing (R25).
    pytest.param("o2 o3 o4 a2 a3 b4", {0, 1}, id="masters-that-did-not-stand-in-the-way-say-nothing-new"),
    pytest.param("o2 o3 o4 o1! t0 t2 t3!", {0, 1}, id="until-one-of-those-that-refused-it-does"),
    pytest.param("a0 a1 | b2", None, id="what-came-before-an-attempt-does-not-add-up-with-what-comes-after"),
    # It was on its way when the attempt was made, which may have come too early on some masters.
    pytest.param("t0 t1 | t2!", None, id="the-same-release-adds-up-across-an-attempt"),
    pytest.param("t0 t1 t2! | t3 t4 n0 n1 n2!", None, id="an-attempt-has-used-what-was-heard"),
    pytest.param("+0 +1 +2! +3 +4", None, id="subscribed-at-a-majority-one-looks-again"),
    # A release may have been missed meanwhile.
    pytest.param("+0 +1 +2! | x2 +2!", None, id="a-connection-that-broke-confirms-anew"),
    pytest.param("+0 +1 -1 +2 +1!", None, id="what-was-unsubscribed-is-not-confirmed"),
])  # fmt: skip
def test_what_tells_whoever_waits_to_look(heard: str, refused: set[int] | None) -> None:
    """``t0``: master 0 announces the token ``t``; ``!``: that tells; ``|``: an attempt is made.

    ``+0``: it confirms our subscription, ``-0``: its end; ``x0``: its connection breaks.
    """
    subscriptions, subscription = listening()
    if refused is not None:
        subscription.refused(refused)
    released = 0
    for word in heard.split():
        if word == "|":
            subscription.attempting()
            released = 0
            assert not subscription.look
            continue
        master, told = int(word[1]), []
        if word[0] == "x":
            subscriptions.lost(master)
        elif word[0] == "-":
            subscriptions.unconfirmed(master, CHANNEL)
        elif word[0] == "+":
            told = confirm(subscriptions, master)
            assert subscription.look or not told
        else:
            told = announce(subscriptions, master, token=word[:1].encode())
            released += len(told)
        assert told == ([subscription] if word.endswith("!") else []), word
        assert subscription.released == released


def test_tokens_are_not_remembered_for_ever() -> None:
    _, subscription = listening()
    for number in range(10_000):
        subscription.hear(0, b"%d" % number)
    assert len(subscription._heard) < 100


def test_several_names_are_subscribed_when_all_of_them_are() -> None:
    other = "redlock:other"
    subscriptions, subscription = listening(KEY, other)
    confirm(subscriptions, 0, 1, 2)
    assert not subscription.look
    assert confirm(subscriptions, 2, 3, 4, channel=other + ":released") == [subscription]
    assert announce(subscriptions, 0, 1, 2, channel=other + ":released", token=b"x") == [subscription]


def test_the_more_attempts_collide_the_later_and_the_next_one_knows() -> None:
    """Up to a limit; and nobody waits any more when they no longer do."""
    subscriptions, subscription = listening()
    assert subscription.spread == 0
    spreads = []
    for _ in range(100):
        subscription.tried(collided=True)
        spreads.append(subscription.spread)
    assert spreads[:2] == pytest.approx([0.0005, 0.0015])
    assert spreads == sorted(spreads)
    assert 0.1 < spreads[-1] < 0.2
    watcher = another(subscriptions, watches=True)
    subscriptions.remove(subscription, 0.0)
    subscriptions.remove(watcher, 0.0)  # who only watches leaves the pauses of the waiters alone
    following = another(subscriptions)
    assert following.spread == spreads[-1]
    for _ in range(100):
        following.tried(collided=False)
    assert following.spread == 0


def test_the_spread_may_be_as_long_as_many_attempts() -> None:
    """Pauses shorter than attempts keep nobody apart: far away masters had contenders split the votes for ever (R25)."""
    _, subscription = listening()
    for _ in range(100):
        subscription.tried(collided=True, took=0.1)
    assert subscription.spread == pytest.approx(1.6)
    subscription.tried(collided=True, took=0.001)
    assert 0.1 < subscription.spread < 0.2, "the attempts are short again"


def test_our_own_subscription_is_nobody_else() -> None:
    subscriptions, _ = listening()
    assert subscriptions.others_heard([KEY], {0: 1, 2: 1})
    confirm(subscriptions, 0, 1, 2)
    assert not subscriptions.others_heard([KEY], {0: 1, 1: 1, 2: 1})
    assert subscriptions.others_heard([KEY], {0: 1, 1: 2})
    assert not subscriptions.others_heard([KEY], {})


def test_crowds_do_not_pile_up() -> None:
    local_queue = LocalQueue()
    for number in range(10_000):
        local_queue.released((f"redlock:{number}",), took=0.001, now=float(number), others=True)
    assert len(local_queue.contended) < 100
