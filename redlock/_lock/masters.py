"""The masters of one deployment, as every lock sees them: their addresses, and the options of `Masters`."""

from __future__ import annotations

import logging
import math
import os
import secrets
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Literal, NoReturn, Self, Unpack

from redlock import _connect, options
from redlock._core import readings
from redlock._core.fleet import Fleet
from redlock._core.outages import LongWaits, Outages
from redlock._core.retry import chance
from redlock._core.settings import MastersSettings
from redlock._core.tokens import FenceClock, TokenSource, owner_of
from redlock._core.voters import Voters
from redlock._io import process
from redlock._io.connections import CLOSED
from redlock._io.deployment import Deployment, Limits
from redlock._io.report import report
from redlock._io.runtime import AnyDriver, Runtime
from redlock._local import LOCAL
from redlock._lock.times import check_guard
from redlock._system import installed, platform
from redlock.errors import ConfigurationError, QuorumUnreachable, RedlockError
from redlock.options import masters as named

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from redlock._core.kernel.quorum import Tally
    from redlock._core.renewals import Renewal
    from redlock._core.wire import Way
    from redlock._events import Event
    from redlock._health.checkup import Checkup
    from redlock._health.result import Probe
    from redlock._lock.observer import Observer
    from redlock._lock.typed import MastersOptions

# What the log says about R35, by the number of masters.
_NOTHING_GAINED = {
    1: "confirm_expiry adds nothing with one master: its clock has to be right",
    2: "confirm_expiry adds nothing with two masters: both clocks have to be right. Take 3, or better 5",
    4: "confirm_expiry adds nothing with four masters: they survive one wrong clock anyway, as 3 do with it. Take 3, "
    "or better 5",
}
_PROBE_TTL = 5.0  # seconds; the lock of a killed check ends after that


class MastersBase(ABC, Generic[AnyDriver]):
    """The options of `Masters` and `AsyncMasters`."""

    _driver_class: type[AnyDriver]
    _own_class: Callable[[], Any]  # what each caller holds

    @staticmethod
    @abstractmethod
    def _import() -> None:
        """Import what methods need: at their first call no descriptor may be left, or a Ctrl-C may strike."""

    def __init__(
        self,
        masters: Iterable[object] | Mapping[str, object],
        *,
        node_timeout: float = 0.25,
        connect_timeout: float = 2.0,
        drift_factor: float = 0.01,
        max_ttl: float = 60.0,
        restart_guard: bool = True,
        prefix: str = "redlock:",
        fence_ttl: float = 3600.0,
        timeout: float = -1.0,
        guard: float = 0.0,
        outage_timeout: float | Literal["max_ttl"] | None = "max_ttl",
        confirm_expiry: bool = False,
        owner: str | None = None,
        agreement: Literal["refuse", "warn", "ignore"] | None = None,
        observer: Callable[[Event], object] | None = None,
    ) -> None:
        """Check the options; nothing is sent before the first operation.

        Args:
            masters: URLs (``redis://``, ``rediss://``, ``valkey://``, ``valkeys://``, ``unix://``) or clients of
                redis-py or valkey-py; only their connection settings are read.  At least one, none twice.  In a
                URL a question mark may be followed by ``db``, ``username``, ``password``, ``client_name`` and, for TLS,
                ``ssl_…``.  Other options of redis-py are accepted, and not used; what it does not know is refused.
                Or a dict of them: each by a name, which is the same in every client, whatever its address there (R34).
            node_timeout: the time that one master gets in an attempt, in seconds; at most a third of any TTL (R7).
            connect_timeout: seconds to connect to a master, and the longest that the first operation waits for it.
            drift_factor: how far the rates of clocks may differ (R6): 0.01 is 1 %.
            max_ttl: the longest TTL that any lock may have, in seconds, the same in every client.  A restarted master
                does not vote during that time (R21).
            restart_guard: False lets a master vote right after its start.  It is meant for a brand-new deployment and
                for tests: a master that forgot its locks in a restart then gives them away twice.  With the guard on,
                a master with ``appendfsync always`` is exempt; it must never come back with another disk.
            prefix: of every key.  ``""`` shares locks with redsync, node-redlock and redlock-py.
            fence_ttl: seconds for which masters remember the fence of a name after its last use (R20).
            timeout: seconds for which a lock without a timeout of its own waits: negative waits for ever, 0 tries
                once.  An election and `wait_until_free` have their own.
            guard: the default of its locks: seconds for which masters keep the keys beyond the validity (R36).
            outage_timeout: a wait without a timeout ends with `QuorumUnreachable` when no attempt has had a majority of
                masters for this many seconds (R38).  ``"max_ttl"``: as many as that.  None: it goes on through every
                outage, as elections do.  A wait with a timeout ends with that.
            confirm_expiry: True: a name that was not released is given away only if more masters report the end of
                its lease than may be wrong (R35).  So with 3, 5, 6 or more masters a minority with wrong clocks, or
                without its lock keys, does not let two clients in.  For locks, slots and leaders; a lock without
                ``fencing`` is refused, and readers only respect it.  The same in every client.  It costs the masters
                a third more work for an acquire and twice as much for a renewal.  The name of a crashed holder stays
                taken for one TTL more if masters that saw its last renewal are away by then.
            owner: the holder's name, for people (R27); a part of every token, and no proof of anything.
                At most 64 bytes of printable UTF-8.  "": none.  None: ``host/pid``, in a forked child its own pid.
            agreement: the reaction to clients with an incompatible list of masters (R34).  ``"refuse"``: the last to
                come gets no lock until the others are gone.  ``"warn"``: a warning, and an event.  ``"ignore"``: lists
                are neither announced nor read.  None: ``"refuse"`` where the masters have names, else ``"warn"``,
                because a server may have another address for each client.
            observer: called with an `Event` whenever something happens to a lock, a lease or a master, in the thread
                or on the loop in which it happens.  It must not block; an exception that it raises is logged.

        Raises:
            ConfigurationError: a value cannot be right; the text names it and what is allowed.  Or this is Windows.
            RedlockError: a part of this library cannot be imported, for example because no descriptor is left.
        """
        installed.check()
        try:
            self._import()
        except OSError as error:
            why = _connect.NO_DESCRIPTOR if _connect.out_of_descriptors(error) else error
            raise RedlockError(f"a part of redlock cannot be imported: {why}") from error
        endpoints = _endpoints(masters)
        platform.check(target.identity for target in endpoints)
        if agreement is None:
            agreement = "refuse" if isinstance(masters, Mapping) else "warn"
        if agreement not in ("refuse", "warn", "ignore"):
            raise ConfigurationError(f'agreement={options.shown(agreement)}: allowed are "refuse", "warn" and "ignore"')
        max_ttl = options.seconds("max_ttl", max_ttl)
        node_timeout = options.seconds(
            "node_timeout", node_timeout, at_most=options.third(max_ttl), why="a third of max_ttl at most (R7)"
        )
        connect_timeout = options.seconds("connect_timeout", connect_timeout)
        fence_ttl = options.seconds("fence_ttl", fence_ttl)
        if fence_ttl < max_ttl:
            raise ConfigurationError(
                f"fence_ttl={fence_ttl!r}: allowed is at least max_ttl ({max_ttl:g} s), "
                "or a lock could outlive the fence that protects from its holder"
            )
        patience, guard = options.timeout("timeout", timeout), check_guard(guard, max_ttl)
        outage = _outage_timeout(outage_timeout, max_ttl)
        prefix = options.prefix(prefix)
        records = options.flag("confirm_expiry", confirm_expiry)
        if observer is not None and not callable(observer):
            raise ConfigurationError(f"observer={options.shown(observer)}: allowed is a function that takes an event")
        tells: Observer | None = None
        if observer is not None:
            # Import it here, not where an event is made: that may be in any thread, or at a moment when time counts.
            from redlock._lock.observer import Observer  # noqa: PLC0415 - few programs observe

            tells = Observer(observer)
        self.max_ttl = max_ttl
        self._restart_guard = options.flag("restart_guard", restart_guard)
        names = tuple(target.name for target in endpoints)
        drift_factor = options.fraction("drift_factor", drift_factor, below=0.5)
        fleet = None
        if agreement != "ignore":
            way: Way = "confirmed" if records else "trusted"
            fleet = Fleet(names, max_ttl, drift_factor, node_timeout, refuses=agreement == "refuse", way=way)
        settings = MastersSettings(
            masters=names, node_timeout=node_timeout, drift_factor=drift_factor, fence_ttl=fence_ttl,
            voters=Voters(names, max_ttl, restart_guard=self._restart_guard, fleet=fleet, drift=drift_factor),
            fences=FenceClock(time.time_ns), token=token_source(owner), random=chance.random, phase=chance.random(),
            outages=Outages(partial(_report_outage, tells)), outage_timeout=outage, lost=partial(_report_loss, tells),
            observer=tells, waits=LongWaits(lambda text: report([(logging.WARNING, text, ())], None)),
        )  # fmt: skip
        if records and len(names) in _NOTHING_GAINED:
            report([(logging.WARNING, f"confirm_expiry=True with {_NOTHING_GAINED[len(names)]}", ())], None)
        limits = Limits(max_ttl, node_timeout, drift_factor, patience, guard)
        deployment = Deployment(settings, limits, prefix, records=records)
        self._runtime = Runtime(self._driver_class, endpoints, deployment, connect_timeout)
        self._runtime.own = self._own_class()
        # One name for all probes of this object: each name leaves a fence key for `fence_ttl` (R20).
        self._probed = f"redlock-check:{secrets.token_hex(8)}"

    @classmethod
    def from_env(cls, variable: str = "REDLOCK_MASTERS", **options: Unpack[MastersOptions]) -> Self:
        """Make masters from the comma-separated URLs in an environment variable, each with its name or none.

        With names: ``lock-1=redis://10.0.0.1:6379,lock-2=redis://…`` (R34).  A comma in a password is written ``%2C``.

        ``local`` in place of the URLs: three masters on this machine, for development. All programs of a user that say
        so have the same ones. The first starts them, which takes some tenths of a second, and a line in the log (on
        standard error where no log is configured) says that they are none for production.

        Raises:
            ConfigurationError: the variable is not set or empty; an option cannot be right; ``local`` finds no server.
            RedlockError: the masters of this machine could not be started. The text says why.
        """
        value = os.environ.get(variable, "")
        if value.strip() == LOCAL:
            platform.refuse()
            from redlock._local import joined  # noqa: PLC0415 - for laptops

            return cls(joined.urls(), **options)
        urls = named([url.strip() for url in value.split(",") if url.strip()])
        if not urls:
            raise ConfigurationError(
                f"the environment variable {variable} is {'empty' if variable in os.environ else 'not set'}: "
                "give it the comma-separated URLs of the masters"
            )
        return cls(urls, **options)

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"{self!r} cannot be copied or pickled: make one in each process, with the same URLs and options"
        )

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {', '.join(self._runtime.deployment.settings.masters)}>"

    def _checkup(
        self, timeout: float, probe: Callable[[float], Probe] | None, lock: Callable[[], Any] | None = None
    ) -> Checkup:
        """``lock``: makes the lock that the check takes by itself; None: ``probe`` takes it, or none is taken."""
        from redlock._health.checkup import Checkup, probe as take  # noqa: PLC0415 - few programs ever check
        from redlock._health.verdict import ClientOptions  # noqa: PLC0415

        probes = probe if lock is None else lambda _: take(lock())
        timeout = options.seconds("timeout", timeout)
        runtime = self._runtime
        if runtime.closed:
            raise RedlockError(CLOSED)
        runtime.check_outside()
        deployment, settings = runtime.deployment, runtime.deployment.settings
        client_options = ClientOptions(
            max_ttl=self.max_ttl, restart_guard=self._restart_guard, node_timeout=settings.node_timeout,
            drift_factor=settings.drift_factor, prefix=deployment.prefix, confirms=deployment.records,
        )  # fmt: skip
        return Checkup(runtime.endpoints, client_options, timeout, probes, troubles=runtime.troubles())

    def _probe_options(self) -> dict[str, Any]:
        ttl = min(self.max_ttl, max(_PROBE_TTL, 3 * self._runtime.deployment.settings.node_timeout))
        return {"name": self._probed, "ttl": ttl, "auto_extend": False, "guard": 0.0}


def _report_outage(
    observer: Observer | None, what: Literal["gone", "still gone", "back"], seconds: float, tally: Tally
) -> None:
    """Log how an outage begins, each minute of it, and its end; the observer gets its begin and its end."""
    if what == "back":
        text = f"the quorum is back after {seconds:.1f} s"
        report([(logging.INFO, text, ("QuorumBack",))], observer)
        return
    text = f"no quorum{f' for {seconds:.0f} s' if what == 'still gone' else ''}: {readings.explain(tally)}"
    report([(logging.WARNING, text, ("QuorumLost", tally.votes()) if what == "gone" else ())], observer)


def _outage_timeout(value: object, max_ttl: float) -> float:
    if value is None:
        return math.inf
    if isinstance(value, str) and value != "max_ttl":
        raise ConfigurationError(
            f'outage_timeout={options.shown(value)}: allowed are a number of seconds, "max_ttl", and None'
        )
    return options.seconds("outage_timeout", max_ttl if value == "max_ttl" else value, why='or "max_ttl", or None')


def _report_loss(observer: Observer | None, renewal: Renewal) -> None:
    """Log that a lease was lost, without its token: all who read that can release."""
    lease = renewal.lease
    owner = owner_of(lease.token)
    text = (
        f"{lease.loss().message}; held for {lease.held_for:.1f} s{owner and f' by {owner}'}"
        f"{'' if lease.fence is None else f', fencing token {lease.fence}'}"
        f"; its body {'still ran' if renewal.outlived else 'had ended'}"
    )
    if renewal.runs_on:
        text += ": it goes on in its thread, and others may enter"
    report([(logging.WARNING, text, ())], None)
    if observer is not None:
        observer.lost(lease)


def was_free(name: str | None, tally: Tally) -> bool:
    """Whether all names were free. ``name``: one that was not seen to be free. Raises QuorumUnreachable."""
    if name is not None and tally.unreachable:
        raise QuorumUnreachable(
            f"cannot tell whether {name!r} is free: {readings.explain(tally)}", name=name, votes=tally.votes()
        )
    return name is None


def token_source(owner: str | None) -> Callable[[], str]:
    """A source of fresh tokens (R8) with this owner (R27); None: this process."""
    return (process.tokens if owner is None else TokenSource(os.urandom, options.owner(owner))).fresh


def _endpoints(masters: Iterable[object] | Mapping[str, object]) -> tuple[_connect.Endpoint, ...]:
    if isinstance(masters, (str, bytes)) or not hasattr(masters, "__iter__"):
        raise ConfigurationError(
            f"masters is a {type(masters).__name__}: allowed is a list of URLs or of redis.Redis objects, "
            "or a dict of them"
        )
    endpoints = _connect.endpoints(masters)
    if not endpoints:
        raise ConfigurationError("masters is empty: at least one is needed, five are usual")
    known: dict[object, int] = {}
    for index, target in enumerate(endpoints):
        first = known.setdefault(target.identity, index)
        if first != index:
            raise ConfigurationError(
                f"masters[{first}] and masters[{index}] are the same server, {target.address}: one server has "
                "one vote, whatever the database or the user"
            )
    return endpoints
