"""The judge of elections (R31): what one candidate does, and in which order.

That two valid terms never overlap, and that their numbers rise, are P1 and P2 of their leases.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.simulation.candidate import Candidate
    from tests.simulation.invariants import Hold, Judge

ONE_BODY = "R31 one body"
RESIGNED = "R31 resigned after the body"
TOLD_ONCE = "R31 stopped once"
STOPS = "R31 stops"
RAISES = "R31 ends with an error"
IN_TERM = "R31 begins in its term"


@dataclass(eq=False)
class Record:
    """What one candidate has done in one election."""

    term: Hold | None = None  # the latest that it led
    runs: bool = False  # ... its body has not ended
    told: int = 0  # ... `on_stopped` was called so often
    resigned: bool = False
    failed: bool = False  # a body has raised, and no other one may begin
    stopped: bool = False
    late: bool = False  # it was elected, and its thread goes on later
    looks: int = 0  # of these only the latest counts


class Terms:
    """Part of the `Judge`."""

    def __init__(self, judge: Judge) -> None:
        self.judge = judge
        self.bodies = self.stops = 0
        self._records: dict[Candidate, Record] = {}

    def begins(self, candidate: Candidate) -> None:
        self._records[candidate] = Record()

    def campaigns(self, candidate: Candidate) -> None:
        record = self._records[candidate]
        self._over(candidate, record)
        if record.failed:
            self.judge.fail(RAISES, f"{candidate} campaigns again, and its body has raised")

    def leads(self, candidate: Candidate, term: Hold) -> None:
        record = self._records[candidate]
        if record.runs or record.term is term:
            self.judge.fail(ONE_BODY, f"{candidate} begins a second body: {record.term} and {term}")
        if record.stopped:
            self.judge.fail(STOPS, f"{candidate} begins a body, and was stopped")
        if term.let_go:
            self.judge.fail(RESIGNED, f"{candidate} begins a body for {term.attempt}, which it has given back")
        if not term.lease.valid:
            self.judge.fail(IN_TERM, f"{candidate} begins a body for {term.attempt}, and its term is over")
        self.bodies += 1
        record.term, record.runs, record.told, record.resigned = term, True, 0, False

    def late(self, candidate: Candidate, late: bool) -> None:
        record = self._records[candidate]
        record.late = late
        if record.stopped and not late:
            self._look_later(candidate, record)

    def fails(self, candidate: Candidate) -> None:
        """An exception struck between two steps: no other body may begin."""
        self._records[candidate].failed = True

    def body_ended(self, candidate: Candidate, *, raised: bool) -> None:
        record = self._records[candidate]
        record.runs, record.failed = False, record.failed or raised
        if record.stopped:
            self._look_later(candidate, record)

    def said_stopped(self, candidate: Candidate, term: Hold) -> None:
        record = self._records[candidate]
        record.told += 1
        if record.term is not term or record.runs or record.told > 1:
            self.judge.fail(TOLD_ONCE, f"{candidate}: on_stopped of {term.attempt}, {record}")

    def resigns(self, candidate: Candidate, term: Hold) -> None:
        record = self._records[candidate]
        if record.term is term and record.runs:
            self.judge.fail(RESIGNED, f"{candidate} gives {term.attempt} back, and its body has not ended")
        record.resigned = True

    def stopped(self, candidate: Candidate) -> None:
        record = self._records[candidate]
        if not record.stopped:
            self.stops += 1
            record.stopped = True
            self._look_later(candidate, record)

    def ends(self, candidate: Candidate) -> None:
        self._over(candidate, self._records.pop(candidate))

    def interrupted(self, candidate: Candidate) -> None:
        """A Ctrl-C in a campaign ends the election, whatever its steps are."""
        self._records.pop(candidate)

    def _over(self, candidate: Candidate, record: Record) -> None:
        """It goes on behind a term."""
        if record.runs:
            self.judge.fail(ONE_BODY, f"{candidate} goes on, and the body of {record.term} has not ended")
        if record.term is not None and record.told != 1:
            self.judge.fail(TOLD_ONCE, f"{candidate}: on_stopped was called {record.told} times for {record.term}")
        if record.term is not None and not record.resigned:
            self.judge.fail(RESIGNED, f"{candidate} goes on, and has not given {record.term} back")

    def _soon(self, candidate: Candidate) -> float:
        """After a stop nothing takes longer than a release does, however late its answers and its thread are."""
        return 4 * self.judge.parameters.node_timeout + 10 * candidate.client.late

    def _look_later(self, candidate: Candidate, record: Record) -> None:
        record.looks += 1
        self.judge.world.after(
            self._soon(candidate), candidate.client.gate, self._must_be_over, candidate, record, record.looks
        )

    def _must_be_over(self, candidate: Candidate, record: Record, look: int) -> None:
        if self._records.get(candidate) is not record or look != record.looks or record.runs or record.late:
            return
        if candidate.client.clock() - candidate.client.resumed_at < self._soon(candidate):  # it stood still meanwhile
            self._look_later(candidate, record)
        else:
            self.judge.fail(STOPS, f"{candidate} was stopped, and goes on: {record}")
