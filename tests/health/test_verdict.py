"""From facts to findings, votes, status and one sentence.  No server, no clock."""

from __future__ import annotations

from dataclasses import replace

import pytest

from redlock import Probe, scripts
from redlock._core.wire import Announced, Known
from redlock._health.facts import ClockOffset, ClockRate, RefusedCommand
from redlock._health.verdict import governing_max_ttl, judge
from tests.health.facts import CLIENT_OPTIONS, dead, healthy, with_last
from tests.owners import proves

pytestmark = proves("C22")

TOOK = Probe(ok=True, seconds=0.01, fence=7)
FIFTH = 4


OFF = replace(CLIENT_OPTIONS, restart_guard=False)


def of(facts, options=CLIENT_OPTIONS):
    return judge(facts, options, TOOK)


def of_five(last, options=CLIENT_OPTIONS):
    return of(with_last(last), options)


def fifth(last, options=CLIENT_OPTIONS):
    return of_five(last, options).masters[FIFTH]


def codes(findings):
    return [finding.code for finding in findings]


def test_five_healthy_ones():
    health = of([healthy(i) for i in range(5)])
    assert health.status == "OK"
    assert health.ok
    assert (health.quorum.size, health.quorum.majority, health.quorum.voting, health.quorum.can_lose) == (5, 3, 5, 2)
    assert health.findings == ()
    assert all(master.votes and master.reachable and not master.findings for master in health.masters)
    assert "nothing is to be done" in health.summary


@pytest.mark.parametrize(("last", "code", "votes", "says"), [
    pytest.param(dead(4), "unreachable", False, "start the server", id="refused"),
    pytest.param(dead(4, "timeout", "no answer within 3.0 s"), "unreachable", False, "hangs", id="hangs"),
    pytest.param(dead(4, text="Connection closed by server"), "unreachable", False, "rediss://", id="hangs-up"),
    pytest.param(dead(4, text="Name or service not known"), "unreachable", False, "host name", id="no-such-host"),
    pytest.param(dead(4, text="max number of clients reached"), "busy", False, "maxclients", id="maxclients"),
    pytest.param(dead(4, "auth", "WRONGPASS"), "auth", False, "ACL SETUSER", id="auth"),
    pytest.param(dead(4, "auth", "WRONGPASS"), "auth", False, "a restart forgets users without ACL SAVE", id="users-that-are-gone"),
    pytest.param(dead(4, "permission", "NOPERM"), "no-permission", False, "--acl", id="may-not-connect"),
    pytest.param(dead(4, "protocol", "H"), "not-redis", False, "host and port", id="http"),
    pytest.param(dead(4, "tls", "CERTIFICATE_VERIFY_FAILED"), "tls", False, "ssl_ca_certs", id="tls"),
    pytest.param(dead(4, "tls", "[SSL: TLSV13_ALERT_CERTIFICATE_REQUIRED]"), "tls", False, "ssl_certfile",
        id="tls-certificate"),
    pytest.param(dead(4, "tls", "certificate verify failed: certificate has expired (_ssl.c:1006)"), "tls", False,
        "renew", id="tls-expired"),
    pytest.param(dead(4, "tls", "certificate verify failed: certificate is not yet valid (_ssl.c:1006)"), "tls", False,
        "clock", id="tls-not-yet"),
    pytest.param(dead(4, "tls", "[SSL: SSLV3_ALERT_CERTIFICATE_EXPIRED] ssl/tls alert certificate expired"), "tls",
        False, "renew the one of ssl_certfile", id="tls-our-own-expired"),
    pytest.param(dead(4, text="[Errno 24] Too many open files"), "unreachable", False, "ulimit -n", id="our-own-limit"),
    pytest.param(dead(4, text="DENIED Redis is running in protected mode"), "unreachable", False, "give the server a password",
        id="protected"),
    pytest.param(dead(4, text="it does not know the command AUTH"), "unreachable", False, "AUTH", id="no-auth"),
    pytest.param(dead(4, "database", "DB index"), "no-database", False, "one vote", id="database"),
    pytest.param(healthy(4, info={"role": "slave", "master_host": "h"}, write=RefusedCommand("READONLY", "R")),
        "not-master", False, "CLIENT KILL TYPE normal, then REPLICAOF NO ONE", id="replica"),
    pytest.param(healthy(4, known=Known("a", 0.0)), "recently-restarted", False, "REPLICAOF", id="was-a-replica"),
    pytest.param(healthy(4, info={"redis_mode": "sentinel"}), "not-master", False, "independent", id="sentinel"),
    pytest.param(healthy(4, refused=RefusedCommand("MASTERDOWN", "M")), "not-master", False, "REPLICAOF",
        id="masterdown"),
    pytest.param(healthy(4, missing=("+set", "~redlock:*")), "no-permission", False, "--acl", id="rights"),
    pytest.param(healthy(4, lacks={"EVAL": "ERR unknown command"}), "no-command", False, "rename-command",
        id="renamed"),
    pytest.param(healthy(4, info={"uptime_in_seconds": ""}), "no-command", False, "itself", id="no-uptime"),
    pytest.param(healthy(4, optional=("+publish",)), "no-permission", True, "--acl", id="rights-it-can-do-without"),
    pytest.param(healthy(4, library="", missing=("+eval", "+evalsha")), "functions", False,
        "redlock-check --functions | redis-cli -u redis://10.0.0.4:6379 -x FUNCTION LOAD REPLACE", id="no-functions"),
    pytest.param(healthy(4, library="0" * 16), "functions", True, "FUNCTION LOAD", id="other-functions"),
    pytest.param(healthy(4, user="locks", needless=("+eval", "+keys")), "more-rights-than-needed", True, "--acl prints",
        id="too-many-rights"),
    pytest.param(healthy(4, user="locks", library=scripts.library()[1], needless=("+eval",)), "more-rights-than-needed", True,
        "--acl --functions prints", id="eval-beside-functions"),
    pytest.param(healthy(4, write=RefusedCommand("OOM", "O")), "low-memory", False, "maxmemory", id="full"),
    pytest.param(healthy(4, info={"maxmemory": "1000001"}), "low-memory", True, "maxmemory", id="nearly-full"),
    pytest.param(healthy(4, write=RefusedCommand("MISCONF", "M")), "read-only", False, "disk", id="disk-full"),
    pytest.param(healthy(4, write=RefusedCommand("NOREPLICAS", "N")), "read-only", False, "min-replicas",
        id="replicas"),
    pytest.param(healthy(4, write=RefusedCommand("WHATEVER", "W")), "read-only", False, "its log",
        id="another-refusal"),
    pytest.param(healthy(4, write=RefusedCommand("READONLY", "R")), "read-only", False, "its log",
        id="read-only-master"),
    pytest.param(healthy(4, info={"maxmemory": "9000000", "maxmemory_policy": "volatile-lru"}), "evicting", True,
        "noeviction", id="evicting"),
    pytest.param(healthy(4, info={"maxmemory_policy": "allkeys-lfu"}), "evicting", True, "noeviction",
        id="would-evict"),
    pytest.param(healthy(4, info={"connected_slaves": "2"}), "failover", True, "failover", id="has-replicas"),
    pytest.param(healthy(4, info={"cluster_enabled": "1"}), "failover", True, "failover", id="cluster"),
    pytest.param(healthy(4, write=RefusedCommand("MOVED", "M"), info={"cluster_enabled": "1"}), "failover", False,
        "failover", id="cluster-that-moves"),
    pytest.param(healthy(4, latency=0.2), "slow", True, "node_timeout", id="slow"),
    pytest.param(healthy(4, latency=0.3), "slow", False, "node_timeout", id="too-slow"),
    pytest.param(healthy(4, refused=RefusedCommand("BUSY", "B")), "busy", False, "SCRIPT KILL", id="runaway-script"),
    pytest.param(healthy(4, refused=RefusedCommand("LOADING", "L")), "busy", False, "wait", id="loading"),
    pytest.param(healthy(4, info={"uptime_in_seconds": "3"}), "recently-restarted", False, "wait", id="restarted"),
    pytest.param(healthy(4, own="no answer for 3.2 s"), "own-connection", True, "proxy", id="own-connection"),
    pytest.param(healthy(4, clock=ClockOffset(5.0, 0.001)), "clock-skew", True, "chrony", id="clock"),
    pytest.param(healthy(4, rate=ClockRate(0.007, 0.001)), "clock-rate", True, "maxslewrate", id="clock-runs-faster"),
    pytest.param(healthy(4, rate=ClockRate(0.083, 0.001)), "clock-rate", False, "maxslewrate", id="clock-slewed"),
])  # fmt: skip
def test_one_of_five(last, code, votes, says):
    """C22: whatever is wrong with one of five, locks work, and the exit code is 1."""
    health = of_five(last)
    assert health.status == "WARNING"
    assert health.quorum.voting == 4 + votes
    fifth = health.masters[FIFTH]
    assert fifth.votes is votes
    assert codes(fifth.findings) == [code]
    assert says in fifth.findings[0].advice
    assert not any(master.findings for master in health.masters[:FIFTH])
    assert fifth.name in health.summary
    assert fifth.findings[0].advice.startswith(health.summary.rpartition("next: ")[2][:-1])  # its first step
    assert health.summary.count("\n") == 0
    # A master that does not vote has a critical finding; one that votes has none, or one about what its vote is worth.
    critical = [finding.code for finding in fifth.findings if finding.level == "critical"]
    assert votes == (not critical or critical == ["evicting"])


@pytest.mark.parametrize(
    ("dead_ones", "status", "can_lose"), [(0, "OK", 2), (1, "WARNING", 1), (2, "WARNING", 0), (3, "CRITICAL", 0)]
)
def test_the_status_is_about_the_quorum(dead_ones, status, can_lose):
    health = of([*(healthy(i) for i in range(5 - dead_ones)), *(dead(9 - i) for i in range(dead_ones))])
    assert health.status == status
    assert health.quorum.can_lose == can_lose
    assert ("too-few" in codes(health.findings)) == (can_lose == 0)
    for i in range(dead_ones):
        assert f"10.0.0.{9 - i}:6379" in health.summary


def test_one_master_and_two_and_four():
    assert codes(of([healthy(0)]).findings) == ["too-few"]
    assert codes(of([healthy(0), healthy(1)]).findings) == ["too-few", "even-size"]
    four = of([healthy(i) for i in range(4)])
    assert codes(four.findings) == ["even-size"]
    assert "4 masters survive 1 failure, the same as 3" in four.findings[0].message
    assert four.status == "WARNING"


def test_a_probe_that_failed_though_a_majority_votes_is_critical():
    health = judge([healthy(i) for i in range(5)], CLIENT_OPTIONS, Probe(ok=False, seconds=1.0, error="not extended"))
    assert health.status == "CRITICAL"
    assert codes(health.findings) == ["probe"]
    assert "not extended" in health.summary
    # Where no majority votes that is the reason, and one is enough.
    without = judge([healthy(0), dead(1), dead(2)], CLIENT_OPTIONS, Probe(ok=False, seconds=0.0, error="not tried"))
    assert codes(without.findings) == ["too-few"]
    assert without.quorum.probe is not None


# -- restarts (R21, R22) -----------------------------------------------------------------------------


def test_the_longest_max_ttl_announced_governs():
    facts = with_last(healthy(4, info={"uptime_in_seconds": "100"}))
    facts[0] = replace(facts[0], announced=Announced(300.0))
    health = of(facts)
    assert health.quorum.max_ttl == 300.0
    assert health.masters[FIFTH].quarantined_s == pytest.approx(201.0)
    assert "max-ttl" in codes(health.findings)
    assert governing_max_ttl(facts, 60.0) == 300.0
    # A client that takes over what was announced differs from nobody.
    assert codes(judge(facts, replace(CLIENT_OPTIONS, max_ttl=300.0), TOOK).findings) == []
    assert governing_max_ttl([healthy(i) for i in range(3)], 60.0) == 60.0


def test_an_announcement_that_lets_no_client_connect_takes_away_the_vote():
    health = of_five(healthy(4, unannounced="'1e300'"))
    last = health.masters[FIFTH]
    assert not last.votes
    assert codes(last.findings) == ["announcement"]
    assert last.findings[0].level == "critical"
    assert "redlock-max-ttl:redlock: holds '1e300'" in last.findings[0].message
    assert health.status == "WARNING"


def test_with_the_guard_off_nothing_protects_who_forgets():
    fresh = of_five(healthy(4, info={"uptime_in_seconds": "1"}), OFF)
    assert fresh.quorum.voting == 5
    assert [codes(master.findings) for master in fresh.masters] == [["no-persistence"]] * 5
    durable = [healthy(i, durable=True, appendonly="yes", appendfsync="always") for i in range(3)]
    assert of(durable, OFF).ok
    [rewriting] = of([healthy(0, appendonly="yes", appendfsync="always")], OFF).masters[0].findings
    assert "no-appendfsync-on-rewrite yes" in rewriting.message  # what else can it be
    assert "no-appendfsync-on-rewrite no" in rewriting.advice
    everysec = [healthy(i, appendonly="yes", appendfsync="everysec") for i in range(3)]
    assert "everysec" in of(everysec, OFF).masters[0].findings[0].message


def blind(**facts):
    """It refuses INFO."""
    return replace(healthy(4, **facts), info={})


def test_a_refused_info_takes_away_the_vote_unless_the_guard_is_off():
    renamed = of_five(blind(lacks={"INFO": "ERR unknown command 'INFO'"}))
    assert codes(renamed.masters[FIFTH].findings) == ["no-command"]
    assert renamed.quorum.voting == 4
    assert "INFO" in renamed.masters[FIFTH].findings[0].message
    assert of_five(blind(lacks={"INFO": "ERR unknown command 'INFO'"}), OFF).quorum.voting == 5
    assert of_five(healthy(4, info={"uptime_in_seconds": ""}), OFF).quorum.voting == 5


def test_an_uptime_by_a_clock_that_is_ahead_counts_for_less():
    """As a client takes it that meets this master first (R21)."""
    young = {"uptime_in_seconds": "100"}
    assert fifth(healthy(4, info=young)).votes
    ahead = fifth(healthy(4, info=young, clock=ClockOffset(90.0, 0.0005)))
    assert codes(ahead.findings) == ["recently-restarted", "clock-skew"]
    assert not ahead.votes


def test_what_lacks_a_command_says_so_in_words_that_stay_the_same():
    """`--watch` prints a line for every change, and the name of the lock is another one each time."""
    text = "ERR unknown command 'SET', with args beginning with: 'redlock:redlock-check:81f2' "
    [finding] = fifth(healthy(4, lacks={"SET": text, "EVAL": text})).findings
    assert "SET, EVAL" in finding.message
    assert "unknown command 'SET'" in finding.message
    assert "81f2" not in finding.message


@pytest.mark.parametrize("figure", ["²", "1" * 5000, "-1", "1.5", ""])
def test_a_figure_that_is_none_is_not_known(figure):
    assert fifth(healthy(4, info={"maxmemory": figure})).maxmemory is None


def test_a_full_one_that_evicts_refuses_nothing():
    almost = {"maxmemory": "1000001", "maxmemory_policy": "allkeys-lru"}
    [_, full] = fifth(healthy(4, info=almost)).findings
    assert full.code == "low-memory"
    assert "refuses" not in full.message
    assert "drops" in full.message


@pytest.mark.parametrize("guard", [True, False])
def test_of_a_sentinel_all_is_said_when_it_is_said_that_it_is_one(guard):
    """It is no server: it cannot be made a master, and what it would need to be one is of no interest."""
    says = {
        "redis_mode": "sentinel", "maxmemory": "9000000", "maxmemory_policy": "allkeys-lru",
        "uptime_in_seconds": "3", "connected_slaves": "2",
    }  # fmt: skip
    sentinel = healthy(
        4, info=says, lacks={"EVAL": "ERR unknown command"}, missing=("+set",), latency=0.3, clock=ClockOffset(5.0, 0.001),
        write=RefusedCommand("WHATEVER", "W"), unannounced="'x'",
    )  # fmt: skip
    health = judge(with_last(sentinel), replace(CLIENT_OPTIONS, restart_guard=guard), TOOK)
    [finding] = health.masters[FIFTH].findings
    assert finding.code == "not-master"
    assert "REPLICAOF" not in finding.advice
    assert "server" in finding.advice
    assert not health.masters[FIFTH].votes
    assert health.masters[FIFTH].quarantined_s == 0


def test_who_hangs_up_on_tls_is_not_told_to_speak_tls():
    ours = dead(4, text="Connection closed by server")
    theirs = replace(ours, url="rediss://10.0.0.4:6379")
    advice = [fifth(one).findings[0].advice for one in (ours, theirs)]
    assert "rediss://" in advice[0]
    assert "protected mode" in advice[0]
    assert "rediss://" not in advice[1]
    assert "ssl_certfile" in advice[1]


# -- what takes several masters to see ----------------------------------------------------------------


def test_one_server_has_one_vote_whatever_its_names():
    """C16."""
    facts = with_last(healthy(4))
    facts[4] = replace(facts[4], info=facts[1].info)
    health = of(facts)
    assert codes(health.masters[1].findings) == []
    assert codes(health.masters[4].findings) == ["duplicate"]
    assert facts[1].name in health.masters[4].findings[0].message
    assert health.quorum.voting == 4


@pytest.mark.parametrize(("offset", "durable", "waits"), [
    (5.0, False, False), (5.0, True, False), (-5.0, False, False), (-5.0, True, True),
])  # fmt: skip
def test_a_clock_can_be_set_right(offset, durable, waits):
    """While the server is stopped. What it has on disk would be over too early if the clock went forward meanwhile."""
    [finding] = fifth(healthy(4, clock=ClockOffset(offset, 0.001), durable=durable)).findings
    assert "stop this server, set the clock of its machine" in finding.advice
    assert ("wait 60 s (max_ttl)" in finding.advice) is waits


def test_a_clock_that_was_set_back_to_before_the_start_of_its_server():
    """INFO has a negative uptime then, which clients take for 0: it says what it says, and no command is missing."""
    master = fifth(healthy(4, info={"uptime_in_seconds": "-89"}, clock=ClockOffset(-90.0, 0.001), durable=True))
    assert (master.votes, master.uptime_s, codes(master.findings)) == (True, 0, ["clock-skew"])
    master = fifth(healthy(4, info={"uptime_in_seconds": "-"}))
    assert codes(master.findings) == ["no-command"]


def test_a_clock_is_judged_by_the_median_and_by_how_well_it_is_known():
    # All are off from ours, and together: that is ours, and no matter.
    assert of([healthy(i, clock=ClockOffset(500.0, 0.001)) for i in range(5)]).ok
    # A round trip that long hides the difference.
    assert of_five(healthy(4, latency=0.1, clock=ClockOffset(5.0, 4.5))).ok
    behind = fifth(healthy(4, clock=ClockOffset(-5.0, 0.001)))
    assert behind.clock_offset_ms == pytest.approx(-5000)
    assert "behind" in behind.findings[0].message
    # What the drift of the longest lease allows is allowed: 1 % of 60 s and 2 ms.
    for offset, found in ((0.601, []), (0.604, ["clock-skew"])):
        health = of_five(healthy(4, clock=ClockOffset(offset, 0.0005)))
        assert codes(health.masters[FIFTH].findings) == found


def test_of_a_mixed_set_it_is_said_where_the_function_library_is_missing():
    """R44.  A user that may not call functions learns nothing, and misses nothing."""
    said = scripts.library()[1]
    health = of([*(healthy(i, library=said) for i in range(3)), healthy(3), healthy(4, library="")])
    assert [codes(master.findings) for master in health.masters] == [[], [], [], [], ["functions"]]
    assert "3 of 5 masters have it" in health.masters[FIFTH].findings[0].message
    assert of([healthy(i, library="") for i in range(5)]).ok


def test_several_things_at_once_are_all_found_and_the_worst_is_named_first():
    last = healthy(
        4,
        info={"role": "slave", "maxmemory_policy": "allkeys-lru", "maxmemory": "1", "uptime_in_seconds": "5"},
        missing=("+eval",), optional=("+time",), write=RefusedCommand("READONLY", "R"), latency=0.2,
        clock=ClockOffset(9.0, 0.1),
    )  # fmt: skip
    health = of([*(healthy(i, info={"connected_slaves": "1"}) for i in range(4)), last])
    assert codes(health.masters[FIFTH].findings) == [
        "not-master", "no-permission", "evicting", "low-memory", "slow", "recently-restarted", "clock-skew",
    ]  # fmt: skip
    assert "it is a replica" in health.summary
    assert "10 more findings above" in health.summary


@pytest.mark.parametrize(("age", "says"), [
    (0.0, "60 s after a client has seen that (max_ttl is 60 s)"), (20.0, "40 s (max_ttl is 60 s)"), (61.0, ""),
    (None, ""),
])  # fmt: skip
def test_one_that_was_a_replica_votes_when_clients_have_known_that_for_long(age: float | None, says: str) -> None:
    """R21: no check makes them know, for it writes nothing."""
    found = of_five(healthy(4, known=Known("a", age))).masters[FIFTH].findings
    what = "it was a replica since its start (second_repl_offset in INFO) and has forgotten the locks of before"
    assert [one.message for one in found] == [f"{what}: its vote counts in {says}"] * bool(says)
