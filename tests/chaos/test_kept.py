"""`kept`: no lease is lost that its holder renews (R14); only where it is demanded."""

from __future__ import annotations

import pytest

from chaos.history import DEMANDABLE, MUST, Unreadable, demanded
from tests.chaos.tape import Tape

EVERYTHING = (*MUST, "kept")


RENEWED = "1 A held until 11, 4 A extended until 14"


def renewed():
    """Held from 1 on, renewed at 4, and something else was seen at 30."""
    return Tape(must=EVERYTHING).told(f"{RENEWED}, 30 observer looks")


STORIES: dict[str, tuple[str, list[tuple[int, ...]]]] = {
    "released-in-time": (f"{RENEWED}, 5 A releases", []),
    "released-at-its-very-end": (f"{RENEWED}, 14 A releases", []),
    "released-just-too-late": (f"{RENEWED}, 14.000001 A releases", [(2, 3)]),
    "released-too-late": (f"{RENEWED}, 20 A releases", [(2, 3)]),
    "its-holder-is-told-of-a-loss": (f"{RENEWED}, 9 A loses, 9.1 A releases", [(2, 3, 4)]),
    "one-that-is-held-at-the-end-is-not-lost": ("1 A held until 11, 4 A extended until 30", []),
    "one-that-ends-before-is": ("1 A held until 11, 4 A extended until 29.9", [(2,)]),
    "told-behind-the-release-is-no-loss": (f"{RENEWED}, 5 A releases, 5.1 A loses", []),
    # A renewer that does nothing loses every lease.
    "a-lease-that-was-never-renewed-is-lost-all-the-same": ("1 A held until 11, 11 A loses", [(1, 2)]),
    "another-process-goes-on-with-it": (f"{RENEWED}, 10 A/2 resumed until 20, 15 A/2 releases", []),
    # That it is a hold anew does not undo the loss.
    "lost-and-extended-again": (f"{RENEWED}, 9 A loses, 9.1 A extends, 9.2 A extended until 40", [(2, 3)]),
    "over-when-it-was-returned-is-no-lease": ("1 A held until 11, 4 A extended until 30, 3 B held until 3", []),
}


@pytest.mark.parametrize("name", STORIES)
def test_what_is_lost(name):
    """The events of each violation, by their number in the story."""
    story, expected = STORIES[name]
    tape = Tape(must=EVERYTHING).told(f"{story}, 30 observer looks")
    assert tape.judge("kept") == [[number + 1 for number in events] for events in expected]
    assert not tape.ruling("kept").vacuous


def test_the_loss_is_the_last_event():
    assert Tape(must=EVERYTHING).told("1 A held until 11, 5 A loses").judge("kept") == [[2, 3]]


@pytest.mark.parametrize(("lost", "at", "how"), [
    (9, 9, "client-1 lost 'a' (A) at t=9.000000: unreachable"),
    (14.02, 14, "client-1 lost 'a' (A) at t=14.000000: unreachable"),
    (None, 14, "client-1 lost 'a' (A) at t=14.000000: it was never notified"),
])  # fmt: skip
def test_what_is_said_of_a_loss(lost, at, how):
    tape = renewed()
    if lost is not None:
        tape.lost(lost, "client-1", "A", "unreachable")
    [violation] = tape.ruling("kept").violations
    assert (violation.at, violation.lock, violation.sentence) == (at, "a", how)
    assert tape.verdict().outcome == "violated"
    assert tape.verdict("exclusive").outcome == "passed"


@pytest.mark.parametrize("op", ["stop", "kill"])
@pytest.mark.parametrize(
    ("begin", "end", "excused"), [(1, 3.9, False), (3.9, 4, True), (8, 9, True), (14, 15, True), (14.1, 15, False)]
)
def test_who_is_stopped_renews_nothing(op, begin, end, excused):
    """After the last renewal, and before the end."""
    tape = renewed().told(f"{begin} {op} strikes client-1 until {end}, 8 {op} strikes client-2")
    assert bool(tape.judge("kept")) != excused


@pytest.mark.parametrize(("until", "excused"), [(6.5, False), (6.6, False), (6.7, True), (8, True)])
def test_clients_that_the_machine_does_not_run_renew_nothing(until, excused):
    """They were run for less than the pause between two renewals: a third of the TTL of 10 s, since the last one."""
    tape = renewed().told("9 A loses")
    tape.event(5, "observer", "busy", "info", target="client-2", detail={"until": until})
    assert bool(tape.judge("kept")) != excused


def test_a_lease_that_is_lost_before_its_next_renewal_is_due_is_lost():
    assert len(renewed().told("6 A loses").judge("kept")) == 1


def test_what_is_done_to_masters_is_no_excuse():
    assert len(renewed().told("5 roll strikes master-1 until 13").judge("kept")) == 1


def test_without_a_renewal_it_holds_trivially():
    ruling = Tape(must=EVERYTHING).told("1 A held until 11, 2 A releases").ruling("kept")
    assert (ruling.outcome, ruling.vacuous, ruling.note) == ("passed", True, "no lease was renewed")


def test_it_is_judged_only_where_it_is_demanded():
    """Elsewhere leases run out on purpose."""
    tape = renewed()
    assert [ruling.name for ruling in tape.verdict("kept").rulings] == [*EVERYTHING]
    assert [ruling.name for ruling in tape.verdict("live").rulings] == [*MUST]


def test_what_can_be_demanded():
    assert (*EVERYTHING, "handover", "slots", "order") == DEMANDABLE
    assert demanded(["kept", "live", "kept"]) == ("kept", "live")
    with pytest.raises(Unreadable, match="only exclusive, fenced, prompt, live, clean, kept, handover"):
        demanded(["held"])
