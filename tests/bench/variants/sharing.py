"""What was broken where several have a name, or wait for one: slots (R32), readers and writers (R33), in order (R42)."""

from __future__ import annotations

from tests.bench.library import Patch
from tests.bench.variants.variant import broken

_ADDED = "redis.call('ZADD', key, sign .. string.format('%.0f', now + ms), member)"
_ALL_OF_THEM = """
  for _, other in ipairs(redis.call('ZRANGE', key, 0, -1)) do
    redis.call('ZADD', key, sign .. string.format('%.0f', now + ms), other)
  end
"""

VARIANTS = {
    # -- slots (R32) --
    "a-counter-for-each-master": broken("Each master admits two, whatever slot was asked for: three majorities need have no master in common (R32)",
        "test_slots.test_each_client_reaches_two_masters_and_no_more_hold_a_slot_than_there_are",
        Patch("occupy.lua", "local found, _, wrong = holder(KEYS[slot])",
            "for i = 1, slots do\n    if redis.call('PTTL', KEYS[slot]) ~= -2 then\n      slot = i\n    end\n  end\n  local found, _, wrong = holder(KEYS[slot])"),
        Patch("vacate.lua", "for i = 1, n do",
            "for i = 1, n do\n  for other = 0, 1 do\n    local there = string.gsub(KEYS[i], '%d$', other)\n    if redis.call('GET', there) == token then\n      KEYS[i] = there\n    end\n  end")),
    "votes-for-different-slots-add-up": broken("An attempt for any of several slots counts what masters give, whichever slot it is (R1, R32)",
        "test_slots.test_clients_that_masters_give_different_slots_hold_different_slots",
        Patch("redlock._core.slots.target", "return self._others.get(master, self._asked[0]) if", "return self._asked[0] if")),
    "asks-for-one-slot-again-and-again": broken("A refused client asks for the same slot again, and does not pause (R25, R32)",
        "test_slots.test_a_client_that_waits_for_a_slot_pauses_and_the_release_of_any_wakes_it",
        Patch("redlock._core.slots.target", 'if refusal.kind == "held":',
            'if refusal.kind == "held":\n            self._ask(self.slot)\n            return None')),
    "slots-are-announced-one-by-one": broken("A release is announced to the waiters for this slot, and to none that waits for any (R32)",
        "test_slots.test_a_client_that_waits_for_a_slot_pauses_and_the_release_of_any_wakes_it",
        Patch("vacate.lua", ", ARGV[2], ARGV[before + i] .. ' ' .. token", "")),
    "one-slot-for-each-attempt": broken("A client that was refused asks for one of the free slots, and so do those that were refused with it (R32)",
        "test_slots.test_contenders_for_as_many_free_slots_need_two_rounds",
        Patch("redlock._core.slots.target", "self._asked.update(slots)\n        self.spec",
            "slots = slots[:1]\n        self._asked.update(slots)\n        self.spec")),
    # -- readers and writers (R33) --
    "one-ttl-for-all-readers": broken("A renewal renews all readers: a crashed one stays as long as another one reads (R33)",
        "test_shared.test_a_reader_that_crashed_is_over_after_its_ttl_although_another_reads_on",
        *(Patch(f"{one}.lua", _ADDED, _ADDED + _ALL_OF_THEM) for one in ("acquire_shared", "extend_shared"))),
    "readers-fence-not-written": broken("A reader takes the highest fence that it saw for its own, and no master stores it (R33)",
        "test_shared.test_fences_of_readers_and_writers_rise_whatever_the_wall_clocks_of_clients_show",
        Patch("acquire_shared.lua", "    redis.call('SET', fence_key, ARGV[4], 'PX', ARGV[5])\n", "")),
    "renewal-that-revives": broken("An extension enters a reader that is not there any more (R33)",
        "test_shared.test_a_reader_that_is_there_no_more_is_not_brought_back_by_its_renewal",
        Patch("extend_shared.lua", " or not redis.call('ZSCORE', KEYS[i], token)", "")),
    "a-writer-counts-no-readers": broken("A writer takes the name although another client reads (R33)",
        "test_lock.test_a_writer_waits_for_the_last_reader_and_is_woken", Patch("acquire.lua", "return 'shared:', left", "return nil, -2")),
    "readers-ignore-a-waiting-writer": broken("New readers come in while a writer waits (R33)",
        "test_shared.test_no_reader_comes_in_while_a_writer_waits_although_others_read_on",
        Patch("acquire_shared.lua", "if first < 0 then", "if false then")),
    "rollback-lets-readers-in": broken("A writer that waits leaves no mark where none reads, as where it has just taken back what it had got (R33)",
        "test_shared.test_new_readers_are_kept_away_from_the_masters_that_a_writer_has_just_given_back",
        Patch("mark.lua", "not found and ms > 0", "not found and ms > 0 and redis.call('ZCOUNT', key, '-inf', '+inf') > 0")),
    "marks-only-what-readers-refused": broken("After an attempt that failed for another reason, a writer that waits leaves no mark (R33)",
        "test_shared.test_a_writer_keeps_new_readers_away_after_an_attempt_that_was_granted_too_late",
        Patch("redlock._core.modes", "or not (by_readers or marks):", "or not by_readers:")),
    "upgrade-in-place": broken("A reader becomes the writer, whichever others read (R33)",
        "test_shared.test_a_reader_that_asks_for_the_name_for_itself_is_refused",
        Patch("redlock._lock.lock", "if hold.state.mode.shared and not self._spec.mode.shared:", "if False:")),
    "downgraded-when-answered": broken("A lease claims the name for itself until a majority has let readers in (R33)",
        "test_shared.test_a_lease_is_shared_from_the_moment_in_which_its_downgrade_is_sent",
        Patch("redlock._core.modes", "lease.mode = shared_by()\n    try:", "lease.mode = shared_by()._replace(shared=False)\n    try:"),
        Patch("redlock._core.modes", "lease, lease.ttl, now)\n    except", "lease, lease.ttl, now)\n        lease.mode = shared_by()\n    except")),
    # -- in order (R42), and in line (R23) --
    "tickets-by-the-clock": broken("A ticket has the number that the clock of its client shows, and masters take any number (R42)",
        "test_waiting.test_waiters_of_several_processes_are_served_in_the_order_in_which_they_came",
        Patch("redlock._core.fair.target", "self.number = settings.fences.propose()", "self.number = settings.fences._wall_ns() // 1000"),
        Patch("redlock._core.fair.target", "settings.fence_ttl, new=new)", "settings.fence_ttl, new=False)")),
    "dead-waiters-stay": broken("The ticket of a waiter that has died stays for as long as others wait (R42)",
        "test_waiting.test_waiters_that_have_died_cost_a_second_once",
        *(Patch(one, "redis.call('ZRANGE', key, string.format('%.0f', -now), '(0', 'BYSCORE', 'LIMIT', 0, 1000),", "") for one in ("ticket.lua", "acquire_fair.lua"))),
    "a-holder-jumps-the-queue": broken("A client that asks again is granted a free name although others wait in order (R42)",
        "test_waiting.test_no_other_client_is_granted_a_name_while_a_client_waits_in_order",
        Patch("acquire_fair.lua", "elseif turn then", "elseif false then")),
    "others-jump-the-queue": broken("A client that does not wait in order is granted a free name although others do (R42)",
        "test_waiting.test_no_other_client_is_granted_a_name_while_a_client_waits_in_order",
        Patch("acquire.lua", "elseif lined and #ARGV[4] < 17 then", "elseif false then")),
    "tickets-outlive-their-operation": broken("A waiter that gives up leaves its ticket to its time (R42)",
        "test_waiting.test_a_waiter_that_gives_up_leaves_no_ticket_behind",
        Patch("redlock._core.fair.target", "tickets.leave(self._keys, self.token,", "tickets.leave(self._keys, '',")),
    "outage-of-the-first-in-line-untold": broken(
        "A waiter whose time is up behind another one takes the outage that that one has met for a holder (C2)",
        "test_waiting.test_an_outage_is_told_to_all_that_wait_in_a_process",
        Patch("redlock._core.local_queue", "found.append(other.learned)", "found.append(True)")),
}  # fmt: skip
