"""One round: what is counted, what is not, and that no answer can break it (R2, R3, R21)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import example, given, strategies as st

from redlock._core import readings, wire
from redlock._core.effects import Op, Timeout, Turn
from redlock._core.kernel.ballot import Ballot
from redlock._core.kernel.quorum import Tally
from redlock._core.kernel.release import Claim
from redlock._core.kernel.rounds import Round
from redlock._core.outcomes import Failure
from redlock._core.voters import Facts
from tests.core.test_wire import replies
from tests.core.world import NEVER, START, Master, World, down, outcomes
from tests.properties.profile import PROPERTY

if TYPE_CHECKING:
    from redlock.errors import Outcome

KEYS = wire.keys_for("redlock:", ["a"])


CALL = wire.extend(KEYS, "t", 10.0, 60.0)


class Poll(Round):
    """Of a mere yes or no."""

    def read(self, master: int, value: Any) -> tuple[Outcome, str]:
        if value == "nonsense":
            raise wire.BadReply("what is that?")
        return ("granted", "") if value == [1] else ("held", "no")


class Settling(Poll):
    _until = "conclusive"


class Complete(Poll):
    _until = "complete"


def a_round(
    world: World, to: frozenset[int] | None = None, before: Tally | None = None, kind: type[Round] = Poll
) -> Round:
    return kind(world.settings, CALL, to, before=before)


def says(value: Any, after: float = 0.01) -> Master:
    return Master(after, {"extend": value})


@pytest.mark.parametrize(("kind", "ends_at"), [(Poll, 0.03), (Settling, 0.04), (Complete, 0.05)])
def test_when_it_ends(kind: type[Round], ends_at: float) -> None:
    # a no and two errors: no majority any more; a third error: no majority can deny it either
    broken = Failure("error", "x")
    world = World(says([0], 0.01), says(broken, 0.02), says(broken, 0.03), says(broken, 0.04), says([1], 0.05))
    assert world.run(a_round(world, kind=kind).ask()) == world.now == pytest.approx(START + ends_at)


def begun(masters: int) -> tuple[World, Round, Any]:
    """A round whose request was written; nobody has answered."""
    world = World(*[Master(NEVER)] * masters)
    round_ = a_round(world)
    operation: Any = round_.ask()
    world._write(operation.send(None))
    operation.send(None)
    return world, round_, operation


@pytest.mark.parametrize("says_so", [True, False], ids=["told", "a-timeout-comes-first"])
def test_it_is_over_with_the_answer_that_decides_though_nobody_has_looked_yet(says_so: bool) -> None:
    """The thread that reads counts, whichever it is, and may be interrupted before it can tell us.

    An answer too late must not change what the operation will see, and a timeout takes nothing back.
    """
    _, round_, operation = begun(5)
    assert [round_.answered(master, [1], START + master) for master in range(3)] == [False, False, True]
    assert not round_.open
    with pytest.raises(StopIteration) as ended:
        operation.send(round_ if says_so else Timeout(START + 9))
    assert ended.value.value == START + 2
    assert outcomes(round_.tally.votes()) == ["granted"] * 3 + ["pending"] * 2


@pytest.mark.parametrize("what", ["a round before, decided late", "a turn"])
def test_what_is_no_answer_is_no_timeout_either(what: str) -> None:
    """Another thread may say that it is our turn when we have seen so already (R23)."""
    world, round_, operation = begun(3)
    operation.send(Turn(START) if what == "a turn" else a_round(world))
    assert outcomes(round_.tally.votes()) == ["pending"] * 3
    assert round_.open


def test_those_that_are_not_asked_at_all_say_why() -> None:
    """Of a release: where no key can be, nobody is asked."""
    world = World(*[Master(0.01)] * 3)
    before = Tally(world.settings.masters)  # in which they said nothing
    asked = frozenset([1, 2])
    for round_ in (a_round(world, asked, kind=Complete), a_round(world, asked, before, kind=Complete)):
        world.run(round_.ask())
        assert [(vote.outcome, vote.reason) for vote in round_.tally.votes()] == [
            ("error", "not asked: it has no key of this lease"),
            ("granted", ""),
            ("granted", ""),
        ]


@pytest.mark.parametrize(("answers_after", "outcome"), [(0.1, "quarantined"), (0.2, "granted")])
def test_whether_it_may_vote_is_asked_when_its_answer_comes(answers_after: float, outcome: str) -> None:
    """A lease begins when its round is decided: by then every lease that was forgotten has ended."""
    world = World(says([1], answers_after), guard=True, max_ttl=60.0)
    world.settings.voters.admit(0, Facts("restarted", 0), START)
    world.now = START + 60 - 0.15
    round_ = a_round(world)
    world.run(round_.ask())
    assert outcomes(round_.tally.votes()) == [outcome]


def test_a_vote_not_counted_that_needs_somebody_is_a_configuration_error() -> None:
    world = World(*[Master()] * 3, guard=True)
    for master in range(2):
        world.settings.voters.admit(master, Facts(None, None), START)
    round_ = a_round(world)
    world.run(round_.ask())
    assert readings.misconfigured(round_.tally)


class WholeBallot(Ballot):
    _until = "complete"


class WholeClaim(Claim):
    _until = "complete"


@PROPERTY
@given(st.lists(st.tuples(replies, st.floats(0, 0.3)), min_size=1, max_size=5), st.sampled_from(["acquire", "extend"]))
@example([([True, 0.0], 0.0)], "extend")  # equal to the usual answer
def test_no_answer_breaks_a_round(answers: list[tuple[Any, float]], verb: str) -> None:
    world = World(*[Master(after, {verb: value}) for value, after in answers])
    round_: Round
    if verb == "acquire":
        round_ = WholeBallot(world.settings, wire.acquire(KEYS, "t", 10.0, 5, 60.0))
        good = wire.read_acquire
    else:
        round_ = WholeClaim(world.settings, CALL)
        good = wire.read_owned  # type: ignore[assignment]
    world.run(round_.ask())
    for (value, after), vote in zip(answers, round_.tally.votes(), strict=True):
        if after > 0.25:
            assert vote.outcome == "timeout"
            continue
        try:
            good(value)
        except ValueError:
            assert vote.outcome == "error"
            assert vote.reason
        else:
            assert vote.outcome in ("granted", "held")


def test_a_crash_of_our_own_is_not_hidden_as_a_vote() -> None:
    """Only `ValueError` is the master's fault."""

    class Broken(Complete):
        def read(self, master: int, value: Any) -> tuple[Outcome, str]:
            raise KeyError(master)

    world = World(down(), Master(0.01, {"extend": [0, b""]}))
    operation: Op[float] = Broken(world.settings, CALL).ask()
    with pytest.raises(KeyError):
        world.run(operation)
