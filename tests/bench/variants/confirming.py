"""What was broken in how an expiry is confirmed by more than one clock (R35)."""

from __future__ import annotations

from tests.bench.library import Patch
from tests.bench.variants.variant import broken

_EXTENDED = "return stamp .. ' ' .. ttl"
_LATER = "(tonumber(before) or math.huge) >= tonumber(stamp)"


def _both(old: str, new: str) -> tuple[Patch, Patch]:
    """In each script that extends."""
    return Patch("extend_recorded.lua", old, new), Patch("renew_recorded.lua", old, new)


VARIANTS = {
    "trusts-expiry": broken(
        "A name is free where its key is gone, as the clock of that master has it (R35)",
        "test_confirmed.test_kleppmanns_client_is_refused",
        Patch("acquire_recorded.lua", "elseif stamp and not found then", "elseif false then"),
        Patch("acquire_recorded.lua", "ARGV[2], 'NX', 'PX', ARGV[6]", "ARGV[2], 'PX', ARGV[6]"),
    ),
    "one-fewer-is-enough": broken(
        "As many masters as may be wrong about time say that it has run out (R35)",
        "test_confirmed.test_kleppmanns_client_is_refused_by_three_masters",
        Patch("redlock._core.confirm.expiry", "if times > wrong and not", "if times > max(0, wrong - 1) and not"),
    ),
    "no-stamp": broken(
        "The extensions of a lease look alike on record (R35)",
        "test_confirmed.test_two_masters_that_show_different_extensions_are_no_two_witnesses",
        *_both(_EXTENDED, "return '0 ' .. ttl"),
        Patch("renew_recorded.lua", "if not number or", "if true or not number or"),
    ),
    "stamp-used-twice": broken(
        "Two extensions of a lease have the same stamp, and a master minds only a smaller one (R35)",
        "test_confirmed.test_two_masters_that_show_different_extensions_are_no_two_witnesses",
        *_both(_LATER, "(tonumber(before) or math.huge) > tonumber(stamp)"),
        Patch("redlock._core.settings", "count(1).__next__", "count(1, 0).__next__"),
    ),
    "stamps-go-down": broken(
        "An extension that comes late puts its stamp in place of a later one (R35)",
        "test_wrong_clocks.test_an_earlier_extension_that_comes_late",
        *_both(_LATER, "false"),
    ),
    "no-record-of-an-extension": broken(
        "An extension leaves nothing on record, as one by a client that knows no records (R35)",
        "test_wrong_clocks.test_a_lease_that_is_handed_over",
        Patch("extend_recorded.lua", "redis.call('SET', KEYS[2 * n + i], records[i], 'PX', ARGV[5])", ""),
    ),
    "extends-only-its-own-record": broken(
        "An extension puts nothing on record where nothing is (R35)",
        "test_wrong_clocks.test_an_extension_on_a_master_that_was_given_the_key_back",
        Patch(
            "extend_recorded.lua",
            "redis.call('SET', KEYS[2 * n + i], records[i], 'PX', ARGV[5])",
            "if recorded(KEYS[2 * n + i]) then redis.call('SET', KEYS[2 * n + i], records[i], 'PX', ARGV[5]) end",
        ),
    ),
    "counted-and-not-taken": broken(
        "What has run out for certain is a vote, and nothing is taken or written there (R35)",
        "test_wrong_clocks.test_two_clients_that_are_shown_the_same_by_the_same_masters",
        Patch("confirm.lua", "if failure or (", "if not failure then return {1, ARGV[3]} end\nif failure or ("),
    ),
    "answers-of-any-moment": broken(
        "All have answered, and none says that it is held by the client on record: that lease is over (R35)",
        "test_wrong_clocks.test_answers_that_are_not_of_one_moment",
        Patch(
            "redlock._core.confirm.expiry",
            'return Judgement("open" if missing else "doubt")',
            "over = {(name, *one[:2]) for records in shown.values() for name, one in records.items()}\n"
            '    return Judgement("open" if missing else "confirmed", over)',
        ),
    ),
    "names-add-up": broken(
        "A master that shows the same lease for two names is two witnesses (R35)",
        "test_wrong_clocks.test_two_names_on_one_master_are_no_two_witnesses",
        Patch(
            "redlock._core.confirm.expiry",
            "if times > wrong and",
            "if sum(alike[of] for of in alike if of[1:] == one[1:]) > wrong and",
        ),
    ),
    "compared-by-token": broken(
        "The second round compares whose record is there, and not of which extension (R35)",
        "test_wrong_clocks.test_a_phantom_that_comes_late",
        Patch("confirm.lua", "ARGV[one] == here", "string.match(ARGV[one], ' (.*)$') == string.match(here, ' (.*)$')"),
    ),
    "phantom-without-a-look": broken(
        "A phantom is left wherever no client holds the name, whatever is on record by now (R35)",
        "test_wrong_clocks.test_a_phantom_that_comes_late",
        Patch("confirm.lua", "not found and ARGV[one] == here", "not found and (value ~= token or ARGV[one] == here)"),
    ),
    "repaired-anywhere": broken(
        "A key is given back wherever no client holds the name, whichever is on record (R14, R35)",
        "test_wrong_clocks.test_a_key_is_not_given_back_where_another_client_is_on_record",
        Patch("repair_recorded.lua", "or (whose and whose ~= token and tonumber(its_fence) > fence)", ""),
    ),
    "rollback-is-a-release": broken(
        "A failed attempt takes away what is on record from before: its fence is greater than that of the lease (R35)",
        "test_wrong_clocks.test_a_rollback_takes_nothing_off_the_record",
        Patch("release_recorded.lua", "tonumber(ARGV[2]) or -1", "tonumber(ARGV[2]) or math.huge"),
    ),
    "any-release-clears": broken(
        "A release takes away what is on record, whatever its fence (R35)",
        "test_wrong_clocks.test_a_release_takes_only_what_is_older_off_the_record",
        Patch("release_recorded.lua", "(whose and tonumber(its_fence) <= fence)", "whose"),
    ),
    "fence-from-its-key": broken(
        "A release compares its fence with the one at the fence key, and not with the one on record (R35)",
        "test_wrong_clocks.test_a_fence_key_that_is_lost",
        Patch(
            "release_recorded.lua",
            "whose and tonumber(its_fence) <= fence",
            "whose and tonumber(redis.call('GET', (string.gsub(key, ':grant$', ':fence'))) or '0') <= fence",
        ),
    ),
    "kept-although-it-is-over": broken(
        "A release with `hold_at_least` keeps a name whose key was not there any more (R28, R35)",
        "test_wrong_clocks.test_a_lease_that_is_over_is_kept_from_no_client_by_its_release",
        Patch(
            "release_recorded.lua",
            "  forget(KEYS[n + i], token, fence)\n  local mine = ours",
            "  local _, _, _, whose = recorded(KEYS[n + i])\n"
            "  forget(KEYS[n + i], token, fence)\n  local mine = ours or whose == token",
        ),
    ),
    "phantom-too-short": broken(
        "A phantom lasts for a third of what it hides (R35)",
        "test_confirmed.test_behind_a_client_that_keeps_no_records",
        Patch(
            "redlock._core.confirm.ballot",
            "call = records.confirm(keys, token, ttl,",
            "call = records.confirm(keys, token, 0.3 * ttl,",
        ),
    ),
    "ttl-by-the-clock-of-a-master": broken(
        "A phantom lasts for as long as a master says that the record has left (R35)",
        "test_confirmed.test_behind_a_client_that_keeps_no_records",
        Patch("redlock._core.confirm.ballot", "ttl = max(one.ttl for", "ttl = max(0.02 for"),
    ),
    "rollback-takes-back-the-phantom": broken(
        "The rollback behind a phantom takes it back, too (R35)",
        "test_confirmed.test_behind_a_client_that_keeps_no_records",
        Patch(
            "release_recorded.lua",
            "if whose == token or",
            "if (whose or '') == 'expired:' .. token or",
        ),
        Patch(
            "release_recorded.lua",
            "local mine = ours",
            "local mine = ours or redis.pcall('GET', KEYS[i]) == 'expired:' .. token",
        ),
    ),
    "each-phantom-agrees-with-none": broken(
        "What masters show of one phantom differs, so its end is not confirmed (R35, P3)",
        "test_confirmed.test_behind_a_client_that_keeps_no_records",
        Patch("confirm.lua", "'0 ' .. ttl", "'r' .. redis.call('TIME')[2] .. ' ' .. ttl"),
    ),
    "phantoms-anywhere": broken(
        "A phantom goes to all masters at once, so those of several waiters split them (R35, P3)",
        "test_confirmed.test_waiters_get_through_in_little_more_than_one_ttl",
        Patch(
            "redlock._core.confirm.ballot",
            "        placed = PhantomRound(settings, call, frozenset((first,)))\n",
            "        yield Send(call, to=frozenset((first, *others)))\n        return\n"
            "        placed = PhantomRound(settings, call, frozenset((first,)))\n",
        ),
    ),
    "phantom-a-moment-early": broken(
        "An attempt does not wait for a key that ends soon, and leaves a phantom (R35, P3)",
        "test_confirmed.test_a_client_that_only_tries_waits_for_a_key_that_ends_soon",
        Patch("redlock._core.confirm.ballot", "if soon and not (before and before.doubt.soon):", "if False:"),
    ),
    "readers-behind-a-record": broken(
        "Readers stay out for as long as a writer that vanished is on record (R33, R35)",
        "test_confirmed.test_readers_come_in_behind_a_writer_that_vanished",
        Patch("redlock._core.confirm.ballot", 'else self.judgement.verdict == "confirmed"', "else False"),
        Patch("redlock._core.confirm.ballot", 'if self.judgement.verdict != "doubt" or', "if True or"),
    ),
}
