"""Rules that are broken on purpose, by name: each has to break the promise that its rule is there for.

A specification that keeps its promises whatever it says would prove nothing by keeping them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from .scopes import MORE, SCOPES, Small
from .specification import Key, Master, Reply, Request

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from .specification import Client, Round, Rules, State, Token


@dataclass(frozen=True)
class Mutant:
    name: str
    what: str
    breaks: str  # the promise
    rules: type[Any]
    scope: Any  # in which it does


MUTANTS: Final[dict[str, Mutant]] = {}


def mutant(name: str, breaks: str, scope: str) -> Callable[[type[Rules]], type[Rules]]:
    def add(rules: type[Rules]) -> type[Rules]:
        what = (rules.__doc__ or "").strip().removesuffix(".")
        MUTANTS[name] = Mutant(name, what, breaks, rules, {**SCOPES, **MORE}[scope])
        return rules

    return add


# -- votes and time ----------------------------------------------------------------------------------------


@mutant("minority", "P1", "contest")
class Minority(Small):
    """Half of the masters, rounded down, are enough (R1)."""

    def majority(self) -> int:
        return self.size // 2


@mutant("drift-not-subtracted", "P1", "contest")
class DriftNotSubtracted(Small):
    """Clocks are taken to run at one rate (R6)."""

    def lasts(self, state: State, left: float) -> float:
        return left + 1


@mutant("counts-from-the-answer", "P1", "contest")
class CountsFromTheAnswer(Small):
    """Validity is counted from the moment of the decision, not from before the first byte (R6)."""

    def lasts(self, state: State, left: float) -> float:
        return self.ends(state, self.ttl)


@mutant("token-of-the-process", "P1", "contest")
class TokenOfTheProcess(Small):
    """All attempts have one token (R8)."""

    def token(self, c: int, number: int) -> Token:
        return "always the same"


# -- release -----------------------------------------------------------------------------------------------


@mutant("rollback-where-granted", "P7", "hand-over")
class RollbackWhereGranted(Small):
    """A failed attempt is not released on the masters that were silent (R9)."""

    def give_up(self, state: State, c: int) -> State:
        said = state.clients[c].rounds[0].said
        after = super().give_up(state, c)
        kept = (
            line if said[m] else before
            for m, (line, before) in enumerate(zip(after.flight[c], state.flight[c], strict=True))
        )
        return after._replace(flight=(*after.flight[:c], tuple(kept), *after.flight[c + 1 :]))


@mutant("rollback-overtakes", "P7", "hand-over")
class RollbackOvertakes(Small):
    """A release goes over a connection of its own, and may overtake its acquire (R10)."""

    def sent(self, state: State, c: int, request: Request, to: Iterable[int]) -> State:
        after = super().sent(state, c, request, to)
        if request.what != "release":
            return after
        lines = tuple((queue[-1], *queue[:-1]) for queue in after.flight[c])
        return after._replace(flight=(*after.flight[:c], lines, *after.flight[c + 1 :]))


@mutant("release-forgotten", "P7", "lose")
class ReleaseForgotten(Small):
    """A release that a broken connection swallows is not sent again (R10)."""

    def lose(self, state: State, c: int, m: int, place: int = 0) -> State:
        line = state.flight[c]
        line = (*line[:m], (*line[m][:place], *line[m][place + 1 :]), *line[m + 1 :])
        return state._replace(flight=(*state.flight[:c], line, *state.flight[c + 1 :]))


@mutant("release-without-owner-check", "P8", "hand-over")
class ReleaseWithoutOwnerCheck(Small):
    """A release removes the key without a look at its owner (P8)."""

    def on_release(self, master: Master, asked: Request) -> tuple[Master, Reply]:
        return master._replace(key=None), Reply("done")


# -- extension ---------------------------------------------------------------------------------------------


@mutant("extension-adds", "P3", "hand-over")
class ExtensionAdds(Small):
    """An extension adds its TTL to what is left, and does not set it (R12)."""

    def on_extend(self, master: Master, asked: Request) -> tuple[Master, Reply]:
        after, reply = super().on_extend(master, asked)
        if reply.said != "granted" or master.key is None or after.key is None:
            return after, reply
        return after._replace(key=Key(asked.token, master.key.left + asked.left)), reply


@mutant("extension-brings-back", "P6", "hand-over")
class ExtensionBringsBack(Small):
    """An extension sets keys that are gone, and a lease that is over is valid again (R12)."""

    def on_extend(self, master: Master, asked: Request) -> tuple[Master, Reply]:
        if master.key is None:
            return master._replace(key=Key(asked.token, asked.left)), Reply("granted", master.fence)
        return super().on_extend(master, asked)

    def may_extend(self, client: Client) -> bool:
        return client.phase == "holding"


@mutant("late-is-in-time", "P6", "hand-over")
class LateIsInTime(Small):
    """An extension that was answered in time counts, however late its client comes to it (R12)."""

    def may_extend(self, client: Client) -> bool:
        return client.phase == "holding"

    def _later(self, client: Client, d: float) -> Client:
        """An extension lasts from its answer on."""
        after = super()._later(client, d)
        return after._replace(rounds=client.rounds) if client.phase == "holding" else after


@mutant("shorter-when-answered", "P1", "shorter")
class ShorterWhenAnswered(Small):
    """An extension to a shorter TTL counts only once it is answered (C6)."""

    def extend(self, state: State, c: int, mark: int, ttl: float | None = None) -> State:
        after = super().extend(state, c, mark, ttl)
        return self._with(after, c, after.clients[c]._replace(left=state.clients[c].left))


@mutant("repair-shortens", "P1", "hand-over")
class RepairShortens(Small):
    """Who has handed a lease over makes its grant whole, and a key that was extended gets the shorter time of that (R14, R37)."""

    def repairs(self, asked: Round) -> bool:
        return True

    def on_repair(self, master: Master, asked: Request) -> tuple[Master, Reply]:
        after, reply = super().on_repair(master, asked)
        return after._replace(key=Key(asked.token, asked.left)) if reply.said == "done" else after, reply


@mutant("repair-without-owner-check", "P8", "forget-and-extend")
class RepairWithoutOwnerCheck(Small):
    """A repair overwrites the key of another client (R14)."""

    def on_repair(self, master: Master, asked: Request) -> tuple[Master, Reply]:
        return master._replace(key=Key(asked.token, asked.left)), Reply("done")


# -- fences ------------------------------------------------------------------------------------------------


@mutant("equal-is-greater", "P2", "contest")
class EqualIsGreater(Small):
    """A master accepts a proposal that equals its fence (R18)."""

    def exceeds(self, proposal: int, fence: int) -> bool:
        return proposal >= fence


@mutant("fence-not-written-back", "P2", "again")
class FenceNotWrittenBack(Small):
    """The fence is one more than the greatest that was seen, and no majority has stored it (R17)."""

    def grant(self, state: State, c: int) -> State:
        client = state.clients[c]
        said = tuple(
            one._replace(said="granted") if one and one.said == "taken" else one for one in client.rounds[0].said
        )
        seen = [one.fence for one in client.rounds[0].said if one and one.said == "taken"]
        first = client.rounds[0]._replace(said=said)
        after = super().grant(self._with(state, c, client._replace(rounds=(first,))), c)
        if not seen:
            return after
        fence = max(seen) + 1
        return self._with(after, c, after.clients[c]._replace(fence=fence))._replace(granted=(*state.granted, fence))


# -- masters that forget -----------------------------------------------------------------------------------


@mutant("restarted-master-votes", "P1", "forget")
class RestartedMasterVotes(Small):
    """A master that may have forgotten keys votes at once (R21)."""

    def quarantine(self, state: State) -> float:
        return 0


# -- an expiry is confirmed by more than one clock (R35) ---------------------------------------------------


@mutant("one-clock-is-enough", "P1", "evict")
class OneClockIsEnough(Small):
    """Nothing is on record, and a key that is gone is free: one master with a wrong clock is enough (R35)."""

    def __init__(self, *sizes: Any, **options: Any) -> None:
        super().__init__(*sizes, **{**options, "confirm": False})


@mutant("f-are-enough", "P1", "evict")
class FAreEnough(Small):
    """As many as may be wrong about time show that it has run out (R35)."""

    def over(self, first: Round) -> frozenset[Any]:
        return frozenset((one.record.token, one.record.mark) for one in first.said if one and one.record)


@mutant("no-stamp", "P1", "evict-and-extend")
class NoMark(Small):
    """Records do not tell the extensions of a lease apart (R35)."""

    def on_extend(self, master: Master, asked: Request) -> tuple[Master, Reply]:
        after, reply = super().on_extend(master, asked)
        return after._replace(record=after.record and after.record._replace(mark=0)), reply


@mutant("rollback-is-a-release", "P1", "evict-twice")
class RollbackIsARelease(Small):
    """What is on record from before goes with the rollback of an attempt as well, and not only with a release (R35)."""

    def give_up(self, state: State, c: int) -> State:
        request = Request("release", state.clients[c].token, fence=state.clients[c].rounds[0].request.fence)
        after = super().give_up(state, c)
        lines = tuple((*queue[:-1], request) for queue in after.flight[c])
        return after._replace(flight=(*after.flight[:c], lines, *after.flight[c + 1 :]))
