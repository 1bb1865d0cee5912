"""What was broken where clients wait: the line inside a process (R23), releases that are announced (R24), one try (C3)."""

from __future__ import annotations

from tests.bench.library import Patch
from tests.bench.variants.variant import broken

_HEARD = "redlock._core.subscriptions"

VARIANTS = {
    # -- the line inside a process --
    "line-remembers-who-gave-up": broken(
        "A waiter that gives up keeps its place, and the waiters behind it never have a turn (R23)",
        "test_waiting.test_a_waiter_that_gave_up_is_not_waited_for_by_those_behind_it",
        Patch(
            "redlock._core.local_queue",
            "            return self._next(place, readers=True)\n",
            "            return self._next(place, readers=True)\n        if not place.turn:\n            return []\n",
        ),
    ),
    "line-blocked-by-a-lost-lease": broken(
        "A lost lease keeps its place in front until it is released, perhaps never (R23)",
        "test_loss.test_a_lease_whose_owner_has_ended_without_releasing_is_renewed_no_more",
        Patch("redlock._io.renewer", "for effect in leave_line(renewal.lease):", "for effect in ():"),
    ),
    # -- waiting for a release --
    "subscribed-without-a-look": broken(
        "A waiter subscribes and then waits: it misses a release before the subscription (R24)",
        "test_heard.test_a_release_before_it_had_subscribed_is_not_missed",
        Patch(
            _HEARD,
            "        return all(self._channels[name].confirmed.bit_count() >= self._need for name in subscription.channels)",
            "        return False",
        ),
    ),
    "no-look-where-subscribed-before": broken(
        "A waiter that listens on a channel that is on already does not look again (R24)",
        "test_heard.test_a_release_that_came_while_a_process_stood_still_is_not_missed_by_its_next_waiter",
        Patch(_HEARD, "subscription.look = self._is_on(subscription)", "subscription.look = False"),
    ),
    "broken-subscriber-taken-for-a-good-one": broken(
        "A subscription on a connection that broke still counts: no look when it is back (R24)",
        "test_heard.test_a_release_while_its_connections_were_broken_is_not_missed",
        Patch(_HEARD, "            self.unconfirmed(master, name)", "            pass"),
    ),
    "deaf-while-it-attempts": broken(
        "An announcement during an attempt is forgotten at its end (R24)",
        "test_heard.test_an_announcement_during_an_attempt_leads_to_another_one",
        Patch(_HEARD, "        if collided:\n", "        self.attempting()\n        if collided:\n"),
    ),
    "all-must-announce": broken(
        "A release counts when every master has announced it (R24)",
        "test_heard.test_a_release_that_a_bare_majority_announces_is_enough",
        Patch(
            _HEARD,
            "the driver's\n        self._need = majority(masters)",
            "the driver's\n        self._need = masters",
        ),
    ),
    "announcements-mixed-up": broken(
        "Of the releases that some masters have announced only the latest is remembered (R24)",
        "test_heard.test_an_announcement_is_remembered_among_others_and_across_an_attempt",
        Patch(_HEARD, "_MANY = 64", "_MANY = 1"),
    ),
    "another-subscription-removed": broken(
        "An operation that ends takes away the subscriptions of other waiters (R24)",
        "test_heard.test_a_waiter_still_hears_when_another_one_of_its_process_has_gone_home",
        Patch(
            _HEARD,
            "tuple(other for other in channel.listeners if other is not subscription)",
            "()",
        ),
    ),
    "nothing-announced": broken(
        "Masters release and announce nothing (R24)",
        "test_heard.test_a_release_wakes_a_waiter_that_has_asked_twice_until_then",
        Patch("release.lua", "redis.pcall('PUBLISH', channel, message)", "0"),
    ),
    "announced-elsewhere": broken(
        "Masters announce on another channel than the subscribed one (R24)",
        "test_heard.test_a_release_wakes_a_waiter_that_has_asked_twice_until_then",
        Patch("release.lua", "':released'", "':gone'"),
    ),
    "apart-for-ever": broken(
        "The pause that keeps contenders apart grows without end (R24)",
        "test_heard.test_the_pause_that_keeps_contenders_apart_does_not_grow_without_end",
        Patch(_HEARD, "_MOST_SPREAD = 8", "_MOST_SPREAD = 40"),
        Patch(_HEARD, "_CALM = 0.25", "_CALM = 0.0"),
    ),
    "only-when-told": broken(
        "A waiter that listens does not try again before it hears something (R24)",
        "test_heard.test_where_no_announcement_is_permitted_a_waiter_tries_again_after_its_pause",
        Patch(
            "redlock._core.acquire",
            "        return (yield from pause(self, refusal, until))",
            "        listens = self.subscription is not None and refusal.kind == 'held'\n"
            "        return (yield from pause(self, refusal, math.inf if listens else until))",
        ),
    ),
    "others-first-for-ever": broken(
        "A client that lets others go first waits until they have had the lock, and they may never take it (R24)",
        "test_heard.test_a_process_that_lets_others_go_first_does_not_wait_for_one_that_stands_still",
        Patch("redlock._core.acquire", "isinstance((yield from wait(until)), Timeout)", "isinstance((yield from wait(math.inf)), Timeout)"),
    ),
    "rollback-taken-for-a-release": broken(
        "A rollback is a reason to try again also for a waiter that no master had refused (R25)",
        "test_heard.test_waiters_do_not_wake_themselves_where_one_master_refuses_and_one_may_not_vote",
        Patch(_HEARD, "        self._in_the_way = sum(1 << master for master in in_the_way)", "        pass"),
    ),
    "tried-again-at-once": broken(
        "No pause between two attempts where nothing is heard (R25)",
        "test_heard.test_a_release_wakes_a_waiter_that_has_asked_twice_until_then",
        Patch("redlock._core.acquire", "until = refusal.at + delay(self.spec.retry, failed)", "until = refusal.at"),
    ),
    "outage-taken-for-a-holder": broken(
        "A client with too few votes waits for a release, and rollbacks of failed attempts wake such clients (R24)",
        "test_heard.test_waiters_do_not_wake_each_other_where_a_majority_answers_too_late",
        Patch("redlock._core.kernel.ballot", 'return Refusal("unreachable", tally, at)', 'return Refusal("held", tally, at)'),
    ),
    "channel-left-behind": broken(
        "A channel without waiters stays subscribed (R24)",
        "test_heard.test_of_a_waiter_that_gave_up_no_channel_and_no_connection_is_left",
        Patch(_HEARD, "if not channel.listeners and now - channel.idle_since >= LINGER:", "if False:"),
    ),
    "subscriber-left-behind": broken(
        "The connections of waiters stay when no channel is left (R24)",
        "test_heard.test_of_a_waiter_that_gave_up_no_channel_and_no_connection_is_left",
        Patch("redlock._io.connections", "if subscriber.sock is not None and not self.wanted(subscriber):", "if False:"),
    ),
    # -- one try --
    "refused-by-those-who-are-refused": broken(
        "A single try takes contenders for holders, and gives up as they do (C3)",
        "test_waiting.test_of_clients_that_try_once_at_the_same_moment_one_gets_it",
        Patch("redlock._core.patience", "MOST = 4", "MOST = 0"),
    ),
    "tries-for-as-long-as-somebody-has-it": broken(
        "A single try does not believe that another client holds the lock (C3)",
        "test_waiting.test_no_other_client_is_granted_a_name_while_a_client_waits_in_order",
        Patch(
            "redlock._core.acquire",
            "    return not (refusal.contended and",
            "    if refusal.kind == 'held':\n        yield from sleep(refusal.at + 0.05)\n        return False\n"
            "    return not (refusal.contended and",
        ),
    ),
    # -- outages --
    "outage-never-anew": broken(
        "An outage counts from the call, although a majority took part meanwhile (R38)",
        "test_outages.test_an_outage_counts_from_the_last_attempt_in_which_a_majority_took_part",
        Patch("redlock._core.patience", "self.since = at if took_part else min(self.since + late, at)", "pass"),
    ),
    "outage-for-ever": broken(
        "An outage ends no wait (R38)",
        "test_outages.test_each_waits_through_an_outage_for_a_time_of_its_own_in_line_or_in_front_of_it",
        Patch("redlock._core.patience", "return min(self.deadline, self.since + self._outage_timeout)", "return self.deadline"),
    ),
    # -- what the log says of long waits --
    "each-waiter-reports": broken(
        "Each waiter says who is in its way, a thousand in one minute (R45)",
        "test_long_waits.test_a_process_that_waits_says_for_whom_after_ten_seconds_and_each_minute",
        Patch("redlock._core.long_waits", "        if at < due:\n", "        if False:\n"),
    ),
    "waits-in-line-in-silence": broken(
        "A waiter that stands behind a holder of its own process says nothing (R45)",
        "test_long_waits.test_a_holder_of_the_same_process_is_in_the_way_as_well",
        Patch("redlock._core.acquire", "target.wait(until, quiet=True)", "wait(until, quiet=True)"),
    ),
}  # fmt: skip
