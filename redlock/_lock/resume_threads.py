# Made from redlock/_lock/resume_async.py by tools/unasync.py: change that file, then run `make faces`.
"""Takes a lease over from another process, for threads (R46)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from redlock import options
from redlock._core.abandon import abandon
from redlock._core.kernel.ballot import Grant, Refusal
from redlock._core.kernel.extension import extend
from redlock._core.modes import resumed
from redlock._lock.holds import Hold, new_state
from redlock._lock.lease import Handed
from redlock._lock.lock_threads import MultiLock
from redlock._lock.refused import not_resumed
from redlock._lock.typed import LeaseOptions
from redlock._system import clock
from redlock.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from redlock._core.effects import Op
    from redlock._lock.lease_threads import Lease
    from redlock._lock.masters_threads import Masters

_IN_THE_TEXT = ("shared", "ttl", "guard", "hold_at_least")  # options that a plain token does not contain


class ResumeOptions(LeaseOptions, total=False):
    """The options of `Masters.resume`, for type checkers."""

    on_lost: Callable[[Lease], object] | None


class Resumed(MultiLock):
    """A lock that goes on with the lease of another process, where others acquire one of their own.

    An interruption before masters have confirmed the lease leaves it to its TTL, and another try may go on with it.
    """

    def __init__(
        self,
        handed: str | Sequence[str],
        masters: Masters,
        token: str | None,
        fence: int | None,
        of_lease: Mapping[str, Any],
    ) -> None:
        if unknown := of_lease.keys() - ResumeOptions.__annotations__:
            known = ", ".join(ResumeOptions.__annotations__)
            raise TypeError(f"resume() got an unexpected keyword argument {min(unknown)!r}: allowed are {known}")
        names, given, deployment = handed, dict(of_lease), masters._runtime.deployment  # noqa: SLF001 - see `LockBase`
        if token is None:
            if twice := [option for option in _IN_THE_TEXT if option in given] + ["fence"] * (fence is not None):
                raise ConfigurationError(f"{twice[0]}: the text of hand_over() says it, drop this")
            text = Handed.read(handed)
            names, token, fence = text.names, text.token, text.fence
            given |= {option: getattr(text, option) for option in _IN_THE_TEXT}
            if text.prefix != deployment.prefix:
                raise ConfigurationError(
                    f"prefix={deployment.prefix!r}: the lease that was handed over has {options.shown(text.prefix)}"
                )
        self._token, self._fence = options.token(token), options.fence(fence)
        if deployment.records and fence is None:
            raise ConfigurationError("fence=None: masters with confirm_expiry=True need the fence of the lease (R35)")
        super().__init__(names, masters, fencing=fence is not None, **given)

    def _acquire_op(self, hold: Hold[Lease], deadline: float, began: float) -> Op[Grant | Refusal | None]:  # noqa: ARG002
        hold.driver = driver = self._runtime.drivers.get(self._runtime.where())
        spec, settings = self._spec, self._settings
        state = new_state(self._state_class, spec, hold)
        everywhere = frozenset(range(len(settings.masters)))
        now = clock.now()
        # The lease is not shown before masters have confirmed it; until then it is assumed to be valid for as long as
        # possible.
        state.taken_over(Grant(self._token, self._fence, now + spec.ttl, now, everywhere, tuple))
        state.mode, state.hold_at_least = resumed(spec.mode), spec.hold_at_least
        extension = yield from extend(settings, spec, state, spec.ttl, now)
        if extension.kind != "extended" or state.lost:
            raise not_resumed(state, extension)
        state.mode = spec.mode
        self._lease = lease = self._lease_class(state)
        if not hold.enter(lease, state):
            yield from abandon(settings, spec, state)
        elif driver is not None:  # else the masters were closed just now
            driver.keep(settings, spec, state, hold, extension.at)
        return None

    def _conclude_acquire(self, hold: Hold[Lease], outcome: Grant | Refusal | None, began: float) -> None:  # noqa: ARG002
        if (observer := self._settings.observer) is not None:
            observer.extended(hold.state)
