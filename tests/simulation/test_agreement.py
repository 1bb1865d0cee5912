"""What one list of masters does to another (R34), step by step: `Fleet` and the script that is shipped, on one clock."""

from __future__ import annotations

import itertools
import math
from itertools import permutations, product
from typing import Any

import pytest

from redlock._core import wire
from redlock._core.fleet import Fleet
from redlock._core.outcomes import Failure
from redlock._core.voters import Facts, Voters
from redlock._io.announcer import Announcement, Announcer
from tests.simulation.master import ENGINE, EPOCH, Keyspace

MAX_TTL = 4.0
NODE_TIMEOUT = 0.25
LIFE = 2 * MAX_TTL
OLD, BOTH, NEW = ("a", "b", "c"), ("a", "b", "c", "d"), ("b", "c", "d")  # each two that are neighbours go together


class World:
    """Masters that are always there, but may restart, and a clock that moves when it is told to."""

    def __init__(self) -> None:
        self.now = 0.0
        self.servers: dict[str, Keyspace] = {}
        self.restarts: dict[str, list[float]] = {}  # when each master did

    def restart(self, name: str) -> None:
        """It forgets everything.  Who uses it has to connect again."""
        self.servers[name].keys.clear()
        self.restarts.setdefault(name, []).append(self.now)

    def run(self, name: str, call: wire.Call) -> Any:
        server = self.servers.setdefault(name, Keyspace())
        server.now_ms = int((EPOCH + self.now) * 1000)
        server.dirty = False
        return ENGINE.run(call.script.name, call.script.text, server, list(call.keys), list(call.args))

    def counting(self, marks: str = "12") -> set[tuple[str, ...]]:
        """The lists that keep others away, on any master."""
        found = set()
        for server in self.servers.values():
            server.now_ms = int((EPOCH + self.now) * 1000)
            key = server.find(wire.fleet_key("p:"))
            for value in (key.value if key is not None else {}).values():
                entry = wire.read_fleet_entry(value.encode())
                if entry is not None and EPOCH + self.now <= entry.seen + entry.life and entry.mark in marks:
                    found.add(tuple(sorted(entry.names)))
        return found


class Client:
    """What the connections and the background of one process do for its `max_ttl` and its list."""

    def __init__(
        self,
        world: World,
        masters: tuple[str, ...],
        *,
        max_ttl: float = MAX_TTL,
        refuses: bool = True,
        silent: str = "",
        agrees: bool = True,
        guard: bool = False,
    ) -> None:
        """``silent``: these masters do not answer before `hears`.  ``agrees``: it announces its list."""
        self.world, self.masters = world, masters
        self.silent = set(silent)
        self.fleet = Fleet(masters, max_ttl, 0.01, NODE_TIMEOUT, refuses=refuses)
        self.voters = Voters(masters, max_ttl, guard=guard, fleet=self.fleet if agrees else None)
        self.woken = 0
        self.announcer = Announcer(self.voters, "p:", self._wake)
        self.call: Any = self.announcer.call
        self.sent = 0
        for name in masters:
            if name not in self.silent:
                self._connect(name)
        self.keep_house()

    def _connect(self, name: str, call: wire.Call | None = None) -> None:
        now, call = self.world.now, call or self.call()
        announced = wire.read_announce(self.world.run(name, wire.announce("p:", self.voters.max_ttl)))
        lists = None if call is None else wire.read_fleet(self.world.run(name, call))
        restarts = self.world.restarts.get(name, [-1e6])
        facts = Facts(f"run {restarts[-1]} of {name}", int(now - restarts[-1]), False, announced, lists, now)
        self.voters.admit(self.masters.index(name), facts, now)
        self.announcer.connected(now)

    def _wake(self) -> None:
        self.woken += 1

    def hears(self, name: str, call: wire.Call | None = None) -> None:
        """A connection to this master is made.  ``call``: what was announced there, while the master hung."""
        self.silent.discard(name)
        self._connect(name, call)
        self.keep_house()

    def fails(self, name: str) -> None:
        """It could not be made."""
        self.voters.down(self.masters.index(name), self.world.now)

    def keep_house(self) -> None:
        """What is due now, as often as it is."""
        while due := self.announcer.due(self.world.now):
            self.sent += 1
            for announcement, (master, name) in itertools.product(due, enumerate(self.masters)):
                announcement.sent_at = self.world.now
                if name in self.silent:
                    continue
                try:
                    value = self.world.run(name, announcement.call)
                except Exception as error:  # noqa: BLE001 - an error of the script
                    announcement.failed(master, Failure("error", str(error)), self.world.now)
                else:
                    announcement.answered(master, value, self.world.now)

    def close(self) -> None:
        for name in self.masters:
            self.world.run(name, self.call("left"))

    @property
    def works(self) -> bool:
        """Whether its votes count, and a lease may be granted for some time."""
        return not self.fleet.refusal and self.fleet.counts_from < self.world.now < self.fleet.known_until


def live(world: World, seconds: float, *clients: Client) -> None:
    """So much time passes, and these clients run.  All others stand still, or are gone."""
    end = world.now + seconds
    while world.now < end:
        world.now = min(end, world.now + 0.02 * MAX_TTL)
        for client in clients:
            client.keep_house()


@pytest.fixture
def world():
    return World()


def test_who_comes_last_gives_way(world):
    first = Client(world, OLD)
    live(world, 1.0, first)
    late = Client(world, NEW)
    assert not late.works
    live(world, MAX_TTL, first, late)
    assert first.works
    assert not late.works
    assert world.counting() == {OLD}
    assert "only we have d and only they have a" in late.fleet.refusal
    assert late.fleet.disagreement.others == (frozenset(OLD),)
    assert first.fleet.disagreement.others == (frozenset(NEW),), "it is only told"
    assert not first.fleet.disagreement.refused


def test_neighbours_go_together(world):
    clients = [Client(world, OLD), Client(world, BOTH)]
    live(world, LIFE, *clients)
    assert world.counting("2") == {OLD, BOTH}, "they have settled"
    assert all(client.works for client in clients)
    assert world.counting() == {OLD, BOTH}


def test_who_was_refused_works_when_the_others_are_gone_and_not_before(world):
    first = Client(world, OLD)
    live(world, 1.0, first)
    late = Client(world, NEW)
    live(world, LIFE - 1.0, late)  # the first one was killed: it counts for LIFE from when it announced last
    assert not late.works
    live(world, 2.0, late)
    assert late.works
    assert world.counting() == {NEW}


def test_two_that_come_at_once_do_not_both_work(world):
    one, other = Client(world, OLD), Client(world, NEW)
    live(world, 1.0, one, other)
    assert [one.works, other.works].count(True) == 1


def test_who_settled_stays_while_a_majority_has_its_list(world):
    first = Client(world, OLD)
    live(world, 1.0, first)
    world.servers["b"].keys.clear()
    late = Client(world, NEW)  # is recorded on b, and shown the others on c
    assert not late.works
    live(world, MAX_TTL, first, late)
    assert first.works
    assert not late.works


def test_who_has_the_list_of_settled_ones_works_at_once(world):
    first = Client(world, OLD)
    live(world, 1.0, first)
    late = Client(world, NEW)
    live(world, 0.5, first, late)
    assert Client(world, OLD).works, "shown an incompatible list, and its own is settled on a majority"


@pytest.mark.parametrize("settled", [True, False])
def test_who_settled_stays_where_it_is_recorded_anew(settled):
    """Masters that were emptied do not know that it had settled; a newcomer gives way there."""
    fleet = Fleet(OLD, MAX_TTL, 0.01, NODE_TIMEOUT, refuses=True)
    if settled:
        for master in range(3):
            fleet.answered(master, wire.Lists(1), 0.0, 0.0)
        assert fleet.next_announcement(0.1) == "settled"
    for master in range(2):
        fleet.answered(master, wire.Lists(1), 1.0, 1.0)
    fleet.answered(2, wire.Lists(0, (wire.OtherList("1", LIFE, frozenset(NEW)),)), 1.0, 1.0)
    assert fleet.rejected is not settled


# -- a master that is further away, or silent, or down ---------------------------------------------------


ONE, OTHER = ("m", "a", "b"), ("m", "c", "d")  # they share one master


def test_a_newcomer_does_not_work_before_the_common_master_has_answered(world):
    first = Client(world, ONE)
    live(world, 1.0, first)
    late = Client(world, OTHER, silent="m")  # a majority has recorded it
    assert not late.works
    world.now += NODE_TIMEOUT / 2
    late.hears("m")
    assert not late.works
    assert "only we have c, d" in late.fleet.refusal
    world.now += NODE_TIMEOUT
    assert (first.works, late.works) == (True, False)


@pytest.mark.parametrize("refuses", [True, False])
def test_a_master_that_is_silent_is_awaited_for_node_timeout(world, refuses):
    client = Client(world, ONE, silent="m", refuses=refuses)
    world.now += NODE_TIMEOUT - 0.001
    assert client.voters.begin_in(world.now) == (pytest.approx(0.001) if refuses else 0.0)
    assert client.works is not refuses, "who only warns waits for nobody"
    world.now += 0.002
    assert client.works


def test_a_master_that_is_down_is_not_awaited(world):
    client = Client(world, ONE, silent="mb")
    client.fails("m")
    assert not client.works
    client.hears("b")
    assert client.works


def test_a_master_that_takes_no_announcement_is_not_awaited(world):
    client = Client(world, ONE, silent="m")
    client.voters.lists_answered(0, None, world.now, world.now)
    assert client.works


def test_who_stood_still_until_it_was_forgotten_begins_anew(world):
    """The masters that only it has answer first."""
    first = Client(world, ONE)
    live(world, MAX_TTL, first)
    live(world, LIFE + 0.1)
    late = Client(world, OTHER)
    live(world, 1.0, late)
    assert late.works
    first.silent = {"m"}
    first.keep_house()
    assert not first.works
    world.now += NODE_TIMEOUT / 2
    first.hears("m")
    assert not first.works
    live(world, MAX_TTL, first, late)
    assert (first.works, late.works) == (False, True)


def test_a_client_that_only_asked_until_now_waits_for_the_answer_to_its_announcement(world):
    """The list that it gave way to is too old now.  Another client with that list may have come meanwhile."""
    first = Client(world, ONE)
    live(world, 1.0, first)
    late = Client(world, OTHER)
    live(world, LIFE - 1.0, late)
    assert late.voters.refused
    late.silent = {"m"}  # its answers take some time
    while late.voters.refused:
        live(world, 0.1, late)
    while late.fleet.counts_from == math.inf:  # until the others have recorded it
        live(world, 0.1, late)
    assert not late.works
    again = Client(world, ONE)
    assert again.works
    late.hears("m")
    live(world, 1.0, again, late)
    assert (again.works, late.works) == (True, False)


def test_votes_that_were_counted_before_it_noticed_that_are_no_grant(world):
    """The answers to its locks came before those to its list."""
    client = Client(world, ONE)
    live(world, LIFE + 0.1)
    client.keep_house()
    assert client.works
    assert client.voters.known_from >= math.nextafter(world.now, -math.inf), "it was asked for before that"


def test_who_was_cut_off_takes_no_failure_from_before_for_an_answer(world):
    """All masters failed until now, and they come back one after the other."""
    first = Client(world, ONE)
    live(world, MAX_TTL, first)
    first.silent = set(ONE)
    end = world.now + LIFE
    while world.now < end:
        live(world, MAX_TTL / 10, first)
        for name in ONE:
            first.fails(name)
    late = Client(world, OTHER)
    live(world, 1.0, late)
    for name in "ab":
        first.hears(name)
        world.now += 0.001
    assert not first.works
    assert first.voters.awaits(0, world.now), "it is connected to at once"
    first.hears("m")
    world.now += 2 * NODE_TIMEOUT
    assert (first.works, late.works) == (False, True)


# -- what a master forgets -----------------------------------------------------------------------------


def test_a_master_that_forgets_lets_nobody_in_who_was_refused(world):
    first = Client(world, ONE)
    live(world, 1.0, first)
    late = Client(world, OTHER)
    assert not late.works
    world.servers["m"].keys.clear()
    live(world, MAX_TTL / 2 + 0.1, late)  # the first one is about to announce itself again
    assert not late.works
    assert "only we have c, d" in late.fleet.refusal
    live(world, MAX_TTL, first, late)
    assert (first.works, late.works) == (True, False)


def test_who_was_forgotten_and_is_gone_counts_until_it_is_too_old(world):
    first = Client(world, ONE)
    live(world, 1.0, first)
    seen = world.now
    late = Client(world, OTHER)
    world.servers["m"].keys.clear()
    live(world, seen + LIFE - 1.0 - world.now, late)
    assert not late.works
    live(world, 2.0, late)
    assert late.works


def test_who_was_seen_and_has_closed_counts_for_one_max_ttl(world):
    """The master says so: that is another thing than to forget it."""
    first = Client(world, ONE)
    live(world, 1.0, first)
    late = Client(world, OTHER)
    first.close()
    live(world, MAX_TTL - 0.2, late)
    assert not late.works
    live(world, 0.5, late)
    assert late.works


# -- found later ---------------------------------------------------------------------------------------


def test_of_two_that_both_work_the_one_stays_that_the_common_master_has(world):
    """It was silent when the other one came."""
    first = Client(world, ONE)
    live(world, 1.0, first)
    late = Client(world, OTHER, silent="m")
    live(world, 1.0, first, late)
    assert (first.works, late.works) == (True, True), "nobody can know"
    late.hears("m")
    assert not late.works
    assert late.voters.refused
    live(world, MAX_TTL, first, late)
    assert (first.works, late.works) == (True, False)
    live(world, LIFE + 0.5, late)
    assert late.works, "the first is gone"


def test_of_two_that_both_work_the_one_stays_that_more_common_masters_have(world):
    """Whoever hears of it first: both see the same."""
    one, other = ("x", "y", "z", "a", "b"), ("x", "y", "z", "c", "d")
    many, few = Client(world, one, silent="z"), Client(world, other, silent="xy")
    live(world, 1.0, many, few)
    assert (many.works, few.works) == (True, True)
    many.hears("z")
    assert many.works
    few.hears("x")
    few.hears("y")
    live(world, 1.0, many, few)
    assert (many.works, few.works) == (True, False)
    assert not many.fleet.disagreement.refused
    live(world, 2 * LIFE, many, few)
    assert (many.works, few.works) == (True, False)


@pytest.mark.parametrize("order", list(permutations(range(4))))
@pytest.mark.parametrize("new", list(product((False, True), repeat=2)))
def test_of_two_that_came_while_the_common_master_hung_one_works_on_when_both_are_answered(world, order, new):
    """Of each it carries out two requests; nobody reads the answer to the one.  ``new``: the other is as old as that one."""
    clients = [Client(world, masters, silent="m") for masters in (ONE, OTHER)]
    given_up = [client.announcer.call() for client in clients]
    live(world, 1.0, *clients)
    assert all(client.works for client in clients), "nobody can know"
    for number in order:
        if (who := number % 2) == number:
            world.run("m", given_up[who])
        else:
            clients[who].hears("m", given_up[who] if new[who] else None)
    for _ in range(2):
        assert [client.works for client in clients].count(True) == 1
        live(world, 2 * LIFE, *clients)


def test_an_attempt_from_when_it_gave_way_takes_nothing_back(world):
    """It works again, and the master carries out what came on a connection that was given up long before."""
    client = Client(world, OTHER, silent="m")
    shown = wire.OtherList("2", LIFE, frozenset(ONE))
    client.voters.lists_answered(0, wire.Lists(0, (shown,)), world.now, world.now)
    assert client.fleet.in_the_way
    given_up = client.announcer.call()
    live(world, LIFE + 1.0, client)
    client.hears("m")
    assert client.works
    world.run("m", given_up)
    assert not Client(world, ONE).works
    assert client.works


@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize("new", [False, True])
def test_of_two_that_as_many_common_masters_have_the_smaller_fingerprint_stays(world, new, swapped):
    """All of them hung when both came, and were asked by the one first, and by the other one.  ``new``: that is all they know."""
    lists = sorted([("x", "y", "a", "b", "c"), ("x", "y", "d", "e", "f")], key=wire.fingerprint)
    clients = [Client(world, masters, silent="xy") for masters in lists]
    calls = {client: client.announcer.call() if new else None for client in clients}
    live(world, 1.0, *clients)
    assert all(client.works for client in clients)
    first, second = reversed(clients) if swapped else clients
    for client, name in ((first, "x"), (second, "y"), (first, "y"), (second, "x")):
        client.hears(name, calls[client])
    live(world, 0.1 * MAX_TTL, *clients)
    assert [client.works for client in clients] == [True, False]


def test_who_works_and_was_taken_back_by_another_one_with_its_list_soon_finds_out(world):
    """That one gives way to a third list, and neither has said yet that it works."""
    five = ("m", "x", "c", "d", "e")
    goes, stays = clients = [Client(world, five, silent="mx") for _ in range(2)]
    asked = [client.announcer.call() for client in clients]
    live(world, 1.0, *clients)
    third = Client(world, ("x", "p", "q"))
    for client, call in zip(clients, asked, strict=True):
        client.hears("m", call)
    goes.hears("x")
    assert (goes.works, stays.works, third.works) == (False, True, True)
    late = Client(world, ONE)
    live(world, 0.05 * MAX_TTL, stays, late)
    assert [stays.works, late.works].count(True) < 2


def test_who_works_and_is_shown_new_ones_soon_looks_again(world):
    """One of two masters was emptied, and the other one is silent to those that come then: so they work, too."""
    stays, goes = sorted([("x", "y", "a", "b", "c"), ("x", "y", "d", "e", "f")], key=wire.fingerprint)
    first = Client(world, goes)
    live(world, 2 * MAX_TTL, first)
    world.now += first.announcer.next(world.now, math.inf)
    world.servers["x"].keys.clear()
    late = Client(world, stays, silent="y")
    first.keep_house()
    live(world, 2 * NODE_TIMEOUT, first, late)
    assert late.works
    late.hears("y")
    live(world, 0.1 * MAX_TTL, first, late)
    assert (first.works, late.works) == (False, True)


def test_what_an_answer_shows_wakes_who_has_to_end_leases(world):
    """The answers of a master that hung come when nobody awaits any."""
    first = Client(world, ONE)
    late = Client(world, OTHER, silent="m")
    live(world, 1.0, first, late)
    announcement = Announcement(late.call(), late.announcer.heard)
    announcement.sent_at = world.now
    woken = late.woken
    announcement.answered(0, world.run("m", announcement.call), world.now)
    assert late.voters.refused
    assert late.woken == woken + 1


def test_who_works_does_not_give_way_to_a_newcomer_that_a_master_has_recorded(world):
    """The master had forgotten everything; the newcomer gives way itself, for the other one shows it the first."""
    first = Client(world, OLD)
    live(world, 1.0, first)
    world.servers["b"].keys.clear()
    late = Client(world, NEW, silent="c")
    first.hears("b")
    assert first.works
    live(world, 0.1, first)
    late.hears("c")
    live(world, 1.0, first, late)
    assert (first.works, late.works) == (True, False)


# -- the end -------------------------------------------------------------------------------------------


def test_what_is_closed_counts_for_one_max_ttl(world):
    """Leases may live on for so long, handed over or not; and so does what `hold_at_least` keeps."""
    client = Client(world, OLD)
    live(world, MAX_TTL, client)
    client.close()
    live(world, MAX_TTL - 0.01)
    assert world.counting() == {OLD}
    live(world, 0.02)
    assert world.counting() == set()


def test_who_closes_does_not_take_the_list_of_others_back(world):
    """One of them may be about to stop, with a lease that was just granted or extended."""
    stays, closes = Client(world, OLD), Client(world, OLD)
    live(world, MAX_TTL, stays, closes)
    known_until = stays.fleet.known_until
    closes.close()
    live(world, known_until - world.now - 0.01)  # it stands still
    assert world.counting() == {OLD}


def test_who_was_refused_leaves_nothing(world):
    first = Client(world, OLD)
    live(world, 1.0, first)
    late = Client(world, NEW)
    live(world, 1.0, first, late)
    late.close()
    live(world, 0.5 * MAX_TTL + 0.1, first)
    assert first.fleet.disagreement.others == ()


# -- what is known -------------------------------------------------------------------------------------


def test_who_stands_still_knows_how_long_it_counts(world):
    client = Client(world, OLD)
    live(world, MAX_TTL, client)
    assert world.now + 1.4 * MAX_TTL < client.fleet.known_until <= world.now + LIFE
    live(world, LIFE)
    assert client.fleet.known_until < world.now
    client.keep_house()
    assert client.fleet.known_until > world.now + MAX_TTL
    assert client.voters.known_until == client.fleet.known_until


@pytest.mark.parametrize("options", [{}, {"refuses": False}, {"agrees": False}])
@pytest.mark.parametrize("lasts", [LIFE, LIFE + 0.1 * MAX_TTL, LIFE + 0.3 * MAX_TTL, LIFE + 1.7 * MAX_TTL])
def test_who_was_forgotten_while_a_majority_hung_is_known_again_soon(world, lasts, options):
    """Its connections have outlived that.  Until a majority knows it again all that it is granted is worth nothing."""
    client = Client(world, OLD, **options)
    live(world, MAX_TTL, client)
    client.silent = {"a", "b"}
    live(world, lasts, client)
    assert client.voters.known_until < world.now + MAX_TTL / 10
    client.silent = set()
    live(world, 0.1 * MAX_TTL, client)
    assert client.voters.known_until > world.now + MAX_TTL


def test_masters_that_refuse_to_be_told_and_one_that_is_gone_stop_nobody(world):
    """They keep their votes: four of these five are a majority."""
    five = ("a", "b", "c", "d", "e")
    client = Client(world, five)
    for refusing in (0, 1):
        client.voters.lists_answered(refusing, None, world.now, world.now)
    live(world, 0.5)
    gone = 2
    for at in range(1, 20):
        world.now = at * MAX_TTL / 2
        for master in (3, 4):
            client.voters.lists_answered(master, wire.Lists(1), world.now, world.now)
    assert client.fleet.known_until > world.now, f"{five[gone]} was not heard for long"


def test_a_full_master_shows_what_it_has_and_costs_nobody_a_vote(world):
    """It can record nothing."""
    first = Client(world, OLD)
    live(world, 1.0, first)
    for server in world.servers.values():
        server.refuses = "OOM"
    live(world, 3 * LIFE, first)
    assert first.fleet.known_until > world.now
    for server in world.servers.values():
        server.refuses = ""
    live(world, MAX_TTL, first)
    for server in world.servers.values():
        server.refuses = "OOM"
    assert not Client(world, NEW).works


def test_an_answer_that_makes_no_sense_costs_no_vote(world):
    client = Client(world, OLD)
    announcement = Announcement(client.call(), client.announcer.heard)
    announcement.sent_at = world.now
    assert announcement.answered(0, b"hello", world.now) is False
    assert client.works


# -- the price -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("permitted", [True, False])
def test_the_price(world, permitted):
    """Two requests to each master at first, and then one every half `max_ttl`, also for who may not announce."""
    client = Client(world, OLD)
    if not permitted:
        world.run = lambda *_: (_ for _ in ()).throw(PermissionError)
        for master in range(3):
            client.voters.max_ttl_answered(master, None, world.now, world.now)
            client.voters.lists_answered(master, None, world.now, world.now)
    live(world, 100 * MAX_TTL, client)
    assert 190 < client.sent <= 200


def test_who_may_not_announce_works(world):
    client = Client(world, OLD)
    for master in range(3):
        client.voters.lists_answered(master, None, world.now, world.now)
    assert client.works
    assert client.fleet.known_until == math.inf


def test_different_max_ttl(world):
    """A list counts for as long as the largest `max_ttl` of its clients wants."""
    short, long = Client(world, OLD), Client(world, OLD, max_ttl=4 * MAX_TTL)
    live(world, LIFE, short, long)
    late = Client(world, NEW)
    live(world, 3 * LIFE, short, late)
    assert not late.works
    assert short.works


def test_a_list_counts_no_longer_because_a_client_had_a_long_max_ttl_once(world):
    """It has its own time, and not for as long as others have its list."""
    short, _ = Client(world, OLD), Client(world, OLD, max_ttl=4 * MAX_TTL)  # the second one is gone at once
    live(world, 4 * LIFE, short)
    live(world, LIFE + 0.1)
    assert not world.counting()


def test_who_only_asks_takes_nothing_from_others_with_its_list(world):
    """One was refused, and did not hear yet that nothing stands against it; the other one works already."""
    first = Client(world, OLD)
    live(world, 1.0, first)
    asks = Client(world, NEW)
    live(world, LIFE - 1.0, asks)
    live(world, 1.5)
    works = Client(world, NEW)
    assert works.works
    assert asks.fleet.says == "refused"
    asks.keep_house()
    assert world.counting() == {NEW}


def test_many_that_give_way_leave_nothing_that_counts(world):
    first = Client(world, OLD)
    live(world, 1.0, first)
    wrong = [Client(world, NEW[::-1]) for _ in range(3)]  # the one that nobody else has is the first to record it
    for _ in range(200):
        assert world.counting() == {OLD}, "at no moment do they keep anybody away"
        live(world, LIFE / 200, first, *wrong)
    assert first.works


@pytest.mark.parametrize("refuses", [True, False])
def test_who_gives_way_and_works_all_the_same_is_told_apart(world, refuses):
    """From the first moment on: `redlock-check` says who gets no lock."""
    first = Client(world, OLD)
    live(world, 1.0, first)
    late = Client(world, NEW, refuses=refuses)
    marks = {True: "-", False: "~"}
    for _ in range(3):
        assert world.counting(marks[refuses]) == {NEW}
        assert world.counting(marks[not refuses]) == set()
        live(world, MAX_TTL / 2, first, late)
    assert late.works is not refuses
