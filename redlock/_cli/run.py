"""``redlock-run``: run a command under the lock, for cron jobs and deployments. See docs/redlock-run.md."""

from __future__ import annotations

import contextlib
import math
import os
import signal
import sys
import threading
import time
from typing import TYPE_CHECKING, Any, NoReturn

from redlock import (
    ConfigurationError,
    LockLost,
    QuorumBack,
    QuorumLost,
    QuorumUnreachable,
    RedlockError,
    WouldDeadlock,
)
from redlock._cli import arguments, clock, config, service
from redlock._cli.address import address
from redlock._cli.guard import KILLED, TERMINATED, exists
from redlock._cli.job import ENDING, Job, JobSignals, NotStarted
from redlock._cli.watchdog import GONE
from redlock.errors import unheard

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterable, Iterator
    from types import FrameType

    from redlock import Lease, LockStatus, Masters, MultiLock, Term, Vote
    from redlock._cli.status import Status

USAGE, NO_QUORUM, LOST, NOT_ACQUIRED = 64, 69, 70, 75  # as in sysexits.h

_TTL, _SERVICE_TTL = 30.0, 15.0
_MAX_TTL = 60.0  # the default of `Masters`
_GRACE = 5.0  # seconds (C23)
# Seconds between SIGKILL and the end of the lease, in case the machine is busy; at most this share of the TTL.
_MARGIN, _MARGIN_SHARE = 0.5, 1 / 20
_MOST_NAMED = 5  # readers in one line
_TELL_AGAIN = 10.0  # seconds between two messages while waiting
_ASK_AGAIN = 0.2  # seconds between two questions, without a quorum, whether an outer redlock-run holds the lock
_ENDS_US = (*ENDING, signal.SIGHUP)  # while there is no command that it could be for
# The tokens of all redlock-runs around the one whose token is in REDLOCK_TOKEN, one in a line: owners may have blanks.
_OUTER = "REDLOCK_OUTER"
_WAITS = "a service waits until it is elected"
_NOT_TOGETHER = (
    ("--hold-at-least", "--shared", "a reader keeps no other reader out"),
    ("--shared", "--service", "a leader holds its lock alone"),
    ("--shared", "--slots", "the holder of a slot has it alone"),
    ("--slots", "--service", "a service has one leader"),
    ("--fair", "--shared", "readers enter together"),
    ("--fair", "--slots", "a waiter takes any free slot, so there is no order"),
    ("--fair", "--service", "any candidate may be the next leader, so there is no order"),
    ("--no-wait", "--service", _WAITS),
    ("--wait", "--service", _WAITS),
    ("--outage-timeout", "--service", _WAITS),
    ("--quiet", "--service", "it waits until it is elected, and names the leader until then"),
    ("--hold-at-least", "--service", "no candidate could lead after the command has ended"),
)
_EXAMPLES = """\
examples:
  redlock-run nightly-report --no-wait -- /usr/local/bin/report --all
  redlock-run migrate --wait 300 --max-hold 1800 -- ./manage.py migrate
  redlock-run deploy --verbose -- sh -c 'echo "fencing token $REDLOCK_FENCE"; ./deploy'
  redlock-run --service consumer --restart on-failure -- ./consume orders
  */5 * * * *  redlock-run --config /etc/redlock.toml sweep --no-wait --quiet -- sweep || [ $? = 75 ]

The masters are those of --masters, of --config, or of the environment variable REDLOCK_MASTERS.
REDLOCK_MASTERS=local: three masters on this machine, for development. All programs of a user find the same ones, and
the first program starts them. python -m redlock --stop-local ends them.
The command gets REDLOCK_NAME, REDLOCK_TOKEN, REDLOCK_OWNER and REDLOCK_FENCE in its environment.

With --service NAME is an election: start the same line in many places, and the command runs in one of them. If that
one ends or dies, another one is elected and starts it. SIGTERM ends the command, and then the next one leads at once.

exit codes:
  that of the command, 128 + n if signal n ended it, 126 or 127 if it could not be started
  64 wrong arguments or configuration, or a redlock-run around this one holds the lock
  69 no quorum of masters
  70 the lock was lost while it ran       75 the lock was not acquired in time
  71 an error of the system, or of redlock-run itself
"""


class Ended(BaseException):
    """A signal asked redlock-run to end. The exception unwinds like Ctrl-C, so no key is left behind."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def parser() -> arguments.Parser:
    this = arguments.Parser(
        usage_error=USAGE,
        prog="redlock-run",
        usage="redlock-run [--service] NAME [options] -- COMMAND [ARGUMENT ...]",
        description="Runs a command while it holds the lock NAME on a majority of Redis or Valkey masters.",
        epilog=_EXAMPLES,
    )
    this.add_argument("name", metavar="NAME", help="name of the lock")
    this.add_argument(
        "--masters",
        metavar="URL,URL,...",
        action="append",
        default=[],
        help="redis://, rediss:// (valkey://, valkeys://) or unix://; or local; "
        "passwords are better kept in the environment or a file",
    )
    waiting = this.add_mutually_exclusive_group()
    waiting.add_argument(
        "--wait",
        type=arguments.seconds_or_none,
        metavar="SECONDS",
        help="wait at most this long for the lock or a quorum, then end with 75 or 69 "
        "(default: as long as another client holds it)",
    )
    waiting.add_argument("--no-wait", action="store_true", help="end with 75 at once if another client holds it")
    waiting.add_argument(
        "--outage-timeout",
        type=arguments.seconds_or_inf,
        metavar="SECONDS",
        help="wait at most this long in an outage, then end with 69; inf: without limit (default: 60, or "
        "what --max-ttl says)",
    )
    this.add_argument(
        "--ttl",
        type=arguments.seconds,
        metavar="SECONDS",
        help="how long the lock stays held if this machine dies; while it lives, the lock is renewed "
        "(default: 30, with --service 15)",
    )
    this.add_argument(
        "--max-hold",
        type=arguments.seconds,
        metavar="SECONDS",
        help="send SIGTERM to the command after this time, and end with 70; with --service that ends the term",
    )
    this.add_argument(
        "--hold-at-least",
        type=arguments.seconds_or_none,
        metavar="SECONDS",
        help="keep all other clients out for this time, even if the command ends sooner: once in a period, on many "
        "machines (the TTL is at least as long)",
    )
    this.add_argument(
        "--guard",
        type=arguments.seconds_or_none,
        metavar="SECONDS",
        help="keep all other clients out for this time after the lock was lost or this machine died, while what the "
        "command has begun may still take effect; the lock is free at once when the command ends (default: 0)",
    )
    this.add_argument(
        "--shared",
        action="store_true",
        help="share the lock with other readers; clients without --shared are kept out",
    )
    this.add_argument(
        "--fair",
        action="store_true",
        help="first come, first served among all that wait with --fair, on all machines; they go before all others",
    )
    this.add_argument(
        "--grace",
        type=arguments.seconds_or_none,
        metavar="SECONDS",
        help="time between SIGTERM and SIGKILL; both come before the lock is lost, or after --max-hold "
        "(default: 5, at most a third of the TTL)",
    )
    this.add_argument(
        "--slots",
        type=int,
        metavar="K",
        help="run at most K commands at once: hold one of K slots instead of the lock; the command gets the number of "
        "its slot, from 0 on, in REDLOCK_SLOT",
    )
    this.add_argument(
        "--owner",
        metavar="TEXT",
        help="text that waiters and listings show, at most 64 bytes (default: this host/the process id)",
    )
    saying = this.add_mutually_exclusive_group()
    saying.add_argument("-v", "--verbose", action="store_true", help="say who holds the lock, and what happens")
    saying.add_argument(
        "-q", "--quiet", action="store_true", help="if the lock was not acquired, do not say who holds it: for cron"
    )
    group = this.add_argument_group("a service")
    group.add_argument(
        "--service",
        action="store_true",
        help="run the command whenever this one is elected leader of NAME, until SIGTERM; say who leads",
    )
    group.add_argument(
        "--restart",
        choices=service.RESTART,
        metavar="WHEN",
        help="stand for election again if the command ends by itself: always (the default), on-failure (with another "
        "exit code than 0) or never; after a random pause, which grows to 30 s. After a lost lock it always does",
    )
    group.add_argument(
        "--status-port",
        type=address,
        metavar="[HOST:]PORT",
        help="answer /leader (200 where this one leads, else 503) and /healthz over HTTP, for sidecars and probes "
        "(HOST: 127.0.0.1; PORT 0: any)",
    )
    arguments.add_deployment(this)
    return this


def main(argv: list[str]) -> int:
    this = parser()
    ours, dashes, command = _divided(argv)
    if not (any(command[:1]) or {"-h", "--help"} & {*ours}):
        this.error("no command: write it behind --" if dashes else "no command: write -- before the command")
    given = this.parse_args(ours)
    _refuse_what_contradicts(this, given)
    # Some daemons ignore or block SIGCHLD, and we inherit that. Then we could not wait for our children.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCHLD])
    with _handled(_ENDS_US, _end), _handled([signal.SIGUSR1, signal.SIGUSR2] if given.service else [], _ignore):
        try:
            if given.service:
                return _serve(given, command)
            return _once(given, command).code
        except (ConfigurationError, WouldDeadlock) as error:
            _say(str(error))
            return USAGE
        except QuorumUnreachable as error:
            _say(str(error))
            return NO_QUORUM
        except NotStarted as error:
            _say(str(error))
            return error.code
        except Ended as signalled:
            return 128 + signalled.number


def _serve(given: argparse.Namespace, command: list[str]) -> int:
    restart = given.restart or service.ALWAYS
    if given.status_port is None:
        return service.serve(lambda: _once(given, command), restart, _say)
    from redlock._cli.status import Status  # noqa: PLC0415 - a server for HTTP, which few need

    status = Status(given.name, given.status_port)
    try:
        _say(f"answers /leader and /healthz at http://{status.at}")
        return service.serve(lambda: _once(given, command, status), restart, _say, status.answering)
    finally:
        status.close()


def _once(given: argparse.Namespace, command: list[str], status: Status | None = None) -> service.Ending:
    # First of all the job: its fork must come before any thread.
    with (
        Job(command, in_front=not given.service) as job,
        contextlib.nullcontext() if status is None else status.answering(),
    ):
        return Run(given, job, status).run()


def _refuse_what_contradicts(this: arguments.Parser, given: argparse.Namespace) -> None:
    def has(option: str) -> bool:
        value = getattr(given, option.removeprefix("--").replace("-", "_"))
        return value is not None and value is not False

    for option, other, why in _NOT_TOGETHER:
        if has(option) and has(other):
            this.error(f"{option} cannot be used with {other}: {why}")
    for option in ("--restart", "--status-port"):
        if has(option) and not given.service:
            this.error(f"{option} needs --service")


@contextlib.contextmanager
def _handled(numbers: Iterable[int], handler: Callable[[int, FrameType | None], object]) -> Iterator[None]:
    """Under ``with``: these signals call ``handler``. Those that were ignored when we started (nohup) stay ignored."""
    before = {
        number: signal.signal(number, handler) for number in numbers if signal.getsignal(number) is not signal.SIG_IGN
    }
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)


def _divided(argv: list[str]) -> tuple[list[str], bool, list[str]]:
    if "--" not in argv:
        return argv, False, []
    at = argv.index("--")
    return argv[:at], True, argv[at + 1 :]


def _say(text: str) -> None:
    with contextlib.suppress(OSError):  # standard error has no reader any more
        sys.stderr.write(
            f"redlock-run: {arguments.in_options(text)}\n"
        )  # in one piece: other programs may write at the same time
        sys.stderr.flush()


class Run:
    """One command under one lock, or in one term."""

    def __init__(self, given: argparse.Namespace, job: Job, status: Status | None = None) -> None:
        """Check all arguments before anything is done.  ``status``: where the leader is shown.

        Raises:
            ConfigurationError: for a wrong argument, or wrong masters.
        """
        urls = [url for some in given.masters for url in config.split(some)]
        self._wanted = config.deployment(urls, given)
        self._options: dict[str, Any] = dict(self._wanted.options)
        self._name: str = given.name
        self._job = job
        self._status = status
        self._dog = job.dog
        self._verbose: bool = given.verbose
        self._wait = 0.0 if given.no_wait else -1.0 if given.wait is None else given.wait
        self._quiet: bool = given.quiet
        self._hold_at_least: float = given.hold_at_least or 0.0
        self._guard: float = self._options.get("guard", 0.0)
        max_ttl = self._options.get("max_ttl", _MAX_TTL)
        longest = max_ttl - self._guard
        self._service: bool = given.service
        self._shared: bool = given.shared
        self._fair: bool = given.fair
        outage_timeout: float | None = None if self._service else self._options.get("outage_timeout", max_ttl)
        self._outage_timeout = math.inf if outage_timeout is None else outage_timeout
        self._ttl: float = given.ttl or min(max(_SERVICE_TTL if given.service else _TTL, self._hold_at_least), longest)
        if self._hold_at_least > self._ttl:
            limit = f"--ttl, {self._ttl:g} s" if given.ttl else f"max_ttl, {longest:g} s"
            raise ConfigurationError(f"--hold-at-least {self._hold_at_least:g}: allowed is at most {limit}")
        self._margin = min(_MARGIN, self._ttl * _MARGIN_SHARE)
        self._grace: float = min(_GRACE, self._ttl / 3) if given.grace is None else given.grace  # C23
        if self._grace > self._ttl / 2:
            raise ConfigurationError(
                f"--grace {self._grace:g}: allowed is at most half of the TTL ({self._ttl / 2:g} s), for the lock has "
                "to be renewed before that: take a longer --ttl"
            )
        self._max_hold: float = math.inf if given.max_hold is None else given.max_hold
        self._owner: str | None = given.owner
        self._slots: int | None = given.slots
        self._since = 0.0  # when the lock was acquired
        self._lost = False  # the lease was lost, or was held for --max-hold
        self._answers: tuple[Vote, ...] = ()  # the votes of the release
        self._outer = [token for name in (_OUTER, "REDLOCK_TOKEN") for token in os.environ.get(name, "").splitlines()]
        self._beside = False  # an outer redlock-run shares what we ask for
        self._collected = JobSignals()
        self._signals: JobSignals | None = None  # not None while the command runs
        self._down: set[str] = set()  # masters that were reported as down

    def run(self) -> service.Ending:
        from redlock import Masters  # noqa: PLC0415 - not needed to report wrong arguments

        arguments.find_room(len(self._wanted.urls), "a lock", 0 if self._status is None else self._status.room)
        self._dog.wait_until_ready()
        try:
            with Masters(self._wanted.masters, observer=self._told, **self._options) as masters:
                self._refuse_to_wait_for_ourselves(masters)
                return (self._lead if self._service else self._locked)(masters)
        finally:
            self._collected.close()

    def _locked(self, masters: Masters) -> service.Ending:
        wanted: dict[str, Any] = {
            "ttl": self._ttl,
            "hold_at_least": self._hold_at_least,
            "min_validity": self._enough(),
            "owner": self._owner,
        }
        if self._slots is None:
            lock: MultiLock = masters.lock(self._name, shared=self._shared, fair=self._fair, **wanted)
        else:
            lock = masters.slots(self._name, limit=self._slots, **wanted)
        try:
            lease = self._acquire(masters, lock)
            if lease is None:
                return self._ending(NOT_ACQUIRED)
            if self._verbose:
                _say(f"acquired {lease.name!r}, fencing token {lease.fence}, TTL {self._ttl:g} s")
            with self._collected:
                code = self._guarded(lease)
        finally:
            released = self._release(lock)
        return self._ending(LOST if self._lost or not released else code)

    def _lead(self, masters: Masters) -> service.Ending:
        """Wait to be elected, and run the command in that term.

        Raises:
            Ended: a signal arrived before the command began.
        """
        election = masters.leader(self._name, ttl=self._ttl, min_validity=self._enough(), owner=self._owner)
        arrived: list[int] = []
        code: int | None = None
        lease: Lease | None = None

        def end(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - part of the interface
            arrived.append(number)
            election.stop()

        def lead(term: Term) -> None:
            nonlocal code, lease
            lease = term.lease
            if self._status is not None:
                self._status.lease = lease
            election.stop()  # the next term has a command of its own
            _say(f"elected: leads {self._name!r} in term {term.number}, TTL {self._ttl:g} s")
            with self._collected:
                if arrived:
                    return
                code = self._guarded(lease)
            arrived.extend({*self._collected.take()} & {*_ENDS_US})

        with _handled(_ENDS_US, end):
            if self._status is not None:
                self._status.asked = lambda: bool(arrived) or self._job.asked_to_end
            try:
                election.run(lead, on_new_leader=self._say_leader, signals=())
            finally:
                if self._status is not None:
                    self._status.lease, self._status.leader = None, ""
        if lease is None or code is None:
            raise Ended(arrived[0])
        if not lease.lost and not self._say_unheard(lease):
            free = self._kept() or f", and {self._name!r} is free for others"
            _say(f"resigned: the command ended with {code}{free}")
        elif lease.lost and not self._lost:  # the release has found the keys gone
            self._losing(lease, f"the command had ended by itself, with {code}")
        return self._ending(LOST if self._lost else code, asked=bool(arrived))

    def _say_leader(self, owner: str) -> None:
        if self._status is not None:
            self._status.leader = owner or "another client"
        _say(f"waiting: {owner or 'another client'} leads {self._name!r}")

    def _enough(self) -> float:
        """The validity that a new lease needs: a lease is given up when only the grace is left, so more than that."""
        return max(self._ttl / 2, self._grace + self._ttl / 6)

    def _ending(self, code: int, *, asked: bool = False) -> service.Ending:
        seconds = clock.now() - self._since
        return service.Ending(code, self._lost, asked or self._job.asked_to_end, seconds)

    # -- before --------------------------------------------------------------------------------------

    def _refuse_to_wait_for_ourselves(self, masters: Masters) -> None:
        """Raise `WouldDeadlock` if a redlock-run around this one holds the lock (C5).

        Tokens are compared, not names. A name may belong to another prefix, or to a hold that ended long ago. Without a
        quorum this cannot be known, so a wait without an end begins with the wait for one.
        """
        if not self._outer:
            return
        ends, lost = time.monotonic() + self._outage_timeout, False
        while True:
            try:
                holders, beside = self._holders(masters)
            except QuorumUnreachable as error:
                if self._wait >= 0:
                    return  # `_acquire` will report it
                if time.monotonic() >= ends:
                    raise
                if not lost:
                    self._told(QuorumLost(error.votes))
                    lost = True
                time.sleep(_ASK_AGAIN)
                continue
            if lost:
                self._told(QuorumBack())
            self._beside = not holders.isdisjoint(self._outer)
            if self._beside and not beside:
                why = f"{self._name!r} is held by an outer redlock-run: this one would wait for ever"
                raise self._would_deadlock(why)
            return

    def _holders(self, masters: Masters) -> tuple[set[str | None], bool]:
        """The tokens of all that hold the name, or a slot, and whether we may hold it beside them."""
        if self._slots is None:
            status = masters.status(self._name)
            return {status.token, *status.shared}, self._shared and status.token is None
        holders = {slot.token for slot in masters.slots(self._name, limit=self._slots).status().holders}
        return {*holders}, len(holders & {*self._outer}) < self._slots

    def _would_deadlock(self, why: str) -> WouldDeadlock:
        return WouldDeadlock(
            f"{why}. Take another name, or run the command without redlock-run; if the outer redlock-run does not "
            f"wait for this one: env -u REDLOCK_TOKEN -u {_OUTER} redlock-run ...",
            name=self._name,
        )

    def _acquire(self, masters: Masters, lock: MultiLock) -> Lease | None:
        told = threading.Event()
        teller = threading.Thread(target=self._tell_who, args=(masters, told), daemon=True)
        # Inside another redlock-run we might wait for clients that wait for that one: a writer that keeps new readers
        # away, or others like us, each with one of the slots. So we do not wait, and try once.
        wait = 0.0 if self._beside else self._wait
        if self._verbose and wait != 0:
            teller.start()
        begun = time.monotonic()
        try:
            lease = lock.acquire(timeout=wait)
        finally:
            told.set()
        if lease is None and wait != self._wait:
            raise self._would_deadlock(
                f"{self._name!r} is held shared by an outer redlock-run, and a writer is waiting: each would wait "
                "for the other"
                if self._shared
                else f"an outer redlock-run holds a slot of {self._name!r}, and no other slot is free: the holders "
                "of the others may wait in the same way"
            )
        if lease is None and not self._quiet:
            waited = f" in {time.monotonic() - begun:.1f} s" if wait else ""
            _say(f"not acquired{waited}: {self._holder(masters)}")
        return lease

    def _tell_who(self, masters: Masters, enough: threading.Event) -> None:
        """Report the holder while we wait: whenever it changes, and every ten seconds."""
        before, again = "", 0.0
        pause = 0.2
        while not enough.wait(pause):
            try:
                text, who = self._who(masters)
            except RedlockError as error:
                text, who = str(error), "unknown"
            text = f"waiting: {text}"
            if who and (who != before or time.monotonic() > again) and not enough.is_set():
                _say(text)
                before, again = who, time.monotonic() + _TELL_AGAIN
            pause = 1.0

    def _holder(self, masters: Masters) -> str:
        """The holder that kept us from it, on one line."""
        try:
            text, who = self._who(masters)
        except RedlockError:
            return f"other clients hold {self._name!r}, and too few masters answer to say which"
        return text if who else f"other clients held it, or asked at the same time; {text}"

    def _who(self, masters: Masters) -> tuple[str, str]:
        """The holder, for people; and a text that changes with the holder, "" if the name is free."""
        if self._slots is None:
            status = masters.status(self._name)
            return self._words(status), status.token or " ".join(status.shared)
        slots = masters.slots(self._name, limit=self._slots).status()
        owners = ", ".join(status.owner or "another client" for status in slots.holders)
        text = f"{self._name!r}: {slots.free} of {slots.limit} slots are free" + (
            f", held by {owners}" if owners else ""
        )
        return text, "" if slots.free else " ".join(status.token or "" for status in slots.holders) or "taken"

    def _words(self, status: LockStatus) -> str:
        if status.shared:
            who = ", ".join(sorted({owner or "another client" for owner in status.readers})[:_MOST_NAMED])
            read = f"{self._name!r} is held shared by {len(status.shared)} ({who})"
            why = "; a writer is waiting, and new readers come after it" if self._shared else ""
            return f"{read} for {status.remaining:.1f} s more, unless they renew{why}"
        if status.token is None and any(vote.outcome == "held" for vote in status.votes):
            return f"no client has a majority for {self._name!r} now"
        if status.token is None:
            return f"{self._name!r} is free now"
        if status.in_doubt:
            return (
                f"the last lease on {self._name!r} may still be valid, so no client gets it for "
                f"{status.remaining:.1f} s more"
            )
        token = status.token.removeprefix("released:")
        who = status.owner or token
        if status.released:
            return f"{self._name!r} was released by {who}, and no client gets it for {status.remaining:.1f} s more"
        return f"{self._name!r} is held by {who} for {status.remaining:.1f} s more, unless it is renewed"

    # -- while it runs -------------------------------------------------------------------------------

    def _guarded(self, lease: Lease) -> int:
        self._since = clock.now()
        signals = self._signals = self._collected
        job = self._job
        times = self._times(lease)
        self._dog.order(*times)
        # We may have been stopped until now. If we are stopped after this look, the watchdog ends the command in time.
        if clock.now() >= times[0]:
            self._losing(lease, "the command was not started")
            return LOST

        try:
            job.begin(self._exported(lease))
            code = job.wait(signals, lambda: self._look(lease))
        except BaseException:  # the command would have no watchdog any more
            job.send(signal.SIGKILL)
            job.reap()
            raise
        if code is None:
            job.send(signal.SIGKILL)  # once more: the guard may have died before it sent the signal
            job.reap()
            self._leave_to_guard(lease)
            return LOST
        if TERMINATED in self._dog.had_done():  # SIGTERM came after our last look, and before the command ended
            self._losing(lease, self._says_when())
        if self._lost:
            # The first process of the group has ended. The others have the rest of the grace.
            while exists(job.group) and self._dog.heard() in (b"", TERMINATED):
                if self._dog.overdue():
                    job.send(signal.SIGKILL)
                    break
                time.sleep(0.01)
            self._leave_to_guard(lease)
        else:
            self._dog.dismiss()  # processes that the command left in the background go on
            if not lease.valid:
                self._losing(lease, f"the command had ended by itself, with {code}")
        return code

    def _leave_to_guard(self, lease: Lease) -> None:
        """Have the release leave the name taken for the guard: the lease was lost, or held for --max-hold (R36).

        Often the lease is valid yet, for SIGKILL comes before its end. The name is kept as by `hold_at_least` (R28). A
        reader cannot keep it so: it is not released, and the guard begins with the end of the last renewal.
        """
        if not self._guard or not lease.valid:
            return
        state = lease._state  # noqa: SLF001 - only a command ends a lease before its end
        if lease.shared:
            state.lose("max_hold")
        else:
            self._hold_at_least = state.hold_at_least = max(state.hold_at_least, state.held_for + self._guard)

    def _exported(self, lease: Lease) -> dict[str, str]:
        ours = {
            "REDLOCK_NAME": lease.name,
            "REDLOCK_TOKEN": lease.token,
            "REDLOCK_OWNER": lease.owner,
            "REDLOCK_FENCE": str(lease.fence),
        }
        if lease.slot is not None:
            ours["REDLOCK_SLOT"] = str(lease.slot)
        return ours | ({_OUTER: "\n".join(self._outer)} if self._outer else {})

    def _look(self, lease: Lease) -> bool:
        """Give the watchdog its order, and read its news. False: the command is to be killed now, or has been."""
        self._dog.order(*self._times(lease))
        if self._dog.silent() > self._ttl:  # it hangs, so it could not end the command if we hung too
            self._dog.dismiss()
        news = self._dog.heard()
        if KILLED in news or self._dog.overdue():
            self._losing(lease, "the command gets SIGKILL")
        elif GONE in news:
            self._losing(
                lease,
                "the command gets SIGKILL",
                "redlock-guard, which would end the command in time, was killed or hangs",
            )
        elif TERMINATED in news:
            self._losing(lease, self._says_when())
        return not (KILLED in news or GONE in news or self._dog.overdue())

    def _says_when(self) -> str:
        return f"the command gets SIGTERM, and SIGKILL {self._grace:g} s later"

    def _times(self, lease: Lease) -> tuple[float, float]:
        """The times at which the command has to get SIGTERM and SIGKILL, as of now."""
        # After --max-hold the command still has its grace. The lease lasts for that: it is still renewed, and if it had
        # less left than the grace, the command would have been ended before.
        end = min(lease.valid_until - self._margin, self._since + self._max_hold + self._grace)
        if not lease.valid:  # another client may hold the lock: there is nothing to wait for
            now = clock.now()
            return now, min(end, now + self._grace)
        return end - self._grace, end

    def _losing(self, lease: Lease, what: str, why: str = "") -> None:
        first, self._lost = not self._lost, True
        if not first:
            _say(what)
            return
        held = clock.now() - self._since
        if not why and held >= self._max_hold and lease.valid:
            _say(f"{lease.name!r} was held for {held:.1f} s, and --max-hold is {self._max_hold:g} s; {what}")
            return
        if not why and lease.lost:
            why = lease.loss().message
        why = why or f"no renewal has worked, and the lease ends in {lease.remaining():.1f} s"
        who = f" by {lease.owner}" if lease.owner else ""
        _say(f"lost {lease.name!r}: {why}; held for {held:.1f} s{who}, fencing token {lease.fence}; {what}")

    def _told(self, event: Any) -> None:
        """The observer of the masters. Any thread may call it. An event may lengthen or shorten the lease."""
        signals = self._signals
        match type(event).__name__:
            case "LeaseExtended" | "LeaseLost":
                if signals is not None:
                    signals.wake()
            case "LockReleased":
                self._answers = event.votes
            case "MasterDown" if self._verbose:
                self._down.add(event.master)
                _say(f"no connection to {event.master}: {event.reason}")
            case "MasterUp" if event.master in self._down:
                self._down.discard(event.master)
                _say(f"connected to {event.master} again")
            case "QuorumLost" if signals is None and self._wait != 0:
                # Reported without --verbose too: else it would look as if another client held the lock.
                _say("\n".join(["no quorum; waiting for one", *(f"  {vote}" for vote in event.votes)]))
            case "QuorumBack" if self._wait != 0:
                _say("the quorum is back")

    def _release(self, lock: MultiLock) -> bool:
        """Release the lock, if we hold it. False: it was not ours any more."""
        lease = lock.lease
        if lease is None:
            return True
        try:
            lock.release()
        except LockLost:
            if not self._lost:
                self._losing(lease, "the command had ended")
            return False
        except RedlockError as error:
            _say(str(error))
            return True  # the release is owed, or the keys expire with the TTL
        if not self._say_unheard(lease) and self._verbose:
            _say(f"released {lease.name!r}{self._kept()}")
        return True

    def _kept(self) -> str:
        left = self._since + self._hold_at_least - clock.now()
        return f"; no other client gets it for another {left:.1f} s" if left > 0 else ""

    def _say_unheard(self, lease: Lease) -> bool:
        """Say it if no majority has answered to the release. False: one has."""
        silent = unheard(self._answers)
        if 2 * len(silent) < len(self._answers):
            return False
        what = (
            f"{len(silent)} of {len(self._answers)} masters did not confirm the release of {lease.name!r}; "
            f"a master that did not get it keeps the lock for its TTL{' and guard' if self._guard else ''}, "
            f"{self._ttl + self._guard:g} s at most"
        )
        _say("\n".join([what, *(f"  {vote}" for vote in silent)]))
        return True


def _end(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
    raise Ended(number)


def _ignore(number: int, frame: FrameType | None) -> None:
    """For signals that are meant for the command. SIG_IGN would be inherited by it."""


def entry() -> NoReturn:
    arguments.entry(main)


if __name__ == "__main__":
    entry()
