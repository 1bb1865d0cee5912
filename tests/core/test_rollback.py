"""No way out of an acquire but a grant leaves a key behind (P7, R9, R10, R11)."""

from __future__ import annotations

import math
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import example, given, strategies as st

from redlock._core import wire
from redlock._core.effects import Send
from redlock._core.kernel.attempt import attempt
from redlock._core.kernel.ballot import Grant, Refusal
from redlock._core.kernel.rollback import despite_interrupts
from redlock._core.outcomes import ErrorReply, Failure
from redlock.errors import RedlockError
from tests.core.world import NEVER, START, WALL, Interrupt, Master, Sent, World, breaks, down, held, refuses
from tests.properties.profile import PROPERTY
from tests.servers.interrupt import InTheCleanup, at_every_line


class Cancelled(BaseException):
    """As asyncio.CancelledError is: not an Exception."""


@pytest.mark.parametrize(("masters", "to"), [
    pytest.param([held(), held(), held(), Master(), Master()], {0, 1, 2, 3, 4}, id="pending-ones-too"),
    pytest.param([Master(), Master(NEVER), Master(NEVER)], {0, 1, 2}, id="silent-ones-too"),
    pytest.param([Master(), breaks(), breaks()], {0, 1, 2}, id="broken-while-asked"),
    pytest.param([down(), down(), Master()], {2}, id="never-asked"),
    pytest.param([down()], set(), id="nobody-asked"),
    pytest.param([refuses(), refuses(), Master()], {0, 1, 2}, id="refused-by-an-error"),
])  # fmt: skip
def test_a_failed_attempt_is_released_where_it_may_have_arrived(masters: list[Master], to: set[int]) -> None:
    world = World(*masters)
    spec = world.spec()
    world.refused()
    taken, released = world.sent
    assert released.verb == "release"
    assert released.to == to
    assert released.token == taken.token
    assert released.request.call.keys == spec.keys.locks
    assert released.request.call.args == (taken.token,), "and nothing is kept from others (R28)"


def test_the_rollback_is_owed_for_as_long_as_the_key_can_live() -> None:
    """R10: a key that landed late lives for a TTL from then."""
    world = World(*[Master(NEVER)] * 3)
    world.run(attempt(world.target(ttl=10.0)))
    [released] = world.all("release")
    assert released.request.owed_until is not None
    assert released.request.owed_until >= START + 10.0 + world.settings.node_timeout
    assert not released.request.open  # nobody counts the answers


# The four ways through an attempt: won at once, won in a second round (R17), lost, timed out.
STORES_LATER: dict[str, Any] = {"acquire": [2, str(WALL + 5).encode()]}
WAYS = {
    "granted": [Master(0.01), Master(0.02), Master(0.03)],
    "second-round": [Master(0.01, STORES_LATER), Master(0.02, STORES_LATER), Master(0.03)],
    "held": [held(0.01), Master(0.02), held(0.03)],
    "timed-out": [Master(0.01), Master(NEVER), Master(NEVER)],
    "one-down": [Master(0.01), down(), Master(0.02, STORES_LATER)],
}


def may_have(world: World, sent: Sent) -> set[int]:
    """Masters that may have this request: all but those that are known not to."""
    unsent = {answer.master for answer in world.arrived if isinstance(answer.value, Failure) and not answer.value.sent}
    return set(sent.to) - unsent


def assert_rolled_back(world: World) -> None:
    for number, sent in enumerate(world.sent):
        if sent.verb != "acquire":
            continue
        released: set[int] = set()
        for later in world.sent[number + 1 :]:
            if later.verb == "release" and later.token == sent.token:
                released |= later.to
                assert later.request.owed_until is not None
        assert may_have(world, sent) <= released


@pytest.mark.parametrize("first", [KeyboardInterrupt, RedlockError])
@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize("way", WAYS)
def test_interrupted_again_at_any_line_of_what_follows(way: str, number: int, first: type[BaseException]) -> None:
    """Before the rollback was sent, for one: what was taken stayed for its TTL, and who stood behind in line waited."""
    for interrupt in at_every_line(5, InTheCleanup):
        world = World(*WAYS[way])
        op = world.acquire(world.spec(), deadline=START)
        with suppress(first), interrupt.strikes():
            world.run(interrupt.of(op), Interrupt(frozenset([number]), first(""), 2))
        assert interrupt.struck or interrupt.left > 0, "the Ctrl-C was lost"
        assert_rolled_back(world)
        assert "Leave" in dict(world.effects)


@pytest.mark.parametrize("times", range(4))
def test_a_release_is_insisted_on(times: int) -> None:
    """Sent once more after every interruption, but not for ever; the first one is for the caller to raise."""
    release = Send(wire.release(wire.keys_for("redlock:", ["a"]), "token-1"), owed_until=START + 20.0)
    errors = [KeyboardInterrupt("first"), Cancelled("second"), RuntimeError("third")][:times]
    operation = despite_interrupts(release)
    assert operation.send(None) is release
    with pytest.raises(StopIteration) as ended:
        for error in errors:
            assert operation.throw(error) is release
        operation.send(None)
    assert ended.value.value is (errors[0] if errors else None)


fences = st.integers(0, 2**52).map(lambda fence: str(fence).encode())
tokens = st.sampled_from([b"ann", b"bob", b"", b"\xff"])
acquired = st.one_of(
    st.just(lambda call: [1, call.args[3].encode()]),
    st.tuples(st.sampled_from([1, 2]), fences).map(list),
    st.tuples(st.just(0), fences, tokens, st.integers(-2, 60_000)).map(list),
    st.just([1]),
    st.sampled_from([Failure("error", "down", sent=False), Failure("error", "broke"), Failure("timeout", "slow")]),
    st.just(ErrorReply("OOM full").failure()),
)
fenced = st.one_of(
    st.just([1, b"1"]), st.tuples(st.sampled_from([0, -1]), fences).map(list), st.just(Failure("error", "broke"))
)
delays = st.one_of(st.floats(0, 0.4), st.just(NEVER))
any_master = st.tuples(delays, delays, acquired, fenced).map(
    lambda drawn: Master(drawn[0], {"acquire": drawn[2], "fence": drawn[3]}, {"fence": drawn[1]})
)


@PROPERTY
@given(
    masters=st.lists(any_master, min_size=1, max_size=7),
    timeout=st.sampled_from([0.0, 0.3, 1.0]),
    fencing=st.booleans(),
)
@example(masters=[Master(NEVER)] * 3, timeout=0.0, fencing=True)
def test_refused_leaves_nothing_and_granted_has_a_majority(
    masters: list[Master], timeout: float, fencing: bool
) -> None:
    world = World(*masters)
    spec = world.spec(ttl=1.0, fencing=fencing)
    outcome = world.run(world.acquire(spec, deadline=world.now + timeout))
    need = len(masters) // 2 + 1
    # One attempt more, or five and the pauses between them, if it looks as if several had tried at once (C3).
    most = 19 if world.all("acquire")[1:] else 1
    assert world.after_start() <= timeout + most * world.settings.node_timeout + 1e-6
    if isinstance(outcome, Refusal):
        assert_rolled_back(world)
        return
    answered = [
        (answer.master, answer.request.call, answer.value[0])
        for answer in world.arrived
        if answer.request.call.script.name in ("acquire", "fence")
        and answer.request.call.args[1] == outcome.token
        and not isinstance(answer.value, Failure)
        and len(answer.value) == 2
    ]
    granting = {master for master, call, said in answered if call.script.name == "acquire" and said in (1, 2)}
    assert len(granting) >= need
    assert granting <= outcome.asked
    stored = {master for master, call, said in answered if said == 1 and str(outcome.fence) in call.args}
    assert len(stored) >= need or not fencing  # R17
    assert outcome.valid_until - world.now >= spec.min_validity
    assert (outcome.fence is not None) == fencing
    # What was tried before was taken back; what was granted was not.
    assert outcome.token not in {sent.token for sent in world.all("release")}
    world.sent = [sent for sent in world.sent if sent.token != outcome.token]
    assert_rolled_back(world)


@PROPERTY
@given(
    masters=st.lists(any_master, min_size=1, max_size=5),
    at=st.sets(st.integers(0, 12), min_size=1, max_size=2),
    written=st.one_of(st.none(), st.integers(0, 5)),
)
def test_interrupted_whenever_leaves_nothing(masters: list[Master], at: set[int], written: int | None) -> None:
    world = World(*masters)
    spec = world.spec(ttl=1.0, pause=0.1)
    try:
        outcome = world.run(
            world.acquire(spec, deadline=world.now + 0.3), Interrupt(frozenset(at), Cancelled(), written)
        )
    except Cancelled:
        pass
    else:
        assert min(at) >= len(world.effects)  # none of them struck
        if isinstance(outcome, Grant):
            world.sent = [sent for sent in world.sent if sent.token != outcome.token]
    assert_rolled_back(world)
    assert not math.isnan(world.now)
