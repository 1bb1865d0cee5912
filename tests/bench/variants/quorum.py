"""What was broken in majorities, times, tokens, fences and restarts (R1-R21)."""

from __future__ import annotations

from tests.bench.library import Patch
from tests.bench.variants.variant import broken

VARIANTS = {
    "minority": broken(
        "Half of the masters are enough (R1)",
        "test_lock.test_any_set_of_two_masters_that_another_client_occupies",
        Patch("redlock._core.kernel.quorum", "return masters // 2 + 1", "return max(1, masters // 2)"),
    ),
    "no-drift": broken(
        "Clocks are taken to run at one rate (R6)",
        "test_quorum.test_a_lease_ends_earlier_than_its_keys_by_what_clocks_may_differ",
        Patch("redlock._core.kernel.validity", "return ttl * factor + ROUNDING", "return 0.0"),
    ),
    "failures-wake-nobody": broken(
        "A round that a failed connection decides goes on to the end of its time (R2)",
        "test_quorum.test_no_client_waits_for_the_rest_of_a_round_that_a_refused_connection_decides",
        Patch(
            "redlock._core.kernel.rounds",
            "        self.tally.fail(master, failure)\n        return self.decides(at)",
            "        self.tally.fail(master, failure)\n        return self.decides(at) and False",
        ),
    ),
    "validity-not-checked": broken(
        "A majority is enough, however late it came (R7)",
        "test_quorum.test_masters_that_grant_too_late_grant_nothing",
        Patch("redlock._core.kernel.attempt", "valid_until - at >= spec.min_validity and known", "known"),
    ),
    "wall-clock": broken(
        "Validity is measured on the wall clock, which can be set (R5)",
        "test_quorum.test_a_wall_clock_that_is_set_moves_the_end_of_no_lease",
        Patch("redlock._system.clock", "now = partial(time.clock_gettime, ", "now = time.time  # ("),
    ),
    "shortening-forgotten": broken(
        "An extension to a shorter TTL counts only once it is answered (C6)",
        "test_quorum.test_an_extension_to_a_shorter_ttl_counts_from_when_it_is_sent",
        Patch("redlock._core.lease", "shorter = valid_until < self.valid_until", "shorter = False"),
    ),
    # -- rollback and release --
    "no-rollback": broken(
        "A failed attempt leaves its keys to their TTL (R9)",
        "test_quorum.test_a_failed_attempt_is_taken_back_where_it_was_granted_and_where_masters_were_silent",
        Patch("redlock._core.kernel.rollback", "    if sent_at == NEVER:  # interrupted", "    if True:  # interrupted"),
    ),
    "rollback-only-where-granted": broken(
        "A failed attempt is not released on the masters that were silent (R9)",
        "test_quorum.test_a_failed_attempt_is_taken_back_where_it_was_granted_and_where_masters_were_silent",
        Patch(
            "redlock._core.kernel.rollback",
            "to=round_.reached(), owed_until=sent_at + 2 * spec.lasts",
            "to=frozenset(master for master in round_.reached() if round_.tally.outcome(master) == 'granted'),\n"
            "        owed_until=sent_at + 2 * spec.lasts",
        ),
    ),
    "release-not-owed": broken(
        "A release that a broken connection swallowed is not sent again (R10)",
        "test_lock.test_a_master_that_refuses_a_release_is_asked_again",
        Patch("redlock._core.pipeline", "for owed in self._owed if owed.sent_at <= at]\n", "for owed in ()]\n"),
    ),
    "one-token": broken(
        "One token for all attempts of a call: a late release of one removes the key of the next (R8)",
        "test_quorum.test_each_attempt_has_a_token_of_its_own",
        Patch("redlock._core.acquire", '"marks", "patience"', '"token", "marks", "patience"'),
        Patch("redlock._core.acquire", "        self.settings = settings\n", "        self.settings, self.token = settings, settings.token()\n"),
        Patch("redlock._core.kernel.attempt", "    token = settings.token()", "    token = request.token"),
    ),
    "release-without-owner-check": broken(
        "Any client that releases removes the key (P8)",
        "test_lock.test_any_set_of_two_masters_that_another_client_occupies",
        Patch("release.lua", "redis.pcall('GET', KEYS[1]) == ARGV[1]", "redis.pcall('GET', KEYS[1])"),
    ),
    # -- extension --
    "extension-resurrects": broken(
        "An extension sets keys that are gone, and a lease that has ended is valid again (R12)",
        "test_quorum.test_an_extension_brings_no_lost_lease_back",
        Patch(
            "redlock._core.lease",
            "        if self.released or self._lost is not None or not self.mine():\n            return False\n"
            "        return now < self.valid_until\n",
            "        return not self.released\n",
        ),
        Patch(
            "redlock._core.lease",
            'self._late = "expired"\n',
            'self._late, self._lost = "expired", None\n',
        ),
        Patch("redlock._core.kernel.extension", "lambda: not lease.over and", "lambda: not lease.released and"),
        Patch("redlock._core.kernel.extension", "claim.ask(lease.valid_until)", "claim.ask()"),
        Patch("extend.lua", "if redis.pcall('GET', KEYS[i]) ~= token", "if (redis.pcall('GET', KEYS[i]) or token) ~= token"),
        Patch("extend.lua", "redis.call('PEXPIRE', KEYS[i], ttl)", "redis.call('SET', KEYS[i], token, 'PX', ttl)"),
    ),
    "late-is-in-time": broken(
        "An extension that was answered in time counts, however late its operation comes to it (R12)",
        "test_quorum.test_an_extension_whose_answers_are_read_after_the_end_of_the_lease_comes_too_late",
        Patch(
            "redlock._core.lease",
            "return now < self.valid_until\n",
            "return now < self.valid_until or bool(self.all_pending)\n",
        ),
    ),
    # -- fencing --
    "fence-not-written-back": broken(
        "A fence is granted that is greater than all that were seen, and that no majority has stored (R17)",
        "test_quorum.test_fences_rise_whatever_the_wall_clocks_of_clients_show",
        Patch(
            "redlock._core.kernel.attempt",
            "                at = yield from second.ask(ballot.sent_at + settings.node_timeout)\n"
            "                fence, tally = second.proposal, second.tally",
            "                fence = second.proposal",
        ),
    ),
    "equal-fence": broken(
        "A master takes a fence equal to its own for a greater one (R18)",
        "test_quorum.test_a_fence_that_masters_have_already_is_not_granted_a_second_time",
        Patch("acquire.lua", "tonumber(ARGV[4]) > fence", "tonumber(ARGV[4]) >= fence"),
        Patch("acquire.lua", "stored < proposal", "stored <= proposal"),
        Patch("fence.lua", "proposal <= fence", "proposal < fence"),
    ),
    # -- restarted masters --
    "no-restart-guard": broken(
        "A master votes as soon as it is back, whatever it has forgotten (R21)",
        "test_lock.test_restarted_without_its_memory_a_master_may_not_give_away_what_it_forgot",
        Patch("redlock._core.voters", "        if at > self.votes_from[master]:\n", "        if True:\n"),
    ),
    "uptime-not-rounded": broken(
        "An uptime of 1 s is taken for a whole second, and may be hardly more than nothing (R21)",
        "test_quorum.test_an_uptime_of_one_second_may_be_hardly_more_than_nothing",
        Patch("redlock._core.voters", "max(0, facts.uptime - 1)", "facts.uptime"),
    ),
    # -- masters and connections --
    "keys-that-stay": broken(
        "A key has no expiry: the key of a crashed holder stays for ever (P3)",
        "test_lock.test_a_crashed_holder_blocks_a_name_for_its_ttl_at_most",
        Patch("acquire.lua", "redis.call('SET', KEYS[1], ARGV[2], 'NX', 'PX', ARGV[3])", "redis.call('SET', KEYS[1], ARGV[2], 'NX')"),
    ),
    "never-connected-again": broken(
        "A second handshake is ignored (P4)",
        "test_quorum.test_a_master_that_went_away_votes_again_when_it_is_back",
        Patch(
            "redlock._core.pipeline",
            "        self.down, self.expected, self.heard_at = None, False, at\n",
            "        if self.down is CONNECTING:\n            self.down, self.expected, self.heard_at = None, False, at\n",
        ),
    ),
}  # fmt: skip
