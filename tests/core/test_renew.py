"""Many leases in one round: each ends as it would alone (R12-R14, C6), whatever becomes of the others."""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import example, given, settings, strategies as st

from redlock._core.effects import Wait
from redlock._core.extend import Extension, extend, renew
from redlock._core.lease import LeaseState
from redlock._core.outcomes import Failure
from redlock._core.refusals import ErrorReply
from tests.core.world import (
    NEVER,
    OTHER,
    PROPERTY,
    START,
    Interrupt,
    Master,
    World,
    breaks,
    down,
    outcomes,
    refuses,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from redlock._core.settings import LockSpec
    from redlock.errors import Reason

OURS, GONE, TAKEN = 1, b"", OTHER.encode()
WRONG = ErrorReply("WRONGTYPE not a string")


def says(*answers: Any, after: float = 0.01) -> Master:
    """Of each lease, in their order."""
    return Master(after, {"renew": list(answers)})


def silent() -> Master:
    return Master(NEVER)


class Scene:
    """Leases that were granted at `START`, and are renewed 3 s later."""

    def __init__(self, *masters: Master, leases: int = 2, ttls: tuple[float, ...] = (10.0,)) -> None:
        self.world = World(*masters)
        self.held: list[tuple[LockSpec, LeaseState]] = []
        for number in range(leases):
            spec = self.world.spec(f"name-{number}", ttl=ttls[number % len(ttls)])
            self.held.append((spec, self.world.lease(spec, token=f"token-{number}")))
        self.world.now += 3.0
        self.asked_at = self.world.now

    @property
    def leases(self) -> list[LeaseState]:
        return [lease for _, lease in self.held]

    def renew(self) -> list[Extension]:
        return self.world.run(renew(self.world.settings, self.held, self.world.now))

    def kinds(self) -> list[str]:
        return [extension.kind for extension in self.renew()]


@pytest.mark.parametrize(
    ("masters", "kinds", "reasons", "at"),
    [
        pytest.param([says(1, 1), says(1, 1), silent()], ["kept"] * 2, [None] * 2, 0.01, id="kept"),
        pytest.param([silent()] * 3, ["unanswered"] * 2, [None] * 2, 0.25, id="nobody-answers"),
        pytest.param([down()] * 3, ["unanswered"] * 2, [None] * 2, 0.0, id="all-down"),
        pytest.param([breaks()] * 3, ["unanswered"] * 2, [None] * 2, 0.0, id="all-break"),
        # one that is denied, and one that is not
        pytest.param(
            [says(1, GONE), says(1, GONE), silent()], ["kept", "lost"], [None, "expired"], 0.01, id="one-gone"
        ),
        pytest.param(
            [says(GONE, 1), says(TAKEN, 1), silent()], ["lost", "kept"], ["taken", None], 0.01, id="one-taken"
        ),
        # not the first two, whose denials are of different leases
        pytest.param(
            [says(GONE, 1), says(1, GONE), says(1, 1, after=0.1)], ["kept"] * 2, [None] * 2, 0.1, id="each-denied-once"
        ),
        # an error is of one lease; and no proof
        pytest.param(
            [says(WRONG, 1), says(WRONG, 1), silent()], ["unanswered", "kept"], [None] * 2, 0.01, id="wrong-type"
        ),
        pytest.param(
            [says(1, GONE), down(), says(1, 1, after=0.1)], ["kept", "unanswered"], [None] * 2, 0.1, id="no-proof"
        ),
        # what is no answer to this question
        pytest.param([says(1), says(1, 1, 1), silent()], ["unanswered"] * 2, [None] * 2, 0.01, id="too-few-too-many"),
        pytest.param([says(1, 0), says(1, 1), says(1, 1)], ["kept"] * 2, [None] * 2, 0.01, id="one-talks-nonsense"),
    ],
)
def test_each_for_itself(masters: list[Master], kinds: list[str], reasons: list[Reason | None], at: float) -> None:
    scene = Scene(*masters)
    had = [lease.valid_until for lease in scene.leases]
    assert scene.kinds() == kinds
    assert scene.world.now - scene.asked_at == pytest.approx(at)
    for lease, kind, reason, before in zip(scene.leases, kinds, reasons, had, strict=True):
        assert lease.valid_until == (pytest.approx(scene.asked_at + 10 - 0.102) if kind == "kept" else before)
        assert (lease.lost, lease.valid) == (kind == "lost", kind != "lost")
        if reason is not None:
            assert lease.loss().reason == reason
        assert not lease.all_pending


def test_one_request_for_all() -> None:
    scene = Scene(*[Master(0.01)] * 3, leases=3, ttls=(10.0, 20.0))
    assert scene.kinds() == ["kept"] * 3
    [sent] = scene.world.sent
    assert sent.verb == "renew"
    assert sent.to == {0, 1, 2}
    assert sent.request.owed_until is None
    assert not sent.request.answered(0, [0, 0, 0], scene.world.now)  # decided: nothing changes that
    keys = [key for spec, _ in scene.held for key in spec.keys.locks + spec.keys.fences]
    assert sent.request.call.keys == tuple(keys)  # R20: the fence keys live on
    one, two, three = (("1", "1", f"token-{number}", ms) for number, ms in enumerate(("10000", "20000", "10000")))
    assert sent.args == ("3600000", *one, *two, *three)
    # each has its own TTL, from one moment
    assert [lease.valid_until - scene.asked_at for lease in scene.leases] == pytest.approx([9.898, 19.798, 9.898])


def test_one_that_waits_holds_up_no_other() -> None:
    """What is decided for a lease counts at once, though another one of its round needs the slow masters."""
    scene = Scene(says(1, 1), says(1, TAKEN), says(1, 1, after=0.2))
    operation = renew(scene.world.settings, scene.held, scene.world.now)
    scene.world._write(operation.send(None))  # type: ignore[arg-type]
    effect: Any = operation.send(None)
    first, second = scene.leases
    had = second.valid_until
    effect = operation.send(scene.world._next(effect))
    assert scene.world.now - scene.asked_at == pytest.approx(0.01)
    assert first.valid_until == pytest.approx(scene.asked_at + 9.898)
    assert not first.all_pending
    assert second.valid_until == had
    assert second.all_pending
    with pytest.raises(StopIteration) as stop:
        operation.send(scene.world._next(effect))
    assert [extension.at - scene.asked_at for extension in stop.value.value] == pytest.approx([0.01, 0.2])
    assert outcomes(first.votes) == ["granted", "granted", "pending"]  # what came later changes nothing
    assert outcomes(second.votes) == ["granted", "held", "granted"]


def test_a_lease_that_is_over_is_not_even_asked_for() -> None:
    """R12; and the answers are those of the others."""
    scene = Scene(says(1, GONE), says(1, GONE), silent(), leases=4)
    zero, one, two, three = scene.leases
    zero.end()
    two.lose("max_hold")
    assert scene.kinds() == ["lost", "kept", "lost", "lost"]
    assert [lease.valid for lease in (zero, one, two, three)] == [False, True, False, False]
    assert three.loss().reason == "expired"
    assert scene.world.sent[0].args[3::4] == ("token-1", "token-3")


def test_nobody_is_left_to_be_asked_for() -> None:
    scene = Scene(*[Master()] * 3)
    for lease in scene.leases:
        lease.end()
    assert scene.kinds() == ["lost", "lost"]
    assert scene.world.sent == []


def test_released_while_it_was_asked_for() -> None:
    """No repair may stand behind the release; to the other lease it is nothing."""
    scene = Scene(says(GONE, GONE, after=0.0), says(1, 1), says(1, 1))
    operation = renew(scene.world.settings, scene.held, scene.world.now)
    scene.world._write(operation.send(None))  # type: ignore[arg-type]
    scene.leases[0].end()
    scene.world.run(rest(operation))
    [repair] = scene.world.all("repair")
    assert repair.token == scene.leases[1].token
    assert not scene.leases[0].lost


def rest(operation: Any) -> Any:
    """What is left of an operation whose Send has been carried out."""
    effect = operation.send(None)
    while True:
        event = yield effect
        try:
            effect = operation.send(event)
        except StopIteration as stop:
            return stop.value


@pytest.mark.parametrize("counts", [True, False])
def test_masters_without_the_key_get_it_back(counts: bool) -> None:
    """R14, each lease where it is missing; also from a master that may not vote, for that one has restarted (R21)."""
    scene = Scene(says(GONE, GONE, 1, after=0.0), says(1, TAKEN, 1), *[says(1, 1, 1)] * 3, leases=3)
    if not counts:
        scene.world.settings.voters.votes_from[0] = NEVER
    assert scene.kinds() == ["kept"] * 3
    repairs = scene.world.all("repair")
    assert [(repair.token, repair.to) for repair in repairs] == [
        (f"token-{number}", frozenset([0])) for number in (0, 1)
    ]
    assert [repair.args[2] for repair in repairs] == ["9990", "9990"]  # 0.01 s of it have passed
    for repair, (spec, lease) in zip(repairs, scene.held, strict=False):
        assert repair.request.call.keys == spec.keys.locks + spec.keys.fences
        assert repair.request.only_if is not None
        assert repair.request.only_if()
        lease.end()
        assert not repair.request.only_if()
    said = outcomes(scene.leases[2].votes)
    assert said == (["granted"] * 3 + ["pending"] * 2 if counts else ["quarantined"] + ["granted"] * 3 + ["pending"])


@pytest.mark.parametrize("counts", [True, False])
def test_who_answers_after_the_majority_gets_them_back_at_once(counts: bool) -> None:
    """R14.  Of the second lease another master has said something else by then, so its votes are counted apart."""
    slow = says(GONE, GONE, TAKEN, 1, after=0.1)
    scene = Scene(slow, says(1, TAKEN, 1, 1), *[says(1, 1, 1, 1)] * 3, leases=4)
    if not counts:
        scene.world.settings.voters.votes_from[0] = NEVER
    for _ in range(2):
        assert scene.kinds() == ["kept"] * 4
        assert not scene.world.all("repair")
        scene.world.listen(3.0)
        repairs = scene.world.all("repair")
        assert [(repair.token, repair.to) for repair in repairs] == [
            (f"token-{number}", frozenset([0])) for number in (0, 1)
        ]
        assert [repair.args[2] for repair in repairs] == ["9900", "9900"]
        scene.world.sent.clear()


def test_each_gets_it_back_by_its_own_votes() -> None:
    """Of the first a master says so when it is won already, and the second is decided by the same answer; the third is not won."""
    late = says(GONE, 1, GONE, after=0.1)
    scene = Scene(says(1, 1, TAKEN), says(1, GONE, GONE), late, leases=3)
    assert scene.kinds() == ["kept", "kept", "lost"]
    scene.world.listen(1.0)
    repairs = scene.world.all("repair")
    assert sorted((repair.token, *repair.to, repair.args[2]) for repair in repairs) == [
        ("token-0", 2, "9900"),
        ("token-1", 1, "9900"),
    ]


def test_also_when_others_have_waited_in_vain() -> None:
    """The round was closed when their time was up; the one that was won long before is given back what is missing (R14)."""
    scene = Scene(says(1, 1), says(1, TAKEN), says(GONE, GONE, after=0.4))
    assert scene.kinds() == ["kept", "unanswered"]
    scene.world.listen(1.0)
    assert [(repair.token, repair.to) for repair in scene.world.all("repair")] == [("token-0", frozenset([2]))]


@pytest.mark.parametrize("over", [0, 1])
def test_what_is_over_when_they_say_so_is_given_nothing(over: int) -> None:
    scene = Scene(*[says(1, 1)] * 2, says(GONE, GONE, after=0.1))
    assert scene.kinds() == ["kept"] * 2
    scene.leases[over].end()
    scene.world.listen(1.0)
    assert [repair.token for repair in scene.world.all("repair")] == [f"token-{1 - over}"]


def test_who_is_late_with_nonsense_is_nobody_s_business() -> None:
    scene = Scene(says(GONE, after=0.1), says(GONE, 1, 1, after=0.1), *[says(1, 1)] * 3)
    assert scene.kinds() == ["kept"] * 2
    scene.world.listen(3.0)
    assert not scene.world.all("repair")


def test_a_master_that_may_not_vote_denies_nothing() -> None:
    scene = Scene(says(TAKEN, 1), says(TAKEN, 1), says(1, 1, after=0.1))
    scene.world.settings.voters.votes_from[0] = NEVER
    assert scene.kinds() == ["unanswered", "kept"]
    assert outcomes(scene.leases[0].loss().votes if scene.leases[0].lost else scene.leases[0].said()) == [
        "quarantined",
        "held",
        "granted",
    ]


@pytest.mark.parametrize(
    ("masters", "refused"),
    [
        pytest.param([Master()] * 3, False, id="well"),
        pytest.param([down(), Master(), Master()], False, id="down"),
        pytest.param([breaks(), Master(), Master()], False, id="breaks"),
        pytest.param([silent()] * 3, False, id="silent"),
        pytest.param([says(WRONG, 1, after=0.0), Master(), Master()], False, id="one-lease-is-wrong"),
        pytest.param([says(1, after=0.0), Master(), Master()], True, id="nonsense"),
        pytest.param([refuses("CROSSSLOT"), Master(), Master()], False, id="an-error-that-alone-is-the-same"),
        pytest.param(
            [Master(0.0, {"renew": Failure("error", "CROSSSLOT Keys", refused=True)}), Master(0.01), Master(0.01)],
            True,
            id="cluster",
        ),
    ],
)
def test_who_is_refused_in_company(masters: list[Master], refused: bool) -> None:
    assert [list(extension.refused) for extension in Scene(*masters).renew()] == [[0] if refused else []] * 2


@pytest.mark.parametrize("answer", [Failure("error", "CROSSSLOT Keys", refused=True), [1]])
def test_who_refuses_when_the_others_have_decided(answer: Any) -> None:
    """It may always be the last to answer, and its keys are not to expire for that."""
    scene = Scene(Master(0.2, {"renew": answer}), Master(0.01), Master(0.01))
    extensions = scene.renew()
    votes = [lease.votes for lease in scene.leases]
    assert [(extension.kind, list(extension.refused)) for extension in extensions] == [("kept", [])] * 2
    scene.world.run(nothing_until(scene.world.now + 1.0))
    assert [list(extension.refused) for extension in extensions] == [[0]] * 2
    assert [lease.votes for lease in scene.leases] == votes


def nothing_until(at: float) -> Any:
    return (yield Wait(at))


@pytest.mark.parametrize("error", ["CROSSSLOT Keys in request", "MOVED 1 a:1", "NOPERM no key", "ERR proxy says no"])
def test_which_errors_are_about_the_request(error: str) -> None:
    """Part of it might do: names of one hash slot, or those for which there is permission."""
    assert ErrorReply(error).failure().refused


@pytest.mark.parametrize("error", ["BUSY x", "READONLY x", "LOADING x", "MISCONF x", "NOAUTH x", "OOM x"])
def test_which_errors_any_request_would_get(error: str) -> None:
    assert not ErrorReply(error).failure().refused


def test_a_shorter_ttl_of_its_holder_counts() -> None:
    """C6 with two at once: the later word on every master is the holder's, and its answers are lost."""
    scene = Scene(*[Master(0.01)] * 3)
    (spec, lease), _ = scene.held
    renewer = renew(scene.world.settings, scene.held, scene.world.now)
    scene.world._write(renewer.send(None))  # type: ignore[arg-type]
    holder = extend(scene.world.settings, spec, lease, 1.0, scene.world.now)
    holder.send(None)
    scene.world.run(rest(renewer))
    assert lease.valid_until <= scene.asked_at + 1.0
    assert scene.leases[1].valid_until == pytest.approx(scene.asked_at + 9.898)


@pytest.mark.parametrize("number", range(4))
def test_interrupted_it_takes_nothing_away(number: int) -> None:
    """Wherever that strikes: none is thought to be under way for ever, none lasts longer than was granted."""
    scene = Scene(says(GONE, 1, after=0.0), says(1, 1), says(1, 1, after=0.1))
    had = [lease.valid_until for lease in scene.leases]
    operation = renew(scene.world.settings, scene.held, scene.world.now)
    with pytest.raises(KeyboardInterrupt):
        scene.world.run(operation, Interrupt(frozenset([number]), KeyboardInterrupt()))
    for lease, before in zip(scene.leases, had, strict=True):
        assert lease.valid
        assert not lease.all_pending
        assert lease.valid_until in (before, pytest.approx(scene.asked_at + 9.898))
    assert all(not sent.request.open for sent in scene.world.sent if sent.verb == "repair" or number < 2)


def test_it_tells_nobody_but_of_a_loss() -> None:
    """Who asked for it looks at all of them when it is over: that is one renewer for many leases."""
    scene = Scene(says(1, GONE, 1), says(1, GONE, 1), says(1, 1, 1), leases=3)
    told: list[int] = []
    for number, lease in enumerate(scene.leases):
        lease.on_change = lambda _, number=number: told.append(number)
    assert scene.kinds() == ["kept", "lost", "kept"]
    assert told == [1]


def test_one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """What begins, wins and ends extensions of many leases does so under the guard, which threads need."""
    held = 0

    @contextmanager
    def guard() -> Iterator[None]:
        nonlocal held
        held += 1
        yield
        held -= 1

    monkeypatch.setattr(LeaseState, "guard", staticmethod(guard))
    calls: Counter[str] = Counter()

    def guarded(name: str) -> Callable[..., Any]:
        correct = getattr(LeaseState, name)

        def call(lease: LeaseState, *given: Any) -> Any:
            assert held == 1
            calls[name] += 1
            return correct(lease, *given)

        return call

    for name in ("begin_extension", "extended", "end_extension"):
        monkeypatch.setattr(LeaseState, name, guarded(name))
    monkeypatch.setattr(LeaseState, "changed", lambda lease: pytest.fail("told while others wait") if held else None)
    scene = Scene(says(1, GONE, 1), says(1, GONE, WRONG), silent(), leases=3)
    assert scene.kinds() == ["kept", "lost", "unanswered"]
    spec, lease = scene.held[0]
    assert scene.world.run(extend(scene.world.settings, spec, lease, 1.0, scene.world.now)).kind == "kept"
    assert (calls["begin_extension"], calls["extended"]) == (4, 2)
    assert calls["end_extension"] >= 4
    assert not held


# -- as alone ------------------------------------------------------------------------------------------

ANSWERS = st.sampled_from((1, 1, 1, GONE, GONE, TAKEN, WRONG))
DOWN = Failure("error", "down", sent=False)  # known at once
FAILURES = (
    DOWN,
    Failure("error", "connection lost"),
    Failure("error", "BUSY", configuration=True),
    "odd",
)


@dataclass(frozen=True)
class Says:
    """One master: when, what, and whether it may vote."""

    after: float
    answers: tuple[Any, ...]  # of each lease
    failure: Any  # instead of all of them
    votes: bool

    @property
    def when(self) -> float:
        return 0.0 if self.failure is DOWN else self.after

    def together(self, left: list[float]) -> Master:
        answers = [
            answer for answer, seconds in zip(self.answers, left, strict=True) if seconds
        ]  # who is over is not asked for
        return Master(self.when, {"renew": self.failure or answers})

    def alone(self, lease: int) -> Master:
        answer = self.answers[lease]
        if isinstance(answer, ErrorReply):
            said: Any = answer.failure()
        else:
            said = [1] if answer == 1 else [0, answer]
        return Master(self.when, {"extend": self.failure or said})


def masters(leases: int) -> Any:
    one = st.builds(
        Says,
        after=st.sampled_from((0.001, 0.01, 0.02, 0.02, 0.1, NEVER)),
        answers=st.tuples(*[ANSWERS] * leases) | st.just((1,) * leases),
        failure=st.sampled_from((None,) * 8 + FAILURES),
        votes=st.sampled_from((True, True, True, True, False)),
    )
    return st.lists(one, min_size=1, max_size=5)


SCENES = st.integers(1, 4).flatmap(lambda leases: st.tuples(masters(leases), st.lists(
    st.sampled_from((5.0, 5.0, 5.0, 0.2, 0.015, 0.0)), min_size=leases, max_size=leases,
)))  # fmt: skip
ALL_WELL = Says(0.01, (1, 1), None, votes=True)


def world_of(masters: list[Master], said: list[Says], left: float, lease: int) -> tuple[World, LockSpec, LeaseState]:
    world = World(*masters)
    for number, each in enumerate(said):
        if not each.votes:
            world.settings.voters.votes_from[number] = START + 100.0
    return world, *one_of(world, left, lease)


def one_of(world: World, left: float, lease: int) -> tuple[LockSpec, LeaseState]:
    spec = world.spec(f"name-{lease}", ttl=10.0 + lease)
    return spec, world.lease(spec, token=f"token-{lease}", valid_until=world.now + left)


@given(SCENES)
@example(([ALL_WELL, ALL_WELL, Says(0.01, (GONE, 1), None, votes=True)], [5.0, 5.0]))
@example(([ALL_WELL, Says(0.001, (1, GONE), None, votes=False), ALL_WELL], [5.0, 5.0]))
@settings(PROPERTY, max_examples=600)
def test_each_ends_as_it_would_alone(scene: tuple[list[Says], list[float]]) -> None:
    """With the same answers, at the same times: whatever the others of its round are told."""
    said, left = scene
    together = world_of([each.together(left) for each in said], said, left[0], 0)
    world = together[0]
    held = [together[1:], *(one_of(world, left[lease], lease) for lease in range(1, len(left)))]
    extensions = world.run(renew(world.settings, held, START))
    world.listen(START + 1.0 - world.now)
    for number, ((_, lease), extension) in enumerate(zip(held, extensions, strict=True)):
        own, spec, like = world_of([each.alone(number) for each in said], said, left[number], number)
        alone = own.run(extend(own.settings, spec, like, spec.ttl, START))
        own.listen(START + 1.0 - own.now)
        assert extension.kind == alone.kind
        assert lease.valid_until == like.valid_until
        assert lease.asked == like.asked
        repairs = [(sent.at, sent.to, sent.args) for sent in world.all("repair") if sent.token == lease.token]
        assert repairs == [(sent.at, sent.to, sent.args) for sent in own.all("repair")]
        assert not lease.all_pending
        if left[number] > world.settings.node_timeout:  # else it has ended, and is told of by its renewer, not by this
            assert extension.at == alone.at
            assert lease.said() == like.said()
            assert lease.votes == like.votes
        world.now = own.now = START + 1000.0
        assert lease.loss().reason == like.loss().reason


def test_a_batch_is_over_when_its_last_lease_is() -> None:
    """Not before, and not at `node_timeout` when everything is known by then."""
    scene = Scene(says(1, 1), says(1, GONE), says(1, GONE, after=0.1), silent(), silent())
    assert scene.kinds() == ["kept", "unanswered"]
    assert scene.world.now - scene.asked_at == pytest.approx(0.25)
    scene = Scene(says(1, 1), says(1, GONE), says(1, GONE, after=0.1), down(), down())
    assert scene.kinds() == ["kept", "unanswered"]
    assert scene.world.now - scene.asked_at == pytest.approx(0.1)
