"""Many leases in one round: each ends as it would alone (R12-R14, C6, P6), whatever becomes of the others."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from hypothesis import example, given, settings, strategies as st

from redlock._core.extend_many import MOST
from redlock._core.kernel.extension import extend
from redlock._core.kernel.release import release
from redlock._core.lease import LeaseState, PendingExtension
from redlock._core.outcomes import ErrorReply, Failure
from redlock._core.renewals import failed_to_keep
from tests.core.renewer import TTL, VALIDITY, Scene, rest
from tests.core.world import NEVER, OTHER, START, Master, outcomes, silent
from tests.properties.profile import PROPERTY

if TYPE_CHECKING:
    from redlock._core.wire import Call

GONE, TAKEN = b"", OTHER.encode()
WRONG = ErrorReply("WRONGTYPE not a string")
CLUSTER = Failure("error", "CROSSSLOT Keys in request don't hash to the same slot", refused=True)


def says(*answers: Any, after: float = 0.01) -> Master:
    """Of each lease the same, together and alone."""

    def number(call: Call, arg: int) -> Any:
        return answers[int(call.args[arg].removeprefix("token-"))]

    def alone(call: Call) -> Any:
        answer = number(call, 1)
        return answer.failure() if isinstance(answer, ErrorReply) else [1] if answer == 1 else [0, answer]

    def together(call: Call) -> Any:
        return [number(call, arg) for arg in range(3, len(call.args), 4)]

    return Master(after, {"renew": together, "extend": alone})


def asked(scene: Scene, verb: str = "renew") -> list[tuple[str, ...]]:
    """The tokens of each request."""
    return [sent.args[3::4] if verb == "renew" else (sent.token,) for sent in scene.world.all(verb)]


def repairs(scene: Scene) -> list[tuple[str, int]]:
    return sorted((sent.token, master) for sent in scene.world.all("repair") for master in sent.to)


def begun(scene: Scene) -> Any:
    """The operation for all that are due first; its request is written."""
    scene.begin()
    [(operation, _)] = scene.started
    scene.started.clear()
    scene.world._write(operation.send(None))  # type: ignore[arg-type]
    return operation


def test_one_request_for_all_that_have_the_same_ttl() -> None:
    scene = Scene(*[Master(0.01)] * 3, leases=2)
    scene.held += [scene.hold(number, ttl=6.0) for number in (2, 3)]
    scene.world.now = START + TTL / 3
    scene.go()
    for sent, ms, both in zip(scene.world.sent, ("6000", "12000"), (scene.held[2:], scene.held[:2]), strict=True):
        assert sent.verb == "renew"
        assert sent.to == {0, 1, 2}
        assert sent.request.owed_until is None
        keys = [key for held in both for key in held.spec.keys.locks + held.spec.keys.fences]
        assert sent.request.call.keys == tuple(keys)  # R20: the fence keys live on
        one, two = (("1", "1", held.lease.token, ms) for held in both)
        assert sent.args == ("3600000", *one, *two)
        assert not sent.request.answered(0, [0, 0], scene.world.now)  # decided: nothing changes that
    # each has its own TTL, from the moment of its request
    asked_at = [scene.world.sent[index].at for index in (1, 1, 0, 0)]
    lasts = [lease.valid_until - at for lease, at in zip(scene.leases, asked_at, strict=True)]
    assert lasts == pytest.approx([11.878, 11.878, 5.938, 5.938])


@pytest.mark.parametrize("leases", [1, 2])
@pytest.mark.parametrize("ttl", [2.0, 30.0])
@pytest.mark.parametrize("answered", [True, False])
def test_no_renewal_is_written_behind_what_the_holder_asks_for(leases: int, ttl: float, answered: bool) -> None:
    """R12: its thread was about to write it.  All of them are tried again soon."""
    scene = Scene(*[Master(0.01)] * 3, leases=leases)
    scene.begin()
    ((operation, renewals),) = scene.started
    scene.started.clear()
    renewal: Any = operation.send(None)
    held, now = scene.held[0], scene.world.now
    asks = extend(scene.world.settings, held.spec, held.lease, ttl, now)
    if answered:
        scene.world.run(asks)
    else:
        scene.world._write(asks.send(None))  # type: ignore[arg-type]
    scene.world._write(renewal)
    scene.world.run(rest(operation))
    scene.ended(renewals)
    if not answered:
        scene.world.run(rest(asks))
    assert scene.world.verbs() == ["extend"]
    assert held.lease.ttl == ttl
    assert held.lease.valid_until == pytest.approx(now + ttl * 0.99 - 0.002)
    assert all(renewal.due <= now + 30.0 / 20 + 0.02 for renewal in renewals)


def test_a_request_for_two_leases_goes_to_no_more_masters_once_one_of_them_is_extended() -> None:
    """R12: it was written to one master, and the holder of one of the leases asks for more at that moment."""
    leases, request = Scene(leases=2).leases, cast("Any", SimpleNamespace(open=True))
    both, one = PendingExtension(START + 9.0, TTL, renews=True), PendingExtension(START + 9.0, TTL)
    for lease in leases:
        lease.begin_extension(both)
    assert both.may_be_written(request, leases)
    leases[1].begin_extension(one)
    assert one.may_be_written(request, leases[1:])
    assert not both.may_be_written(request, leases)


def test_it_ends_at_its_decision() -> None:
    """And not when it was begun: the next renewal is due a third of the TTL after that (R13)."""
    scene = Scene(*[Master(0.02)] * 3, leases=2)
    extensions = scene.world.run(rest(begun(scene)))
    assert [extension.at for extension in extensions.values()] == [pytest.approx(scene.world.now)] * 2


def test_a_lease_that_is_over_is_not_even_asked_for() -> None:
    """R12; also if it ends right before the request."""
    scene = Scene(leases=4)
    scene.begin()
    scene.leases[0].end()
    scene.leases[2].lose("max_hold")
    assert scene.finish() == [["lost", "extended", "lost", "extended"]]
    assert asked(scene) == [("token-1", "token-3")]
    scene.begin()
    for lease in scene.leases:
        lease.end()
    assert scene.finish() == [["lost"] * 2]
    assert asked(scene) == [("token-1", "token-3")]


@pytest.mark.parametrize("answer", [CLUSTER, [1], [1, 1, 0]], ids=["cluster", "too-few", "nonsense"])
@pytest.mark.parametrize("after", [0.0, 0.2], ids=["first", "after-the-majority"])
def test_a_master_that_refuses(answer: Any, after: float) -> None:
    """Each is renewed by itself from then on, or its key would expire there; the first time at once."""
    scene = Scene(Master(after, {"renew": answer}), *[Master(0.01)] * 2, leases=3)
    assert scene.go() == ([["extended"] * 3] if after else [[], ["extended"], ["extended"], ["extended"]])
    scene.world.listen(1.0)
    scene.world.sent.clear()
    for _ in range(3):
        assert scene.go() == [["extended"]] * 3
    assert scene.world.verbs() == ["extend"] * 9


@pytest.mark.parametrize(("error", "refused"), [
    # Part of it might do: names of one hash slot, or those for which there is permission.
    *((text, True) for text in ("CROSSSLOT Keys in request", "MOVED 1 a:1", "NOPERM no key", "ERR proxy says no")),
    # Any request would get these.
    *((f"{code} x", False) for code in ("BUSY", "READONLY", "LOADING", "MISCONF", "NOAUTH", "OOM")),
])  # fmt: skip
def test_which_errors_are_about_the_request(error: str, refused: bool) -> None:
    assert ErrorReply(error).failure().refused is refused


@pytest.mark.parametrize("leases", [1, 2])
def test_thrown_away_it_takes_no_lock_and_tells_nobody(leases: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The collector may do so in a thread that holds any of them, and would wait for itself."""
    scene = Scene(*[silent()] * 3, leases=leases)
    operation = begun(scene)
    operation.send(None)  # it waits for the answers
    for lease in scene.leases:
        lease.on_change = lambda _: pytest.fail("told")
    monkeypatch.setattr(LeaseState, "brief", None)
    operation.close()


def test_one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """An extension is won and ends under the guard, which threads need; nobody is told meanwhile."""
    held: list[bool] = []

    class Guard:
        def __enter__(self) -> None:
            held.append(True)

        def __exit__(self, *_: object) -> None:
            held.pop()

    scene = Scene(says(1, GONE, 1), says(1, GONE, WRONG), silent(), leases=3)
    monkeypatch.setattr(LeaseState, "brief", SimpleNamespace(lock=Guard()))
    for name, guarded in (("extended", [True]), ("unanswered", [True]), ("_end_extension", [True]), ("changed", [])):
        correct = getattr(LeaseState, name)

        def call(lease: LeaseState, *given: Any, correct: Any = correct, guarded: Any = guarded) -> Any:
            assert held == guarded
            return correct(lease, *given)

        monkeypatch.setattr(LeaseState, name, call)
    scene.go()
    assert [lease.lost for lease in scene.leases] == [False, True, False]


def test_what_is_said_when_it_fails() -> None:
    renewals = [held.renewal for held in Scene(leases=3).held]
    assert failed_to_keep(renewals[:1]).startswith("keeping <Lease '0-0'")
    assert failed_to_keep(renewals[:1]).endswith("> failed")
    assert failed_to_keep(renewals).endswith("> and 2 more failed")


def test_those_that_were_renewed_together_meet_again() -> None:
    """Whatever chance says of each of them; one that was released leaves the others together."""
    scene = Scene(leases=20)
    scene.go()
    for number, held in enumerate(scene.held):
        held.renewal.settings = scene.world.settings._replace(random=lambda number=number: number / 20)
    for leases in (20, 19, 18):
        assert scene.go() == [["extended"] * leases]
        held = scene.held.pop()
        scene.world.run(release(scene.world.settings, held.spec, held.lease))
    assert scene.world.verbs() == ["renew", *["renew", "release"] * 3]


@pytest.mark.parametrize(("leases", "names", "rounds"), [
    (1, 1, [1]),
    (MOST, 1, [MOST]),
    (MOST + 1, 1, [MOST, 1]),
    (1000, 1, [MOST] * 15 + [40]),
    (30, 20, [3] * 10),
    (3, 100, [1, 1, 1]),
])  # fmt: skip
def test_no_more_names_than_a_master_does_in_no_time(leases: int, names: int, rounds: list[int]) -> None:
    scene = Scene(leases=leases, names=names)
    assert [len(ended) for ended in scene.go()] == rounds
    assert all(lease.valid_until > scene.world.now + TTL * 0.9 for lease in scene.leases)
    assert scene.world.verbs() == ["extend" if many == 1 else "renew" for many in rounds]


ANSWERS = st.sampled_from((1, 1, 1, GONE, GONE, TAKEN, WRONG))
FAILURES = (
    Failure("error", "down", sent=False),
    Failure("error", "connection lost"),
    Failure("error", "BUSY", configuration=True),
    CLUSTER,
    "odd",
)


@dataclass(frozen=True)
class Says:
    """One master: when, what, and whether it may vote."""

    after: float
    answers: tuple[Any, ...]  # of each lease
    failure: Any  # instead of all of them
    votes: bool

    def master(self) -> Master:
        if self.failure is None:
            return says(*self.answers, after=self.after)
        alone = None if self.failure is CLUSTER else self.failure  # which does what it is asked for alone
        return Master(self.after, {"renew": self.failure, "extend": alone or says(*self.answers).says["extend"]})


def masters(leases: int) -> Any:
    one = st.builds(
        Says,
        after=st.sampled_from((0.001, 0.01, 0.02, 0.02, 0.1, 0.4, NEVER)),
        answers=st.tuples(*[ANSWERS] * leases) | st.just((1,) * leases),
        failure=st.sampled_from((None,) * 8 + FAILURES),
        votes=st.sampled_from((True, True, True, True, False)),
    )
    return st.lists(one, min_size=1, max_size=5)


ALL_WELL = Says(0.01, (1, 1), None, votes=True)


def scene_of(said: list[Says]) -> Scene:
    scene = Scene(*[each.master() for each in said])
    for number, each in enumerate(said):
        if not each.votes:
            scene.world.settings.voters.votes_from[number] = START + 100.0
    return scene


@given(st.integers(2, 4).flatmap(masters))
@example([ALL_WELL, ALL_WELL, Says(0.01, (GONE, 1), None, votes=True)])
@example([ALL_WELL, Says(0.001, (1, GONE), None, votes=False), ALL_WELL])
@example([ALL_WELL, ALL_WELL, Says(0.1, (GONE, 1), None, votes=True)])
@settings(PROPERTY, max_examples=300)
def test_each_ends_as_it_would_alone(said: list[Says]) -> None:
    """With the same answers: whatever the others of its round are told, and whether it leaves them or not."""
    together = scene_of(said)
    leases = len(said[0].answers)
    together.held = [together.hold(number) for number in range(leases)]
    together.go()
    together.world.listen(1.0)
    now = together.world.now
    for number, held in enumerate(together.held):
        together.world.now = now
        alone = scene_of(said)
        like = alone.hold(number)
        [[kind]] = alone.go()
        alone.world.listen(1.0)
        assert held.lease.lost == (kind == "lost")
        assert len(held.told) == held.lease.lost  # C9
        assert (held.lease.valid_until > START + VALIDITY) == (kind == "extended")
        asked_at = [sent.at for sent in together.world.sent if sent.verb != "repair" and held.lease.token in sent.args]
        assert held.lease.valid_until <= asked_at[-1] + VALIDITY + 1e-6
        assert bool(held.kept) == (kind == "extended")
        if not any(each.failure is CLUSTER for each in said):  # else it may not have said yet what is missing
            assert held.lease.asked == like.lease.asked
            assert [one for one in repairs(together) if one[0] == held.lease.token] == repairs(alone)
        assert not held.lease.all_pending
        together.world.now = alone.world.now = START + 1000.0
        assert held.lease.loss().reason == like.lease.loss().reason
        if kind == "extended":  # P1: never by a master that did not say so of this very lease
            for master, outcome in enumerate(outcomes(held.lease.votes)):
                assert outcome != "granted" or said[master].answers[number] == 1
