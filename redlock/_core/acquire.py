"""Taking a lock: attempts, each of which wins a majority or leaves nothing behind.

One attempt is one round to all masters with a token of its own.  In the common case that round also
settles the fencing token; a second, short one follows where a master had a greater fence (R17).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from redlock._core import quorum, wire
from redlock._core.effects import Enter, Heard, Leave, Listen, Op, Send, Timeout, wait
from redlock._core.listen import Ear
from redlock._core.lobby import Ticket
from redlock._core.outcomes import NEVER
from redlock._core.quorum import Tally
from redlock._core.retry import delay
from redlock._core.rounds import GRANTED, Round

if TYPE_CHECKING:
    from collections.abc import Callable

    from redlock._core.terms import Plan, Terms
    from redlock.errors import Outcome, Vote


class Grant(NamedTuple):
    """A majority granted it, in time."""

    token: str
    fence: int | None
    valid_until: float
    decided_at: float
    asked: frozenset[int]  # masters that may have a key of ours
    votes: Callable[[], tuple[Vote, ...]]  # made when looked at, not on the way
    attempts: int = 1
    ticket: Ticket | None = None  # our place in line, which is the first


class Refusal(NamedTuple):
    """The last attempt failed, and was rolled back.

    ``held``: somebody else has it.  ``unreachable``: too few masters took part (C2).  ``slow``: they
    did, but too late for the lease to be worth having (R7).
    """

    kind: Literal["held", "unreachable", "slow"]
    tally: Tally
    at: float
    attempts: int = 1
    holder: str = ""  # of a refusal that is `held`: the token seen on most masters
    remaining: float | None = None  # seconds until a majority is free if nobody extends its key
    split: bool = False  # ... and nobody is known to have a majority
    validity: float | None = None  # of one that is `slow`: what would have been left


def acquire(terms: Terms, plan: Plan, deadline: float, won: list[Grant] | None = None) -> Op[Grant | Refusal]:
    """Try until it is granted or ``deadline`` has passed; at least once, and once more at the deadline.

    First one stands in line in this process (R23); whoever is granted the lock stays in front until it is
    released.  ``won`` gets the grant the moment there is one: a Ctrl-C that strikes on the way back to the
    caller must not make it forget what it has to release (R11).
    """
    ticket = Ticket(plan.keys.locks)
    try:
        yield Enter(ticket)
        outcome: Grant | Refusal | None = yield from _queue(terms, ticket, deadline)
        if outcome is None:
            ticket.inbox = None  # nobody has to tell us any more; a lease that referred to it would be a cycle
            outcome = yield from _contend(terms, plan, deadline, won, ticket)
        if isinstance(outcome, Refusal):
            interruption = yield from insist(Leave(ticket))
            if interruption is not None:
                raise interruption  # noqa: TRY301 - and once more, below
    except GeneratorExit:  # dropped, not interrupted: nobody would carry out what we yield
        raise
    except BaseException:
        yield from insist(Leave(ticket))
        raise
    return outcome


def _queue(terms: Terms, ticket: Ticket, deadline: float) -> Op[Refusal | None]:
    """Until it is our turn; a `Refusal` if it is not in time."""
    while not ticket.turn:
        event = yield from wait(deadline, quiet=True)
        if isinstance(event, Timeout) and not ticket.turn:
            return Refusal("held", Tally(terms.masters), event.at, attempts=0)
    return None


def _contend(terms: Terms, plan: Plan, deadline: float, won: list[Grant] | None, ticket: Ticket) -> Op[Grant | Refusal]:
    """Against other processes."""
    attempts = 0
    failed = 0  # of these, since a release was announced: then everybody begins anew
    ear: Ear | None = None
    if NEVER < ticket.courtesy < deadline:
        ear = Ear(plan.keys.locks, len(terms.masters))
        yield Listen(ear)
        yield from _let_others_go_first(ear, ticket.courtesy)
    while True:
        attempts += 1
        failed += 1
        if ear is not None:
            ear.attempting()
        outcome = yield from attempt(terms, plan, won, attempts, ticket)
        if ear is not None:
            ear.tried(collided=isinstance(outcome, Refusal) and outcome.split)
        if isinstance(outcome, Grant):
            return outcome
        # C1: an outage may pass.  A wrong password will not, however long one waits for it.
        if outcome.at >= deadline or outcome.tally.misconfigured:
            return outcome._replace(attempts=attempts)
        until = min(outcome.at + delay(plan.retry, failed), deadline)
        if outcome.remaining is not None:  # then it is free, whether anybody says so or not
            until = min(until, outcome.at + outcome.remaining + quorum.ROUNDING)
        if ear is None and outcome.kind == "held":
            ear = Ear(plan.keys.locks, len(terms.masters))
            yield Listen(ear)
        if (yield from _pause(terms, ear, outcome, until)):
            failed = 0


def _let_others_go_first(ear: Ear, until: float) -> Op[None]:
    """They listen, and we have had it.  The first release that we hear of is that of our own process."""
    while ear.released < 2:  # noqa: PLR2004 - see above
        if isinstance((yield from wait(until)), Timeout):
            return


def _pause(terms: Terms, ear: Ear | None, refusal: Refusal, until: float) -> Op[bool]:
    """Until there is reason to try again; True if that is a release that was announced (R24)."""
    at = refusal.at
    if ear is not None:
        ear.refused(refusal.tally.in_the_way())
    if refusal.kind != "held":
        ear = None  # no release ends an outage; and what failed attempts take back is announced as well
    while ear is None or not (ear.look or ear.released):
        event = yield from wait(until)
        if isinstance(event, Timeout):
            return False
        if isinstance(event, Heard):  # else it is something late, of the attempt that failed
            at = event.at
    if not ear.released:
        return False
    spread = ear.spread
    if spread:
        until = min(at + spread * terms.random(), until)
        while not isinstance((yield from wait(until, quiet=True)), Timeout):
            pass
    return True


def attempt(
    terms: Terms, plan: Plan, won: list[Grant] | None = None, number: int = 1, ticket: Ticket | None = None
) -> Op[Grant | Refusal]:
    """One token, one round, and a rollback on every way out that is not a grant (R8, R9, R11)."""
    token = terms.token()
    proposal = terms.fences.propose() if plan.fencing else 0
    ballot = Ballot(terms, wire.acquire(plan.keys, token, plan.ttl, proposal, terms.fence_ttl), proposal)
    try:
        at = yield from ballot.ask()
        tally = ballot.tally
        terms.attempted(tally)
        if not tally.won:
            refusal = ballot.refusal(at)
        else:
            fence: int | None = None
            if plan.fencing:
                fence = proposal
                if not ballot.stored:
                    fence, at, tally = yield from second_round(terms, plan, token, ballot)
            valid_until = quorum.valid_until(ballot.sent_at, plan.ttl, terms.drift_factor)
            if not tally.won:
                refusal = Refusal("unreachable" if tally.unreachable else "held", tally, at)
            elif valid_until - at < plan.min_validity:
                refusal = Refusal("slow", ballot.tally, at, validity=valid_until - at)
            else:
                grant = Grant(token, fence, valid_until, at, ballot.reached(), ballot.tally.votes, number, ticket)
                if won is not None:
                    won.append(grant)
                return grant
        interruption = yield from rollback(plan, token, ballot)
        if interruption is not None:
            raise interruption  # noqa: TRY301 - and once more, below
    except GeneratorExit:  # dropped, not interrupted: nobody would carry out what we yield
        raise
    except BaseException:  # cancelled, Ctrl-C: the keys must not outlive us (R11)
        yield from rollback(plan, token, ballot)
        raise
    return refusal


def second_round(terms: Terms, plan: Plan, token: str, first: Ballot) -> Op[tuple[int, float, Tally]]:
    """A fence greater than all seen, to the masters that granted or may yet grant (R17).

    Within the time of the attempt: a master's share of it does not grow by asking twice.
    """
    proposal = first.highest + 1
    terms.fences.learn(proposal)
    granted = frozenset(master for master in first.reached() if first.tally.outcome(master) in ("granted", None))
    call = wire.fence(plan.keys, token, proposal, terms.fence_ttl)
    second = SecondBallot(terms, call, to=granted, before=first.tally)
    at = yield from second.ask(first.sent_at + terms.node_timeout)
    return proposal, at, second.tally


def rollback(plan: Plan, token: str, round_: Round) -> Op[BaseException | None]:
    """Release on all masters that may have the key, the silent ones first of all (R9).

    Nobody waits for the answers: on each connection the release stands behind the acquire (R10),
    and what a broken connection swallowed is owed for as long as the key can live.  Returns what
    interrupted it.
    """
    sent_at = round_.sent_at
    if sent_at == NEVER:  # interrupted before the round was sent
        return None
    release = Send(wire.release(plan.keys, token), to=round_.reached(), owed_until=sent_at + 2 * plan.ttl)
    return (yield from insist(release))


def insist(*effects: Send | Leave) -> Op[BaseException | None]:
    """Carry them out although somebody keeps pressing Ctrl-C: doing it twice does no harm.

    Returns the first interruption, for the caller to raise unless it is raising one already.
    """
    first: BaseException | None = None
    for effect in effects:
        for _ in range(3):
            try:
                yield effect
            except GeneratorExit:
                raise
            except BaseException as interruption:  # noqa: BLE001 - handed to the caller
                first = first or interruption
            else:
                break
    return first


class Ballot(Round):
    """The votes of an attempt: grants with their fences, refusals with their holders."""

    __slots__ = ("_elsewhere", "_holders", "highest")

    def __init__(self, terms: Terms, call: wire.Call, proposal: int) -> None:
        super().__init__(terms, call)
        self.highest = proposal  # of the fences that were proposed and shown
        self._elsewhere: list[int] = []  # masters that granted, and whose fence is not our proposal
        self._holders: list[tuple[str, float]] = []

    def read(self, master: int, value: Any) -> tuple[Outcome, str]:
        answer = wire.read_acquire(value)
        self.highest = max(self.highest, answer.fence)
        self._terms.fences.learn(answer.fence)
        if isinstance(answer, wire.Taken):
            if not answer.stored and self.tally.outcome(master) is None:  # it votes once, however often it was asked
                self._elsewhere.append(master)
            return GRANTED
        self._holders.append((answer.holder, answer.remaining))
        return "held", f"by {answer.holder} {wire.how_long(answer.remaining)}"

    @property
    def stored(self) -> bool:
        """Whether a majority stored our proposal (R17); only votes that count do."""
        tally = self.tally
        return (
            tally.yes - tally.granted_by(self._elsewhere) >= tally.need
        )  # not all that was read was counted, if Ctrl-C struck

    def refusal(self, at: float) -> Refusal:
        tally = self.tally
        if tally.unreachable:
            return Refusal("unreachable", tally, at)
        tokens = [holder for holder, _ in self._holders]
        holder = max(tokens, key=tokens.count, default="")
        left = sorted(remaining for _, remaining in self._holders)
        missing = tally.need - tally.yes  # so many of these keys have to go
        return Refusal(
            "held",
            tally,
            at,
            holder=holder,
            split=tokens.count(holder) < tally.need,
            remaining=left[missing - 1] if missing <= len(left) else None,
        )


class SecondBallot(Round):
    """Who stored the greater fence (R17)."""

    __slots__ = ()

    def read(self, master: int, value: Any) -> tuple[Outcome, str]:  # noqa: ARG002 - they say who they are
        verdict, fence = wire.read_fence(value)
        self._terms.fences.learn(fence)
        if verdict == 1:
            return GRANTED
        return "held", f"has the fence {fence}, ours is not greater" if verdict == 0 else "not ours"
