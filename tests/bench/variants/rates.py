"""What was broken in the measuring of clock rates (R43)."""

from __future__ import annotations

from tests.bench.library import Patch
from tests.bench.variants.variant import broken

_SLEWED = "test_rates.test_a_master_whose_clock_is_slewed_does_not_vote_until_it_was_right_for_max_ttl"
_LATE = "test_rates.test_answers_that_take_longer_now_and_then_make_no_clock_look_fast"
_RATES, _BOUND = "redlock._core.rates", "second.at - first.sent_at"

VARIANTS = {
    "rates-ignored": broken("The vote of a master counts however fast its clock runs (R43)", _SLEWED,
        Patch(_RATES, 'return float("inf") if self.surely[master] > 0 else self._right_from[master]', 'return -float("inf")')),
    "right-at-once": broken("A master votes again as soon as its clock runs at the right rate (R43)", _SLEWED,
        Patch(_RATES, "self._right_from[master] = reading.at + max_ttl", "pass")),
    "measured-from-answer-to-answer": broken("Between two readings no more time has passed here than between their answers (R43)", _LATE,
        Patch(_RATES, _BOUND, "second.at - first.at")),
    "rate-of-one-noisy-reading": broken("A master is asked in the middle between sending and answer (R43)", _LATE,
        Patch(_RATES, _BOUND, "(second.at + second.sent_at - first.at - first.sent_at) / 2")),
    "rate-forgotten-with-the-connection": broken("A new connection is one to a master whose clock was never wrong (R43)",
        "test_rates.test_a_master_that_is_fast_does_not_vote_over_a_new_connection_either",
        Patch("redlock._core.voters", "self._heard_at[master] = at\n        self.known_answered",
            "self._heard_at[master] = at\n        self.rates = Rates(len(self._masters), 0.01)\n        self.known_answered")),
    "slow-as-bad-as-fast": broken("A master whose clock is slow does not vote (R43)", "test_rates.test_a_slow_master_votes_and_is_told_once",
        Patch(_RATES, "if self.surely[master] > 0 else", "if self.surely[master] else")),
}  # fmt: skip
