"""What becomes of one token, told directly: its fence, its release, its extensions, and its key (R10, R18, C6, P3, P7)."""

from __future__ import annotations

import pytest

from redlock import scripts
from redlock._core import extend as extending
from tests.simulation.actor import Actor, spec_for
from tests.simulation.invariants import P3, P7, Violation
from tests.simulation.master import Keyspace
from tests.simulation.network import ANSWERS, REQUESTS
from tests.simulation.scene import client_of, quiet


def test_two_clients_that_propose_the_same_fence():
    """The second one finds it stored, but not by itself: it is no majority for its proposal (R18)."""
    run = quiet()
    first, second = client_of(run), client_of(run)
    same = first.wall_ns() // 1000 + 1_000_000
    for client in (first, second):
        client.settings.fences.learn(same - 1)
    fences = []
    for client in (first, second):
        actor = Actor(client)
        actor.acquire(["lock-0"], 30.0, 0.0)
        run.world.run(run.world.now + 0.1)  # granted, and released at once
        fences.append(run.judge.last_fence)
    assert fences[0] == same
    assert fences[1] > same


def test_an_acquire_that_was_interrupted_while_sending_is_not_revived():
    """Ctrl-C between two masters, and the first one has forgotten the script: the acquire is not sent
    again as text, behind its own release (R10, R11).
    """
    run = quiet()
    client = client_of(run)
    for master in run.masters:
        master.flush_scripts()
        master._cached.add(scripts.RELEASE.sha)  # somebody else has released meanwhile
    actor = Actor(client)
    perform = client.perform

    def interrupted(request, task):
        if request.call.script is scripts.ACQUIRE:
            task.interrupt_in = 1
        return perform(request, task)

    client.perform = interrupted
    actor.acquire(["lock-0"], 30.0, 0.0)
    run.world.run(run.world.now + 1.0)
    run.judge.clean()
    assert not any("lock-0" in key and "fence" not in key for master in run.masters for key in master.keys)


def test_a_release_is_owed_for_as_long_as_an_unanswered_extension_lets_keys_live():
    """An extension to a longer TTL is carried out, its answers are lost, and so is the release.  When the
    links heal the keys still have much of that TTL, and the release is sent after all (R10, P7).
    """
    run = quiet(several=0.0)
    client = client_of(run)
    actor = Actor(client)
    client.closing = False
    actor.acquire(["lock-0"], 10.0, 0.0)
    run.world.run(run.world.now + 0.1)
    hold = actor.hold
    assert hold is not None
    spec = spec_for(client, ["lock-0"], 10.0)
    client.closing = True
    for link in client.links:
        link.cut(ANSWERS)
    hold.attempt.longest = 60.0
    client.run(extending.extend(client.settings, spec, hold.lease, 60.0, client.clock()), lambda *_: None, hold.attempt)
    run.world.run(run.world.now + 1.0)
    for link in client.links:
        link.snap()
        link.cut(REQUESTS)
    run.world.run(run.world.now + 0.5)
    actor.hold = hold
    actor._release(hold, spec)
    run.world.run(run.world.now + 25.0)
    for link in client.links:
        link.heal(REQUESTS, ANSWERS)
    run.world.run(run.world.now + 5.0)
    assert hold.attempt.over
    hold.attempt.owed_until = float("inf")  # the judge need not make allowances here
    run.judge.clean()


def test_an_extension_that_was_won_does_not_undo_a_shorter_one_sent_after_it():
    """Two threads extend one lease.  The answers to the later, shorter one are lost, not its effect (C6)."""
    run = quiet()
    client = client_of(run)
    actor = Actor(client)
    client.closing = False
    actor.acquire(["lock-0"], 10.0, 0.0)
    run.world.run(run.world.now + 0.1)
    hold = actor.hold
    assert hold is not None
    hold.attempt.longest = 60.0
    spec = spec_for(client, ["lock-0"], 10.0)
    kinds = []
    for ttl in (60.0, 10.0):
        for link in client.links:
            link.cut(ANSWERS)
        op = extending.extend(client.settings, spec, hold.lease, ttl, client.clock())
        client.run(op, lambda _, outcome, __: kinds.append(outcome.kind), hold.attempt)
        run.world.run(run.world.now + 0.02)
        if ttl == 60.0:
            for link in client.links:
                link.heal(ANSWERS)
    run.world.run(run.world.now + 1.0)
    assert kinds == ["kept", "unanswered"]
    assert hold.lease.remaining() < 10.0


@pytest.mark.parametrize("rate", [0.952, 1.048])
def test_a_key_whose_master_sets_its_clock_back_lives_until_that_clock_is_there_again(rate):
    """The clock of a master that runs slow takes longer than it was set back by, and so does a crashed holder's key: no
    violation of P3 (seed 24226).
    """
    run = quiet(masters=1, drift_factor=0.1, faults=(("jump", 0.2),))
    (master,) = run.masters
    master._rate = rate
    client = client_of(run)
    actor = Actor(client)
    actor._plan_hold = lambda hold, spec: None  # type: ignore[method-assign]  # it holds on
    actor.acquire(["lock-0"], 2.0, 0.0)
    run.world.run(run.world.now + 0.1)
    assert actor.hold is not None
    master.step(-4.0)
    client.crash()
    for _ in range(100):
        run.world.run(run.world.now + 0.1)
        run.judge.freed()
    assert master.find("redlock:lock-0") is None


def released_while_its_master_is_away(run, seconds):
    """Its clock is set back meanwhile, and it keeps its keys."""
    client = client_of(run)
    (master,) = run.masters
    client.closing = False
    actor = Actor(client)
    actor._plan_hold = lambda hold, spec: None  # type: ignore[method-assign]
    actor.acquire(["lock-0"], 2.0, 0.0)
    run.world.run(run.world.now + 0.1)
    hold = actor.hold
    assert hold is not None
    client.closing = True
    master.stop()
    for link in client.links:
        link.hang_up()
    run.world.run(run.world.now + 0.1)
    master.step(-16.0)
    actor._release(hold, spec_for(client, ["lock-0"], 2.0))
    run.world.run(run.world.now + seconds)
    master.start(remember=True)
    return client, master


def test_a_release_is_not_owed_for_as_long_as_a_clock_that_was_set_back_keeps_the_key():
    """Seed 50017 of --household: by all that the client can know the key had expired when its master was back.  No violation of P7."""
    run = quiet(masters=1, drift_factor=0.1, faults=(("jump", 0.2),))
    client, master = released_while_its_master_is_away(run, 8.0)
    run.world.run(run.world.now + 3.0)
    assert client.pipelines[0].down is None
    assert master.find("redlock:lock-0") is not None
    run.judge.clean()
    run.world.run(run.world.now + 10.0)
    run.judge.clean()
    assert master.find("redlock:lock-0") is None


def test_but_until_then_it_is():
    """The scene above can go red: a master that is back in time, and is not sent what it is owed."""
    run = quiet(masters=1, drift_factor=0.1, faults=(("jump", 0.2),))
    client, _ = released_while_its_master_is_away(run, 0.5)
    client.pipelines[0]._owed.clear()
    run.world.run(run.world.now + 1.0)
    with pytest.raises(Violation) as caught:
        run.judge.clean()
    assert caught.value.invariant == P7


def test_a_key_that_outlives_even_that_is_seen(monkeypatch):
    """The scene above can go red."""
    monkeypatch.setattr(Keyspace, "find", lambda self, name: self.keys.get(name))
    with pytest.raises(Violation) as caught:
        test_a_key_whose_master_sets_its_clock_back_lives_until_that_clock_is_there_again(1.0)
    assert caught.value.invariant == P3
