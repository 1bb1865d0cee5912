"""What the facts mean: findings, votes that count, the status, and one sentence for people. Pure.

A finding of a master is critical if its vote does not count, or cannot be trusted. The status is about the quorum: it
is critical only if no lock can be taken (C22).
"""

from __future__ import annotations

import math
import re
import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING

from redlock import scripts
from redlock._core.kernel.quorum import majority
from redlock._core.kernel.validity import drift
from redlock._core.voters import Facts, Voters
from redlock._health import fleet
from redlock._health.result import Finding, Health, MasterHealth, Probe, QuorumHealth

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from redlock._health.facts import Failure, MasterFacts, RefusedCommand
    from redlock._health.result import Level, Status

_NEARLY_FULL = 0.9  # of maxmemory: above this share there is a warning
_SLOW = 0.5  # of node_timeout: above this share a vote is nearly too late
_NTP = 0.1  # seconds: synchronized clocks differ by less
UNSEEN = 0.001  # seconds: what a check announces as its max_ttl, the least there is
_OTHER = 0.0015  # seconds: smaller differences of max_ttl are rounding, as it is announced in whole milliseconds


@dataclass(frozen=True, slots=True)
class ClientOptions:
    """The options of the clients for which the check is made. Times are seconds."""

    max_ttl: float
    restart_guard: bool
    node_timeout: float
    drift_factor: float
    prefix: str = "redlock:"
    confirms: bool = False  # `confirm_expiry` (R35)


def judge(facts: Sequence[MasterFacts], client_options: ClientOptions, probe: Probe | None) -> Health:
    """The verdict on all masters. ``probe``: how a real lock worked; None if it was not tried."""
    voters = _voters(facts, client_options)
    offsets = _offsets(facts)
    masters = tuple(
        _judge(index, one, client_options, voters, offsets[index], facts) for index, one in enumerate(facts)
    )
    voting = sum(master.votes for master in masters)
    need = majority(len(masters))
    quorum = QuorumHealth(
        size=len(masters),
        majority=need,
        voting=voting,
        can_lose=max(0, voting - need),
        max_ttl=_longest(voters, facts),
        probe=probe,
    )
    lists = fleet.lists(facts)
    findings = (*_of_the_quorum(quorum, client_options, facts), *fleet.findings(lists, facts))
    status: Status = "OK"
    if any(finding.level == "critical" for finding in findings):
        status = "CRITICAL"
    elif findings or any(master.findings for master in masters):
        status = "WARNING"
    return Health(status, summary(status, quorum, masters, findings), quorum, masters, findings, lists)


def voting(facts: Sequence[MasterFacts], client_options: ClientOptions) -> int:
    """How many masters have a vote that would count now."""
    return judge(facts, client_options, None).quorum.voting


def governing_max_ttl(facts: Sequence[MasterFacts], default: float) -> float:
    """The longest TTL that any client announced, or ``default`` if none did (R21)."""
    announced = (one.announced.max_ttl for one in facts if one.announced is not None)
    return max((value for value in announced if value > UNSEEN), default=default)


def _longest(voters: Voters, facts: Sequence[MasterFacts]) -> float:
    """The `max_ttl` that applies to a client with these options."""
    return voters.longest(max((one.at for one in facts), default=0.0))[0]


def _its_end(value: float, facts: Sequence[MasterFacts], ours: float) -> str:
    """When this max_ttl ends, if another client has announced it, or if no client goes on announcing it; for people."""
    left = max((one.announced.left for one in facts if one.announced and one.announced.max_ttl == value), default=0.0)
    if left == 0 or (value <= ours + _OTHER and left >= value):
        return ""
    if left == math.inf:
        return "; it does not end by itself, for a client of version 0.1 has announced it"
    return f"; it ends in {_short(left)} if no client announces it again"


def _voters(facts: Sequence[MasterFacts], client_options: ClientOptions) -> Voters:
    """The restart guard of a client that learned the same facts."""
    voters = Voters([one.name for one in facts], client_options.max_ttl, restart_guard=client_options.restart_guard)
    for index, one in enumerate(facts):
        if one.info:
            clock = None if one.clock is None else one.at + one.clock.offset
            run_id = one.info.get("run_id")
            said = Facts(run_id, one.uptime, one.durable, one.announced, clock=clock, known=one.known)
            voters.admit(index, said, one.at)
    return voters


def _offsets(facts: Sequence[MasterFacts]) -> list[float | None]:
    """How far each wall clock is from the median of all, in seconds."""
    known = [one.clock.offset for one in facts if one.clock is not None]
    middle = statistics.median(known) if known else 0.0
    return [None if one.clock is None else one.clock.offset - middle for one in facts]


# -- one master --------------------------------------------------------------------------------------


def _judge(
    index: int,
    facts: MasterFacts,
    client_options: ClientOptions,
    voters: Voters,
    offset: float | None,
    everybody: Sequence[MasterFacts],
) -> MasterHealth:
    same_as = next((one for one in everybody[:index] if _same_server(one, facts)), None)
    quarantined, longest = 0.0, _longest(voters, everybody)
    sentinel = _role(facts) == "sentinel"
    if client_options.restart_guard and facts.uptime is not None and same_as is None and not sentinel:
        quarantined = voters.quarantined_for(index, facts.at)
    findings: list[Finding] = []
    if facts.failure is not None:
        findings.append(_failure(facts))
    elif facts.refused is not None:
        findings.append(_busy(facts, facts.refused))
    elif sentinel:  # its other differences from a master do not matter
        findings.append(Finding("critical", "not-master", "it is a Sentinel, not a server", _NO_SENTINEL))
    else:
        for rule in _RULES:
            findings.extend(rule(facts, client_options))
        if same_as is not None:
            findings.insert(0, _duplicate(facts, same_as))
        if quarantined > 0:
            make = _replaced if voters.replaced[index] else _restarted
            findings.append(make(facts, quarantined, client_options, everybody, longest))
        findings.extend(_functions(facts, everybody))
        findings.extend(_mixed(facts, everybody))
        findings.extend(_skewed(facts, offset, client_options, longest))
        findings.extend(_fast(facts, client_options))
        findings.extend(_own(facts, findings))
    takes_away_the_vote = any(finding.level == "critical" and finding.code not in _UNSAFE for finding in findings)
    return MasterHealth(
        url=facts.url,
        name=facts.name,
        votes=not takes_away_the_vote,
        reachable=facts.connected and facts.latency is not None and facts.failure != "auth",
        latency_ms=None if facts.latency is None else round(facts.latency * 1000, 3),
        role=_role(facts),
        flavour=_flavour(facts),
        version=facts.info.get("valkey_version") or facts.info.get("redis_version"),
        run_id=facts.info.get("run_id"),
        uptime_s=facts.uptime,
        quarantined_s=round(quarantined, 3),
        appendonly=facts.appendonly or _APPENDONLY.get(facts.info.get("aof_enabled", "")),
        appendfsync=facts.appendfsync,
        maxmemory=facts.number("maxmemory"),
        used_memory=facts.number("used_memory"),
        maxmemory_policy=facts.info.get("maxmemory_policy"),
        replicas=facts.number("connected_slaves"),
        clock_offset_ms=None if offset is None else round(offset * 1000, 3),
        rights_missing=facts.missing + facts.optional,
        findings=tuple(findings),
    )


_APPENDONLY = {"0": "no", "1": "yes"}
# The code of critical findings that do not take the vote away: the master votes, but its vote cannot be trusted.
_UNSAFE = frozenset(("evicting", "confirm-expiry"))


def _same_server(one: MasterFacts, other: MasterFacts) -> bool:
    run_id = other.info.get("run_id")
    return run_id is not None and one.info.get("run_id") == run_id


def _role(facts: MasterFacts) -> str | None:
    if facts.info.get("redis_mode", facts.info.get("server_mode")) == "sentinel":
        return "sentinel"
    role = facts.info.get("role")
    return "replica" if role == "slave" else role


def _flavour(facts: MasterFacts) -> str | None:
    if "valkey_version" in facts.info:
        return "valkey"
    return facts.info.get("server_name") or ("redis" if "redis_version" in facts.info else None)


def _failure(facts: MasterFacts) -> Finding:
    assert facts.failure is not None  # noqa: S101 - for the type checker
    if "max number of clients" in facts.text:
        code, message, advice = (
            "busy",
            "it takes no more connections",
            "raise maxclients, or see which clients hold them",
        )
    else:
        code, message, advice = _FAILURES.get(facts.failure) or _unreachable(facts)
        if facts.failure == "tls":
            message, advice = next((says for words, *says in _TLS if words in facts.text), (message, advice))
    return Finding("critical", code, f"{message}: {_plain(facts.text)}", advice)


# Parts of the texts of errors of TLS, and their meaning.  The first match is taken.
_TLS = (
    (
        "_ALERT_CERTIFICATE_EXPIRED",
        "this client's certificate has expired",
        "renew the one of ssl_certfile in the address",
    ),
    (
        "_ALERT_",
        "it does not take this client's certificate or version of TLS",
        (
            "give a certificate that it trusts with ssl_certfile=FILE&ssl_keyfile=FILE in the address, "
            "and let both sides have a version in common"
        ),
    ),
    ("has expired", "its certificate, or its CA's, has expired", "renew it, on that server"),
    (
        "not yet valid",
        "its certificate begins to be valid later",
        "correct the clock that is wrong: ours, or the server's",
    ),
)
_TO_BE_KEPT = "ACL SAVE (with an aclfile) or CONFIG REWRITE keeps them for the next start"
_FORGOTTEN = "a restart forgets users without ACL SAVE (with an aclfile) or CONFIG REWRITE"
_FAILURES: dict[Failure, tuple[str, str, str]] = {
    "auth": (
        "auth",
        "it refuses the user or the password",
        f"correct them in the address, the configuration file or the server: ACL SETUSER, requirepass; {_FORGOTTEN}",
    ),
    "permission": (
        "no-permission",
        "its user may not even connect",
        "grant the rule that redlock-check --acl prints",
    ),
    "database": (
        "no-database",
        "it does not have the database of its address",
        "take one that exists, or none: a server has one vote whatever the database",
    ),
    "protocol": (
        "not-redis",
        "something else answers there",
        "correct host and port: neither Redis nor Valkey speaks that protocol",
    ),
    "tls": (
        "tls",
        "no trust in its certificate, or no TLS there",
        "give its CA with ssl_ca_certs=FILE in the address, and the host name that is in the certificate",
    ),
}


def _unreachable(facts: MasterFacts) -> tuple[str, str, str]:
    if facts.failure == "timeout":
        how = "find out whether the server hangs (restart it) or the network drops packets (mend it)"
        if facts.url.startswith("rediss://") and not facts.connected:
            how = f"write redis:// if that port speaks no TLS; else {how}"
        return "unreachable", "it does not answer", how
    how = "start the server there, or correct host and port"
    if "protected mode" in facts.text:
        how = (
            "give the server a password, and the address as well; or set protected-mode no, if only clients can "
            "reach it"
        )
    elif any(word in facts.text for word in ("closed", "reset", "EOF occurred", "Broken pipe")):
        if facts.url.startswith("rediss://"):
            how = "give a certificate, if it wants one (ssl_certfile and ssl_keyfile in the address); "
        else:
            how = "write rediss://, if that port wants TLS; give it a password, if it is in protected mode; "
        how += "else the log of the server says why it closed the connection"
    elif "Too many open files" in facts.text:
        how = "let this program open more files (ulimit -n): it has reached its limit, whatever the master does"
    elif "unknown command" in facts.text or "the command AUTH" in facts.text:
        how = "find out what answers there: a server has the command AUTH, unless its configuration renamed it"
    elif any(word in facts.text for word in ("Name or service", "name resolution", "nodename", "getaddrinfo")):
        how = "correct the host name, or mend the name server"
    return "unreachable", "no connection", how


def _plain(text: str) -> str:
    """``text`` as part of a sentence. The address that redis-py puts in front is removed, as it is shown already."""
    return re.sub(r"^Error -?\d+ connecting to .*?\. (?=\S)", "", text).rstrip(".")


def _busy(facts: MasterFacts, refused: RefusedCommand) -> Finding:
    if refused.code == "LOADING":
        advice = "wait: it is reading its data after a start"
    elif refused.code == "BUSY":
        advice = f"a script runs for too long there: redis-cli -u {facts.url} SCRIPT KILL"
    else:  # MASTERDOWN
        return Finding("critical", "not-master", f"it is a replica that has lost its master: {refused.text}", _A_MASTER)
    return Finding("critical", "busy", f"it refuses to work: {refused.text}", advice)


_A_MASTER = (
    "give the address of an independent master instead, or make it one: CLIENT KILL TYPE normal, then REPLICAOF "
    "NO ONE; it has forgotten its locks, so it does not vote for max_ttl after that"
)
_NO_SENTINEL = "give the address of an independent server that no Sentinel replaces"
_INDEPENDENT = (
    "use servers without failover: a promoted replica may not have received a lock yet, and the lock is given away "
    "twice"
)


def _not_master(facts: MasterFacts, client_options: ClientOptions) -> Iterator[Finding]:  # noqa: ARG001 - all rules have the same parameters
    if _role(facts) == "replica":
        of = f" of {facts.info['master_host']}" if facts.info.get("master_host") else ""
        yield Finding("critical", "not-master", f"it is a replica{of}, which cannot grant a lock", _A_MASTER)


def _rights(facts: MasterFacts, client_options: ClientOptions) -> Iterator[Finding]:
    meant = facts.library == "" and any(right in facts.missing for right in _SCRIPTS)  # to call functions (R44)
    missing, optional = (
        [right for right in rights if not meant or right not in _SCRIPTS] for rights in (facts.missing, facts.optional)
    )
    if missing == ["+info"] and not client_options.restart_guard:
        missing = []  # without the restart guard no client needs INFO
    if not missing and not optional:
        return
    level: Level = "critical" if missing else "warning"
    without = (
        ""
        if missing
        else "; locks work, but "
        + ", ".join(sorted({_WITHOUT.get(right.partition("{")[0], _NO_RELEASE) for right in optional}))
    )
    grant = " ".join(sorted((*missing, *optional)))
    yield Finding(
        level,
        "no-permission",
        f"the user {facts.user!r} lacks {grant}{without}",
        f"grant it with ACL SETUSER {facts.user}; redlock-check --acl prints the whole rule; {_TO_BE_KEPT}",
    )


_SCRIPTS = ("+eval", "+evalsha", "+script|load")
_NO_RELEASE = "no release is announced to waiters"
_WITHOUT = {
    "~": "each new client waits for a server that was a replica since its start",
    "+config|get": "clients cannot tell whether it forgets them in a restart",
    "+time": "clients cannot read its clock",
    **dict.fromkeys(("+hgetall", "+hset", "+hdel"), "clients cannot tell whether all of them use the same masters"),
    "+script|load": "every connection has to send the scripts anew",
}


def _lacks(facts: MasterFacts, client_options: ClientOptions) -> Iterator[Finding]:
    # Without the restart guard no client needs INFO.
    lacks = {name: text for name, text in facts.lacks.items() if name != "INFO" or client_options.restart_guard}
    if lacks:
        # The rest of the text is cut: it contains the throw-away name, which differs at each check.
        says = next(iter(lacks.values())).partition(", with args")[0]
        message = f"it lacks {', '.join(lacks)}, which clients need: {says}"
        yield Finding("critical", "no-command", message, _THE_SERVER_ITSELF)
    elif client_options.restart_guard and facts.info and facts.uptime is None:
        message = "its INFO has no uptime_in_seconds, so a restart in which it forgot its locks would go unseen"
        yield Finding("critical", "no-command", message, _THE_SERVER_ITSELF)


_THE_SERVER_ITSELF = (
    "keep the names of its commands (no rename-command in its configuration), "
    "and give the address of the server itself, not of a proxy"
)


def _announcement(facts: MasterFacts, client_options: ClientOptions) -> Iterator[Finding]:
    if facts.unannounced is None:
        return
    key = f"redlock-max-ttl:{client_options.prefix}"
    yield Finding(
        "critical",
        "announcement",
        f"no client can connect: its key {key} holds {facts.unannounced:.40}, which is not the max_ttl of any client",
        f"find out what wrote that, and delete the key {key} there: each client announces its max_ttl when it connects",
    )


def _read_only(facts: MasterFacts, client_options: ClientOptions) -> Iterator[Finding]:  # noqa: ARG001
    refusal = facts.write
    if refusal is None or _role(facts) == "replica":  # a replica is reported by `_not_master`
        return
    match refusal.code:
        case "OOM":
            message = "its memory is full (maxmemory), so it refuses new locks"
            yield Finding("critical", "low-memory", message, "raise maxmemory, or find out what fills it")
        case "MISCONF":
            message = f"it cannot write to its disk, so it refuses every change: {refusal.text}"
            yield Finding("critical", "read-only", message, "make room on its disk, and see its log")
        case "NOREPLICAS":
            message = "min-replicas-to-write is not met, so it refuses every change"
            yield Finding(
                "critical", "read-only", message, "set min-replicas-to-write to 0: a quorum needs no replicas"
            )
        case "MOVED" | "CLUSTERDOWN" | "ASK" | "TRYAGAIN":
            yield Finding("critical", "failover", f"it is part of a cluster: {refusal.text}", _INDEPENDENT)
        case _:
            yield Finding("critical", "read-only", f"it refuses to write: {refusal.text}", "see its log")


def _evicting(facts: MasterFacts, client_options: ClientOptions) -> Iterator[Finding]:  # noqa: ARG001
    policy = facts.info.get("maxmemory_policy", "noeviction")
    if policy == "noeviction":
        return
    level: Level = "warning"
    what = "with a maxmemory, it would drop locks that are held"
    if facts.number("maxmemory"):
        level = "critical"
        what = f"it may drop a lock that is held ({facts.number('evicted_keys') or 0} keys dropped so far)"
    advice = "run CONFIG SET maxmemory-policy noeviction, and change redis.conf too"
    yield Finding(level, "evicting", f"maxmemory-policy is {policy}: {what}", advice)


def _share(facts: MasterFacts) -> float:
    limit, used = facts.number("maxmemory"), facts.number("used_memory")
    return used / limit if limit and used else 0.0


def _nearly_full(facts: MasterFacts, client_options: ClientOptions) -> Iterator[Finding]:  # noqa: ARG001
    share = _share(facts)
    if share > _NEARLY_FULL and (facts.write is None or facts.write.code != "OOM"):
        evicts = facts.info.get("maxmemory_policy", "noeviction") != "noeviction"
        message = f"{share:.0%} of maxmemory is used; when it is full it {'drops keys' if evicts else 'refuses locks'}"
        yield Finding("warning", "low-memory", message, "raise maxmemory, or find out what fills it")


def _forgets(facts: MasterFacts, client_options: ClientOptions) -> Iterator[Finding]:
    # With the guard on, a master that forgets does not vote until all forgotten leases have expired (P5).
    if client_options.restart_guard or facts.durable or "+config|get" in facts.optional or not facts.info:
        return
    yield Finding(
        "warning",
        "no-persistence",
        f"it may forget locks in a restart ({_persistence(facts)}), and with the restart guard off it votes at once: "
        "a lock can be given away twice",
        f"switch the restart guard on, or set {_lasting(facts)}",
    )


def _persistence(facts: MasterFacts) -> str:
    if facts.appendonly != "yes":
        return "appendonly no"
    rewriting = ", no-appendfsync-on-rewrite yes" if facts.appendfsync == "always" else ""
    return f"appendonly yes, appendfsync {facts.appendfsync}{rewriting}"


def _lasting(facts: MasterFacts) -> str:
    if (
        facts.appendonly == "yes" and facts.appendfsync == "always"
    ):  # it syncs, but not while it rewrites the file (R21)
        return "no-appendfsync-on-rewrite no"
    return "appendonly yes and appendfsync always"


def _failover(facts: MasterFacts, client_options: ClientOptions) -> Iterator[Finding]:  # noqa: ARG001
    refused = facts.write.code if facts.write is not None else ""
    if facts.info.get("cluster_enabled") == "1" and refused not in ("MOVED", "CLUSTERDOWN", "ASK", "TRYAGAIN"):
        yield Finding("warning", "failover", "it is part of a cluster", _INDEPENDENT)
        return
    replicas = facts.number("connected_slaves") or 0
    if replicas and _role(facts) == "master":
        has = "a replica" if replicas == 1 else f"{replicas} replicas"
        yield Finding("warning", "failover", f"it has {has}, and one that is promoted can lose locks", _INDEPENDENT)


def _slow(facts: MasterFacts, client_options: ClientOptions) -> Iterator[Finding]:
    latency = facts.latency or 0.0
    advice = "see what keeps it busy (SLOWLOG GET), move it nearer, or raise node_timeout and the TTLs"
    took = f"a round trip takes {latency * 1000:.0f} ms, node_timeout is {client_options.node_timeout * 1000:g} ms"
    if latency > client_options.node_timeout:
        yield Finding("critical", "slow", f"its votes come too late: {took}", advice)
    elif latency > client_options.node_timeout * _SLOW:
        yield Finding("warning", "slow", f"its votes are nearly too late: {took}", advice)


_RULES: tuple[Callable[[MasterFacts, ClientOptions], Iterator[Finding]], ...] = (
    _not_master,
    _rights,
    _lacks,
    _announcement,
    _read_only,
    _evicting,
    _nearly_full,
    _failover,
    _slow,
    _forgets,
)


def _functions(facts: MasterFacts, everybody: Sequence[MasterFacts]) -> Iterator[Finding]:
    """Whether the function library is there, in the right version (R44)."""
    said = scripts.library()[1]
    have = sum(bool(one.library) for one in everybody)
    advice = (
        f"redlock-check --functions | redis-cli -u {facts.url} -x FUNCTION LOAD REPLACE; its start should do that, too"
    )
    if facts.library == "" and any(right in facts.missing for right in _SCRIPTS):
        message = (
            f"the function library {scripts.LIBRARY} is not loaded, and the user {facts.user!r} may run no scripts"
        )
        yield Finding("critical", "functions", message, advice)
    elif facts.library == "" and have:
        message = (
            f"the function library {scripts.LIBRARY} is not loaded, and {have} of {len(everybody)} masters have it"
        )
        yield Finding("warning", "functions", message, advice)
    elif facts.library and facts.library != said:
        message = f"its function library {scripts.LIBRARY} is another one, {facts.library} and not {said}"
        yield Finding("warning", "functions", message, advice)
    if facts.needless:
        yield Finding(
            "warning",
            "more-rights-than-needed",
            f"the user {facts.user!r} has rights that no client needs: {' '.join(facts.needless)}",
            f"if programs take locks with it, give it the rule that redlock-check --acl"
            f"{' --functions' if facts.library else ''} prints; {_TO_BE_KEPT}",
        )


def _own(facts: MasterFacts, findings: Sequence[Finding]) -> Iterator[Finding]:
    if facts.own and not any(finding.level == "critical" for finding in findings):  # else that is why
        message = f"it answers, but the connection that this process uses for its locks does not work: {facts.own}"
        advice = (
            "find out whether a proxy, a tunnel or a firewall between them drops connections, or CLIENT PAUSE holds "
            "answers back; this process keeps trying to connect anew"
        )
        yield Finding("warning", "own-connection", message, advice)


def _duplicate(facts: MasterFacts, first: MasterFacts) -> Finding:
    return Finding(
        "critical",
        "duplicate",
        f"it is the same server as {first.name} (run_id {facts.info.get('run_id', '')[:12]}…), which has one vote",
        "remove one of the two addresses, and add a server of its own",
    )


def _mixed(facts: MasterFacts, everybody: Sequence[MasterFacts]) -> Iterator[Finding]:
    ways = frozenset(way for one in everybody for way in one.ways)
    silent = max(len(one.silent) for one in everybody)
    if facts.lists is None or "confirmed" not in ways or not (silent or "trusted" in ways):
        return
    others = "clients without it"
    if "trusted" not in ways:
        others = f"{silent} connection{'s' if silent > 1 else ''} as of an earlier version, which cannot have it"
    yield Finding(
        "critical",
        "confirm-expiry",
        f"there are clients with confirm_expiry=True, and {others}: with a wrong clock two clients may hold one "
        "lock, as if none had it",
        "give all clients the same confirm_expiry. Clients without it are remembered for two max_ttl after the last "
        "of them ended",
    )


def _restarted(
    facts: MasterFacts, left: float, client_options: ClientOptions, everybody: Sequence[MasterFacts], max_ttl: float
) -> Finding:
    uptime = facts.uptime or 0
    return Finding(
        "critical",
        "recently-restarted",
        f"it was started {_short(uptime)} ago and may have forgotten locks: its vote counts in {left:.0f} s "
        f"(max_ttl is {max_ttl:g} s{_its_end(max_ttl, everybody, client_options.max_ttl)})",
        "wait. If it is new, nothing is wrong; docs/concepts/restarts.md says how a brand-new deployment may begin "
        "at once. If it is not, find out why it restarted",
    )


def _replaced(
    facts: MasterFacts, left: float, client_options: ClientOptions, everybody: Sequence[MasterFacts], max_ttl: float
) -> Finding:
    seen = "" if facts.known is not None and facts.known.age else " after a client has seen that"
    return Finding(
        "critical",
        "recently-restarted",
        "it was a replica since its start (second_repl_offset in INFO) and has forgotten the locks of before: "
        f"its vote counts in {left:.0f} s{seen} "
        f"(max_ttl is {max_ttl:g} s{_its_end(max_ttl, everybody, client_options.max_ttl)})",
        "wait, and find out who sent REPLICAOF to a master of locks",
    )


def _skewed(
    facts: MasterFacts, offset: float | None, client_options: ClientOptions, max_ttl: float
) -> Iterator[Finding]:
    if offset is None or facts.clock is None:
        return
    # A wrong clock is usually set right in one step, and a step forward makes keys expire that much earlier. The drift
    # allowance of the longest lease covers a step of this size, shorter leases cover less (P1, R6).
    allowed = max(_NTP, drift(client_options.max_ttl, client_options.drift_factor))
    if abs(offset) - facts.clock.within > allowed:
        fast = "ahead of" if offset > 0 else "behind"
        yield Finding(
            "warning",
            "clock-skew",
            f"its clock is {_short(abs(offset))} {fast} the median of the masters: if it is corrected in one step "
            f"while the server runs, locks expire early or late (allowed is {allowed:.2g} s)",
            _set_right(facts, behind=offset < 0, max_ttl=max_ttl),
        )


def _fast(facts: MasterFacts, client_options: ClientOptions) -> Iterator[Finding]:
    """Its clock surely runs faster than half of the allowed rate, or than all of it (R43)."""
    rate, allowed = facts.rate, client_options.drift_factor
    if rate is None or rate.faster - rate.within <= allowed / 2:
        return
    fast = rate.faster - rate.within > allowed
    yield Finding(
        "critical" if fast else "warning",
        "clock-rate",
        f"its clock runs {rate.faster:.2%} faster than that of this machine, exact to {rate.within:.2%} (allowed is "
        f"{allowed:.2%}): "
        + ("keys end before their leases, and no client counts its vote" if fast else "half of that is used up"),
        "find out what corrects the clock of its machine, or of this one, and limit how fast (chrony: maxslewrate 500)",
    )


def _set_right(facts: MasterFacts, *, behind: bool, max_ttl: float) -> str:
    # Its keys on disk end at a time of day: a clock that was set forward in between has let them expire too early.
    # One that may have forgotten does not vote for as long by itself (R21).
    pause = f", wait {max_ttl:g} s (max_ttl), for it votes at once" if behind and facts.durable else ""
    return (
        f"while the others can do without it, stop this server, set the clock of its machine{pause}, and start it; "
        "from then on let a time daemon slew the clock (ntpd, or chrony with maxslewrate 500)"
    )


def _short(seconds: float) -> str:
    if seconds < 10:  # noqa: PLR2004
        return f"{seconds:.3g} s"
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


# -- all of them -------------------------------------------------------------------------------------


def _of_the_quorum(
    quorum: QuorumHealth, client_options: ClientOptions, facts: Sequence[MasterFacts]
) -> Iterator[Finding]:
    size, need, voting = quorum.size, quorum.majority, quorum.voting
    if voting < need:
        yield Finding(
            "critical",
            "too-few",
            f"{voting} of {size} masters vote, {need} {_are(need)} needed: no lock can be taken",
            f"bring back {need - voting} of the masters that do not vote, or wait for them",
        )
    elif quorum.can_lose == 0:
        why = f"{voting} of {size} masters vote, and {need} are needed" if size > 1 else "there is one master only"
        advice = "use 3 masters, or better 5" if size < 3 else "bring back the masters that do not vote"  # noqa: PLR2004
        yield Finding("warning", "too-few", f"no master may fail: {why}", advice)
    if size % 2 == 0:
        survived = (size - 1) // 2
        yield Finding(
            "warning",
            "even-size",
            f"{size} masters survive {'no failure' if not survived else _failures(survived)}, the same as {size - 1}",
            f"use {size + 1} masters" + (f", or {size - 1}" if size > 2 else ""),  # noqa: PLR2004
        )
    probe = quorum.probe
    if probe is not None and not probe.ok and voting >= need:  # if too few vote, that finding explains it
        yield Finding("critical", "probe", f"a real lock did not work: {probe.error}", "see what the masters said")
    if quorum.max_ttl > client_options.max_ttl + _OTHER:
        yield Finding(
            "warning",
            "max-ttl",
            f"max_ttl is {client_options.max_ttl:g} s here, and another client has announced {quorum.max_ttl:g} s: "
            "the longer one decides how long a restarted master may not vote"
            f"{_its_end(quorum.max_ttl, facts, client_options.max_ttl)}",
            f"give all clients the same max_ttl. If {quorum.max_ttl:g} s was a mistake, wait for its end, or delete "
            f"the key redlock-max-ttl:{client_options.prefix} on every master when no client has it any more",
        )


def _are(number: int) -> str:
    return "are" if number > 1 else "is"


def _failures(number: int) -> str:
    return "1 failure" if number == 1 else f"{number} failures"


def summary(status: Status, quorum: QuorumHealth, masters: Sequence[MasterHealth], findings: Sequence[Finding]) -> str:
    """One sentence: whether locks work, what is wrong, what to do next."""
    if status == "OK":
        return f"all {quorum.size} masters vote and {quorum.can_lose} may fail: nothing is to be done."
    # The sentence says anyway that too few vote. The advice comes from the masters that do not vote, if there are any.
    wrong = [(master.name, finding) for master in masters for finding in master.findings]
    wrong += [("", finding) for finding in findings if finding.code != "too-few" or not wrong]
    # Critical findings first, and of the others that two clients may hold one lock.  The sort is stable.
    wrong.sort(key=lambda one: (one[1].level != "critical", one[1].code != "fleet"))
    if status == "CRITICAL" and quorum.voting >= quorum.majority:
        wrong.sort(key=lambda one: one[1].code != "probe")
    worst = wrong[0][1]
    names = [name for name, finding in wrong if finding.code == worst.code and name]
    rest = len(wrong) - max(1, len(names))
    more = f"; {rest} more finding{'s' if rest > 1 else ''} above" if rest else ""
    vote = f"{quorum.voting} of {quorum.size} masters vote and {quorum.majority} {_are(quorum.majority)} needed"
    lead = f"no lock can be taken, {vote}" if status == "CRITICAL" else f"locks work, {vote}, so {_may_fail(quorum)}"
    where = f"{_listed(names, quorum.size)}: " if names else ""
    # If several masters have this finding, their messages differ only in figures: the first one is shown.
    what = "" if worst.code == "too-few" else f"{where}{worst.message}; "
    first = worst.advice.partition(". ")[0].partition("; ")[0]  # the whole is above, with its finding
    return f"{lead}; {what}next: {first}{more}."


def _may_fail(quorum: QuorumHealth) -> str:
    return f"{quorum.can_lose} more may fail" if quorum.can_lose else "none may fail"


def _listed(names: Sequence[str], size: int) -> str:
    if len(names) == size > 1:
        return f"all {size} masters"
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
