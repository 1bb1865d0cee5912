"""`exclusive` (P1): holds of one lock with different tokens never overlap; what a hold is (C25, C32)."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from chaos.judge.exclusive import exclusive
from chaos.judge.holds import Hold, holds
from tests.chaos.tape import PROPERTY, Tape


def hold(tape: Tape, token: str) -> tuple[float, float]:
    [found] = [one for one in holds(tape.history()) if one.token == token]
    return found.start, found.end


def test_two_at_once() -> None:
    tape = Tape()
    first = tape.held(1, "client-1", "A", until=11)
    second = tape.held(5, "client-2", "B", until=15)
    assert tape.judge("exclusive") == [[first, second]]
    [violation] = tape.ruling("exclusive").violations
    assert violation.at == 5
    assert violation.lock == "a"
    assert "'a' was held by client-1 (A) until t=11.000000 and by client-2 (B) from t=5.000000" in violation.sentence
    assert "6.000000 s" in violation.sentence


@pytest.mark.parametrize(
    ("second_at", "overlaps"), [(10.999999, True), (11, False), (11.000001, False), (1, True), (0.5, True)]
)
def test_holds_are_half_open(second_at: float, overlaps: bool) -> None:
    """C25: touching is not overlapping."""
    tape = Tape()
    tape.held(1, "client-1", "A", until=11)
    tape.held(second_at, "client-2", "B", until=30)
    assert bool(tape.judge("exclusive")) == overlaps


@pytest.mark.parametrize(("first", "second", "overlaps"), [
    ("shared", "shared", False),
    ("shared", None, True),
    (None, "shared", True),
])  # fmt: skip
def test_only_readers_hold_it_together(first: str | None, second: str | None, overlaps: bool) -> None:
    """R33."""
    tape = Tape()
    tape.held(1, "client-1", "A", until=11, mode=first)
    tape.held(5, "client-2", "B", until=15, mode=second)
    assert bool(tape.judge("exclusive")) == overlaps


def test_readers_are_together_and_none_hides_the_writer() -> None:
    """It is not the last hold that it overlaps with, nor the one that lasts longest."""
    tape = Tape()
    tape.held(1, "client-1", "A", until=6)
    tape.release(5, "client-1", "A")
    tape.held(5, "client-2", "B", until=30, mode="shared")
    tape.held(6, "client-3", "C", until=8, mode="shared")
    assert tape.judge("exclusive") == []
    tape = Tape()
    writer = tape.held(1, "client-1", "A", until=10)
    long = tape.held(2, "client-2", "B", until=30, mode="shared")
    late = tape.held(9, "client-3", "C", until=12, mode="shared")
    assert tape.judge("exclusive") == [[writer, long], [writer, late]]


@pytest.mark.parametrize(("reads_at", "overlaps"), [(4.9, True), (5, False), (6, False)])
def test_who_downgrades_is_alone_until_then(reads_at: float, overlaps: bool) -> None:
    tape = Tape()
    tape.held(1, "client-1", "A", until=11)
    tape.event(5, "client-1", "downgrade", "invoke", lock="a", token="A")
    tape.held(reads_at, "client-2", "B", until=20, mode="shared")
    assert bool(tape.judge("exclusive")) == overlaps


def test_who_has_downgraded_keeps_writers_out() -> None:
    tape = Tape()
    tape.held(1, "client-1", "A", until=11)
    tape.event(5, "client-1", "downgrade", "invoke", token="A")
    tape.held(10, "client-2", "B", until=20)
    assert len(tape.judge("exclusive")) == 1


@pytest.mark.parametrize(("at", "overlaps"), [(4.999, True), (5, False), (6, False)])
@pytest.mark.parametrize("how", ["release", "lost"])
def test_a_hold_ends_when_its_release_is_invoked_or_it_is_told_of_the_loss(how: str, at: float, overlaps: bool) -> None:
    tape = Tape()
    tape.held(1, "client-1", "A", until=11)
    getattr(tape, how)(5, "client-1", "A")
    tape.held(at, "client-2", "B", until=20)
    assert bool(tape.judge("exclusive")) == overlaps


def test_the_answer_to_a_release_is_not_its_end() -> None:
    """Another one may have it while that is under way."""
    tape = Tape()
    tape.held(1, "client-1", "A", until=11)
    tape.release(5, "client-1", "A")
    tape.held(5.1, "client-2", "B", until=15)
    tape.event(5.2, "client-1", "release", "ok", lock="a", token="A")
    assert tape.judge("exclusive") == []


def test_only_the_release_of_this_token() -> None:
    tape = Tape()
    tape.held(1, "client-1", "A", until=11)
    tape.release(2, "client-1", "of an earlier attempt")
    tape.held(5, "client-2", "B", until=15)
    assert len(tape.judge("exclusive")) == 1


def test_an_extension_moves_the_end() -> None:
    tape = Tape()
    first = tape.held(1, "client-1", "A", until=11)
    extended = tape.extended(8, "client-1", "A", until=18)
    second = tape.held(12, "client-2", "B", until=22)
    assert tape.judge("exclusive") == [[first, extended, second]]


def test_to_a_shorter_time_as_well() -> None:
    """The last `valid_until`, not the greatest (C6)."""
    tape = Tape()
    tape.held(1, "client-1", "A", until=11)
    tape.extended(2, "client-1", "A", until=6)
    tape.held(6, "client-2", "B", until=16)
    assert tape.judge("exclusive") == []


@pytest.mark.parametrize("phase", ["invoke", "fail", "info"])
def test_only_an_extension_that_was_won(phase: str) -> None:
    tape = Tape()
    tape.held(1, "client-1", "A", until=11)
    tape.event(8, "client-1", "extend", phase, lock="a", token="A", valid_until=18)
    tape.held(12, "client-2", "B", until=22)
    assert tape.judge("exclusive") == []


def test_an_extension_that_resurrects() -> None:
    """R12: it had ended, and another one had it in between."""
    tape = Tape()
    tape.held(1, "client-1", "A", until=11)
    tape.held(12, "client-2", "B", until=22)
    tape.extended(13, "client-1", "A", until=23)
    assert len(tape.judge("exclusive")) == 1


@pytest.mark.parametrize("how", ["lost", "release"])
def test_one_that_is_asked_for_after_the_end_and_won(how: str) -> None:
    tape = Tape()
    tape.held(1, "client-1", "A", until=11)
    getattr(tape, how)(10, "client-1", "A")
    second = tape.held(12, "client-2", "B", until=22)
    tape.event(13, "client-1", "extend", "invoke", lock="a", token="A")
    resurrected = tape.extended(13.1, "client-1", "A", until=23)
    assert tape.judge("exclusive") == [[second, resurrected]]


def test_one_that_was_under_way_when_it_was_released_brings_nothing_back() -> None:
    """A keeper's renewal and a release pass each other."""
    tape = Tape()
    tape.held(1, "client-1", "A", until=11)
    tape.event(4.9, "client-1", "extend", "invoke", lock="a", token="A")
    tape.release(5, "client-1", "A")
    tape.extended(5.1, "client-1", "A", until=15)
    tape.held(6, "client-2", "B", until=16)
    assert tape.judge("exclusive") == []


def test_events_that_name_only_the_token() -> None:
    tape = Tape()
    tape.held(1, "client-1", "A", until=11)
    tape.event(5, "client-1", "extend", "ok", token="A", valid_until=15)
    assert hold(tape, "A") == (1, 15)
    tape.event(6, "client-1", "release", "invoke", token="A")
    assert hold(tape, "A") == (1, 6)


def test_several_names_with_one_token() -> None:
    tape = Tape(locks=("a", "b"))
    tape.held(1, "client-1", "A", until=11)
    tape.held(1, "client-1", "A", until=11, lock="b")
    tape.event(5, "client-1", "extend", "ok", token="A", valid_until=15)
    tape.held(12, "client-2", "B", until=20, lock="b")
    assert len(tape.judge("exclusive")) == 1
    tape.event(11, "client-1", "release", "invoke", token="A")
    assert tape.judge("exclusive") == []


def test_other_locks_have_other_holders() -> None:
    tape = Tape(locks=("a", "b"))
    tape.held(1, "client-1", "A", until=11)
    tape.held(2, "client-2", "B", until=12, lock="b")
    assert tape.judge("exclusive") == []


def test_the_same_token_never_overlaps_itself() -> None:
    """One token for all attempts is bad for other reasons."""
    tape = Tape()
    tape.held(1, "client-1", "A", until=11)
    tape.held(5, "client-1", "A", until=15)
    assert tape.judge("exclusive") == []
    third = tape.held(14, "client-2", "B", until=20)
    assert [lines[-1] for lines in tape.judge("exclusive")] == [third]


def test_a_hold_is_not_in_its_own_way() -> None:
    tape = Tape()
    tape.held(1, "client-1", "A", until=11)
    found = holds(tape.history())
    assert list(exclusive([*found, *found])) == []


def test_one_token_for_all_attempts_with_another_holder_between_them() -> None:
    tape = Tape()
    tape.held(1, "client-1", "A", until=11)
    tape.release(5, "client-1", "A")
    tape.held(6, "client-2", "B", until=16)
    tape.release(8, "client-2", "B")
    tape.held(9, "client-1", "A", until=19)
    assert tape.judge("exclusive") == []
    tape.held(30, "client-2", "C", until=35)
    tape.held(40, "client-1", "A", until=50)  # the former one was never released, it ran out
    assert tape.judge("exclusive") == []


def test_one_client_can_violate_it_alone() -> None:
    tape = Tape()
    tape.held(1, "client-1", "A", until=11)
    tape.held(2, "client-1", "B", until=12)
    assert len(tape.judge("exclusive")) == 1


def test_a_lease_that_was_over_when_it_was_returned_is_no_hold() -> None:
    tape = Tape()
    tape.held(1, "client-1", "A", until=11)
    tape.held(5, "client-2", "B", until=5)
    tape.held(6, "client-2", "C", until=4)
    assert tape.judge("exclusive") == []


def test_a_long_hold_below_many_short_ones() -> None:
    """Each of them is named, with the one that is still there."""
    tape = Tape()
    long = tape.held(1, "client-1", "long", until=100)
    short = []
    for number in range(10):
        short.append(tape.held(2 + number, "client-2", f"short-{number}", until=20))
        tape.release(2.5 + number, "client-2", f"short-{number}")
    assert tape.judge("exclusive") == [[long, line] for line in short]


def test_a_hand_over_is_one_hold() -> None:
    """C32."""
    tape = Tape()
    tape.held(1, "client-1", "A", until=11)
    tape.resumed(5, "client-2", "A", until=15)
    assert tape.judge("exclusive") == []
    tape.held(12, "client-1", "B", until=22)
    assert len(tape.judge("exclusive")) == 1


def test_it_keeps_its_fence() -> None:
    """R19.  Also where the new process does not say it."""
    tape = Tape()
    tape.held(1, "client-1", "A", until=11, fence=7)
    tape.resumed(5, "client-2", "A", until=15)
    assert [one.fence for one in holds(tape.history())] == [7, 7]


def test_an_extension_by_a_process_that_has_not_resumed_yet() -> None:
    """It extends to take over, and says so a moment later."""
    tape = Tape()
    tape.held(1, "client-1", "A", until=11)
    tape.extended(10.9, "client-2", "A", until=21)
    assert hold(tape, "A") == (1, 21)


def test_the_loss_of_who_handed_over_does_not_end_it() -> None:
    tape = Tape()
    tape.held(1, "client-1", "A", until=11)
    tape.resumed(5, "client-2", "A", until=15)
    tape.lost(11, "client-1", "A")
    tape.held(12, "client-3", "B", until=22)
    assert len(tape.judge("exclusive")) == 1


def test_the_new_holder_ends_it() -> None:
    tape = Tape()
    tape.held(1, "client-1", "A", until=11)
    tape.resumed(5, "client-2", "A", until=15)
    tape.release(7, "client-2", "A")
    tape.held(8, "client-3", "B", until=18)
    assert tape.judge("exclusive") == []


def test_what_lies_between_is_part_of_it() -> None:
    """The token was valid until 11, was resumed at 13, and another one had the lock in between."""
    tape = Tape()
    tape.held(1, "client-1", "A", until=11)
    tape.held(11.5, "client-3", "B", until=12)
    tape.resumed(13, "client-2", "A", until=23)
    assert len(tape.judge("exclusive")) == 1


def test_resumed_from_somebody_unknown() -> None:
    tape = Tape()
    tape.resumed(5, "client-2", "A", until=15)
    tape.held(6, "client-3", "B", until=16)
    assert len(tape.judge("exclusive")) == 1


def test_the_order_of_the_lines_does_not_matter() -> None:
    """C31: only that of the times does."""
    tape = Tape()
    second = tape.held(6, "client-2", "B", until=16)
    tape.release(5, "client-1", "A")
    first = tape.held(1, "client-1", "A", until=11)
    assert tape.judge("exclusive") == []
    del tape.lines[1]
    assert tape.judge("exclusive") == [[first - 1, second]]


# -- against one that is slow and obvious --------------------------------------------------------------------

times = st.integers(0, 12).map(float)


@st.composite
def stories(draw: st.DrawFn) -> Tape:
    """Few times, tokens and processes, so that all of them meet."""
    tape = Tape(locks=("a", "b"))
    for _ in range(draw(st.integers(0, 14))):
        t, process = draw(times), draw(st.sampled_from(["client-1", "client-2", "client-3"]))
        token, lock = draw(st.sampled_from(["A", "B", "C", "D"])), draw(st.sampled_from(["a", "a", "b"]))
        until = draw(times)
        match draw(st.sampled_from(["held", "held", "held", "release", "lost", "extended", "asked", "resumed"])):
            case "held":
                tape.held(t, process, token, until=until, lock=lock)
            case "resumed":
                tape.event(t, process, "resume", "ok", lock=lock, token=token, valid_until=until)
            case "extended":
                tape.event(t, process, "extend", "ok", lock=lock, token=token, valid_until=until)
            case "asked":
                tape.event(t, process, "extend", "invoke", lock=lock, token=token)
            case "release":
                tape.event(t, process, "release", "invoke", lock=lock, token=token)
            case "lost":
                tape.event(t, process, "lost", "info", lock=lock, token=token, reason="expired")
    return tape


def overlap(one: Hold, two: Hold) -> bool:
    both = one.start < one.end and two.start < two.end and one.lock == two.lock and one.token != two.token
    return both and one.start < two.end and two.start < one.end


@PROPERTY
@given(stories())
def test_the_quick_judge_says_what_a_slow_one_says(tape: Tape) -> None:
    found = sorted(holds(tape.history()), key=lambda one: one.start)
    expected = {two.began.line for at, two in enumerate(found) if any(overlap(one, two) for one in found[:at])}
    reported = tape.ruling("exclusive").violations
    assert len(reported) == len(expected)
    for violation in reported:
        lines = {event.line for event in violation.events}
        assert lines & expected
        pairs = [(one, two) for one in found for two in found if {one.began.line, two.began.line} <= lines]
        assert any(overlap(one, two) for one, two in pairs)


@PROPERTY
@given(stories())
def test_holds_of_one_token_follow_each_other(tape: Tape) -> None:
    """What the quick judge stands on."""
    found = holds(tape.history())
    for one in found:
        for two in found:
            if one is not two and (one.lock, one.token) == (two.lock, two.token):
                assert one.end <= two.start or two.end <= one.start


@PROPERTY
@given(stories(), st.randoms(use_true_random=False))
def test_no_order_of_lines_of_different_times_matters(tape: Tape, random: object) -> None:
    """C31.  Those of one time stay in their order: the file is all that tells it."""
    before = [violation.at for violation in tape.ruling("exclusive").violations]
    groups: dict[float, list[dict[str, object]]] = {}
    for line in tape.lines:
        groups.setdefault(line["t"], []).append(line)
    keys = list(groups)
    random.shuffle(keys)  # type: ignore[attr-defined]
    tape.lines = [line for key in keys for line in groups[key]]
    assert [violation.at for violation in tape.ruling("exclusive").violations] == before


@pytest.mark.parametrize("size", [2000, 4000])
def test_the_work_grows_with_the_history_not_with_its_square(size: int) -> None:
    """Counted are looks at the end of a hold, the worst case: one that overlaps all others."""
    looks = 0

    class Counting(Hold):
        __slots__ = ()

        @property
        def end(self) -> float:
            nonlocal looks
            looks += 1
            return super().end

    tape = Tape()
    tape.held(0, "client-1", "long", until=1e6)
    for number in range(size):
        tape.held(number, "client-2", f"{number}", until=number + 0.5)
    found = holds(tape.history())
    for one in found:
        one.__class__ = Counting
    assert len(list(exclusive(found))) == size
    assert looks <= 12 * size
