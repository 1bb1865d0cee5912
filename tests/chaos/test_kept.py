"""`kept`: no lease is lost that its holder renews (R14); only where it is demanded."""

from __future__ import annotations

import pytest

from chaos.history import DEMANDABLE, MUST, Unreadable, demanded
from tests.chaos.tape import Tape

EVERYTHING = (*MUST, "kept")


def renewed(*, until: float = 14) -> Tape:
    """Held from 1 on, renewed at 4, and something else was seen at 30."""
    tape = Tape(must=EVERYTHING)
    tape.held(1, "client-1", "A", until=11, fence=1)
    tape.extended(4, "client-1", "A", until=until)
    tape.until(30)
    return tape


@pytest.mark.parametrize(("t", "well"), [
    (5, True),
    (14, True),  # until its very end
    (14.000001, False),
    (20, False),
])  # fmt: skip
def test_until_its_holder_releases_it(t: float, well: bool) -> None:
    tape = renewed()
    tape.release(t, "client-1", "A")
    assert tape.judge("kept") == ([] if well else [[3, 5]])
    assert not tape.ruling("kept").vacuous


def test_its_holder_is_told_of_a_loss() -> None:
    tape = renewed()
    tape.lost(9, "client-1", "A", "unreachable")
    tape.release(9.1, "client-1", "A")
    assert tape.judge("kept") == [[3, 5, 6]]
    [violation] = tape.ruling("kept").violations
    assert (violation.at, violation.lock) == (9, "a")
    assert violation.sentence == "client-1 lost 'a' (A) at t=9.000000: unreachable"
    assert tape.verdict().outcome == "violated"
    assert tape.verdict(*MUST).outcome == "passed"


def test_at_the_end_of_its_validity() -> None:
    tape = renewed()
    tape.lost(14.02, "client-1", "A")
    assert tape.ruling("kept").violations[0].at == 14


def test_its_holder_is_never_told() -> None:
    [violation] = renewed().ruling("kept").violations
    assert violation.sentence.endswith("at t=14.000000: it was never told")


def test_the_loss_is_the_last_event() -> None:
    tape = Tape(must=EVERYTHING)
    tape.held(1, "client-1", "A", until=11)
    tape.lost(5, "client-1", "A")
    assert tape.judge("kept") == [[2, 3]]


def test_one_that_is_held_at_the_end_is_not_lost() -> None:
    assert renewed(until=30).judge("kept") == []
    assert renewed(until=29.9).judge("kept") == [[3]]


def test_told_behind_the_release_is_no_loss() -> None:
    tape = renewed()
    tape.release(5, "client-1", "A")
    tape.lost(5.1, "client-1", "A")
    assert tape.judge("kept") == []


def test_a_lease_that_was_never_renewed_is_lost_all_the_same() -> None:
    """A keeper that does nothing loses every lease."""
    tape = Tape(must=EVERYTHING)
    tape.held(1, "client-1", "A", until=11)
    tape.lost(11, "client-1", "A")
    assert tape.judge("kept") == [[2, 3]]


def test_another_process_goes_on_with_it() -> None:
    tape = renewed()
    tape.resumed(10, "client-2", "A", until=20)
    tape.release(15, "client-2", "A")
    assert tape.judge("kept") == []


def test_lost_and_extended_again() -> None:
    """That it is a hold anew does not undo the loss."""
    tape = renewed()
    tape.lost(9, "client-1", "A")
    tape.event(9.1, "client-1", "extend", "invoke", lock="a", token="A")
    tape.extended(9.2, "client-1", "A", until=40)
    assert tape.judge("kept") == [[3, 5]]


@pytest.mark.parametrize("op", ["stop", "kill"])
@pytest.mark.parametrize(
    ("begin", "end", "excused"), [(1, 3.9, False), (3.9, 4, True), (8, 9, True), (14, 15, True), (14.1, 15, False)]
)
def test_who_is_stopped_renews_nothing(op: str, begin: float, end: float, excused: bool) -> None:
    """After the last renewal, and before the end."""
    tape = renewed()
    tape.fault(op, "client-1", begin, end)
    tape.fault(op, "client-2", 8)
    assert bool(tape.judge("kept")) != excused


def test_what_is_done_to_masters_is_no_excuse() -> None:
    tape = renewed()
    tape.fault("roll", "master-1", 5, 13)
    assert len(tape.judge("kept")) == 1


def test_over_when_it_was_returned_is_no_lease() -> None:
    tape = renewed(until=30)
    tape.held(3, "client-2", "B", until=3)
    assert tape.judge("kept") == []


def test_without_a_renewal_it_holds_trivially() -> None:
    tape = Tape(must=EVERYTHING)
    tape.held(1, "client-1", "A", until=11)
    tape.release(2, "client-1", "A")
    ruling = tape.ruling("kept")
    assert (ruling.outcome, ruling.vacuous, ruling.note) == ("passed", True, "no lease was renewed")


def test_it_is_judged_only_where_it_is_demanded() -> None:
    """Elsewhere leases run out on purpose."""
    tape = renewed()
    assert [ruling.name for ruling in tape.verdict("kept").rulings] == [*EVERYTHING]
    assert [ruling.name for ruling in tape.verdict("live").rulings] == [*MUST]


def test_what_can_be_demanded() -> None:
    assert (*EVERYTHING, "handover", "slots") == DEMANDABLE
    assert demanded(["kept", "live", "kept"]) == ("kept", "live")
    with pytest.raises(Unreadable, match="only exclusive, fenced, prompt, live, clean, kept, handover"):
        demanded(["held"])
