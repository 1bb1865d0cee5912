"""One of several slots (R32): what an attempt asks masters for, and what becomes of their answers."""

from __future__ import annotations

from typing import Any

import pytest

from redlock._core import wire
from redlock._core.acquire import acquire
from redlock._core.kernel.ballot import Grant, Refusal
from redlock._core.outcomes import Failure
from redlock._core.slots.target import KnownSlots, SlotTarget, group_of, slot_name
from tests.core.world import START, Master, World, taking

TTL = 10.0
UNTIL = START + 0.99 * TTL - 0.002  # of a slot that is asked for at START


def masters(*slots: int | None, ms: tuple[int, ...] = (5000, -2, -2)) -> World:
    """Each gives that one of several that are asked for.  None: it is down.

    Instead of a single slot it says for how many ``ms`` others have each one.
    """

    def master(slot: int | None) -> Master:
        if slot is None:
            return Master(says=dict.fromkeys(("occupy", "vacate"), Failure("error", "down", sent=False)))

        def occupied(call: wire.Call) -> Any:
            asked, proposal = call.args[5:], call.args[3]
            if len(asked) > 1:
                return [1, proposal.encode()] if asked[0] == str(slot) else [1, proposal.encode(), slot]
            return [0, b"0", b"somebody", 5000, list(ms)]

        return Master(0.01, {"occupy": occupied, "vacate": [1, 0]})

    return World(*map(master, slots))


def outcome(here: World, granted: Any = bool) -> Grant | Refusal:
    keys = [wire.keys_for("redlock:", [slot_name("import", slot)]) for slot in range(3)]
    group = group_of(here.spec("import", ttl=TTL), keys, "redlock:", KnownSlots())
    return here.run(acquire(SlotTarget(here.settings, group, taking(granted)), here.now, here.now))


@pytest.mark.parametrize(("known", "granted"), [(1.0, True), (-0.5, False)])
def test_none_is_granted_for_longer_than_the_max_ttl_is_known(known: float, granted: bool) -> None:
    """R21: the second attempt asks for any that is free."""
    here = masters(1, 1, 1)
    here.settings.voters.known_until = UNTIL + known
    won: list[Grant] = []
    assert isinstance(outcome(here, won.append), Grant if granted else Refusal)
    assert bool(won) is granted


@pytest.mark.parametrize(
    ("slots", "elsewhere"), [((1, 2, 1), [{1}]), ((1, 1, 2), [{2}]), ((1, 1, 1), [{2}]), ((1, 1, None), [])]
)
def test_the_rest_is_given_back_to_masters_that_did_not_give_the_slot(
    slots: tuple[int | None, ...], elsewhere: list[set[int]]
) -> None:
    """Or have not said so by the decision, which two of three masters make."""
    here = masters(*slots)
    grant = outcome(here)
    assert isinstance(grant, Grant)
    assert [sent.to for sent in here.all("vacate")[1:]] == elsewhere  # the first takes back the refused attempt


def test_a_refusal_says_when_the_first_of_them_can_be_free() -> None:
    """A slot with a millisecond left is on record, and has no known end (R35)."""
    refusal = outcome(masters(1, 1, 1, ms=(3000, 1, 2000)))
    assert isinstance(refusal, Refusal)
    assert refusal.remaining == 2.0
