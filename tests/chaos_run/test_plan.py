"""The plan is pure: it follows from the seed, heals everything, and does what its words say."""

from __future__ import annotations

import itertools

import pytest

from chaos.faults import FAULTS, GROUPS, MOVES, by_name, named
from chaos.plan import left_out, plan
from chaos.scenarios import SCENARIOS
from chaos.settings import Settings

SEEDS = range(30)
ALL = tuple(name for name in FAULTS if name not in MOVES)  # which need masters that nobody uses yet


def settings(seed, **changes):
    return Settings(**{"seed": seed, "faults": ALL, "duration": 60.0, "lanes": 2, **changes})


def test_the_same_seed_gives_the_same_plan():
    for seed in SEEDS:
        assert plan(settings(seed)) == plan(settings(seed))
    assert len({plan(settings(seed)) for seed in SEEDS}) == len(SEEDS)


def test_a_plan_that_is_known():
    """A seed in a bug report has to mean the same tomorrow: whoever changes this changes all of them."""
    made = plan(Settings(seed=7, faults=("pause", "stop"), duration=8.0))
    assert [(s.fault, round(s.at, 3), round(s.until, 3), s.masters, s.clients) for s in made] == KNOWN


KNOWN = [
    ("stop", 1.515, 4.151, (), (5,)),
    ("pause", 5.062, 6.565, (1, 2, 3, 4, 5), ()),
    ("stop", 6.819, 8.0, (), (3, 4)),
]


@pytest.mark.parametrize("seed", SEEDS)
def test_everything_is_healed_in_time(seed):
    for strike in plan(settings(seed)):
        assert 0 <= strike.at < strike.until <= 60.0
        assert (strike.at == 0) == (strike.fault == "slewed"), "that comes before the clients"
        assert strike.settled >= strike.until
        if strike.fault not in ("kill", "forget", "roll", "slewed"):
            assert strike.settled == strike.until


@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_is_struck_twice_at_a_time(seed):
    strikes = plan(settings(seed, lanes=4))
    for one, two in itertools.combinations(strikes, 2):
        if one.at < two.settled and two.at < one.settled:
            assert not set(one.masters) & set(two.masters)
            assert not set(one.clients) & set(two.clients)
            assert not (one.links and two.links)


@pytest.mark.parametrize("fault", ALL)
def test_each_fault_is_made(fault):
    """In ten seconds, which is what a scenario has, and for as long as the fault is to last."""
    for seed in SEEDS:
        made = plan(settings(seed, faults=(fault,), duration=10.0, lanes=1))
        assert {strike.fault for strike in made} == {fault}
        if fault in ("stop", "clock"):
            assert any(strike.until - strike.at > 2.0 for strike in made), "longer than the TTL"


def test_a_restarted_master_is_healed_when_it_votes_again():
    """R21: whatever the guard takes to let it vote is not held against the lock."""
    guarded = plan(settings(1, faults=("forget",), max_ttl=5.0))
    assert all(strike.settled == pytest.approx(strike.until + 6.0) for strike in guarded)
    at_once = plan(settings(1, faults=("forget",), restart_guard=False))
    assert all(strike.settled == strike.until for strike in at_once)
    rolled = plan(settings(1, faults=("roll",), lanes=1, restart_guard=False))
    assert all(strike.settled == pytest.approx(strike.until + 2.0) for strike in rolled), "time for a renewal"


@pytest.mark.parametrize("seed", SEEDS)
def test_a_roll_is_one_master_after_the_other(seed):
    """Each when the one before votes again, so that a majority of the others always does."""
    made = plan(settings(seed, faults=("roll",), lanes=1))
    assert all(len(strike.masters) == 1 for strike in made)
    for before, after in itertools.pairwise(made):
        assert before.settled == pytest.approx(before.until + 3.0)
        assert before.settled < after.at
    assert len(made) > 10
    assert {strike.masters for strike in made[:5]} == {strike.masters for strike in made[5:10]}, "all of them in turn"


@pytest.mark.parametrize("seed", SEEDS)
def test_the_scenario_of_rolling_restarts_takes_every_master(seed):
    """Within the time that it has; and what it demands is demanded nowhere else."""
    assert {s.masters for s in plan(SCENARIOS["rolling-restart"].with_seed(seed))} == {(1,), (2,), (3,)}
    assert [name for name, scenario in SCENARIOS.items() if "kept" in scenario.must] == ["rolling-restart"]
    assert [name for name, scenario in SCENARIOS.items() if "handover" in scenario.must] == ["leaders"]


@pytest.mark.parametrize("seed", SEEDS)
def test_the_scenario_of_those_who_wait_in_order_leaves_a_majority_alone(seed):
    """Clients that are not struck reach it all the time, and are served in their turn (R42)."""
    made = plan(SCENARIOS["in-order"].with_seed(seed))
    assert {strike.fault for strike in made} == {"crash", "stop", "minority"}
    cut = [{master for _, master in strike.links} for strike in made if strike.links]
    assert all(len(masters) == 2 for masters in cut)
    assert [name for name, scenario in SCENARIOS.items() if "order" in scenario.must] == ["in-order"]


@pytest.mark.parametrize("seed", SEEDS)
def test_the_scenario_of_other_masters_goes_step_by_step(seed):
    """Every master is replaced (R34): one address at a time, and by all clients before the next."""
    scenario = SCENARIOS["other-masters"].with_seed(seed)
    made = plan(scenario)
    lists: list[tuple[int, ...]] = [(1, 2, 3)]
    for one, other in zip(made[::2], made[1::2], strict=False):
        assert one.uses == other.uses
        assert sorted(one.clients + other.clients) == list(range(1, scenario.clients + 1))
        assert len(set(lists[-1]) ^ set(one.uses)) == 1
        assert other.settled - other.until >= 2 * scenario.longest_ttl  # the list of those that were killed is gone
        lists.append(one.uses)
    assert not set(lists[0]) & set(lists[6])
    assert all(one.settled <= other.at for one, other in itertools.pairwise(made))


@pytest.mark.parametrize("seed", SEEDS)
def test_who_skips_a_list_is_two_steps_away_until_the_others_have_had_it(seed):
    """The others wait at each step until the list before is gone (R34)."""
    scenario = SCENARIOS["masters-too-early"].with_seed(seed)
    made = plan(scenario)
    assert [one.uses for one in made[:3]] == [(2, 3, 4), (1, 2, 3, 4), (2, 3, 4)]
    one, other = set(made[0].clients), set(made[1].clients)
    assert made[2].clients == made[1].clients
    assert one | other == set(range(1, scenario.clients + 1))
    assert not one & other
    assert all(after.at - before.until >= 2 * scenario.longest_ttl for before, after in itertools.pairwise(made))


@pytest.mark.parametrize("masters", [1, 2, 3, 4, 5, 7])
@pytest.mark.parametrize("seed", range(5))
def test_a_ring_leaves_each_client_a_majority(masters, seed):
    for strike in plan(settings(seed, faults=("ring",), masters=masters)):
        before: set[int] = set()
        for client in range(1, 7):
            reached = {master for master in range(1, masters + 1) if (client, master) not in strike.links}
            assert len(reached) == masters // 2 + 1
            assert masters < 3 or reached != before, "neighbours reach other majorities"
            before = reached


@pytest.mark.parametrize("seed", SEEDS)
def test_halves_reach_nobody_of_the_other_half(seed):
    for strike in plan(settings(seed, faults=("halves",))):
        reached = {c: frozenset(m for m in range(1, 6) if (c, m) not in strike.links) for c in range(1, 7)}
        assert sorted(map(len, set(reached.values()))) == [2, 3]
        assert frozenset.intersection(*set(reached.values())) == frozenset()


@pytest.mark.parametrize("seed", SEEDS)
def test_a_strobe_stays_within_the_allowance_and_a_jump_of_clocks_does_not(seed):
    """Or it would be beyond the model (P1)."""
    for strike in plan(settings(seed, faults=("strobe",))):
        assert 0 < abs(strike.seconds) < 2.0 * 0.01 + 0.002
    for strike in plan(settings(seed, faults=("clock",))):
        assert strike.seconds > 2.0
        assert len(strike.masters) >= 3


@pytest.mark.parametrize("seed", SEEDS)
def test_wrong_clocks_are_those_of_one_minority_and_go_forth_and_back(seed):
    """Or an expiry that more than one confirms would be beyond the model, too (R35)."""
    made = [strike for strike in plan(SCENARIOS["strobe-confirmed"].with_seed(seed)) if strike.fault == "swing"]
    assert len({strike.masters for strike in made}) == 1
    assert len(made[0].masters) == 2
    assert {strike.seconds > 0 for strike in made} == {True, False}
    assert max(abs(strike.seconds) for strike in made) > 0.4 * 2.0
    assert len(made) > 10


@pytest.mark.parametrize("seed", SEEDS)
def test_clocks_that_are_slewed_are_so_before_the_clients_come_and_for_longer_than_these_measure(seed):
    made = SCENARIOS["slewed"].with_seed(seed)
    [strike] = plan(made)
    assert (strike.at, len(strike.masters)) == (0.0, 3)
    assert made.ttl + 1.0 < strike.until < strike.settled - 2 * made.ttl, "then votes count again"


@pytest.mark.parametrize("seed", SEEDS)
def test_clocks_are_slewed_briefly_between_two_measurements(seed):
    """The second one comes a second after the first, the third half a max_ttl later (R43)."""
    made = SCENARIOS["slewed-briefly"].with_seed(seed)
    strikes = plan(made)
    assert strikes[0].at >= 1.0
    assert all(len(strike.masters) == 3 and strike.until <= made.longest_ttl / 2 for strike in strikes)


def test_the_words_for_several():
    assert named("kill, partition,kill") == ("kill", *GROUPS["partition"])
    beyond = {"clock", "liar", "swing", "slew", "slewed", "evict", "kleppmann"}
    assert beyond | {"disk", "roll", "minority", "library", "move", "early", "grow"} == set(FAULTS) - set(named("all"))
    with pytest.raises(ValueError, match="no fault 'nonsense'"):
        named("kill,nonsense")
    assert by_name("kill, partition,pause") == ("kill", "pause")


def test_what_there_is_no_time_for_is_known_before():
    short = settings(1, duration=6.0)
    struck = {strike.fault for strike in plan(short)}
    assert left_out(short) == tuple(fault for fault in ALL if fault not in struck)
    assert {"kill", "pause"} & set(left_out(short))
    assert left_out(settings(1, duration=250.0)) == ()
    for fault in MOVES:  # without masters that could come
        assert left_out(settings(1, faults=(fault,), lanes=1)) == (fault,)
    assert not plan(settings(1, faults=("early",), lanes=1, masters=4, used=3, clients=1))  # one alone skips nothing
    assert left_out(settings(1, faults=("ring", "kill"), masters=2)) == ("ring",)  # each client needs both
    assert left_out(settings(1, faults=("halves",), masters=1, clients=1)) == ("halves",)


def test_every_fault_of_a_scenario_strikes():
    """But for everything there is at once, for which there may be no time."""
    for name, scenario in SCENARIOS.items():
        for seed in range(20):
            assert name == "everything" or left_out(scenario.with_seed(seed)) == ()


def test_which_faults_have_to_strike():
    assert settings(1, faults=("kill", "pause")).must_strike == ("kill", "pause")
    assert settings(1, faults=("kill", "pause"), named=("kill", "disk")).must_strike == ("kill",)
    assert SCENARIOS["readers"].with_seed(1).must_strike == ("kill", "pause", "crash", "stop", "one")
    assert SCENARIOS["everything"].with_seed(1).must_strike == ()


@pytest.mark.parametrize("name", SCENARIOS)
def test_every_scenario_is_made_of_what_there_is(name):
    made = SCENARIOS[name].with_seed(7)
    made.check()
    assert Settings.loads(made.dumps()) == made
    assert {strike.fault for strike in plan(made)} <= set(made.faults)
    if made.faults:
        assert plan(made)


@pytest.mark.parametrize(("changes", "said"), [
    ({"ttl": 0.0}, "--ttl is 0.0"),
    ({"duration": float("inf")}, "--duration is inf"),
    ({"masters": 0}, "--masters is 0"),
    ({"clients": 201}, "--clients is 201"),
    ({"node_timeout": 1.0}, "a third of the TTL"),
    ({"max_ttl": 1.0}, "--max-ttl is 1"),
    ({"faults": ("nonsense",)}, "no 'nonsense'"),
])  # fmt: skip
def test_what_cannot_be_is_refused(changes, said):
    with pytest.raises(ValueError, match=said):
        settings(1, **changes).check()
