"""Keeping leases: when to renew, when to give up, whom to tell, in which order (P6, R13, R15, C6-C9)."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import example, given, settings, strategies as st

from redlock._core.effects import Send, Timeout
from redlock._core.kernel.extension import Extension
from redlock._core.kernel.validity import drift
from redlock._core.renewals import _STEP, RENEWALS, tasks
from tests.core.renewer import renewal_of
from tests.core.world import GONE, START, Single, silent
from tests.properties.profile import PROPERTY

if TYPE_CHECKING:
    from redlock._core.effects import Op
    from redlock._core.renewals import Task
    from tests.core.world import Master

TTL = 12.0
VALIDITY = TTL * 0.99 - 0.002


class Scene(Single):
    """One lease that was granted at `START`, and its renewal."""

    def __init__(
        self, *masters: Master, renew: bool = True, max_hold: float | None = None, spread: float = 0.0, **lease: Any
    ) -> None:
        super().__init__(*masters, ttl=TTL, **lease)
        self.renewal, _ = renewal_of(self.world, self.spec, self.lease, renew=renew, max_hold=max_hold, spread=spread)
        self.numbers = itertools.count(1)

    @property
    def due(self) -> float:
        """Seconds after the grant."""
        return self.renewal.due - START

    def look(self) -> Any:
        """At the time at which it is due; the outcome of what there was to do."""
        self.world.now = max(self.world.now, self.renewal.due)
        task = self.task()
        return None if task is None else self.world.run(task).get(self.renewal)

    def task(self) -> Task | None:
        """What there is to do now."""
        if self.renewal.due > self.world.now:
            return None
        started = tasks([self.renewal], self.world.now)
        assert all(renewals == [self.renewal] for _, renewals in started)
        return started[0][0] if started else None


def in_step(due: float, ttl: float = TTL) -> Any:
    """Then, or up to a step earlier, together with others."""
    half = ttl * _STEP / 2
    return pytest.approx(due - half, abs=half + 1e-6)


@pytest.mark.parametrize(("options", "due"), [
    # A third of the TTL, or of what the drift leaves of it: counted back from the end.
    pytest.param({}, VALIDITY - TTL * 2 / 3, id="a-third"),
    pytest.param({"spread": 1.0}, TTL / 3 * 0.8, id="the-earliest"),
    pytest.param({"spread": 0.5}, TTL / 3 * 0.9, id="between"),
    pytest.param({"renew": False}, VALIDITY, id="not-renewed"),
    pytest.param({"max_hold": 1.0}, 1.0, id="max-hold-first"),
    pytest.param({"max_hold": 1.0, "renew": False}, 1.0, id="max-hold-not-renewed"),
    pytest.param({"max_hold": 100.0, "renew": False}, VALIDITY, id="end-before-max-hold"),
    # An acquire that took long: there is less left than a TTL.
    pytest.param({"valid_until": START + 7.0, "spread": 1.0}, -1.0, id="slow-acquire"),
])  # fmt: skip
def test_when_it_is_due(options: dict[str, Any], due: float) -> None:
    exact = "max_hold" in options or "renew" in options
    assert Scene(**options).due == (pytest.approx(due) if exact else in_step(due))


def test_those_of_one_client_are_due_together() -> None:
    """What leaves at one moment leaves in one packet; and not at the moments of all other clients."""
    scenes = [Scene(spread=number / 1000) for number in range(1000)]
    assert len({round(scene.due, 6) for scene in scenes}) <= 2 + TTL / 3 * 0.2 / (TTL * _STEP)
    other = Scene(spread=0.5)
    other.world.settings = other.world.settings._replace(phase=0.5)
    renewal, _ = renewal_of(other.world, other.spec, other.lease)
    assert renewal.due not in {scene.renewal.due for scene in scenes}


@given(spread=st.floats(0.0, 1.0), ttl=st.floats(0.5, 50.0))
@PROPERTY
def test_two_renewals_may_be_missed(spread: float, ttl: float) -> None:
    """R15: whatever the spread, and whichever TTL the holder has made of it."""
    scene = Scene(spread=spread)
    assert scene.extend(ttl) == "extended"
    assert scene.lease.valid_until - scene.renewal.due >= scene.lease.ttl * (RENEWALS - 1) / RENEWALS - 1e-6


@pytest.mark.parametrize("factor", [0.01, 0.3, 0.34, 0.49])
def test_however_little_the_drift_leaves_there_is_a_pause(factor: float) -> None:
    """... and enough is left for one more, should it be missed."""
    scene = Scene(drift_factor=factor, valid_until=START + TTL - drift(TTL, factor))
    for _ in range(5):
        left = scene.lease.remaining()
        due = scene.renewal.due
        assert due - scene.world.now > TTL / 20
        assert scene.lease.valid_until - due > left / 2
        assert scene.look().kind == "extended"


@pytest.mark.parametrize("ttl", [3.0, 50.0])
def test_the_renewer_goes_on_with_the_ttl_that_the_holder_has_made_of_it(ttl: float) -> None:
    """C6: it is due after a third of the TTL that it has now."""
    scene = Scene()
    assert scene.extend(ttl) == "extended"
    assert scene.due == in_step(ttl * 0.99 - 0.002 - ttl * 2 / 3, ttl)
    assert scene.look().kind == "extended"
    assert scene.world.sent[-1].args[2] == f"{ttl * 1000:.0f}"
    assert scene.renewal.due - scene.world.now == in_step(ttl / 3, ttl)


def test_who_waits_is_told_of_a_shortening_before_it_is_answered() -> None:
    """C6: the answers may never come, and its end is nearer by then."""
    scene = Scene(*[silent()] * 3)
    told: list[float] = []
    scene.lease.on_change = lambda _: told.append(scene.renewal.due - scene.world.now)
    shorter = scene.extending(1.0)
    shorter.send(None)
    assert told == [pytest.approx(0.988)]
    longer = scene.extending(30.0)
    longer.send(None)
    assert len(told) == 1
    shorter.close()
    longer.close()


def test_a_renewal_that_moved_nothing_is_not_repeated_at_once() -> None:
    """Won, and held to what an extension that overlapped it may have left: the next one has its pause all the same."""
    scene = Scene()
    scene.world.now = START + scene.due
    end = scene.lease.valid_until
    scene.renewal.conclude(Extension("extended", scene.world.now), 0.0)
    assert scene.lease.valid_until == end
    assert scene.due == in_step(VALIDITY - TTL * 2 / 3)
    scene.lease.valid_until = end + 100.0
    scene.renewal.conclude(Extension("extended", scene.world.now), 0.0)
    at = scene.due
    scene.renewal.conclude(Extension("extended", scene.world.now + 1.0), 0.0)
    assert scene.due == pytest.approx(at + 1.0, abs=TTL * _STEP)
    assert scene.due > at


def test_what_its_holder_extends_meanwhile_is_not_due_at_once() -> None:
    """Random numbers come from the kernel, and other threads run then."""
    scene = Scene()

    def random() -> float:
        assert scene.extend(2 * TTL) == "extended"
        return 0.0

    scene.renewal.settings = scene.renewal.settings._replace(random=random)
    assert scene.due >= TTL / 3 - TTL / 16


# Which operation: the last one that was begun is 0.
WHICH = st.sampled_from((0, 0, 1, 1, 2))
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("passes"), st.sampled_from((0.05, 0.4, 2.0, 5.0))),
        st.tuples(st.just("renewer"), st.none()),
        st.tuples(st.sampled_from(("holder", "asks", "asks")), st.sampled_from((1.0, TTL, 30.0))),
        st.tuples(st.just("answered"), st.tuples(WHICH, st.sampled_from((1, 2, 3)))),
        st.tuples(st.just("answered"), st.tuples(WHICH, st.just(3))),
        st.tuples(st.just("written"), WHICH),
        st.tuples(st.just("times-out"), WHICH),
        st.tuples(st.just("release"), st.none()),
    ),
    min_size=3,
    max_size=25,
)


class Under:
    """An operation, the request of it that was not written yet, and the answers on their way."""

    written = 0  # its number, in the order of writing
    kept = False

    def __init__(self, op: Op[Any], scene: Scene, keys: list[float], let_go: list[bool], ttl: float = 0.0) -> None:
        self.op = op
        self.ttl = ttl  # for which the holder asks
        self.promises = scene.world.now + ttl * 0.99 - 0.002
        self.scene = scene
        self.keys = keys
        self.let_go = let_go
        self.over = False
        self.answers: dict[int, Any] = {}
        self.asked: Any = None
        self.request: Any = None
        self.go_on(None)

    def go_on(self, event: Any) -> None:
        try:
            effect = self.op.send(event)
        except StopIteration as stop:
            self.over, self.kept = True, getattr(stop.value, "kind", "") == "extended"
            return
        if isinstance(effect, Send):
            self.request = effect
            if not effect.only_if:
                self.write()
        else:
            self.request = None

    def write(self) -> None:
        """On all masters at once; each sets the TTL, denies what it lacks, or takes it back."""
        request, world = self.request, self.scene.world
        if request is None:
            return
        self.request = None
        if request.only_if is None or request.only_if():
            request.sent_at = world.now
            self.written = self.written or next(self.scene.numbers)
            verb = request.call.script.name
            assert not (self.let_go and verb != "release"), f"{verb} behind the release"
            self.asked = request
            for master in range(3) if request.to is None else request.to:
                mine = self.keys[master] > world.now
                ttl = int(request.call.args[2]) / 1000 if verb != "release" else 0.0
                if verb == "repair" or (mine and verb == "extend"):
                    self.keys[master] = world.now + ttl
                elif verb == "release":
                    self.keys[master] = -math.inf
                self.answers[master] = ([1, 0] if verb == "release" else [1]) if mine else GONE
        self.go_on(None)

    def answer(self, masters: int) -> None:
        """So many of the answers arrive."""
        for master in list(self.answers)[:masters]:
            if not self.over and self.request is None:
                value = self.answers.pop(master)
                if self.asked.open and self.asked.answered(master, value, self.scene.world.now):
                    self.go_on(self.asked)

    def time_out(self) -> None:
        if not self.over and self.request is None:
            self.go_on(Timeout(self.scene.world.now))


def promised(holders: list[Under]) -> tuple[float, float]:
    """What the last extension by the holder that was won has promised, and those that came after it have not taken."""
    last = max((one for one in holders if one.kept), key=lambda one: one.written, default=None)
    ends = START + VALIDITY if last is None else last.promises
    later = [one for one in holders if not (one.written and last and one.written <= last.written)]
    return min([ends, *(one.promises for one in later)]), math.nan if later else TTL if last is None else last.ttl


@given(STEPS, st.sampled_from((None, 0, 1, 2)))
# An extension to longer and one to shorter, beside a renewal that is written before, after, and answered last.
@example([("renewer", None), ("written", 0), ("asks", 1.0), ("answered", (0, 3)), ("answered", (1, 3))], None)
@example([("renewer", None), ("asks", 1.0), ("written", 1), ("answered", (0, 3)), ("answered", (1, 3))], None)
@example(
    [("asks", 1.0), ("answered", (0, 3)), ("renewer", None), ("written", 0), ("asks", 30.0), ("answered", (0, 3))], None
)
# What chance finds seldom: the later one is answered first; a release comes before a repair is written.
@example([("asks", 30.0), ("asks", TTL), ("answered", (0, 3)), ("answered", (1, 3))], None)
@example([("asks", 30.0), ("asks", 1.0), ("answered", (1, 3))], None)
@example([("holder", 1.0), ("asks", 30.0), ("answered", (0, 3)), ("written", 1)], None)
@example([("asks", 1.0), ("asks", 30.0), ("answered", (0, 3)), ("answered", (1, 3))], None)
@example([("asks", TTL), ("answered", (0, 3)), ("release", None), ("written", 1)], 0)
@settings(PROPERTY, max_examples=1000)
def test_never_more_than_the_keys_of_a_majority_justify_nor_less_than_its_holder_asked_for(
    steps: list[Any], missing: int | None
) -> None:
    """P1, C6, R12: whoever extends, in whichever order the answers come, if they come at all.

    ``missing``: a master that has lost the key.  After the release nothing is extended (R14, R15).
    """
    scene = Scene()
    world, lease = scene.world, scene.lease
    keys = [-math.inf if master == missing else START + TTL for master in range(3)]
    let_go: list[bool] = []
    under: list[Under] = []
    holders: list[Under] = []
    for what, value in steps:
        match what:
            case "passes":
                world.now += value
            case "renewer":
                world.now = max(world.now, min(scene.renewal.due, world.now + TTL))
                task = scene.task()
                if task is not None:
                    under.append(Under(task, scene, keys, let_go))
            case "holder" | "asks" if not let_go:
                op: Op[Any] = scene.extending(value)
                holders.append(Under(op, scene, keys, let_go, value))
                under.append(holders[-1])
                if what == "asks":  # and it is written at once
                    under[-1].write()
            case "release" if not let_go:
                let_go.append(True)
                under.append(Under(scene.releasing(), scene, keys, let_go))
            case "written" if value < len(under):
                under[-1 - value].write()
            case "answered" if value[0] < len(under):
                under[-1 - value[0]].answer(value[1])
            case "times-out" if value < len(under):
                under[-1 - value].time_out()
        if lease.valid:
            second = sorted(keys)[1]  # by then a majority of the keys has expired
            assert lease.valid_until <= second
            assert not let_go  # it is over before the first byte of the release is sent
            least, ttl = promised(holders)
            assert min(lease.valid_until, second) >= least - 1e-9
            assert lease.ttl == ttl or math.isnan(ttl)
    for each in under:
        each.op.close()


def test_one_that_may_be_abandoned_is_looked_at_again_soon_and_not_at_once(monkeypatch):
    scene = Scene()
    monkeypatch.setattr(scene.renewal.held_by, "presence", lambda: "perhaps")
    scene.renewal.next_action(START)
    assert scene.due == pytest.approx(0.05)
