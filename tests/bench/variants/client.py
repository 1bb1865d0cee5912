"""What was broken in the client itself: connections, interruptions, forks, `close`."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from tests.bench.judge import (
    AGREEMENT,
    C7,
    CALM,
    HANGS,
    LEFT,
    LIVE,
    P1,
    P2,
    P5,
    P6,
    P7,
    PAST,
    QUIET,
    R11,
    R28,
    R36,
    WHOLE,
)
from tests.bench.library import Patch
from tests.bench.machine import SPINS
from tests.bench.parameters import disagreeing, draw, struck, wrong_clocks
from tests.bench.variants.variant import broken, seeded
from tests.bench.wire import FORKED
from tests.simulation.line import IN_ORDER, LEFT as NO_TICKET

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.bench.parameters import Setting


def _where(
    *faults: tuple[str, float], calm: bool = False, threads: bool | None = None, **besides: Any
) -> Callable[[int], Setting]:
    """Runs in which these go wrong, so often in a TTL, and nothing else.  ``besides``: of the `Setting`."""
    return partial(draw, threads=threads, calm=calm, more=False, faults=faults, besides=besides)


# No variant: a second Ctrl-C strikes where the engine has caught the first one.
STRUCK_AGAIN = Patch(
    "redlock._core.operation",
    "                    if _is_closed(self._op):",
    "                    if isinstance(error, KeyboardInterrupt) and not hasattr(self, 'again'):\n"
    "                        self.again = True\n                        raise\n"
    "                    if _is_closed(self._op):",
)

NOT_NOTICED = Patch(
    "redlock._io.process",
    "        noticing = _noticing.setdefault(",
    "        return True\n        noticing = _noticing.setdefault(",
)
_BLOCKED: dict[str, Any] = {"threads": False, "calm": False, "more": False, "names": 3, "ttl": 8.0, "max_ttl": 8.0}
_IN_ORDER = partial(draw, calm=True, more=False, names=1, masters=3, slots=0, besides={"uses": ("fair",), "users": 2})

_REPLICAS = partial(draw, calm=False, more=False, guard=True, masters=3, faults=(("replica", 3.0),))

VARIANTS = {
    "another-process": seeded("A forked child does not notice that it is one, and takes answers of its parent for its own", (FORKED,),
        _where(("fork", 3.0), threads=True), NOT_NOTICED),
    "another-process-on-a-loop": seeded("... and its loop is told for ever of what is there for its parent", (SPINS,),
        _where(("branch", 3.0), threads=False), NOT_NOTICED),
    "clock-before-the-mutex": seeded("A reader looks at the clock before it has the mutex, and another thread writes in between", (PAST,),
        _where(threads=True, preempted=0.05, naps=0.001, users=8),
        Patch("redlock._io.waiter", "with host.mutex:\n                now = clock.now()  # in here",
            "now = clock.now()\n            with host.mutex:\n                pass  # in here")),
    "forgotten-at-reconnecting": seeded("A release that is owed is forgotten when there is a new connection (R10)", (P7,),
        partial(draw, calm=False, more=False, faults=(("snap", 60.0),), ttl=16.0, max_ttl=16.0, node_timeout=0.25, delay=0.05),
        Patch("redlock._core.pipeline", "self.down, self.expected, self.heard_at = None, False, at",
            "self.down, self.expected, self.heard_at = None, False, at; self._owed.clear()")),
    "closes-at-once": seeded("`close` returns while the keys of what it has broken off are on their way (R11)", (P7,),
        partial(draw, threads=True, calm=True, more=False, faults=(("leave", 20.0),), ttl=4.0, max_ttl=4.0, node_timeout=0.25, delay=0.03, besides={"users": 8}),
        Patch("redlock._io.driver_threads", "self.deliver_owed()\n        finally", "pass\n        finally")),
    "closed-and-not-aborted": seeded("What a connection that was given up carries may arrive behind the next one (R10)", (P7,),
        _where(("hush", 10.0), users=4), Patch("redlock._io.stream", "if abort:", "if False:")),
    "sleeps-past-a-renewal": seeded("The background does not mind when a lease is due (R15)", (CALM, P6, C7), _where(calm=True),
        Patch("redlock._io.background", "until = self.renewer.work(clock.now())", "self.renewer.work(clock.now()); until = math.inf"), first=26),
    "silent-for-ever": seeded("A connection that answers nothing is never replaced (R10)", (WHOLE, LIVE, HANGS), _where(("hush", 1.0)),
        Patch("redlock._io.connections", "left = self._silent_in(stream, now)", "left = math.inf")),
    "listens-for-ever": seeded("A client that has waited stays subscribed (R24)", (QUIET,), partial(draw, more=False),
        Patch("redlock._io.connections", "            self.subscriptions.remove(subscription, clock.now())\n", "")),
    "entered-behind-its-release": seeded("A hold that nobody wants any more is entered with the grant (R11, P7)", (P7,),
        _where(threads=False, calm=True, preempted=0.03, naps=0.003, uses=("dropped",)),
        Patch("redlock._lock.holds", "return not self._unwanted", "return True")),
    "votes-before-all-have-answered": seeded("A newcomer counts votes before all of its masters have shown it which lists are in use (R34)",
        (AGREEMENT, P1), disagreeing, Patch("redlock._core.fleet", "return self._begins if self.refuses else -math.inf", "return -math.inf")),
    "other-data-ignored": seeded("A master that was a replica for a moment votes at once: its run_id and its uptime stay (R21)", (P5,), _REPLICAS,
        Patch("redlock._core.voters", "if known is None or known.replid == before:", "if True:")),
    "connected-to-a-replica": seeded("... and the connection over which it said READONLY stays: what it has forgotten is asked much later (R21)",
        (P5,), _REPLICAS, Patch("redlock._core.pipeline", 'error.code == "READONLY"', "False")),
    "overdue-timer-dropped": seeded("A timer of the loop that goes off late is taken for one that is void, and no other one is set", (P6, C7),
        _where(("busy", 6.0), threads=False, users=1), Patch("redlock._io.driver_async", "self._timer, self._timer_at = None, math.inf",
            "late = clock.now() - self._timer_at\n        self._timer, self._timer_at = None, math.inf\n        if late > TICK:\n            return")),
    "overdue-timer-put-off": seeded("... and the next request sets one for the time at which its answers are due", (P6, C7),
        partial(draw, **_BLOCKED, node_timeout=1.0, faults=(("busy", 10.0),), besides={"users": 8, "preempted": 0.0, "naps": 0.0, "late": 0.0}),
        Patch("redlock._io.driver_async", "now if self._timer_at <= now - TICK else max(at, now)", "max(at, now)"), first=60),
    # -- interrupted (R11) --
    "only-failures-rolled-back": seeded("An attempt that is interrupted leaves its keys to their TTL (R11)", (P7,), struck,
        Patch("redlock._core.kernel.attempt", "the keys must not outlive this operation (R11)",
            "the keys must not outlive this operation (R11)\n        raise")),
    "not-insisted": seeded("A second interruption ends the cleanup (R11)", (P7, CALM), partial(struck, threads=True),
        Patch("redlock._core.kernel.rollback", "for _ in range(3):", "for _ in range(1):")),
    "interrupted-release-given-up": seeded("A release that is interrupted has reached whom it has reached (R11)", (P7, CALM),
        partial(struck, threads=True),
        Patch("redlock._core.kernel.release", "yield from _interrupted(settings, spec, lease, claim)\n        except GeneratorExit",
            "lease.changed()\n        except GeneratorExit")),
    "cleanup-waits": seeded("The rollback is only over when it is answered (R11)", (R11,), partial(struck, threads=True),
        Patch("redlock._core.kernel.rollback", "return first",
            "for effect in effects:\n        if first and isinstance(effect, Send):\n            yield from wait(effect.sent_at + 8.0)\n    return first"),
        Patch("redlock._core.kernel.rollback", "import Leave, Op, Send", "import Leave, Op, Send, wait")),
    "repair-forgotten": seeded("A master that was given a key back is not asked to release it (R14, P7)", (P7,),
        _where(("refuse", 3.0), ("isolate", 3.0)), Patch("redlock._core.lease", "self.asked |= masters", "pass")),
    "struck-twice-and-dropped": seeded("A second Ctrl-C, where the engine handles the first one, ends the operation without its cleanup (R11)", (P7,),
        partial(struck, threads=True), STRUCK_AGAIN, Patch("redlock._io.driver_threads", "if self._op.gi_frame is not None:", "if False:")),
    "swallowed": seeded("An interruption of the rollback of a failed attempt is forgotten, and the next attempt made (R11)", (R11,),
        partial(struck, threads=True, users=1, longest=9.0),
        Patch("redlock._core.kernel.attempt", "interruption = yield from rollback(asked, token, ballot)",
            "yield from rollback(asked, token, ballot)\n            interruption = None")),
    "way-back-forgotten": seeded("Nobody keeps a grant for whoever is interrupted on the way back to the caller (R11)", (P7, LIVE),
        partial(struck, threads=True, users=1, longest=0.1), Patch("redlock._core.kernel.attempt", "request.granted(grant)", "pass")),
    "never-under-way-no-more": seeded("An extension that was interrupted limits all that follow (C6)", (CALM,),
        _where(calm=True, threads=False, users=4),
        Patch("redlock._core.lease", "if pending in self.all_pending and not pending.dropped:", "if False:")),
    "believed-before-answered": seeded("An extension counts once it is sent (R6, R13)", (P1,),
        partial(draw, calm=False, more=False, names=1, slots=0, clients=2, ttl=4.0, max_ttl=4.0, delay=0.005, node_timeout=0.25, faults=(("exile", 0.5),), besides={"users": 1, "longest": 9.0}),
        Patch("redlock._core.lease", "            if shorter:", "            if True:")),
    "other-slots-kept": seeded("What masters gave that is no part of the majority is left to its TTL (R32)", (P7,),
        partial(draw, calm=True, more=False, names=1, slots=3, clients=3, faults=(), besides={"users": 8, "uses": ("slots",), "uneven": 20.0}),
        Patch("redlock._core.slots.target", "if not elsewhere:", "if True:"), first=20),
    # -- wrong clocks (R35) --
    "one-clock-is-enough": broken("A single master that says that a lease has run out is believed (R35)",
        "test_confirmed.test_kleppmanns_client_is_refused",
        Patch("redlock._core.confirm.expiry", "if times > wrong and not", "if times and not")),
    "no-second-round": seeded("What has run out for certain is a vote, and nothing is taken there (R35)", (P1, P2), wrong_clocks,
        Patch("redlock._core.kernel.attempt", "if fencing and (ballot.unstored or tally.yes < tally.need):",
            "if tally.yes < tally.need and ballot._needs_another_round():\n            for flagged in ballot.shown:\n                tally.said[flagged] = None\n                tally.count(flagged, 'granted')\n        elif fencing and ballot.unstored:")),
    # -- what few users do --
    "guard-forgotten": seeded("The keys of a lease last no longer than that (R36)", (R36,),
        partial(draw, calm=False, more=False, after=2.0, ttl=4.0, max_ttl=8.0, faults=(("crash", 2.0), ("isolate", 1.0))),
        Patch("redlock._core.kernel.attempt", "spec.ttl + spec.guard, proposal", "spec.ttl, proposal")),
    "runs-again-at-once": seeded("A release gives away what is to be held for a while (R28)", (R28,), _where(calm=True, uses=("period",)),
        Patch("redlock._core.kernel.release", "lease.keys_stay(settings.drift_factor) if lease.hold_at_least else 0.0", "0.0")),
    "asks-as-one-in-line": seeded("A client that does not wait in order proposes as those do who have a ticket, and is served before them (R42)",
        (IN_ORDER,), _IN_ORDER, Patch("redlock._core.wire", "fence = str(proposal)", "fence = f'{proposal:017d}'")),
    "never-settled": broken("The first number that was proposed is the ticket, whoever has stored a greater one (R42)",
        "test_waiting.test_waiters_of_several_processes_are_served_in_the_order_in_which_they_came",
        Patch("redlock._core.fair.target", "= self._settled or tally.won", "= True")),
    "ticket-left": seeded("A waiter whose masters are closed leaves its ticket to its time (R42)", (NO_TICKET,),
        partial(_IN_ORDER, faults=(("leave", 8.0),)),
        Patch("redlock._core.fair.target", "settings.fence_ttl), owed_until=NEVER)", "settings.fence_ttl))")),
    "ticket-forgotten": seeded("A ticket is not given back to a master that has forgotten the script (R42)", (NO_TICKET, P7),
        partial(_IN_ORDER, faults=(("flush", 100.0),)), Patch("redlock._core.pipeline", "request.owed_until is None and not", "not")),
    "mark-left": seeded("A writer whose masters are closed keeps readers away for a while (R33)", (P7,),
        partial(draw, calm=True, more=False, names=1, slots=0, faults=(("leave", 8.0),), besides={"users": 8}),
        Patch("redlock._core.modes", "0.0), owed_until=NEVER)", "0.0))"), first=17),
    "child-keeps-the-connections": seeded("A child that was forked under an event loop keeps what its parent has open", (FORKED, LEFT),
        _where(("branch", 3.0), threads=False), Patch("redlock._io.runtime", "process.in_child(_in_child)", "pass")),
    "guard-dismissed": broken("redlock-run dismisses what would end its command in time (C23)",
        "test_run.test_a_command_that_does_not_heed_sigterm_is_killed_before_its_lease_is_over_where_all_masters_hang",
        Patch("redlock._cli.run", "if self._dog.silent() > self._ttl:", "if True:")),
    "max-hold-outlives-the-lease": broken("redlock-run gives its command the grace of --max-hold although its lease ends sooner (C23)",
        "test_run.test_masters_that_hang_during_the_grace_of_max_hold_do_not_lengthen_it",
        Patch("redlock._cli.run", "end = min(lease.valid_until - self._margin, ", "end = max(lease.valid_until - self._margin, ")),
    "command-without-its-guard": broken("redlock-run gives back what it has lost, and nobody waits for what its command has under way (R36)",
        "test_run.test_after_a_loss_the_name_stays_taken_for_the_guard_and_not_for_a_whole_ttl_more",
        Patch("redlock._cli.run", "if not self._guard or not lease.valid:", "if True:")),
    "lock-left": seeded("redlock-run ends, and leaves its lock to the TTL", (P7,),
        _where(("program", 3.0), *((fault, 0.5) for fault in ("snap", "cut", "restart", "freeze", "pause"))),
        Patch("redlock._cli.run", "released = self._release(lock)", "released = True")),
}  # fmt: skip
