# Made from redlock/_lock/masters_async.py by tools/unasync.py: change that file, then run `make faces`.
"""The masters of one deployment, for threads."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, Self, TypeVar, Unpack, overload

from redlock._core.inspect import LockStatus, known
from redlock._io.driver_threads import Driver
from redlock._lock import decorated
from redlock._lock.holds_threads import ThreadHoldings
from redlock._lock.masters import MastersBase, was_free
from redlock._lock.naming import names_for
from redlock.errors import NotAcquired, RedlockError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from types import TracebackType

    from redlock._core.listing import Listing
    from redlock._core.watch import Watch
    from redlock._health.result import Health
    from redlock._lock.election_threads import Election
    from redlock._lock.lock_threads import MultiLock, MultiLockOptions
    from redlock._lock.naming import Naming
    from redlock._lock.resume_threads import ResumeOptions
    from redlock._lock.slots_threads import Slots, SlotsOptions
    from redlock._lock.typed import ElectionOptions

B = TypeVar("B")
P = ParamSpec("P")
R = TypeVar("R")


class Masters(MastersBase[Driver]):
    """N independent Redis masters, one connection to each, shared by many locks and threads.

    Nothing is sent before the first operation.  That begins to connect, which goes on in the background.  A forked
    child makes connections of its own, and neither holds nor releases what its parent holds.  With asyncio several
    event loops may use one object, one after the other or at once in several threads.  Each has connections of its own;
    connections of a closed loop are closed when another loop comes.  `close` closes them.
    """

    _driver_class = Driver
    _own_class = ThreadHoldings

    @staticmethod
    def _import() -> None:
        from redlock._core import listing, watch  # noqa: F401, PLC0415
        from redlock._core.fair import target  # noqa: F401, PLC0415
        from redlock._health import checkup, verdict  # noqa: F401, PLC0415
        from redlock._lock import election_threads, resume_threads, slots_threads  # noqa: F401, PLC0415

    def lock(self, name: str | Sequence[str], **options: Unpack[MultiLockOptions]) -> MultiLock:
        """Make a lock: the same as ``MultiLock(name, masters, **options)``."""
        from redlock._lock.lock_threads import MultiLock  # noqa: PLC0415 - the two modules need each other

        return MultiLock(name, self, **options)

    def resume(
        self,
        handed: str | Sequence[str],
        *,
        token: str | None = None,
        fence: int | None = None,
        **options: Unpack[ResumeOptions],
    ) -> MultiLock:
        """Go on with the lease of another process, which ended it there with `Lease.hand_over` (R46).

        Returns a lock; nothing is sent.  ``with masters.resume(handed) as lease``, or `MultiLock.acquire`,
        extends the lease at once, in one round without waiting.  From then on it is a lease as any other.

        The text or the token is all that it takes to release the lock, so keep it as a password.  Nothing keeps two
        processes that resume it apart: the first release ends it, and the other one learns of that at its next renewal.

        Args:
            handed: what `Lease.hand_over` returned.  With ``token`` the name of the lock, or its names.
            token: the `Lease.token`, if that came another way.  It says neither ``shared`` nor ``ttl``, ``guard``
                and what is left of ``hold_at_least``, so these are options then, the same as of the first lock.
            fence: the `Lease.fence` with it.  None: no fence key is touched (C14).
            options: ``auto_extend``, ``max_hold``, ``bound``, ``on_lost``, ``cancel_on_loss``: as of `MultiLock`.

        Raises:
            ConfigurationError: the text is not all of what `Lease.hand_over` returned, or of masters with another
                prefix; or an option cannot be right.  When the lease is extended: a majority knows the token in another
                mode (``shared``), or has it on record (``confirm_expiry``).
            TypeError: there is no such option.
            LockLost: from its extensions: a majority of masters denied it.  It has expired, was released or is taken.
            QuorumUnreachable: from the first of them: too few masters answered to tell.  Try again until its TTL ends.
        """
        from redlock._lock.resume_threads import Resumed  # noqa: PLC0415 - as above

        return Resumed(handed, self, token, fence, options)

    @overload
    def synchronized(
        self, name: Naming, *, on_busy: Literal["wait", "raise"] = "wait", **options: Unpack[MultiLockOptions]
    ) -> Callable[[Callable[P, R]], Callable[P, R]]: ...

    @overload
    def synchronized(
        self, name: Naming, *, on_busy: Literal["skip"], busy: None = None, **options: Unpack[MultiLockOptions]
    ) -> Callable[[Callable[P, R]], Callable[P, R | None]]: ...

    @overload
    def synchronized(
        self, name: Naming, *, on_busy: Literal["skip"], busy: B, **options: Unpack[MultiLockOptions]
    ) -> Callable[[Callable[P, R]], Callable[P, R | B]]: ...

    def synchronized(
        self,
        name: Naming,
        *,
        on_busy: Literal["wait", "raise", "skip"] = "wait",
        busy: Any = None,
        **options: Unpack[MultiLockOptions],
    ) -> Callable[..., Any]:
        """Decorate functions: each call holds a lock that is named by its arguments (R30).

        A template is filled in with the arguments of the call, defaults included: ``"invoice:{invoice.id}"``.  A
        function in place of it is called with the same arguments, and returns a name or several.  Each call makes a
        lock of its own.  `lock` as a decorator takes its name as it is.

        Args:
            name: the template, or the function.  No value may be empty or None, or have control characters or braces.
            on_busy: what a call does if another client has the lock.  ``"wait"`` waits, as ``with`` does.
                ``"raise"`` raises `NotAcquired`.  ``"skip"`` returns ``busy``, and the function is not called.
            busy: see ``on_busy``.
            options: those of `MultiLock`.  With ``"raise"`` and ``"skip"`` the ``timeout`` is 0 unless given.

        Raises:
            ConfigurationError: an option or the template cannot be right, or the function cannot be decorated
                (`MultiLock.__call__`).  Where it is called: a value makes no name.
        """
        of_lock = decorated.lock_options(on_busy, busy, options)
        self.lock("any", **of_lock)  # checks the options

        def decorate(function: Callable[P, R]) -> Callable[P, R]:
            decorated.check_called(function, "AsyncMasters")
            names = names_for(name, function)

            @functools.wraps(function)
            def locked(*args: P.args, **kwargs: P.kwargs) -> R:
                lock = self.lock(names(args, kwargs), **of_lock)
                entered = False
                try:
                    with lock:
                        entered = True
                        return function(*args, **kwargs)
                except NotAcquired:
                    if entered or on_busy != "skip":  # entered: the error comes from the body
                        raise
                    skipped: R = busy
                    return skipped

            return locked

        return decorate

    def slots(self, name: str, *, limit: int, **options: Unpack[SlotsOptions]) -> Slots:
        """Make slots (R32), at most ``limit`` holders at once: ``Slots(name, masters, limit=limit, …)``."""
        from redlock._lock.slots_threads import Slots  # noqa: PLC0415 - as above

        return Slots(name, self, limit=limit, **options)

    def leader(self, name: str, **options: Unpack[ElectionOptions]) -> Election:
        """One candidate of the election ``name`` (R31); see `Election` for the options.  Nothing is sent."""
        from redlock._lock.election_threads import Election  # noqa: PLC0415 - as above

        return Election(name, self, **options)

    def status(self, name: str) -> LockStatus:
        """Who holds ``name`` now, for how many seconds yet, and its fence.

        It takes at most `node_timeout`.  The first operation, and in threads the first one after a Ctrl-C in another
        one, also waits for connections, at most `connect_timeout` (R2).

        Raises:
            QuorumUnreachable: too few masters answered to know; its votes are what they said.
        """
        return known(*self._runtime.run(self._runtime.deployment.status_op(name)))

    def held(self, match: str = "*") -> Iterator[LockStatus]:
        """All locks that are held, as `status` shows each of them (R29).  ``match``: a pattern for their names.

        The pattern knows ``*``, ``?``, ``[a-z]`` and a backslash before what is meant literally.

        It is no snapshot: a lock that is acquired or released during the search may be listed or not; one that is held
        all the time is listed once.  There is no order.  A name that only a minority has is listed without a token.

        Each master walks through all keys of its database, in small steps: with a million keys that takes seconds.  The
        user needs the right to ``SCAN`` (``+scan``).  Names that end with ``:fence`` or ``:grant`` behind a hash tag
        are left out: they look like keys that belong to a lock.

        Raises:
            ConfigurationError: ``match`` is no pattern.
            QuorumUnreachable: while it goes on: too few masters answer, or allow it.
        """
        return self._listed(self._runtime.deployment.listing(match))

    def _listed(self, listing: Listing) -> Iterator[LockStatus]:
        while (found := self._runtime.run(listing.more())) is not None:
            yield from found

    def watch(self, name: str) -> Iterator[LockStatus]:
        """Who holds ``name``, now and whenever that changes, as `status` shows it (R41).

        An iterator without an end.  The first state comes at once; each further one when it differs from the last.  It
        is the newest state: one that ended before the program asked is not shown.  By the order of the fences, it never
        goes back to an earlier holder.  It waits through outages.

        A release is seen at once, and the end of a TTL when it comes; grants and lost messages within five seconds.  It
        is no proof: to do something only while you lead or hold a lock, hold it.

        Raises:
            ConfigurationError: ``name`` cannot be right.
            QuorumUnreachable: no majority is left without masters that refuse for a reason that waiting cannot cure
                (a wrong password).
            RedlockError: the masters were closed before it began.  If they are closed later, it ends.
        """
        return self._watched(self._runtime.deployment.watch(name))

    def _watched(self, watch: Watch) -> Iterator[LockStatus]:
        while True:
            try:
                status = self._runtime.run(watch.more())
            except RedlockError:
                if self._runtime.closed and watch.begun:
                    return
                raise
            yield status

    def wait_until_free(self, name: str | Sequence[str], timeout: float = -1.0) -> bool:
        """Wait until ``name`` is free, and take nothing.

        True: a majority of masters had no holder for the name, each at some moment between the call and the return.  So
        no lease lasted all that time; another may have it since.  False: it was not seen free before the timeout.
        Several names all have to be free when it looks.  A holder of the name does not see it free.  A release wakes
        it; if messages are lost it takes longer, by five seconds at most.

        Args:
            name: one name, or a sequence of names.
            timeout: seconds; negative waits for ever, 0 looks once.  The last look comes at the end of that time, and
                takes at most `node_timeout` for each name.  The very first operation also waits, as a `status` does.

        Raises:
            QuorumUnreachable: too few masters answered the last look.  Or no majority is left without those that
                refuse for a reason that waiting cannot cure (a wrong password).
            ConfigurationError: a name or the timeout cannot be right.
            RedlockError: the masters were closed.
        """
        return was_free(*self._runtime.run(self._runtime.deployment.free_op(name, timeout)))

    def check(self, *, timeout: float = 3.0, probe: bool = True) -> Health:
        """Whether a quorum is there, and whether it is safe: what `redlock-check` prints.

        It asks all masters at once, over connections of its own, acquires and releases a lock on a throw-away name, and
        looks at the connections for locks.  Faults of the masters are not raised: they are in the result.

        Args:
            timeout: the most seconds that it takes, however many masters hang.
            probe: False: no lock is taken, and nothing at all is written.
        """
        lock = functools.partial(self.lock, **self._probe_options()) if probe else None
        checkup = functools.partial(self._checkup, timeout)

        return checkup(None, lock).run()

    def close(self) -> None:
        """Close all connections, and leave no thread and no socket.

        First the operations under way end, and owed releases are sent for at most `node_timeout`.  A thread that is
        acquiring gets a `RedlockError`, and leaves no key behind.  Leases that are held are not released: their keys
        expire with their TTL.  Connections of other event loops are closed as soon as these run.  If an observer calls
        this, the thread in which it was called may go on until it returns.
        """
        self._runtime.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
