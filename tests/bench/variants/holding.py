"""How a lease is kept, and how it ends: renewals, rounds for many, `max_hold`, guards, `hold_at_least`; and who looks."""

from __future__ import annotations

from tests.bench.library import Patch
from tests.bench.variants.variant import broken

_KEEPER = "redlock._core.renewals"
_LEASE = "redlock._core.lease"
_EXTEND = "redlock._core.kernel.extension"
_LOOKS = "redlock._core.watch"

VARIANTS = {
    "lost-told-late": broken(
        "No alarm at the end of the time: the next renewal finds that the lease is lost (P6)",
        "test_loss.test_a_lease_that_is_not_renewed_is_lost_at_its_end",
        Patch(_KEEPER, "until = min(end, self._max_hold_at", "until = min(self._max_hold_at"),
        Patch(_KEEPER, "self.soonest = lease.valid_until - lease.ttl * _MOST_REMAINING", "self.soonest = math.inf"),
    ),
    "told-twice": broken(
        "Each look that finds the lease lost tells its holder, although it was told before (C9)",
        "test_loss.test_a_lease_is_lost_in_time_although_every_master_hangs",
        Patch(_KEEPER, "        if not self._loss_reported:\n", "        if True:\n"),
    ),
    "told-after-release": broken(
        "A lease that was released is lost when its time is up (C8, C9)",
        "test_loss.test_a_release_is_no_loss_in_the_log",
        Patch(
            _LEASE,
            "        if self.released or not self.begun or self.clock()",
            "        if not self.begun or self.clock()",
        ),
        Patch(_LEASE, "        return self.released or self.lost\n", "        return self.lost\n"),
        Patch(
            _KEEPER,
            "        if lease.released or lease.lost:\n",
            "        if lease.released and not lease.lost:\n            return lease.valid_until\n        if lease.lost:\n",
        ),
    ),
    "renewer-after-release": broken(
        "What the renewer has in hand is written, whatever was written meanwhile (R14)",
        "test_renewal.test_a_key_that_is_about_to_be_given_back_is_not_written_behind_the_release",
        Patch(
            "redlock._core.exchange",
            "        if request.only_if is not None and not request.only_if():\n",
            "        if False:\n",
        ),
    ),
    "late-repair-after-release": broken(
        "A master that says after the majority that it has no key gets it, whatever has become of the lease (R14)",
        "test_renewal.test_a_master_that_says_late_that_it_has_no_key_gets_none_behind_the_release",
        Patch(
            "redlock._core.pipeline", "            if one.only_if is None or one.only_if():\n", "            if True:\n"
        ),
    ),
    "never-made-whole": broken(
        "A grant is left on the majority that granted it (R37)",
        "test_renewal.test_masters_that_refused_a_grant_get_its_key_soon",
        Patch("redlock._core.whole", "return [] if lease.last is None", "return [] if True"),
    ),
    "made-whole-when-it-is-over": broken(
        "What is to make a lease whole is written, whatever has become of the lease (R37)",
        "test_renewal.test_a_key_that_is_about_to_be_given_back_is_not_written_behind_the_release",
        Patch(
            _EXTEND,
            "only_if = (lambda: lease.valid) if wanted is None else (lambda: lease.valid and wanted())",
            "only_if = (lambda: lease.valid) if wanted is None else (lambda: True)",
        ),
    ),
    "repairs-counted-as-votes": broken(
        "A master that gets the key back has extended it (R14, R37)",
        "test_renewal.test_what_becomes_of_each_of_many_leases_that_are_renewed_together",
        Patch(
            _EXTEND,
            "        return (outcome if self.others is before",
            '        return ("granted" if master in self.missing else outcome if self.others is before',
        ),
    ),
    # -- the guard (R36) --
    "lost-and-released-at-once": broken(
        "A client that finds a lease lost releases it, whatever its holder has under way (R36)",
        "test_hold_at_least.test_after_a_loss_the_guard_and_after_a_release_nothing",
        Patch(_LEASE, "return self.handed_over or (bool(self.guarded) and", "return self.handed_over or (False and"),
    ),
    "valid-while-it-guards": broken(
        "A lease is valid for as long as masters keep its keys (R36)",
        "test_hold_at_least.test_after_a_loss_the_guard_and_after_a_release_nothing",
        Patch(
            "redlock._core.kernel.attempt",
            "validity.valid_until(ballot.sent_at, spec.ttl,",
            "validity.valid_until(ballot.sent_at, spec.lasts,",
        ),
    ),
    "guard-beyond-max-ttl": broken(
        "Keys live longer than a master that has forgotten them is kept from voting (R21, R36)",
        "test_hold_at_least.test_keys_live_no_longer_than_max_ttl_with_their_guard",
        Patch("redlock._lock.times", "    if ttl + guard > limits.max_ttl:\n", "    if False:\n"),
    ),
    "keys-without-a-guard": broken(
        "Masters keep keys for the TTL alone, and their clocks step by up to the guard (R36)",
        "test_hold_at_least.test_clocks_that_step_by_less_than_the_guard_give_a_name_away_to_no_one",
        Patch("redlock._core.kernel.attempt", "spec.ttl + spec.guard, proposal", "spec.ttl, proposal"),
        Patch("redlock._core.lease", "self.token, ttl + self.guarded, settings", "self.token, ttl, settings"),
        Patch("redlock._core.extend_many", "ttl + one.lease.guarded", "ttl"),
    ),
    # -- who keeps it, and for how long (R13, R15, C7) --
    "released-lease-renewed": broken(
        "Nobody tells the renewer of a release (R15)",
        "test_hand_over.test_a_text_that_is_lost_leaves_the_name_for_one_ttl",
        Patch(
            _LEASE,
            "        if self.released or self._lost is not None or not self.mine():\n            return False\n",
            "",
        ),
        Patch(
            _LEASE,
            "        return self.released or self.lost\n",
            "        return self.lost or self.clock() >= self.valid_until\n",
        ),
        Patch(_KEEPER, "        if lease.released or lease.lost:\n", "        if lease.over:\n"),
        Patch(
            "redlock._lock.holds",
            '        return "perhaps" if perhaps else',
            '        return "here" if self.state.released else "perhaps" if perhaps else',
        ),
    ),
    "sent-again-behind-a-later-one": broken(
        "An extension that is over is sent again, to a master that had forgotten its script, behind a later one (R12)",
        "test_renewal.test_an_extension_that_is_over_does_not_come_behind_a_later_one",
        Patch("redlock._core.pipeline", '"acquire", "extend",', '"acquire",'),
    ),
    "renewer-outlives-owner": broken(
        "A lease is renewed for as long as the process lives, whoever owned it (R15)",
        "test_loss.test_a_lease_whose_owner_has_ended_without_releasing_is_renewed_no_more",
        Patch(
            "redlock._lock.holds",
            "            elif hold.bound_by_hand and not self.holder.alive():\n",
            "            elif False:\n",
        ),
    ),
    "abandoned-lease-runs-out": broken(
        "What nobody can release any more stays for its TTL (R15)",
        "test_renewal.test_a_lease_that_nobody_can_release_any_more_is_released_at_once",
        Patch("redlock._lock.holds", 'return "perhaps" if perhaps else "abandoned"', 'return "gone"'),
    ),
    "renewal-gives-up": broken(
        "A renewal that too few have answered is taken for a loss (R13)",
        "test_renewal.test_a_renewal_that_nobody_answers_takes_nothing_away",
        Patch(_LEASE, '        self._late = "unreachable"\n', '        self.lose("unreachable")\n'),
    ),
    "renewal-not-tried-again": broken(
        "A renewal that too few have answered was the last one (R13)",
        "test_renewal.test_a_renewal_that_nobody_answers_takes_nothing_away",
        Patch(_KEEPER, "= lease.ttl * _RETRY, lease.valid_until", "= math.inf, lease.valid_until"),
    ),
    "renewal-without-pause": broken(
        "A renewal that too few have answered is tried again at once (R13)",
        "test_renewal.test_renewals_are_tried_again_with_pauses_while_all_masters_are_down",
        Patch(_KEEPER, "_RETRY = 1 / 20", "_RETRY = 1 / 500"),
        Patch(_KEEPER, "_STEP = 1 / 32", "_STEP = 1 / 1024"),  # in one step nothing is tried twice
    ),
    "max-hold-ignored": broken(
        "A lease is kept for as long as it is used (C7)",
        "test_loss.test_max_hold_ends_a_lease_and_gives_its_keys_back",
        Patch(_KEEPER, "        if spec.max_hold is not None:\n", "        if False:\n"),
    ),
    "max-hold-keeps-the-keys": broken(
        "A lease that was held for as long as it may be is lost, and its keys stay (C7)",
        "test_loss.test_max_hold_ends_a_lease_and_gives_its_keys_back",
        Patch(
            _KEEPER,
            "        if not self.lease.guards:\n            yield release_lost",
            "        if False:\n            yield release_lost",
        ),
    ),
    # -- one round for many --
    "answers-of-others": broken(
        "In a round for many, what a master says of one lease is taken for what it says of the next (R12)",
        "test_renewal.test_what_becomes_of_each_of_many_leases_that_are_renewed_together",
        Patch(
            "redlock._core.wire",
            "            case bytes():\n                others[index] =",
            "            case bytes():\n                others[(index + 1) % leases] =",
        ),
    ),
    "one-answer-for-all": broken(
        "In a round for many, a master that still has one of the leases has them all (R12)",
        "test_renewal.test_what_becomes_of_each_of_many_leases_that_are_renewed_together",
        Patch(
            "redlock._core.wire",
            "                raise BadReply(_odd(answer))\n    return others\n",
            "                raise BadReply(_odd(answer))\n    return others if len(others) == leases else {}\n",
        ),
    ),
    "denied-one-denied-all": broken(
        "In a round for many, a lease that is lost takes the others with it (R13)",
        "test_renewal.test_what_becomes_of_each_of_many_leases_that_are_renewed_together",
        Patch(
            "redlock._core.extend_many",
            "        member.lease.end_extension(pending)\n        member.detach()\n",
            "        member.lease.end_extension(pending)\n        for one in asked:\n            one.lease.lose('expired')\n",
        ),
    ),
    "alone-and-forgotten": broken(
        "A lease that is not extended in a round for many is not tried again by itself (R13)",
        "test_renewal.test_what_becomes_of_each_of_many_leases_that_are_renewed_together",
        Patch(_KEEPER, "        self._since, self._pause = self.lease.clock(), 0.0\n", ""),
    ),
    # -- at least for so long (R28) --
    "released-at-once": broken(
        "A release deletes the key, however short the job was (R28)",
        "test_hold_at_least.test_a_release_before_the_time_gives_the_name_to_no_other_client",
        Patch(_LEASE, "        return self._since + self.hold_at_least - self.clock()\n", "        return 0.0\n"),
    ),
    "kept-without-drift": broken(
        "What is left of the time is counted by a master's clock as if that ran like ours (R28)",
        "test_hold_at_least.test_fast_clocks_of_masters_give_nothing_away_sooner",
        Patch(
            "redlock._core.lease",
            "return left + drift(left, drift_factor) if left > 0 else 0.0",
            "return max(left, 0.0)",
        ),
    ),
    "kept-longer-than-the-key": broken(
        "A release lengthens the life of a key (R28)",
        "test_hold_at_least.test_a_release_makes_no_key_live_longer",
        Patch("release.lua", "if left < 0 or left > keep then", "if true then"),
    ),
    "held-by-what-is-left": broken(
        "A grant of which little is left counts, and its holder may die (R28)",
        "test_hold_at_least.test_a_grant_that_leaves_less_than_that_is_none",
        Patch(
            "redlock._lock.times",
            "    return min(at_least, ttl - drift(ttl, factor) - node_timeout)\n",
            "    return 0.0\n",
        ),
    ),
    "rollback-keeps": broken(
        "What a failed attempt takes back stays for as long as a grant would have (R28)",
        "test_hold_at_least.test_an_attempt_that_fails_keeps_nothing",
        Patch(
            "redlock._core.kernel.rollback",
            "spec.mode.release(spec.keys, token, 0.0, None)",
            "spec.mode.release(spec.keys, token, spec.hold_at_least, None)",
        ),
    ),
    "given-back-at-once": broken(
        "What the renewer gives back, because nobody else can, is deleted (R28)",
        "test_hold_at_least.test_a_lease_that_ends_by_max_hold_is_kept_from_others_as_well",
        Patch(
            "redlock._core.kernel.release",
            "Send(_call(settings, spec, lease), to=lease.asked,",
            "Send(lease.mode.release(spec.keys, lease.token, 0.0, lease.fence), to=lease.asked,",
        ),
    ),
    # -- handed over (R10, C11) --
    "release-overtakes-the-acquire": broken(
        "A lease that was handed over is released once, although its acquire may still be on its way to a master (R10)",
        "test_hand_over.test_the_release_of_another_process_comes_before_the_acquire",
        Patch("redlock._core.doubt", "    if not lease.in_order:\n", "    if False:\n"),
    ),
    "repair-taken-for-the-acquire": broken(
        "A key that an extension has given back is taken for that of the acquire, which is still on its way (R10, R14)",
        "test_hand_over.test_the_release_of_another_process_comes_before_the_acquire",
        Patch(
            "redlock._core.doubt",
            "        self._repaired = lease.repaired\n",
            "        self._repaired = frozenset()\n",
        ),
    ),
    # -- who looks, and takes nothing (R24, R29, R41) --
    "free-where-one-says-so": broken(
        "A name is free as soon as one master has no holder for it (R24)",
        "test_looks.test_a_name_is_not_free_because_a_minority_has_lost_its_key",
        Patch(_LOOKS, "        return self._free() >= self.tally.need\n", "        return self._free() > 0\n"),
    ),
    "watched-free-where-one-says-so": broken(
        "A watcher takes a name for free as soon as one master has no holder for it (R41)",
        "test_looks.test_a_watcher_is_told_of_each_holder_once_and_of_a_free_name_when_it_is_free",
        Patch(
            _LOOKS,
            "            status = status_of(self._name, look.seen, look.tally)\n",
            "            status = status_of(self._name, look.seen, look.tally)\n"
            "            if any(not one.holder for one in look.seen.values()):\n"
            "                status = __import__('dataclasses').replace(status, token=None)\n",
        ),
        Patch(_LOOKS, "for seen in holds) < look.tally.need:\n", "for seen in holds) < 1:\n"),
    ),
    "watched-forgetfully": broken(
        "A watcher is told what it was told before (R41)",
        "test_looks.test_a_watcher_is_told_of_each_holder_once_and_of_a_free_name_when_it_is_free",
        Patch(_LOOKS, "        if what == self._last or 0 < fence < self._fence:\n", "        if False:\n"),
    ),
    "listed-from-the-first-master": broken(
        "What one master has is all that there is (R29)",
        "test_looks.test_a_list_has_each_lock_once_whichever_masters_have_its_key",
        Patch(
            "redlock._core.listing",
            "            for key in step.keys:\n",
            "            for key in [] if self._master else step.keys:\n",
        ),
    ),
}
