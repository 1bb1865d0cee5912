"""`prompt` (P6): nobody acts on a lease that has ended, and its holder is told within 50 ms (C27-C29)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, strategies as st

from tests.chaos.tape import PROPERTY, Tape

LATE = 1000.0  # the end of the recording, unless it is what the test is about


def expired(*, until: float = 11, end: float = LATE) -> Tape:
    """client-1 held it from 1 on, and neither released it nor was told."""
    tape = Tape()
    tape.held(1, "client-1", "A", until=until)
    tape.until(end)
    return tape


# -- being told ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("until", [11, 11.03, 1234567.1, 4.35, 2.3])
@pytest.mark.parametrize(("after", "late"), [(-1, False), (0, False), (0.05, False), (0.0500001, True), (3, True)])
def test_50_ms_are_allowed(until: float, after: float, late: bool) -> None:
    """Also where until + 0.05 is not quite that in floating point."""
    tape = expired(until=until, end=until + 10)
    told = tape.lost(round(until + after, 9), "client-1", "A")
    assert tape.judge("prompt") == ([[2, told]] if late else [])


def test_never_told() -> None:
    tape = expired()
    assert tape.judge("prompt") == [[2]]
    assert "never told" in tape.ruling("prompt").violations[0].sentence


def test_the_loss_of_another_token_is_another_one() -> None:
    tape = expired()
    tape.lost(11, "client-1", "B")
    tape.lost(11, "client-2", "A")
    tape.event(11, "client-2", "lost", "info", token="A", reason="expired")
    assert len(tape.judge("prompt")) == 1


@pytest.mark.parametrize(("at", "late"), [(5, False), (11, False), (11.000001, True), (11.04, True), (20, True)])
def test_a_release_after_the_end_without_being_told(at: float, late: bool) -> None:
    """C28: one whose release was invoked after `valid_until` without `lost`."""
    tape = expired()
    tape.release(at, "client-1", "A")
    assert bool(tape.judge("prompt")) == late


def test_being_told_after_the_release_and_in_time() -> None:
    """C9: it is told once, also if it noticed first."""
    tape = expired()
    tape.release(11.01, "client-1", "A")
    tape.lost(11.02, "client-1", "A")
    assert tape.judge("prompt") == []


@pytest.mark.parametrize(("end", "late"), [(11.04, False), (11.049999, False), (11.05, True), (11.1, True), (5, False)])
def test_open_at_the_end(end: float, late: bool) -> None:
    """C28: no violation while `valid_until` + 50 ms lies beyond the last event."""
    assert bool(expired(end=end).judge("prompt")) == late


def test_open_at_the_end_but_released_after_its_time() -> None:
    tape = expired(end=11.02)
    tape.release(11.02, "client-1", "A")
    assert len(tape.judge("prompt")) == 1


def test_open_at_the_end_where_floating_point_says_otherwise() -> None:
    assert len(expired(until=4.35, end=4.4).judge("prompt")) == 1  # 4.35 + 0.05 < 4.4


def test_the_first_time_that_it_was_told_counts() -> None:
    tape = expired()
    tape.lost(11, "client-1", "A")
    tape.lost(12, "client-1", "A")
    assert tape.judge("prompt") == []


def test_the_last_valid_until_counts() -> None:
    tape = expired()
    extended = tape.extended(8, "client-1", "A", until=18)
    assert tape.judge("prompt") == [[extended]]
    tape.lost(18.05, "client-1", "A")
    assert tape.judge("prompt") == []


def test_a_shorter_one_as_well() -> None:
    tape = expired()
    tape.extended(2, "client-1", "A", until=6)
    tape.release(7, "client-1", "A")
    assert len(tape.judge("prompt")) == 1


@pytest.mark.parametrize("op", ["stop", "kill"])
@pytest.mark.parametrize(("begin", "end", "exempt"), [
    pytest.param(5, 20, True, id="around"),
    pytest.param(5, 11, True, id="until-the-end"),
    pytest.param(5, 10.999999, False, id="over-before"),
    pytest.param(11.02, 11.03, True, id="within"),
    pytest.param(11.05, 20, True, id="from-the-last-moment-on"),
    pytest.param(11.050001, 20, False, id="too-late"),
    pytest.param(5, None, True, id="for-ever"),
    pytest.param(12, None, False, id="for-ever-but-later"),
])  # fmt: skip
def test_stopped_or_killed_then(op: str, begin: float, end: float | None, exempt: bool) -> None:
    """C27: the interval touches [valid_until, valid_until + 50 ms]."""
    tape = expired()
    tape.fault(op, "client-1", begin, end)
    assert bool(tape.judge("prompt")) != exempt


@pytest.mark.parametrize(("op", "target", "exempt"), [
    ("stop", ["client-2", "client-1"], True),
    ("stop", "client-2", False),
    ("stop", ["client-2", "client-11"], False),
    ("pause", "client-1", False),
    ("halves", ["client-1"], False),
])  # fmt: skip
def test_that_process_and_those_faults(op: str, target: object, exempt: bool) -> None:
    tape = expired()
    tape.fault(op, target, 5, 20)
    assert bool(tape.judge("prompt")) != exempt


def test_one_of_several_is_healed_before() -> None:
    tape = expired()
    tape.event(5, "nemesis", "stop", "invoke", target=["client-1", "client-2"])
    tape.event(9, "nemesis", "stop", "ok", target="client-1")
    tape.event(20, "nemesis", "stop", "ok", target="client-2")
    assert len(tape.judge("prompt")) == 1


def test_a_fault_is_over_once_it_is_healed() -> None:
    """Another one of its kind is another one."""
    tape = expired()
    tape.fault("stop", "client-1", 5, 9)
    tape.fault("stop", "client-1", 15, 20)
    assert len(tape.judge("prompt")) == 1


def test_a_stop_that_could_not_be_made_excuses_nothing_afterwards() -> None:
    tape = expired()
    tape.event(5, "nemesis", "stop", "invoke", target="client-1")
    tape.event(6, "nemesis", "stop", "fail", target="client-1")
    assert len(tape.judge("prompt")) == 1


def test_a_client_that_says_stop_is_no_nemesis() -> None:
    tape = expired()
    tape.event(5, "client-2", "stop", "invoke", target="client-1")
    assert len(tape.judge("prompt")) == 1


@pytest.mark.parametrize(("at", "late"), [(10, False), (11, False), (12, True)])
def test_who_hands_over_in_time_need_not_be_told(at: float, late: bool) -> None:
    tape = Tape()
    tape.held(1, "client-1", "A", until=11)
    tape.resumed(at, "client-2", "A", until=at + 10)
    tape.release(at + 1, "client-2", "A")
    tape.until(LATE)
    assert bool(tape.judge("prompt")) == late


def test_who_took_over_must_be_told() -> None:
    tape = Tape()
    tape.held(1, "client-1", "A", until=11)
    resumed = tape.resumed(5, "client-2", "A", until=15)
    tape.lost(11, "client-1", "A")
    tape.until(LATE)
    assert tape.judge("prompt") == [[resumed]]
    tape.lost(15, "client-2", "A")
    assert tape.judge("prompt") == []


def test_every_hold_of_a_token_that_is_used_twice() -> None:
    tape = Tape()
    first = tape.held(1, "client-1", "A", until=11)
    tape.held(20, "client-1", "A", until=30)
    tape.lost(30, "client-1", "A")
    tape.until(LATE)
    assert [lines[0] for lines in tape.judge("prompt")] == [first]


# -- using ---------------------------------------------------------------------------------------------------


def told(*, until: float = 11) -> Tape:
    tape = expired(until=until)
    tape.lost(until, "client-1", "A")
    return tape


@pytest.mark.parametrize(("invoked", "late"), [(5, False), (11, False), (11.000001, True), (11.04, True), (30, True)])
def test_a_use_counts_by_its_invocation(invoked: float, late: bool) -> None:
    """C29.  There are no 50 ms for it."""
    tape = told()
    used = tape.used(31, "client-1", "A", invoked=invoked)
    assert tape.judge("prompt") == ([[2, used - 1, used]] if late else [])


@pytest.mark.parametrize(("store", "accepted"), [("fenced", False), ("fenced", True), ("plain", True)])
def test_in_whatever_store_and_whatever_came_of_it(store: str, accepted: bool) -> None:
    tape = told()
    tape.used(13, "client-1", "A", invoked=12, store=store, accepted=accepted)
    assert len(tape.judge("prompt")) == 1


@pytest.mark.parametrize("phase", ["invoke", "fail", "info", "ok"])
def test_also_one_that_never_ended_or_was_never_begun(phase: str) -> None:
    tape = told()
    tape.event(12, "client-1", "use", phase, lock="a", token="A", store="plain", accepted=True, fence=1)
    assert len(tape.judge("prompt")) == 1


def test_the_token_may_be_told_at_the_end_only() -> None:
    tape = told()
    tape.event(12, "client-1", "use", "invoke", lock="a")
    tape.used(13, "client-1", "A")
    assert len(tape.judge("prompt")) == 1


@pytest.mark.parametrize(
    ("invoked", "late"), [(5, False), (12, True), (19, True), (20, False), (25, False), (31, True)]
)
def test_of_a_token_that_is_used_twice(invoked: float, late: bool) -> None:
    """It is about the last hold that began before."""
    tape = told()
    tape.held(20, "client-1", "A", until=30)
    tape.lost(30, "client-1", "A")
    tape.event(invoked, "client-1", "use", "invoke", lock="a", token="A")
    assert bool(tape.judge("prompt")) == late


def test_without_a_lock_it_is_found_by_its_token() -> None:
    tape = told()
    tape.event(12, "client-1", "use", "invoke", token="A", store="plain")
    assert len(tape.judge("prompt")) == 1


def test_of_a_lease_that_was_extended() -> None:
    tape = told(until=18)
    tape.lines[0]["valid_until"] = 11
    tape.extended(8, "client-1", "A", until=18)
    tape.used(13, "client-1", "A", invoked=12)
    assert tape.judge("prompt") == []


def test_of_who_handed_over_and_of_who_took_over() -> None:
    tape = Tape()
    tape.held(1, "client-1", "A", until=11)
    tape.resumed(5, "client-2", "A", until=15)
    tape.release(15, "client-2", "A")
    tape.used(12, "client-2", "A")
    assert tape.judge("prompt") == []
    late = tape.used(12, "client-1", "A")
    assert [lines[-1] for lines in tape.judge("prompt")] == [late]


def test_by_somebody_who_was_handed_the_token() -> None:
    tape = told()
    tape.used(10, "client-9", "A")
    assert tape.judge("prompt") == []
    tape.used(12, "client-9", "A")
    assert len(tape.judge("prompt")) == 1


def test_of_a_token_that_nobody_holds() -> None:
    tape = told()
    tape.used(12, "client-9", "B")
    assert tape.judge("prompt") == []


@pytest.mark.parametrize(("begin", "end", "exempt"), [
    pytest.param(10.5, 19, True, id="between-the-look-and-the-use"),
    pytest.param(9, 10, True, id="when-it-looked"),
    pytest.param(20, 21, True, id="when-it-was-invoked"),
    pytest.param(5, 9.9, False, id="before-it-looked"),
    pytest.param(20.1, 30, False, id="after-it-was-invoked"),
    pytest.param(15, None, True, id="for-ever"),
])  # fmt: skip
def test_stopped_between_the_last_look_and_the_invocation(begin: float, end: float | None, exempt: bool) -> None:
    """C29: it looked at 10, when all was well, and then at nothing."""
    tape = told()
    tape.event(10, "client-1", "look", "ok", lock="a", token="A")
    tape.used(21, "client-1", "A", invoked=20)
    tape.fault("stop", "client-1", begin, end)
    assert bool(tape.judge("prompt")) != exempt


@pytest.mark.parametrize("op", ["kill", "pause"])
def test_only_a_stop_excuses_a_use(op: str) -> None:
    tape = told()
    tape.used(21, "client-1", "A", invoked=20)
    tape.fault(op, "client-1", 10, 19)
    assert len(tape.judge("prompt")) == 1


def test_its_own_last_event_stands_for_the_last_look_but_not_what_its_keeper_writes() -> None:
    tape = told()
    tape.used(9, "client-1", "A", invoked=8)
    tape.fault("stop", "client-1", 9.5, 19)
    tape.lines[2]["t"] = 19.001  # it is told as soon as it runs again, by another thread
    tape.used(20, "client-1", "A", invoked=19.002)
    assert tape.judge("prompt") == []
    tape.event(19.0015, "client-1", "look", "ok", lock="a")
    assert len(tape.judge("prompt")) == 1


def test_what_another_worker_does_is_no_look() -> None:
    tape = told()
    tape.used(9, "client-1", "A", worker="1")
    tape.fault("stop", "client-1", 9.5, 19)
    tape.event(19.5, "client-1", "look", "ok", worker="2")
    tape.used(20, "client-1", "A", worker="1")
    assert tape.judge("prompt") == []


# -- against one that is slow and obvious --------------------------------------------------------------------

ticks = st.integers(0, 40)  # of 25 ms, so that 50 ms are two
perhaps = st.none() | ticks
lives = st.fixed_dictionaries({
    "process": st.sampled_from(["client-1", "client-2"]), "acquired": ticks, "until": ticks,
    "extended": st.lists(st.tuples(ticks, ticks), max_size=2), "release": perhaps, "lost": perhaps,
    "uses": st.lists(ticks, max_size=2),
})  # fmt: skip
faults = st.tuples(
    st.sampled_from(["stop", "kill", "pause"]), st.sampled_from(["client-1", "client-2"]), ticks, perhaps
)


@PROPERTY
@given(st.lists(lives, min_size=1, max_size=5), st.lists(faults, max_size=3, unique_by=lambda one: one[:2]), ticks)
def test_the_judge_says_what_a_slow_one_says(
    told: list[dict[str, Any]], struck: list[tuple[str, str, int, int | None]], end: int
) -> None:
    tape = Tape()
    for number, life in enumerate(told):
        begin, process = life["acquired"], life["process"]
        tape.held(begin / 40, process, f"{number}", until=life["until"] / 40)
        # Nothing of a hold happens before it.
        life["extended"] = sorted((max(t, begin), until) for t, until in life["extended"])
        for t, until in life["extended"]:
            tape.extended(t / 40, process, f"{number}", until=until / 40)
        for what in ("release", "lost"):
            if life[what] is not None:
                life[what] = max(life[what], begin)
                getattr(tape, what)(life[what] / 40, process, f"{number}")
        life["uses"] = [max(t, begin) for t in life["uses"]]
        for t in life["uses"]:
            # By a worker of its own, so that its only look is this.
            tape.event(t / 40, process, "use", "invoke", lock="a", token=f"{number}", worker=f"{len(tape.lines)}")
    for op, target, t, healed in struck:
        tape.fault(op, target, t / 40, None if healed is None else max(healed, t) / 40)
    tape.until(end / 40)
    last = max(round(line["t"] * 40) for line in tape.lines)

    def hindered(ops: tuple[str, ...], process: str, begin: int, finish: int) -> bool:
        return any(
            t <= finish and (healed is None or max(healed, t) >= begin)
            for op, target, t, healed in struck
            if op in ops and target == process
        )

    expected = []
    for number, life in enumerate(told):
        until = life["extended"][-1][1] if life["extended"] else life["until"]
        release, lost, process = life["release"], life["lost"], life["process"]
        done = release is not None and release <= until
        in_time = lost is not None and lost <= until + 2
        open_ = release is None and lost is None and until + 2 > last
        if not (done or in_time or open_ or hindered(("stop", "kill"), process, until, until + 2)):
            expected.append(f"hold {number}")
        expected += [
            f"use {number} at {t}" for t in life["uses"] if t > until and not hindered(("stop",), process, t, t)
        ]
    found = [
        f"use {violation.events[0].token} at {round(violation.at * 40)}"
        if any(event.op == "use" for event in violation.events)
        else f"hold {violation.events[0].token}"
        for violation in tape.ruling("prompt").violations
    ]
    assert sorted(found) == sorted(expected)
