"""What the simulation found, told directly: small scenes that once went wrong."""

from __future__ import annotations

import pytest

from redlock import scripts
from redlock._core import extend as extending
from redlock._core.subscriptions import Subscription
from tests.simulation.actor import Actor, spec_for
from tests.simulation.client import Client
from tests.simulation.invariants import P3, P7, Violation
from tests.simulation.master import Keyspace
from tests.simulation.network import ANSWERS, REQUESTS
from tests.simulation.parameters import Parameters
from tests.simulation.run import Run


def quiet(**values):
    """A world without faults: one client a name, all links up."""
    parameters = Parameters(seed=1, duration=1.0, clients=0, ttl=30.0, max_ttl=60.0, delay=0.001, **values)
    return Run(parameters)


def client_of(run, skew=0.0):
    client = Client(run.world, run.judge, run.parameters, run.masters, f"c{len(run.clients)}", rate=1.0, skew=skew)
    client.closing = True  # its actors do what they are told, and nothing else
    run.clients.append(client)
    for link in client.links:
        client.connect(link)
    run.world.run(run.world.now + 0.05)
    return client


def test_two_clients_that_propose_the_same_fence():
    """The second one finds it stored, but not by itself: it is no majority for its proposal (R18)."""
    run = quiet()
    first, second = client_of(run), client_of(run)
    same = first.wall_us() + 1_000_000
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


def test_those_who_wait_do_not_hurry_while_masters_are_quarantined():
    """Nobody is granted anything then, and every failed attempt takes its keys back: the masters announce
    that, everybody is woken by it, tries, and takes it back again (R24, R25).
    """
    run = quiet(masters=5, eager=0.5, faults=(("amnesia", 1.0),))
    holder, *others = (Actor(client_of(run)) for _ in range(4))
    holder.client.closing = False
    holder.acquire(["lock-0"], 30.0, 0.0)
    run.world.run(run.world.now + 0.1)
    for other in others:
        other.acquire(["lock-0"], 30.0, 60.0)
    run.world.run(run.world.now + 1.0)
    for master in run.masters[:3]:
        master.stop()
        for link in run.links_to(master):
            link.hang_up()
        master.start(remember=False)
    before = run.judge.calls
    run.world.run(run.world.now + 10.0)
    calls = run.judge.calls - before
    assert calls < 3 * 2 * 5 * 25, "an attempt asks each master twice, and there are about ten of them"


@pytest.mark.parametrize("waiters", [1, 3])
def test_those_who_wait_do_not_hurry_while_one_master_refuses_and_one_does_not_vote(waiters):
    """A key is left on one of three masters, one restarted without its keys, one is free.  It counts as held, and what
    every failed attempt takes back is announced by two masters: a majority (R24, R25; seed 27730).
    """
    run = quiet(masters=3, eager=0.5, faults=(("amnesia", 1.0),))
    holder, *others = (Actor(client_of(run)) for _ in range(1 + waiters))
    holder.client.closing = False
    run.masters[2].refuses = "MISCONF"  # the holder has no key there
    holder.acquire(["lock-0"], 30.0, 0.0)
    run.world.run(run.world.now + 0.1)
    assert holder.hold is not None
    run.masters[2].refuses = ""
    run.masters[1].stop()
    for link in run.links_to(run.masters[1]):
        link.hang_up()
    run.masters[1].start(remember=False)
    run.world.run(run.world.now + 2.0)
    for other in others:
        other.acquire(["lock-0"], 30.0, 20.0)
    before = run.judge.calls
    run.world.run(run.world.now + 10.0)
    calls = run.judge.calls - before
    assert calls < waiters * 2 * 3 * 25, "an attempt asks each master twice, and there are about ten of them"


def test_a_pause_in_a_release_does_not_keep_its_client_away():
    """A client that has others listen to its releases lets them go first, for about three times what its
    release took.  Not if that was because it was stopped meanwhile.
    """
    run = quiet(masters=5, eager=0.5)
    first, second = client_of(run), client_of(run)
    holder, other, next_one = Actor(first), Actor(second), Actor(first)
    first.closing = second.closing = False
    holder.acquire(["lock-0"], 30.0, 0.0)
    run.world.run(run.world.now + 0.1)
    assert holder.hold is not None
    other.acquire(["lock-0"], 30.0, 60.0)
    run.world.run(run.world.now + 1.0)
    first.closing = second.closing = True
    other.think = holder.think = lambda: None  # type: ignore[method-assign]
    holder.close()
    first.pause(20.0)
    run.world.run(run.world.now + 20.0)
    run.world.random.seed(2)  # the answers are looked at before the alarm
    first.resume()
    run.world.run(run.world.now + 0.5)
    assert other.acquired
    next_one.acquire(["lock-0"], 30.0, 60.0)
    run.world.run(run.world.now + 1.0)
    assert next_one.acquired


def test_an_announcement_is_not_forgotten_among_many_others():
    """One master announces a release; many more come that only one announces; then the rest of the first."""
    subscription = Subscription(["redlock:lock-0"], 5)
    for number in range(100):
        if number == 50:
            assert not subscription.hear(0, b"ours")
            assert not subscription.hear(1, b"ours")
        assert not subscription.hear(0, b"%d" % number)
    subscription.attempting()
    assert subscription.hear(2, b"ours")


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
