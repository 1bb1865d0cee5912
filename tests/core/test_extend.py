"""Extensions: kept, lost, or unanswered (R12-R14, C6)."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from redlock._core import wire
from redlock._core.confirm import records
from redlock._core.confirm.ballot import RECORDED
from redlock._core.kernel.release import Claim
from redlock._core.lease import LeaseState
from tests.core import world
from tests.core.world import GONE, START, TAKEN, Master, Single, World, down, gone, ours, outcomes, silent, taken
from tests.owners import proves

if TYPE_CHECKING:
    from redlock.errors import Reason

pytestmark = proves("R19")


@pytest.mark.parametrize(("masters", "kind", "reason", "at"), [
    pytest.param([ours(), ours(), ours(0.02), silent(), silent()], "extended", None, 0.02, id="third-of-five"),
    pytest.param([ours()], "extended", None, 0.01, id="one-master"),
    pytest.param([ours(), ours(), gone(0.02)], "extended", None, 0.01, id="not-waiting-for-the-denial"),
    # R13: for want of answers nothing is taken away
    pytest.param([ours(), silent(), silent()], "unanswered", None, 0.25, id="two-hang"),
    pytest.param([down(), down(), ours()], "unanswered", None, 0.0, id="majority-down"),
    pytest.param([gone(), gone(), silent(), silent(), silent()], "unanswered", None, 0.25, id="two-of-five-deny"),
    pytest.param([gone(), gone(), down(), down(), ours(0.1)], "unanswered", None, 0.1, id="no-proof-is-possible"),
    # R12, R14: that the two who lack it would take it back makes no majority
    pytest.param([ours(), ours(), gone(), gone(), silent()], "unanswered", None, 0.25, id="a-repair-is-no-vote"),
    # ... but a majority that denies it is proof, and says why
    pytest.param([gone(), gone(), gone(0.02), ours(0.1), ours(0.1)], "lost", "expired", 0.02, id="three-deny"),
    pytest.param([gone(), gone(), taken(0.02), ours(0.1), ours(0.1)], "lost", "taken", 0.02, id="one-has-another"),
    pytest.param([taken(), taken(), ours(0.1)], "lost", "taken", 0.01, id="taken"),
    pytest.param([gone()], "lost", "expired", 0.01, id="one-master-denies"),
    # Two noes of five end an acquire with three of four; here the rest may still deny.
    pytest.param([gone(), down(), gone(0.1), gone(0.2), down()], "lost", "expired", 0.2, id="waits-for-the-proof"),
    # even N: half is neither
    pytest.param([ours(), gone()], "unanswered", None, 0.01, id="one-one"),
    pytest.param([gone(0.1), down()], "unanswered", None, 0.0, id="one-of-two-down"),
    pytest.param([ours(), ours(), taken(), taken(0.03)], "unanswered", None, 0.03, id="two-two"),
    pytest.param([taken(), taken(), taken(), ours()], "lost", "taken", 0.01, id="three-of-four"),
])  # fmt: skip
def test_kept_lost_or_unanswered(masters: list[Master], kind: str, reason: Reason | None, at: float) -> None:
    scene = Single(*masters)
    lease, world = scene.lease, scene.world
    before = lease.token, lease.fence, lease.valid_until
    world.now += 3.0
    asked_at = world.now
    assert scene.extend() == kind
    assert world.now - asked_at == pytest.approx(at)
    # R12: the TTL is set, not added; counted from before the first byte, so that answers that took long give nothing away
    left = pytest.approx(asked_at + 10 - 0.102) if kind == "extended" else before[2]
    assert (lease.token, lease.fence, lease.valid_until) == (*before[:2], left)  # R19
    assert lease.lost == (kind == "lost")
    assert lease.valid == (kind != "lost")
    if reason is not None:
        assert lease.loss().reason == reason
    if kind != "extended":
        assert world.verbs() == ["extend"]  # nobody has confirmed it, so nothing is repaired (R14)


@pytest.mark.parametrize(("masters", "said"), [
    pytest.param([ours(), silent(), down()], ["granted", "timeout", "error"], id="unanswered"),
    pytest.param([taken(), taken(), ours(0.1)], ["held", "held", "pending"], id="denied"),
])  # fmt: skip
def test_the_loss_says_what_the_masters_said_to_the_extension_not_to_the_acquire(
    masters: list[Master], said: list[str]
) -> None:
    scene = Single(*masters)
    granted = scene.lease.votes
    scene.extend()
    scene.world.now = scene.lease.valid_until
    assert [vote.outcome for vote in scene.lease.loss().votes] == said
    assert scene.lease.votes == granted  # of the last round that was won, as it says


def test_everybody_is_asked_also_those_that_missed_the_acquire() -> None:
    scene = Single(*[ours()] * 3, asked=frozenset([0, 1]))
    scene.extend(20.0)
    [sent] = scene.world.sent
    assert (sent.verb, sent.token) == ("extend", "token-0")
    assert sent.to == {0, 1, 2}
    assert sent.request.call.keys == scene.spec.keys.locks + scene.spec.keys.fences  # R20: the fence keys live on
    assert sent.request.owed_until is None
    assert scene.lease.ttl == 20.0
    assert outcomes(scene.lease.votes) == ["granted", "granted", "pending"]


def test_masters_without_the_key_get_it_back_for_what_is_left() -> None:
    masters = gone(0.0), taken(0.01), gone(0.02), ours(0.1), ours(0.1), ours(0.1), ours(0.2)
    scene = Single(*masters, asked=frozenset([1, 3, 4, 5, 6]))
    assert scene.extend() == "extended"
    sent, repair = scene.world.sent
    assert (sent.verb, repair.verb) == ("extend", "repair")
    # not to the one where somebody else is, nor to those that have it
    assert repair.to == {0, 2}
    # the key must not outlive those of the majority: 0.2 s of the 10 have passed
    assert repair.request.call.args == ("1", "token-0", "9800", str(scene.lease.fence), "3600000")
    assert repair.request.call.keys == scene.spec.keys.locks + scene.spec.keys.fences
    assert not repair.request.open  # not counted, and not revived behind a release
    assert repair.request.owed_until is None
    # and they are to be released with the others
    assert scene.lease.asked == {0, 1, 2, 3, 4, 5, 6}


def test_a_key_that_is_gone_is_missing_also_where_the_fence_is_not_known() -> None:
    """R35: that argument is empty then, and so is the answer."""
    keys = wire.keys_for("redlock:", ["a"], records=True)
    claim = Claim(World(ours()).settings, records.extend(keys, "token-0", 10.0, 60.0, "r1", None))
    assert claim.read(0, GONE) == ("held", "not ours any more: the key is gone")
    assert claim.missing == (0,)


def test_where_it_is_in_another_mode_by_now_an_extension_is_not_denied():
    scene = Single(*[Master(0.01, {"extend": [-1]})] * 3)
    assert scene.extend() == "unanswered"
    assert outcomes(scene.lease.last_votes())[:2] == ["error"] * 2


def test_from_one_that_goes_over_another_connection_on_extensions_have_random_stamps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """R35: masters may get them in any order, so the stamps have none."""
    here = World(ours())
    spec = here.spec()._replace(keys=wire.keys_for("redlock:", ["a"], records=True), mode=RECORDED)
    lease = here.lease(spec)
    for is_here, random in ((True, False), (False, True), (True, True)):
        monkeypatch.setattr(lease, "is_here", lambda is_here=is_here: is_here)
        assert lease.extension_call(here.settings, spec, 10.0).args[-2].startswith("r") is random


def test_who_answers_after_the_majority_gets_it_back_at_once() -> None:
    """R14: not one extension later.  Nobody waits for that: the operation is over."""
    scene = Single(*[ours()] * 4, gone(0.1), taken(0.1), gone(0.4), asked=frozenset(range(4)))
    assert scene.extend() == "extended"
    assert scene.world.verbs() == ["extend"]
    assert scene.lease.asked == {0, 1, 2, 3}
    scene.world.listen(1.0)
    first, second = scene.world.all("repair")
    assert (first.at, first.to, second.at, second.to) == (START + 0.1, frozenset([4]), START + 0.4, frozenset([6]))
    # for what is left by then, and it is to be released there with the others
    assert first.args == ("1", "token-0", "9900", str(scene.lease.fence), "3600000")
    assert second.args[2] == "9600"
    assert scene.lease.asked == {0, 1, 2, 3, 4, 6}
    # with an extension as with the first
    assert scene.extend() == "extended"
    scene.world.listen(1.0)
    assert len(scene.world.all("repair")) == 4


@pytest.mark.parametrize(("masters", "kind"), [
    *(([*[ours()] * 4, Master(0.1, {"extend": says})], "extended") for says in (TAKEN, [1], [0], b"no", [0, b"", 1])),
    # R14: it was not won, so nobody has confirmed the token
    ([ours(), silent(), gone(0.3)], "unanswered"),
    ([gone(), gone(), gone(0.1)], "lost"),
])  # fmt: skip
def test_who_is_given_nothing_though_it_answers_late(masters: list[Master], kind: str) -> None:
    scene = Single(*masters)
    assert scene.extend() == kind
    scene.world.listen(1.0)
    assert scene.world.verbs() == ["extend"]


@pytest.mark.parametrize(("answered", "reason"), [(False, "unreachable"), (True, "expired")])
def test_why_it_ran_out(answered: bool, reason: str) -> None:
    """R13: that nobody answered is said, unless an extension has been won since."""
    scene = Single(*[silent()] * 3)
    assert scene.extend() == "unanswered"
    if answered:
        scene.world.masters = (ours(),) * 3
        assert scene.extend() == "extended"
    scene.world.now = scene.lease.valid_until
    assert scene.lease.loss().reason == reason


def test_a_lease_that_was_extended_shares_the_names_of_its_attributes(monkeypatch):
    """Else it has a dict of its own, with 1.5 kB more; each name that is not declared makes one (`attributes`)."""
    monkeypatch.setattr(world, "LeaseState", type("Fresh", (LeaseState,), {}))
    burst = [Single() for _ in range(60)]
    assert {one.extend() for one in burst} == {"extended"}
    assert sys.getsizeof(vars(burst[-1].lease)) < 600
