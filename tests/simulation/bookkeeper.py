"""What a user of fenced transactions does: carries out the steps of ``redlock/fenced/_order.py`` (R39)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from redlock import LockLost, NotAcquired
from redlock._core import acquire as acquiring, ballots, release as releasing
from redlock.fenced import CommitUnknown, _order
from redlock.fenced._order import Ended, Release, Step
from tests.simulation.actor import Actor, spec_for
from tests.simulation.database import BEFORE_RELEASE, WHILE_VALID, BrokenError

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulation.client import Client, Task
    from tests.simulation.database import Database, Transaction
    from tests.simulation.invariants import Hold


class Bookkeeper(Actor):
    """Adds one to what its lock protects: reads, thinks, and writes; then it begins anew."""

    def __init__(self, client: Client) -> None:
        super().__init__(client)
        self.database: Database = self.judge.database
        self._steps: Any = None
        self._number = 0  # of this transaction; what comes for another one is void
        self._transaction: Transaction | None = None
        self._holds: Hold | None = None

    def __repr__(self) -> str:
        return f"a bookkeeper of {self.client}"

    def begin(self) -> None:
        self._begins = False
        if self.client.closing:
            return
        self._idle = False
        self._number += 1
        self._holds = self._transaction = None
        self._steps = _order.transaction(lambda: CommitUnknown("nobody knows"))
        self._go_on(None)

    # -- the steps -----------------------------------------------------------------------------------

    def _go_on(self, result: Any) -> None:
        try:
            step = self._steps.send(result)
        except StopIteration:
            self._steps = None
            self.think()
            return
        self.world.log("step", self, step)
        if isinstance(step, Release):
            self._release_it()
        elif step is Step.ACQUIRE:
            self._acquire_it()
        elif step is Step.ENSURE:
            self._go_on(None if self._is_valid() else LockLost("lost"))
        else:
            self._ask(step)

    def _ask(self, step: Step) -> None:
        database, hold, ttl = self.database, self._holds, self.client.parameters.ttl
        assert hold is not None
        if step is Step.BEGIN:
            self._transaction = database.begin(idle=max(0.0, hold.lease.remaining()))
            chance = self.world.random
            self._sleep(2 * ttl * chance.random() if chance.random() < 0.2 else 0.0, None)
            return
        transaction = self._transaction
        assert transaction is not None
        names = sorted(hold.lease.names)
        if step is Step.RAISE:
            assert hold.fence is not None
            self._raise(transaction, names, hold.fence)
        elif step is Step.BODY:
            self._read(transaction, names)
        elif step is Step.COMMIT:
            if not hold.valid():
                self.judge.fail(WHILE_VALID, f"{hold.attempt} was lost")
            self._commit(transaction)
        else:
            assert step is Step.ROLLBACK
            known = transaction.open and not self._unheard
            if transaction.open and not self._unheard:
                database.end(transaction)
            self.world.after(0.01 * ttl, self._gate(), Ended.UNDONE if known else Ended.UNKNOWN)

    _unheard = False  # the commit got no answer
    _asleep: Callable[[Any], None] | None = None

    def _gate(self) -> Callable[[Any], None]:
        """Resumes this transaction, where the client can."""
        number = self._number

        def resume(result: Any) -> None:
            if number == self._number and self._steps is not None:
                self._go_on(result)

        return lambda result: self.client.gate(resume, result)

    def _sleep(self, seconds: float, result: object) -> None:
        """Go on with ``result`` after a while, or when everything has to come to its end."""
        self._asleep = wake = self._gate()

        def over() -> None:
            if self._asleep is wake:
                self._asleep = None
                wake(result)

        if self.client.closing:
            over()
        else:
            self.world.after(seconds, over)

    def _raise(self, transaction: Transaction, names: list[str], fence: int) -> None:
        resume = self._gate()

        def next_one(names: list[str], result: Any) -> None:
            if isinstance(result, BaseException):
                resume(result if isinstance(result, BrokenError) else _order.FenceRefused("refused"))
            elif not names:
                resume(None)
            else:
                self.database.ask(
                    lambda answer: self.database.raise_fence(transaction, names[0], fence, answer),
                    lambda result: next_one(names[1:], result),
                )

        next_one(names, None)

    def _read(self, transaction: Transaction, names: list[str]) -> None:
        """The body: it reads, and thinks about that; or raises."""
        resume, chance = self._gate(), self.world.random

        def next_one(names: list[str], result: Any) -> None:
            if isinstance(result, BaseException):
                resume(result)
            elif names:
                self.database.ask(
                    lambda answer: self.database.read(transaction, names[0], answer),
                    lambda result: next_one(names[1:], result),
                )
            else:
                thinks = chance.choice((0.0, 0.1, 0.5, 2.0)) * chance.random() * self.client.parameters.ttl
                self._sleep(thinks, ValueError("body") if chance.random() < 0.1 else None)

        next_one(names, None)

    def _commit(self, transaction: Transaction) -> None:
        """Of a few commits nobody hears, whether they were done or not."""
        resume, chance = self._gate(), self.world.random
        self._unheard = chance.random() < 0.1
        if not self._unheard:
            self.database.ask(lambda answer: self.database.commit(transaction, answer), resume)
            return
        if chance.random() < 0.5:
            self.database.ask(lambda answer: self.database.commit(transaction, answer), lambda _: None)
        self.world.after(self.client.parameters.node_timeout, resume, BrokenError())

    # -- the lock ------------------------------------------------------------------------------------

    def _acquire_it(self) -> None:
        client, parameters, chance = self.client, self.client.parameters, self.world.random
        names = [f"lock-{number}" for number in range(parameters.names)]
        if chance.random() >= parameters.several:
            names = [chance.choice(names)]
        self._spec = spec_for(client, names, parameters.ttl)
        self._acquire(acquiring.Target(client.settings, self._spec), 2 * parameters.ttl)

    def _acquired(self, task: Task, outcome: Any, interrupted: BaseException | None) -> None:
        self._acquiring = None
        if interrupted is not None or not isinstance(outcome, ballots.Grant):
            self._fail_attempt(task, "interrupted" if interrupted else outcome.kind)
            self._go_on(NotAcquired("held"))
            return
        self._holds = hold = self._hold_of(task, outcome)
        self.client.renewer.keep(hold, self._spec, renew=self.world.random.random() < 0.7, max_hold=None)
        self._go_on(None)

    def _is_valid(self) -> bool:
        assert self._holds is not None
        self.judge.looked(self._holds)
        return self._holds.lease.valid

    def _release_it(self) -> None:
        hold, transaction = self._holds, self._transaction
        assert hold is not None
        if transaction is not None and transaction.open and not self._unheard:
            self.judge.fail(BEFORE_RELEASE, f"{hold.attempt} is released, and its transaction is open")
        self._unheard = False
        self.judge.looked(hold)
        self.judge.ended(hold)
        resume = self._gate()

        def done(task: Task, outcome: Any, interrupted: BaseException | None) -> None:
            self.judge.released(hold, ours=outcome)
            resume(None if outcome or interrupted else LockLost("lost"))

        self.client.run(
            releasing.release(self.client.settings, self._spec, hold.lease), done, hold.attempt, self._sends
        )

    # -- the end -------------------------------------------------------------------------------------

    def close(self) -> None:
        """Everything must come to its end now."""
        if self.client.crashed:
            return
        if self._acquiring is not None:
            self._acquiring.strike()
        elif self._asleep is not None:
            wake, self._asleep = self._asleep, None
            wake(None)
