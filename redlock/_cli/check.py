"""``redlock-check``: is the quorum healthy, and is it safe? See docs/redlock-check.md."""

from __future__ import annotations

import argparse
import re
import sys
import threading
from typing import TYPE_CHECKING, Any

from redlock import ConfigurationError, QuorumUnreachable
from redlock._cli import arguments, config

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import NoReturn

    from redlock import Health, Probe
    from redlock._cli import table
    from redlock._cli.config import WantedMasters

OK, WARNING, CRITICAL, UNKNOWN = range(4)  # the exit codes of monitoring plugins since Nagios
_EXIT = {"OK": OK, "WARNING": WARNING, "CRITICAL": CRITICAL}

_MAX_TTL = 60.0  # the default of `Masters`. It is used if no client has announced another value
_EVERY = 2  # seconds between checks, if --watch gives none
_LIMIT, _MOST = 100, 10**9  # locks in a list
# Meant as an interval, right or wrong: no address and no option.
_INTERVAL = re.compile(r"[-+]?(\.?\d+(\.\d*)?[\w+-]*|nan|inf(inity)?)$", re.IGNORECASE)
_PROBE_TTL = 5.0  # seconds. The probe's lock stays that long if this program is killed in the middle
_TO_BE_KEPT = """\
This is for each master, in a shell or in redis-cli:  ACL SETUSER name on '>password' THE-RULE
Then ACL SAVE, where its configuration has an aclfile, else CONFIG REWRITE. Without it a restart forgets the user."""
_TO_BE_LOADED = """\
First load the library on each master, also while clients work:
  redlock-check --functions | redis-cli -u URL -x FUNCTION LOAD REPLACE
It is kept with the data of a master. One that keeps none needs it at each start."""
_EXAMPLES = """\
examples:
  redlock-check redis://10.0.0.1:6379 redis://10.0.0.2:6379 redis://10.0.0.3:6379
  REDLOCK_MASTERS=redis://10.0.0.1:6379,redis://10.0.0.2:6379,redis://10.0.0.3:6379 redlock-check
  REDLOCK_MASTERS=local redlock-check    three masters on this machine, for development
  redlock-check --config /etc/redlock.toml --watch
  redlock-check --json | jq -r '.masters[] | select(.votes | not) | .url'
  redlock-check --held 'invoice:*'    lists the locks that are held, and who has them
  redlock-check --plan "$NEW_MASTERS"  prints the steps from the masters in use to these
  redlock-check --acl        prints the rule for ACL SETUSER name on '>password' ...
  redlock-check --functions | redis-cli -u redis://10.0.0.1:6379 -x FUNCTION LOAD REPLACE

exit codes:
  0 OK         every master votes, and nothing is wrong
  1 WARNING    locks can be taken, and something is wrong; or (--held) the list may lack some
  2 CRITICAL   no lock can be taken, or (--held) listed (--strict: or anything is wrong)
  3 UNKNOWN    wrong arguments or configuration, or nothing could be found out or printed
"""


def parser() -> arguments.Parser:
    this = arguments.Parser(
        usage_error=UNKNOWN,
        prog="redlock-check",
        description="Is the quorum of Redis or Valkey masters healthy, and is it safe?",
        epilog=_EXAMPLES,
    )
    this.add_argument(
        "urls",
        nargs="*",
        metavar="URL",
        help="address of a master: redis://, rediss:// (valkey://, valkeys://) or unix://; without any, those of "
        "--config, or else of REDLOCK_MASTERS; local: those of this machine, for development, started if none run",
    )
    this.add_argument(
        "--timeout",
        type=arguments.seconds,
        default=3.0,
        metavar="SECONDS",
        help="upper limit for one check, however many masters hang (default: 3)",
    )
    this.add_argument("--no-probe", action="store_true", help="take no lock, write nothing at all")
    this.add_argument("--strict", action="store_true", help="end with 2 where it would be 1")
    this.add_argument(
        "--watch",
        nargs="?",
        type=arguments.seconds,
        metavar="SECONDS",
        help="check again and again (every 2 seconds), and show what changes",
    )
    this.add_argument(
        "--held",
        nargs="?",
        metavar="PATTERN",
        help="check nothing; list the locks that are held, or those whose names match PATTERN; also with --json",
    )
    this.add_argument(
        "--limit",
        type=_number,
        metavar="NUMBER",
        help=f"list at most this many locks, sorted by name (default: {_LIMIT})",
    )
    this.add_argument(
        "--plan",
        metavar="NEW_LIST",
        help="take no lock; print the steps from the masters in use to this list (commas as in REDLOCK_MASTERS)",
    )
    how = this.add_mutually_exclusive_group()
    how.add_argument("--json", action="store_true", help="for programs: see docs/redlock-check.md for the schema")
    how.add_argument("--prometheus", action="store_true", help="metrics in the text exposition format")
    how.add_argument(
        "--acl",
        action="store_true",
        help="print the smallest ACL rule that the library needs, without contacting any master",
    )
    this.add_argument(
        "--functions",
        action="store_true",
        help="print the function library for masters, without contacting any; with --acl, the rule of users who call "
        "functions and may run no scripts",
    )
    arguments.add_deployment(this)
    return this


def main(argv: list[str]) -> int:
    this = parser()
    # Options and URLs may come in any order.
    given = this.parse_intermixed_args(_with_pattern(_with_interval(argv)))
    if given.watch is not None and (given.prometheus or given.acl or given.functions):
        this.error("--watch needs the table or --json")
    if given.held is not None and (given.watch is not None or given.prometheus):
        this.error("--held needs the table, --json or --acl")
    if given.plan is not None and (given.watch is not None or given.held is not None or given.json or given.prometheus):
        this.error("--plan takes no other options than the masters and --acl")
    if given.limit is not None and given.held is None:
        this.error("--limit needs --held")
    if given.prometheus or given.acl:
        arguments.print_utf_8()  # keys and the exposition format are UTF-8
    try:
        if given.acl or given.functions:
            return _acl(given) if given.acl else _functions()
        if given.plan is not None:
            return _plan(given)
        return _check(given) if given.held is None else _held(given)
    except ConfigurationError as error:
        arguments.complain(f"redlock-check: {error}")
        return UNKNOWN
    except QuorumUnreachable as error:
        from redlock._cli import held  # noqa: PLC0415

        arguments.complain(f"redlock-check: {arguments.in_options(str(error))}{held.advice(error)}")
        return CRITICAL


def _with_interval(argv: list[str]) -> list[str]:
    """Give a bare ``--watch`` its default interval. Else argparse would take a URL after it for the interval."""

    def alone(word: str, following: str) -> bool:
        return word == "--watch" and not _INTERVAL.match(following)

    pairs = zip(argv, [*argv[1:], ""], strict=False)  # without arguments the second list is longer
    return [f"--watch={_EVERY}" if alone(word, following) else word for word, following in pairs]


def _with_pattern(argv: list[str]) -> list[str]:
    """Give a bare ``--held`` its default pattern. Else argparse would take a URL after it for the pattern."""
    pairs = zip(argv, [*argv[1:], "-"], strict=False)
    bare = (
        "--held=*" if word == "--held" and ("://" in following or following.startswith("-")) else word
        for word, following in pairs
    )
    return list(bare)


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 0 < int(text) <= _MOST):
        raise argparse.ArgumentTypeError(f"{text!r}: allowed is a number from 1 to {_MOST}")
    return int(text)


def _held(given: argparse.Namespace) -> int:
    from redlock._cli import held, table  # noqa: PLC0415

    wanted = config.deployment(given.urls, given)
    arguments.find_room(len(wanted.urls), "a list")
    found = held.listed(wanted, given.held, given.limit or _LIMIT, given.timeout)
    print(found.json() if given.json else "\n".join(found.lines(table.Style(sys.stdout))))  # noqa: T201
    return WARNING if found.not_voting else OK


def _plan(given: argparse.Namespace) -> int:
    from dataclasses import replace  # noqa: PLC0415

    from redlock._cli import plan  # noqa: PLC0415

    if not config.split(given.plan):
        raise ConfigurationError(
            "--plan is empty: check the variable that it comes from. It takes the new list: the masters that clients "
            "are to have in the end, with commas between them"
        )
    now = config.deployment(given.urls, given)
    new = config.deployment(config.split(given.plan), given)
    both = plan.united(now, new)
    names = tuple(both) if isinstance(both, dict) else ()
    wanted = replace(now, urls=tuple(both.values()) if isinstance(both, dict) else both, names=names)
    arguments.find_room(len(wanted.urls), "a plan")
    health = _checker(wanted, given.timeout, probe=False)()
    name_of = {url: master.name for url, master in zip(wanted.urls, health.masters, strict=True)}
    found = plan.planned(health, tuple(name_of[url] for url in now.urls), tuple(name_of[url] for url in new.urls))
    print("\n".join(plan.lines(found, health.fleet, health.quorum.max_ttl)))  # noqa: T201
    return plan.code(found)


def _acl(given: argparse.Namespace) -> int:
    from redlock._health import rights  # noqa: PLC0415 - each mode imports only what it needs

    # All that the rule needs of the masters' addresses is the database.
    wanted = config.deployment(given.urls, given, masters_needed=False)
    prefix, listing = wanted.options.get("prefix", "redlock:"), given.held is not None
    rule = rights.rule(prefix, database=wanted.databases, listing=listing, functions=given.functions)
    print(rights.quoted(rule), flush=True)  # noqa: T201
    # Standard output is the rule alone, for programs.
    arguments.complain(f"{_TO_BE_LOADED}\n{_TO_BE_KEPT}" if given.functions else _TO_BE_KEPT)
    return OK


def _functions() -> int:
    from redlock._health import rights  # noqa: PLC0415

    print(rights.library(), end="", flush=True)  # noqa: T201
    arguments.complain(_TO_BE_LOADED)
    return OK


def _check(given: argparse.Namespace) -> int:
    from redlock._cli import table  # noqa: PLC0415

    wanted = config.deployment(given.urls, given)
    arguments.find_room(len(wanted.urls), "a check")
    check = _checker(wanted, given.timeout, probe=not given.no_probe)
    style = table.Style(sys.stdout)
    if given.watch is not None:
        health = _watch_json(check, given.watch) if given.json else _watch(check, given.watch, style)
    else:
        health = check()
        print(_shown(health, given, style))  # noqa: T201
    code = _EXIT[health.status]
    return CRITICAL if given.strict and code == WARNING else code


def _shown(health: Health, given: argparse.Namespace, style: table.Style) -> str:
    if given.json:
        import json  # noqa: PLC0415

        return json.dumps(health.as_dict(), indent=2)
    if given.prometheus:
        from redlock._cli.prometheus import exposition  # noqa: PLC0415

        return exposition(health).removesuffix("\n")
    from redlock._cli import table  # noqa: PLC0415

    return "\n".join(table.lines(health, style))


def _watch(check: Callable[[], Health], every: float, style: table.Style) -> Health:
    from redlock._cli.watch import watch  # noqa: PLC0415

    return watch(check, every, style)


def _watch_json(check: Callable[[], Health], every: float) -> Health:
    """Print each check as one JSON object on one line."""
    import json  # noqa: PLC0415
    import time  # noqa: PLC0415

    from redlock._cli.pause import pause  # noqa: PLC0415
    from redlock._cli.watch import ended_by_ctrl_c  # noqa: PLC0415

    health: Health | None = None
    with ended_by_ctrl_c():
        while True:
            begun = time.monotonic()
            health = check()
            print(json.dumps(health.as_dict()), flush=True)  # noqa: T201
            pause(every - (time.monotonic() - begun), sys.stdout)
    if health is None:
        raise KeyboardInterrupt
    return health


def _checker(wanted: WantedMasters, timeout: float, *, probe: bool) -> Callable[[], Health]:
    """A function that makes one check. Wrong options raise now, not at the first check."""
    from redlock import Masters  # noqa: PLC0415
    from redlock._health import checkup  # noqa: PLC0415
    from redlock._health.survey import throw_away_name  # noqa: PLC0415
    from redlock._health.verdict import UNSEEN, ClientOptions  # noqa: PLC0415

    options = dict(wanted.options)
    adopt = "max_ttl" not in options
    max_ttl = options.pop("max_ttl", _MAX_TTL)
    confirms = options.pop("confirm_expiry", False)  # the probe does not: no other client has its name
    Masters(wanted.masters, max_ttl=max_ttl, **{"fence_ttl": max_ttl, **options}).close()
    for of_locks in ("guard", "connect_timeout", "fence_ttl"):  # ... and a probe that was lost has nothing under way
        options.pop(of_locks, None)
    options["agreement"] = "ignore"  # a check does not belong to the fleet
    client_options = ClientOptions(
        max_ttl=max_ttl,
        restart_guard=options.get("restart_guard", True),
        node_timeout=options.get("node_timeout", 0.25),
        drift_factor=options.get("drift_factor", 0.01),
        prefix=options.get("prefix", "redlock:"),
        confirms=confirms,
    )

    class Probing(Masters):
        """A client whose announced max_ttl (R21) binds no other client, and that respects theirs.

        Else the next check would take ours for a client's, and a check that announces the longest would keep it alive.
        """

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self._runtime.deployment.settings.voters.announces = UNSEEN

    def take_a_lock(agreed: float) -> Probe:
        ttl = min(agreed, max(_PROBE_TTL, 3 * client_options.node_timeout))
        masters = Probing(wanted.masters, max_ttl=ttl, fence_ttl=agreed, connect_timeout=timeout, **options)
        try:
            return checkup.probe(masters.lock(throw_away_name(), ttl=ttl, auto_extend=False))
        finally:
            # Closed in a thread: `close` waits for connecting threads, and one may be in a handshake with a master
            # that hangs.
            threading.Thread(target=masters.close, name="redlock-check closing", daemon=True).start()

    return checkup.checks(wanted.masters, client_options, timeout, take_a_lock if probe else None, adopt=adopt)


def entry() -> NoReturn:
    arguments.entry(main, UNKNOWN)


if __name__ == "__main__":
    entry()
