"""What was broken in the order of what a leader does (R31), and of a fenced transaction (R39)."""

from __future__ import annotations

from tests.bench.library import Patch
from tests.bench.variants.variant import broken

_TERM = "            errors = [(yield Lead(term)), (yield SayStopped(term))]\n"
_WORK = "WORK = (Step.BEGIN, Step.RAISE, Step.BODY, Step.ENSURE, Step.COMMIT)"
_UNSEEN = Patch("redlock.fenced._store", "            self._ensure()\n", "            pass\n")
_VALID = "        if term.lease.valid and not stop.requested():\n"

VARIANTS = {
    "leads-on-after-its-body-raised": broken("What the body raised ends nothing (R31)",
        "test_leader.test_a_body_that_raises_ends_the_election_after_on_stopped_and_the_lock_is_free_at_once",
        Patch("redlock._core.election", "if error is None:\n            failed = 0", "if True:\n            failed = 0")),
    "resigns-before-its-body-has-ended": broken("The lock is given back first (R31)",
        "test_leader.test_the_lock_is_given_back_when_the_body_has_ended_and_on_stopped_was_told",
        Patch("redlock._lock.election_async", "await running.lead(term)", "await _released(running.stands)\n            await running.lead(term)"),
        Patch("redlock._lock.election_threads", "running.lead(term)", "_released(running.stands)\n            running.lead(term)")),
    "resigns-only-where-nothing-was-raised": broken("What the body raised goes on at once, and the lock stays (R31)",
        "test_leader.test_a_body_that_raises_ends_the_election_after_on_stopped_and_the_lock_is_free_at_once", Patch("redlock._core.election", _TERM,
            "            errors = [(yield Lead(term))]\n            if errors[0] is not None:\n                return errors[0]\n            errors.append((yield SayStopped(term)))\n")),
    "leads-although-it-was-stopped": broken("A stop in the moment of the grant is noticed by the body only (R31)",
        "test_leader.test_a_candidate_that_is_stopped_in_the_moment_of_the_grant_begins_no_body",
        Patch("redlock._core.election", _VALID, "        if term.lease.valid:\n")),
    "campaigns-while-its-body-runs": broken("A leader that lost its term campaigns at once, whatever the body still does (R31)",
        "test_leader.test_no_body_begins_while_that_of_a_lost_term_goes_on", Patch("redlock._lock.election_async", "await running.lead(term)",
            "leads = asyncio.ensure_future(running.lead(term))\n            while not (leads.done() or term.lost):\n                await asyncio.sleep(0.01)")),
    "stop-is-swallowed-in-a-campaign": broken("A candidate that is stopped while it waits goes on until it is elected (R31)",
        "test_leader.test_a_candidate_can_be_stopped_while_no_master_answers",
        Patch("redlock._core.election", "if stop.requested() and error is None and not stopped:", "if False:")),
    "leads-in-a-term-that-is-over": broken("Nobody looks whether the term is still valid when the body begins (R31)",
        "test_leader.test_a_candidate_that_was_frozen_until_its_term_was_over_stands_again",
        Patch("redlock._core.election", _VALID, "        if not stop.requested():\n")),
    "what-interrupts-ends-at-once": broken("What a signal handler raises between two steps ends the election as it is (R31)",
        "test_leader.test_what_a_signal_handler_raises_between_two_steps_ends_the_election_in_order",
        Patch("redlock._core.election", "errors: list[BaseException | None] = [interruption]",
            "return interruption\n    errors: list[BaseException | None] = [interruption]")),
    # -- fenced transactions (R39) --
    "fence-row-raised-last": broken("A transaction reads first, and raises the row of its name before it commits (R39)",
        "test_fenced.test_a_commit_that_outlives_its_lease_is_there_before_the_next_holder_reads",
        Patch("redlock.fenced._order", _WORK, "WORK = (Step.BEGIN, Step.BODY, Step.RAISE, Step.ENSURE, Step.COMMIT)")),
    "fence-compared-without-the-lock-of-its-row": broken("The fence is compared, and nobody who raises it later waits for the commit (R39)",
        "test_fenced.test_of_two_that_hold_a_lock_at_once_the_second_waits_for_the_transaction_of_the_first",
        Patch("redlock.fenced._order", _WORK, "WORK = (Step.RAISE, Step.BEGIN, Step.BODY, Step.ENSURE, Step.COMMIT)")),
    "lost-lease-commits": broken("Nobody looks at the lease before the commit (R39)",
        "test_fenced.test_a_lease_that_was_lost_in_the_body_commits_nothing",
        Patch("redlock.fenced._order", _WORK, "WORK = (Step.BEGIN, Step.RAISE, Step.BODY, Step.COMMIT)"), _UNSEEN),
    "commit-after-the-release": broken("As a session does that commits behind the body of the lock (R39)",
        "test_fenced.test_what_a_transaction_has_written_is_there_when_the_lock_is_given_back",
        Patch("redlock.fenced._order", "error = yield step", "if step is Step.COMMIT:\n            yield Release(None)\n        error = yield step"),
        _UNSEEN),
    "smaller-fence-is-taken": broken("The row of the name is locked and not compared (R39)",
        "test_fenced.test_a_transaction_that_begins_behind_one_with_a_greater_fence_is_refused",
        Patch("redlock.fenced._store", "if rows != 1 or not dialect.counts:", "if False:")),
}  # fmt: skip
