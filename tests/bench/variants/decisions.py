"""What was broken where no time passes: in one decision, one text, one judge of histories.  Tests of the core catch these."""

from __future__ import annotations

from tests.bench.library import Patch
from tests.bench.variants.variant import broken

VARIANTS = {
    "votes-without-a-reason": broken(
        "A vote does not say why there is none (R3)",
        "core/test_quorum.py",
        Patch(
            "redlock._core.kernel.quorum",
            "Vote(name, *(entry or pending)[:3])",
            'Vote(name, *(entry or pending)[:2], "")',
        ),
    ),
    "names-with-braces": broken(
        "A value with braces moves the hash tag of a key (R30)",
        "core/test_naming.py",
        Patch("redlock._lock.naming", 'rf"{_CONTROL.pattern}|[{{}}]"', "_CONTROL.pattern"),
    ),
    "hand-over-is-a-release": broken(
        "A hand-over is told as a loss by the `with` that it left (C11)",
        "test_hand_over.test_who_hands_a_lease_over_hears_no_alarm_one_ttl_later",
        Patch("redlock._lock.lock", "state.handed_over, state.last_votes = True, tuple", "state.last_votes = tuple"),
    ),
    "handed-over-for-longer": broken(
        "A text says the TTL of the lease, although an extension to a shorter one is under way (R46)",
        "test_hand_over.test_an_extension_under_way_of_the_first_process_takes_no_time_from_the_next_one",
        Patch("redlock._lock.lock", "ttl = min([state.ttl,", "ttl = max([state.ttl,"),
    ),
    "resumed-unasked": broken(
        "A lease that is resumed is taken for valid before masters have confirmed it (R46)",
        "test_hand_over.test_whoever_resumes_too_late_or_with_another_token_is_told_that_it_is_lost",
        *(
            Patch(
                f"redlock._lock.resume_{world}",
                'if extension.kind != "extended" or state.lost:',
                "if False:",
            )
            for world in ("async", "threads")
        ),
    ),
    "wait-lost-of-threads-alone": broken(
        "AsyncLease has no wait_lost (C12)",
        "test_public_api.py",
        Patch("redlock._lock.lease_async", "async def wait_lost", "async def wait_for_loss"),
    ),
    "cancellation-swallowed": broken(
        "A loss hides a cancellation from outside (C13)",
        "test_bodies_lost.test_cancelled_from_outside_at_the_same_moment",
        Patch("redlock._lock.cancelling", "        if left <= self._before:", "        if True:"),
    ),
    "client-asks-again": broken(
        "The timeouts of the client that a user gives are those of a vote (R4)",
        "core/test_configuration.py",
        Patch("redlock._connect", "if value is not None and (name in _SETTINGS", "if value is not None and (name"),
    ),
    "proposal-by-the-clock-alone": broken(
        "A client whose clock is behind proposes a fence that it knows to be too small (R16)",
        "core/test_fencing.py",
        Patch(
            "redlock._core.tokens",
            "max(min(self._wall_ns() // 1000, LIMIT), self._seen + 1)",
            "self._wall_ns() // 1000",
        ),
    ),
    "fence-of-an-extension": broken(
        "An extension gives a lease another fence (R19)",
        "core/test_extend.py",
        Patch(
            "redlock._core.lease",
            "        self.valid_until, self.ttl, self._won = valid_until",
            "        self.fence = (self.fence or 0) + 1\n        self.valid_until, self.ttl, self._won = valid_until",
        ),
    ),
    "fence-forgotten-while-it-is-held": broken(
        "An extension does not make the fence key live on (R20)",
        "core/test_scripts.py",
        Patch("extend.lua", "for i = n + 1, #KEYS do", "for i = n + 1, 0 do"),
    ),
    "guard-that-cannot-be-switched-off": broken(
        "restart_guard=False changes nothing (R22)",
        "core/test_voters.py::test_the_guard_can_be_switched_off",
        Patch("redlock._core.voters", "elif not self._restart_guard:", "elif False:"),
    ),
    "everybody-is-first": broken(
        "Each waiter of a process asks the masters (R23)",
        "core/test_local_queue.py",
        Patch("redlock._core.local_queue", "place.turn = first or self._joins_readers(place)", "place.turn = True"),
    ),
    "pauses-without-chance": broken(
        "Contenders that were refused together try again together (R25)",
        "core/test_retry.py",
        Patch(
            "redlock._core.retry",
            "chance.uniform(self.min, super().__call__(retry_state))",
            "super().__call__(retry_state)",
        ),
    ),
    "entered-anew": broken(
        "A thread that holds a name asks the masters for it again (R26)",
        "test_lock.test_each_level_that_is_inside_is_told_of_the_loss_once",
        Patch(
            "redlock._lock.lock",
            "            if not self._wants_any(lease.names) or not lease.valid:",
            "            if True:",
        ),
    ),
    "nobodys-token": broken(
        "Who has a lock is not read from its token (R27)",
        "core/test_tokens.py",
        Patch("redlock._core.tokens", 'return owner if owner and options.is_owner(owner) else ""', 'return ""'),
    ),
    "outages-end-no-wait": broken(
        "An acquire without a timeout waits through an outage for ever (R38)",
        "core/test_outages.py",
        Patch("redlock._core.patience", "settings.outage_timeout if deadline == math.inf else math.inf", "math.inf"),
    ),
    "crowded-without-end": broken(
        "max_waiters= bounds nothing (R40)",
        "core/test_local_queue.py",
        Patch("redlock._core.local_queue", "place.crowd = waiting if waiting >= place.most else 0", "place.crowd = 0"),
    ),
    "waits-for-another-password": broken(
        "An acquire waits where waiting cures nothing (C1)",
        "core/test_attempts.py",
        Patch(
            "redlock._core.acquire", "        return readings.misconfigured(refusal.tally)\n", "        return False\n"
        ),
    ),
    "silent-is-no-outage": broken(
        "Masters that did not vote are taken for masters that have refused (C2)",
        "core/test_quorum.py",
        Patch(
            "redlock._core.kernel.quorum", "return self.lost and self.size - self.absent() < self.need", "return False"
        ),
    ),
    "waits-as-if-it-had-failed-once": broken(
        "The wait object hears of one attempt, however many there were (C4)",
        "core/test_attempts.py",
        Patch("redlock._core.retry", "state.attempt_number = failed", "state.attempt_number = 1"),
    ),
    "waits-for-itself": broken(
        "A thread that holds two names is given one of them alone (C5)",
        "test_lock.test_a_thread_or_task_that_would_wait_for_itself_is_told_so",
        Patch("redlock._lock.lock", "        if not self._wants_all(lease.names):", "        if False:"),
    ),
    "released-by-anybody": broken(
        "A thread releases what another one holds (C10)",
        "test_lock.test_another_thread_or_task_releases_and_extends_nothing",
        Patch(
            "redlock._lock.lock",
            "        hold = self._latest(self._own.holds)\n",
            "        hold = self._lease and next(iter(self._lease.holds), None)\n",
        ),
    ),
    "proposes-without-fencing": broken(
        "fencing=False asks for a fence all the same (C14)",
        "core/test_fencing.py",
        Patch("redlock._core.wire", "    if not fencing:\n        return Keys(locks, ())\n", ""),
    ),
    "two-databases-are-two-servers": broken(
        "One server has two votes, by two of its databases (C15)",
        "core/test_configuration.py",
        Patch(
            "redlock._connect",
            "Endpoint(name, (host.lower(), port), SSL",
            "Endpoint(name, (host.lower(), port, settings.get('db')), SSL",
        ),
    ),
    "one-server-has-two-votes": broken(
        "Two addresses that lead to one server have two votes (C16)",
        "core/test_voters.py",
        Patch("redlock._core.voters", "        first = self._first_with_same_run_id(master)", "        first = None"),
    ),
    "valkey-is-unknown": broken(
        "A client of valkey-py is refused (C17)",
        "core/test_configuration.py",
        Patch("redlock._connect", 'not in ("redis", "valkey")', 'not in ("redis",)'),
    ),
    "vote-can-be-changed": broken(
        "A vote is no plain record (C18)",
        "core/test_errors.py",
        Patch(
            "redlock.errors", "@dataclass(frozen=True, slots=True)\nclass Vote:", "@dataclass(slots=True)\nclass Vote:"
        ),
    ),
    "another-default-in-threads": broken(
        "A method for threads has another default than the one for asyncio (C19)",
        "test_public_api.py",
        Patch("redlock._lock.lock_threads", "blocking: bool = True", "blocking: bool = False"),
    ),
    "password-in-repr": broken(
        "repr(masters) shows the URLs as they were given (C20)",
        "core/test_configuration.py",
        Patch(
            "redlock._connect",
            '    name = f"[{host}]',
            '    host = f"{settings.get(\'password\')}.{host}"\n    name = f"[{host}]',
        ),
    ),
    "no-max-ttl": broken(
        "The commands do not take --max-ttl (C21)",
        "cli/test_usage.py",
        Patch("redlock._cli.arguments", '"--max-ttl"', '"--most-ttl"'),
    ),
    "one-vote-less": broken(
        "can_lose counts as if the majority could be lost as well (C22)",
        "health/test_verdict.py",
        Patch("redlock._health.verdict", "can_lose=max(0, voting - need)", "can_lose=max(0, voting - need + 1)"),
    ),
    "its-own-exit-code": broken(
        "A command that cannot be started ends with 127 whatever the reason is (C24)",
        "cli/test_usage.py::test_a_command_that_cannot_be_started_has_the_exit_code_of_shells",
        Patch("redlock._cli.job", "= 127, 126", "= 127, 127"),
    ),
    "touching-overlaps": broken(
        "Holds that touch overlap (C25)",
        "chaos/test_exclusive.py",
        Patch("chaos.judge.exclusive", "hold.start < until", "hold.start <= until"),
        Patch("chaos.judge.exclusive", "if hold.end <= hold.start:", "if False:"),
        Patch("chaos.judge.exclusive", "hold.alone_until > hold.start", "hold.alone_until >= hold.start"),
    ),
    "key-may-stay-for-ever": broken(
        "A key that nobody holds may stay longer than one TTL (C26)",
        "chaos/test_clean.py",
        Patch("chaos.judge.clean", "later(setter.t, ttl)", "later(setter.t, 10 * ttl)"),
    ),
    "stopped-is-no-excuse": broken(
        "A process that was stopped has to be told in time (C27)",
        "chaos/test_prompt.py",
        Patch("chaos.judge.prompt", "if hindered.within(hold.process, hold.valid_until, deadline):", "if False:"),
    ),
    "judged-beyond-the-recording": broken(
        "A hold that is open at the end has to be told behind the end of the recording (C28)",
        "chaos/test_prompt.py",
        Patch("chaos.judge.prompt", "deadline > history.end", "False"),
    ),
    "used-after-a-stop": broken(
        "A use is judged although its process was stopped since it last looked (C29)",
        "chaos/test_prompt.py",
        Patch("chaos.judge.prompt", "if hindered.within(first.process, looked[first.line], first.t):", "if False:"),
    ),
    "live-without-a-heal": broken(
        "A history without a heal has to show that locks can be taken (C30)",
        "chaos/test_live.py",
        Patch("chaos.judge.live", 'event.process == NEMESIS and event.phase == "ok"', "event.phase"),
    ),
    "order-of-the-file": broken(
        "The events of a history are judged in the order of the file (C31)",
        "chaos/test_history.py",
        Patch("chaos.history", "    events.sort(key=lambda event: event.t)\n", ""),
    ),
    "hand-over-is-a-second-hold": broken(
        "A lease that is handed over is held by two (C32)",
        "chaos/test_exclusive.py",
        Patch("chaos.judge.holds", 'until = self.passed_on.t if self.passed_on.op == "resume" else ', "until = "),
        Patch("chaos.judge.exclusive", "other.token != hold.token and ", ""),
    ),
}
