"""What was broken in the agreement on the masters (R34), and in the largest `max_ttl` (R21)."""

from __future__ import annotations

from tests.bench.library import Patch
from tests.bench.variants.variant import broken

_LAST = "test_agreement.test_who_comes_last_gives_way_until_the_others_are_gone"
_MISS = "test_agreement.test_two_lists_whose_majorities_may_just_miss_each_other_do_not_go_together"
_HUNG = "test_agreement.test_of_two_that_came_while_the_common_master_hung_one_works_on_when_it_answers"
_STOOD = "test_agreement.test_a_client_that_was_out_of_touch_until_its_list_was_forgotten_begins_anew"
_TWO = "test_max_ttl.test_no_restart_lets_two_in_whoever_announces_less"
_GREATER = "if known > own then\n"
_MEET = "return majority(#ARGV - 5) + majority(size) > all"

VARIANTS = {
    "only-warned": broken("Whoever is shown an incompatible list only warns, with names as without: two addresses are changed at once (R34)", _LAST,
        Patch("redlock._core.fleet", "return self._begins if self.refuses else -math.inf", "return -math.inf"),
        Patch("redlock._core.fleet", "self.rejected and self.refuses)", "False)")),
    "incompatible-and-recorded": broken("A newcomer is recorded although its list is incompatible (R34)", _LAST,
        Patch("fleet.lua", _MEET, "return true")),
    "as-many-are-enough": broken("Two majorities that together are as many as all masters are taken to meet (R34)", _MISS,
        Patch("fleet.lua", _MEET, _MEET.replace("> all", ">= all"))),
    "begins-with-the-first-majority": broken("A newcomer works as soon as a majority has recorded its list (R34)",
        "test_agreement.test_a_newcomer_does_not_work_before_the_common_master_has_answered",
        Patch("redlock._core.fleet", "any(self._silent(master, at) for master in range(len(self.names)))", "False")),
    "begins-but-once": broken("A client that was forgotten goes on with the first majority that records its list again (R34)", _STOOD,
        Patch("redlock._core.fleet", "if not has:\n            self._anew",
            "if self._works and not self.rejected:\n            return\n        if not has:\n            self._anew")),
    "forgets-with-the-master": broken("A list that its master has forgotten is not in use (R34)",
        "test_agreement.test_a_common_master_that_forgets_the_lists_lets_nobody_in",
        Patch("redlock._core.fleet", "others = {} if before is None else {", "others = {} if True else {")),
    "both-stay": broken("Of two lists that both came into use, both stay (R34)", _HUNG,
        Patch("redlock._core.fleet", "< need or self._outnumbered(at)", "< need")),
    "new-ones-do-not-count": broken("A client goes on although its master has recorded others, which have not said yet that they work (R34)", _HUNG,
        Patch("redlock._core.fleet", "elif other is not None and other.counts(at):",
            "elif other is not None and other.counts(at) and other.status == _WORKING:")),
    "trusts-what-it-knew": broken("A client that stood still takes its list for known to others (R34)", _STOOD,
        Patch("redlock._core.voters", "self.known_from, self.known_until = self.fleet.counts_from, min(self.known_until, self.fleet.known_until)",
            "self.known_from = self.fleet.counts_from\n        self.known_until = math.inf")),
    # -- the largest max_ttl (R21) --
    "not-announced-again": broken("A `max_ttl` ends although clients have it (R21)", _TWO,
        Patch("announce.lua", "elseif type(redis.pcall('PEXPIRE', KEYS[1], ARGV[2]))", "elseif type(1)")),
    "nobody-looks": broken("Nobody looks at the `max_ttl` of others (R21)", _TWO,
        Patch("redlock._core.voters", "value, until, process = self._longest[master]",
            "announced = announced._replace(max_ttl=0.001, left=0.0)\n            value, until, process = self._longest[master]")),
    "a-smaller-one-takes-its-place": broken("Whoever announces less is told nothing of more, and stores its own (R21)", _TWO,
        Patch("announce.lua", _GREATER, "if false then\n")),
    "a-smaller-one-keeps-it-alive": broken("A `max_ttl` that no client has any more counts while others announce less (R21)",
        "test_max_ttl.test_a_wrong_one_ends_by_itself",
        Patch("announce.lua", _GREATER, f"{_GREATER}  redis.call('PEXPIRE', KEYS[1], ARGV[2] * 99)\n")),
}  # fmt: skip
