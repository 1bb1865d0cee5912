"""A whole check: the survey, the probe beside it, the verdict. It uses threads; asyncio waits for such a thread."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from redlock import _connect
from redlock._core.kernel.quorum import majority
from redlock._health.result import Probe
from redlock._health.survey import Survey
from redlock._health.verdict import governing_max_ttl, judge, voting
from redlock._system import clock
from redlock._system.thread import start
from redlock.errors import RedlockError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from redlock._connect import Endpoint
    from redlock._health.facts import MasterFacts
    from redlock._health.result import Health
    from redlock._health.verdict import ClientOptions

# Seconds for acquiring the probe's lock. It leaves time for a second attempt: one late vote is no outage.
PATIENCE = 1.0
# A share of the time of the whole check. After it no probe is begun, as it could not be finished.
_LAST_CALL = 0.6


class _Grant(Protocol):
    @property
    def fence(self) -> int | None: ...


class _Lock(Protocol):
    def acquire(self, blocking: bool = True, timeout: float | None = None) -> _Grant | None: ...
    def extend(self) -> object: ...
    def release(self) -> object: ...


class Checkup:
    """One check of ``endpoints``. Call `run` once; it takes at most ``timeout`` seconds.

    Args:
        endpoints: the masters.
        client_options: the options of the clients for which the check is made.
        timeout: seconds that the check takes at most.
        probe: a function that takes a real lock and returns how that went. Its argument is the ``max_ttl`` by which
            the verdict is made. It is called in a thread of its own, and only if the votes of a majority count. If it
            does not return in time, that is a finding. None: nothing is written.
        troubles: returns, for each master, what is wrong with the connection that this process uses for its locks;
            nothing if it has none.
        adopt: use the longest TTL that is announced on the masters, instead of the TTL in ``client_options``.
    """

    def __init__(
        self,
        endpoints: Sequence[Endpoint],
        client_options: ClientOptions,
        timeout: float,
        probe: Callable[[float], Probe] | None,
        *,
        troubles: Callable[[], Sequence[str]] = list,
        adopt: bool = False,
    ) -> None:
        self._client_options = client_options
        self._begun = clock.now()
        self._deadline = self._begun + timeout
        self._last_call = self._begun + timeout * _LAST_CALL
        self._probe = probe
        self._troubles = troubles
        self._adopt = adopt
        self._survey = Survey(endpoints, client_options.prefix, timeout, records=client_options.confirms)
        self._stopped = False
        self._probed: list[Probe] = []

    def stop(self) -> None:
        """Make `run` return soon, and begin no probe. May be called from another thread."""
        self._stopped = True
        self._survey.stop()

    def run(self) -> Health:
        self._survey.start()
        try:
            probing = self._begin_probe() if self._probe is not None else None
            facts = self._survey.finish()
        finally:
            self._survey.stop()
        if probing is not None:
            probing.join(max(0.0, self._deadline - clock.now()))
        troubles = self._troubles()
        if troubles:
            facts = [replace(one, own=trouble) for one, trouble in zip(facts, troubles, strict=True)]
        return judge(facts, self._client_options_for(facts), self._outcome())

    def _begin_probe(self) -> threading.Thread | None:
        size = self._survey.size
        need = majority(size)
        facts = self._survey.wait_for(
            lambda some: voting(some, self._client_options_for(some)) >= need, min(self._last_call, self._deadline)
        )
        if self._stopped:
            return None
        client_options = self._client_options_for(facts)
        able = voting(facts, client_options)
        if able < need:
            late = "" if len(facts) == size else f", {size - len(facts)} have not answered yet"
            self._probed.append(
                Probe(ok=False, seconds=0.0, error=f"not tried, as {able} of {size} masters vote{late}")
            )
            return None
        max_ttl = client_options.max_ttl
        thread = threading.Thread(target=self._run_probe, args=(max_ttl,), name="redlock-check probe", daemon=True)
        start(thread)
        return thread

    def _run_probe(self, max_ttl: float) -> None:
        """Run the probe. Raises nothing: an error of this thread would be lost, and the probe would seem late."""
        assert self._probe is not None  # noqa: S101 - for the type checker
        try:
            outcome = self._probe(max_ttl)
        except RedlockError as failed:
            outcome = Probe(ok=False, seconds=0.0, error=failed.message)
        except Exception as error:  # noqa: BLE001 - any error; its text is left out, as it may quote passwords
            outcome = Probe(ok=False, seconds=0.0, error=f"it ended with {type(error).__name__}")
        self._probed.append(outcome)

    def _outcome(self) -> Probe | None:
        if self._probe is None:
            return None
        if self._probed:
            return self._probed[0]
        seconds = self._deadline - self._begun
        return Probe(ok=False, seconds=seconds, error=f"not done within {seconds:g} s")

    def _client_options_for(self, facts: Sequence[MasterFacts]) -> ClientOptions:
        if not self._adopt:
            return self._client_options
        return replace(self._client_options, max_ttl=governing_max_ttl(facts, self._client_options.max_ttl))


def checks(
    urls: Sequence[str] | Mapping[str, str],
    client_options: ClientOptions,
    timeout: float,
    probe: Callable[[float], Probe] | None,
    *,
    adopt: bool,
) -> Callable[[], Health]:
    """A function that makes one check at each call. It needs no `Masters`, so ``max_ttl`` may still be unknown.

    Addresses are checked now, and not at each check. So a TLS file that is being replaced does not end a series of
    checks.

    Raises:
        ConfigurationError: for a wrong address.
    """
    endpoints = _connect.endpoints(urls)
    return lambda: Checkup(endpoints, client_options, timeout, probe, adopt=adopt).run()


def probe(lock: _Lock) -> Probe:
    """Acquire, extend and release ``lock``, a `MultiLock` on a throw-away name. Errors are in the result."""
    begun = clock.now()
    fence, error = None, None
    try:
        lease = lock.acquire(timeout=PATIENCE)
        if lease is None:
            error = "another client holds the random name of the check"
        else:
            try:
                fence = lease.fence
                lock.extend()
            finally:
                lock.release()
    except RedlockError as failed:
        error = failed.message
    return Probe(ok=error is None, seconds=round(clock.now() - begun, 6), fence=fence, error=error)
