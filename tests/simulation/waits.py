"""The judge of those who wait: woken by what they were told, and not dependent on it (R24).

It knows what was announced to whom, what was confirmed and who attempts when.  It knows no subscription of
the lock but for one thing: how long the pause is that keeps contenders apart.
"""

from __future__ import annotations

from collections import defaultdict, deque
from functools import partial
from typing import TYPE_CHECKING

from redlock._core.patience import LONGEST

if TYPE_CHECKING:
    from redlock._core.subscriptions import Subscription
    from tests.simulation.client import Client, Task
    from tests.simulation.invariants import Judge

PROMPT = 1e-4  # seconds that an alarm may be late where nothing takes time
GRACE = 0.003  # how long a process lets others go first, apart from three times what its release took
NARROW, WIDEST = 0.0005, 0.128  # the pause that keeps contenders apart: to begin with, and at most
ATTEMPTS = 16  # ... or as long as so many attempts take
MANY = 60  # attempts of one operation while nothing is granted: on average half its longest pause apart
STEPS = 4  # that may each be taken late: two rounds end, it has paused, it has kept apart from others
TOKENS = 60  # that a waiter remembers at least: what a master announces when it thaws may be old
SLOWEST = 1.8  # of a message where nothing is unusually late, in typical delays

WOKEN = "R24 woken"
ANYWAY = "R24 tries anyway"
QUIET = "R24 quiet"
APART = "R25 apart"


class Watch:
    """One operation that listens."""

    __slots__ = ("channels", "dealt_with", "heard", "on", "since", "subscription", "task")

    def __init__(self, task: Task, subscription: Subscription, since: float) -> None:
        self.task = task
        self.subscription = subscription
        self.channels = subscription.channels
        self.since = since
        self.on = False  # a majority of masters has confirmed that it announces everything
        self.heard: dict[str, set[int]] = defaultdict(set)  # by which masters, by token
        self.dealt_with: set[str] = set()  # tokens that were reason enough to try again


class Waits:
    """Part of the `Judge`."""

    def __init__(self, judge: Judge) -> None:
        self.judge = judge
        self.world = judge.world
        self.woken = 0  # attempts that were due because of what was heard
        self.prompt = 0  # ... because of what was released
        self._parameters = judge.parameters
        self._attempts: dict[Task, deque[float]] = defaultdict(partial(deque, maxlen=MANY))
        self._watches: dict[Task, Watch] = {}
        self._confirmed: dict[tuple[Client, str], set[int]] = defaultdict(set)
        self._released: dict[tuple[str, str], set[int]] = defaultdict(set)

    # -- what happens --------------------------------------------------------------------------------

    def attempts(self, task: Task) -> None:
        """It sends an acquire, and another one after its pause at the latest, whatever it hears."""
        task.attempted_at, task.refused, task.raced = self.world.now, False, False
        attempts = self._attempts[task]
        attempts.append(self.world.now)
        self._apart(task, attempts)
        most = self._attempt + self._parameters.eager * self._parameters.ttl
        self._within(most, task, ANYWAY, "after its pause")

    def listens(self, task: Task, subscription: Subscription) -> None:
        watch = self._watches[task] = Watch(task, subscription, self.world.now)
        if task.attempted_at < 0:  # it lets others go first, and not for long
            most = GRACE + 3 * self._parameters.node_timeout
            self._within(most, task, ANYWAY, "after it let others go first")
        self._look(watch)

    def over(self, task: Task) -> None:
        self._watches.pop(task, None)
        self._attempts.pop(task, None)

    def granted(self) -> None:
        """Somebody was granted a lock: everybody begins anew."""
        self._attempts.clear()

    def confirmed(self, client: Client, master: int, channel: str) -> None:
        self._confirmed[client, channel].add(master)
        for watch in self._watches.values():
            if watch.task.client is client and channel in watch.channels:
                self._look(watch)

    def unconfirmed(self, client: Client, master: int, channel: str) -> None:
        self._confirmed[client, channel].discard(master)
        for watch in self._watches.values():
            if watch.task.client is client:
                watch.on = watch.on and self._is_on(watch)

    def lost(self, client: Client, master: int) -> None:
        for other, channel in list(self._confirmed):
            if other is client:
                self.unconfirmed(client, master, channel)

    def told(self, client: Client, master: int, channel: str, token: str) -> None:
        """A client reads that a master announces something.

        Nothing follows from a majority of which none has refused it: these were too few, or did not vote, and still are.
        Nor from the rest, when an attempt came after that majority; nor where many others were announced in between.
        """
        for watch in self._watches.values():
            if watch.task.client is client and channel in watch.channels:
                if token not in watch.heard and len(watch.heard) == TOKENS:
                    del watch.heard[next(iter(watch.heard))]
                heard, refused_by = watch.heard[token], watch.task.refused_by
                if token not in watch.dealt_with:
                    was_news = self._is_reason(heard, refused_by)
                    heard.add(master)
                    if not was_news and self._is_reason(heard, refused_by):
                        watch.dealt_with.add(token)
                        self.woken += 1
                        most = self._attempt + self._pause(watch)
                        self._within(most, watch.task, WOKEN, f"when it heard of {token}")

    def _is_reason(self, heard: set[int], refused_by: set[int] | None) -> bool:
        return len(heard) >= self._need and (refused_by is None or bool(heard & refused_by))

    def released(self, master: int, channel: str, token: str) -> None:
        """A master has removed it.  Where nothing goes wrong, whoever has listened for a while hears of it."""
        if not self._parameters.calm:
            return
        masters = self._released[channel, token]
        masters.add(master)
        if len(masters) != self._need:
            return
        trip = SLOWEST * self._parameters.delay
        attempt = min(6 * trip, self._parameters.node_timeout)
        for watch in self._watches.values():
            # It takes four trips to connect and to subscribe.
            if channel in watch.channels and self.world.now - watch.since > 4 * trip * self._parameters.lag:
                self.prompt += 1
                most = trip * self._parameters.lag + attempt + self._pause(watch)
                self._within(most, watch.task, WOKEN, f"when {token} was released")

    def silent(self, clients: list[Client]) -> None:
        """Nobody waits for anything, and has not for a while: nothing is left of it."""
        for client in clients:
            if client.crashed:
                continue
            hearing = client.hearing
            if hearing.subscriptions.channels:
                self.judge.fail(QUIET, f"{client} still wants to hear of {hearing.subscriptions.channels}")
            connected = [subscriber for subscriber in hearing.subscribers if subscriber.connection is not None]
            if connected:
                self.judge.fail(QUIET, f"{connected} still there, and nobody listens")

    def _apart(self, task: Task, attempts: deque[float]) -> None:
        """Nothing is granted for long: that is no reason to ask again and again without a pause (R25)."""
        took = attempts[-1] - attempts[0]
        if len(attempts) == MANY and took < MANY * self._parameters.eager * self._parameters.ttl / 10:
            self.judge.fail(APART, f"{task} attempts {MANY} times in {took:.4f} s, and nobody was granted anything")

    # -- what has to follow --------------------------------------------------------------------------

    def _look(self, watch: Watch) -> None:
        """Subscribed to a majority: what was released before then was announced to nobody."""
        if not watch.on and self._is_on(watch):
            watch.on = True
            most = self._attempt + self._pause(watch)
            self._within(most, watch.task, WOKEN, "when it had subscribed")

    def _is_on(self, watch: Watch) -> bool:
        client = watch.task.client
        return all(len(self._confirmed[client, channel]) >= self._need for channel in watch.channels)

    def _pause(self, watch: Watch) -> float:
        """At most, before the next attempt; the one that is under way may find that others are in the way."""
        return min(2 * watch.subscription.spread + NARROW, max(WIDEST, ATTEMPTS * self._parameters.node_timeout))

    def _within(self, seconds: float, task: Task, invariant: str, why: str) -> None:
        """So many seconds of its own clock from now it has made another attempt, or is over."""
        at, client = self.world.now, task.client
        end = client.true_time(client.clock() + seconds) + STEPS * client.late + PROMPT
        self.world.at(end, self._must_have_tried, task, at, invariant, why)

    def _must_have_tried(self, task: Task, since: float, invariant: str, why: str) -> None:
        client = task.client
        if task.in_order or task.over or client.crashed or client.paused or client.true_time(client.resumed_at) > since:
            return
        if task.attempted_at < 0 and invariant == WOKEN:
            return  # it lets others go first
        if not task.refused and invariant == WOKEN:
            return  # it was not refused: too few have voted, or too late.  No release ends that
        if client.clock() >= task.deadline:
            return  # it hurries to its end, see `tries.py`
        # Nobody can get it before that (R28), and it tries then.
        kept = client.true_time(task.kept_until + self._attempt) + STEPS * client.late + PROMPT
        if self.world.now < kept:
            self.world.at(kept, self._must_have_tried, task, since, invariant, why)
            return
        # It has lost only the race of fences, and pauses as contenders do (C3, C4), whatever its wait object says.
        raced = invariant == ANYWAY and task.raced
        most = self._attempt + LONGEST * self._parameters.node_timeout
        paused = since + most * (1 + self._parameters.drift_factor) + STEPS * client.late + PROMPT
        if raced and self.world.now < paused:
            self.world.at(paused, self._must_have_tried, task, since, invariant, why)
            return
        tried = task.attempted_at > since if invariant == ANYWAY else task.attempted_at >= since
        if not tried:
            last = f"the last attempt was at {task.attempted_at:.4f}"
            self.judge.fail(invariant, f"{task} should have tried again {why}, at {since:.4f}; {last}")

    @property
    def _attempt(self) -> float:
        """The longest that one attempt may take; it may leave a phantom behind its round (R35)."""
        return self._parameters.node_timeout * (2 if self._parameters.confirm else 1)

    @property
    def _need(self) -> int:
        return self._parameters.masters // 2 + 1
