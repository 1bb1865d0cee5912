"""What programs do with the library: written once, for threads and for tasks.

A program is a generator that yields calls.  In a thread a call returns its result; in a task it returns something to
await, and the result of that is sent back.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import sys
import traceback
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from tests.bench.connecting import connector
from tests.bench.judge import ERROR, LIVE
from tests.bench.library import Library
from tests.bench.loop import Loop
from tests.bench.machine import Process
from tests.bench.parameters import USES
from tests.bench.system import System
from tests.bench.wire import Line

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from tests.bench.judge import Hold
    from tests.bench.run import Run

Steps: TypeAlias = "Generator[Callable[[], Any], Any, Any]"
ENDS = "C3 ends in time"
CONNECT = 2.0  # seconds: the first operation waits for connections for so long (R2)


def _resumed(steps: Steps, error: BaseException | None, result: Any) -> Callable[[], Any]:
    return steps.send(result) if error is None else steps.throw(error)


class Threads:
    """The library for threads."""

    threads = True

    def __init__(self, client: Client) -> None:
        self._client = client
        library = client.library
        self.masters: Any = library["_lock.masters_threads"].Masters
        self.sleep: Any = client.system.sleep

    def drive(self, steps: Steps) -> Any:
        result, error = None, None
        while True:
            try:
                call = _resumed(steps, error, result)
            except StopIteration as stop:
                return stop.value
            try:
                result, error = call(), None
            except BaseException as raised:  # noqa: BLE001 - it goes to the program
                error = raised

    def within(self, lock: Any, body: Callable[[Any], Steps]) -> Any:
        with lock as lease:
            return self.drive(body(lease))

    def begin(self, steps: Steps) -> Any:
        """Beside: an object that says whether it is ``done()``."""
        return self._client.process.spawn(partial(self.drive, steps), "user")

    def decorated(self, decorator: Any, body: Callable[[], Steps]) -> Any:
        return decorator(lambda: self.drive(body()))()

    def lead(self, election: Any, body: Callable[[Any, Any], Steps]) -> None:
        for term in election.terms():
            with term:
                self.drive(body(election, term))

    def stand(self, election: Any, body: Callable[[Any], Steps], **options: Any) -> None:
        """`run` of ``election``, without handlers of signals."""
        election.run(lambda term: self.drive(body(term)), signals=(), **options)

    def run(self, lives: list[Steps]) -> None:
        """All users, each in a thread, the first one in this one."""
        process = self._client.process
        others = [process.spawn(partial(self.drive, steps), f"user-{n}") for n, steps in enumerate(lives[1:], 1)]
        self.drive(lives[0])
        for thread in others:
            while not (thread.over or thread.gone):
                thread.joining.append(process.machine._caller())
                process.machine.wait()

    def main(self, program: Steps) -> None:
        self.drive(program)


class Tasks:
    """The library for asyncio."""

    threads = False

    def __init__(self, client: Client) -> None:
        self._client = client
        self.masters: Any = client.library["_lock.masters_async"].AsyncMasters
        self.sleep: Any = asyncio.sleep

    async def drive(self, steps: Steps) -> Any:
        result, error = None, None
        while True:
            try:
                call = _resumed(steps, error, result)
            except StopIteration as stop:
                return stop.value
            try:
                result, error = call(), None
                if inspect.isawaitable(result):
                    result = await result
            except BaseException as raised:  # noqa: BLE001 - it goes to the program
                error = raised

    async def within(self, lock: Any, body: Callable[[Any], Steps]) -> Any:
        async with lock as lease:
            return await self.drive(body(lease))

    async def begin(self, steps: Steps) -> Any:
        return asyncio.create_task(self.drive(steps))

    async def decorated(self, decorator: Any, body: Callable[[], Steps]) -> Any:
        @decorator
        async def function() -> Any:
            return await self.drive(body())

        return await function()

    async def lead(self, election: Any, body: Callable[[Any, Any], Steps]) -> None:
        async for term in election.terms():
            async with term:
                await self.drive(body(election, term))

    async def stand(self, election: Any, body: Callable[[Any], Steps], **options: Any) -> None:
        async def lead(term: Any) -> None:
            await self.drive(body(term))

        await election.run(lead, signals=(), **options)

    async def run(self, lives: list[Steps]) -> None:
        await asyncio.gather(*(self.drive(steps) for steps in lives))

    def main(self, program: Steps) -> None:
        loop = self._client.loop = Loop(self._client.process)
        self._client.loops.append(loop)
        try:
            loop.run_until_complete(self.drive(program))
        finally:
            loop.close()


class Client(Process):
    """One process, and its program."""

    def __init__(self, run: Run, name: str, *, threads: bool, **clocks: float) -> None:
        super().__init__(run.machine, name, seed=run.setting.seed, **clocks)
        setting = run.setting
        self.run, self.judge, self.setting = run, run.judge, setting
        self.process = self
        self.closing = False  # its masters are closed, or about to be
        self.stopping = False  # its users are to come to their ends
        self.stopping_for_good = False
        self.busy_for = 0.0
        self.blocks = False
        self.forks = False  # it is about to
        self.branched = False  # it has just forked under its event loop, and has the masters of its parent
        self.loop: Any = None
        self.loops: list[Any] = []  # that of a parent, too, whose tasks a child never ends
        self.tasks: list[asyncio.Task[Any]] = []
        base = setting.base
        mine = setting.lists[len(run.clients) % len(setting.lists)] if setting.lists else range(len(run.servers))
        self.servers = [run.servers[index] for index in mine]
        near = [
            any(index not in masters for masters in setting.lists) for index in range(len(run.servers))
        ]  # not shared
        self.lines = {
            f"m{server.master.index}:6379": Line(
                self, server, delay=base.delay * run.world.random.uniform(1.0, setting.uneven) / setting.uneven * (0.05 if near[server.master.index] else 1.0),
                slow=base.slow, slowest=2 * base.node_timeout, split=setting.split, window=setting.window,
            )
            for server in self.servers
        }  # fmt: skip
        self.system = System(self, epoll=setting.epoll)
        self.system.connector = connector(self, self.lines)
        self.library = Library(
            self.system, steps=setting.stepped if setting.preempted or base.rate("strike") else (), patches=run.patches
        )
        self.errors: Any = self.library["errors"]
        run.made(self)
        self.kind: Any = Threads(self) if threads else Tasks(self)
        self.preempt(setting.preempted, setting.naps)
        self.asks: str | None = None  # a name that the first user is to take
        self.leavers: list[Any] = []
        self.masters: Any = None
        self.users = [run.user(self, number) for number in range(run.users)]
        self.spawn(self._main, "main")

    # -- the program ---------------------------------------------------------------------------------

    def _main(self) -> None:
        try:
            self.kind.main(self._program())
        finally:
            if not self.dead:
                for hook in reversed(self.at_exit):
                    hook()
                self.exited = True

    def make(self, **options: Any) -> Any:
        """Its masters.  ``options``: instead of those that all processes have."""
        base = self.setting.base
        urls = {f"m{server.master.index}": f"redis://m{server.master.index}" for server in self.servers}
        all_have: dict[str, Any] = {
            "node_timeout": base.node_timeout, "drift_factor": base.drift_factor, "max_ttl": base.max_ttl,
            "restart_guard": base.guard, "fence_ttl": base.fence_ttl, "guard": base.after,
            "confirm_expiry": base.confirm, "observer": self._observe,
        }  # fmt: skip
        # With names a client gives way to others (R34).
        return self.kind.masters(urls if self.setting.lists else list(urls.values()), **(all_have | options))

    def _observe(self, event: Any) -> None:
        self.judge.hears(self, event)

    def _program(self) -> Steps:
        while not self.stopping_for_good:
            if not self.branched:
                self.masters = yield from self._insists(self.make)
            users, self.branched, self.closing = self.users[:1] if self.branched else self.users, False, False
            try:
                yield partial(self.kind.run, [user.life() for user in users])
            finally:
                self.closing = True
            yield lambda: self.kind.sleep(0.0)
            yield from self._insists(self.masters.close)
            while self.kind.threads and not all(leaver.over or leaver.gone for leaver in self.leavers):
                yield lambda: self.kind.sleep(0.01)  # a second call does not wait for the first one
            self.world.log("closed", self)
            self.judge.has_closed(self)
            if not self.dead:
                self.run.closed(self)  # no thread and no socket of the library is there

    def _insists(self, call: Callable[[], Any]) -> Steps:
        """A Ctrl-C that strikes in ``call`` does not end the program: it calls again."""
        while True:
            try:
                return (yield call)
            except KeyboardInterrupt:
                self.judge.interrupted(self)

    @property
    def idle(self) -> bool:
        return all(user.idle for user in self.users)

    def over(self) -> bool:
        """Whether its users are to go home."""
        return self.closing or self.stopping_for_good

    def fork_now(self) -> None:
        """The first user goes on in a child; the others, and what they hold, are not there."""
        self.forks = False
        self.world.log("forks", self)
        self.judge.forks(self)
        for user in self.users[1:]:  # before a Ctrl-C may strike, in the hook
            user.idle = True
        self.fork(hooks=self.chance.random() < 0.5)
        if not self.kind.threads:
            self._branch()

    def _branch(self) -> None:
        """The child runs a loop of its own, where that of its parent has stopped, and never goes back there."""
        asyncio._set_running_loop(None)
        sys.set_asyncgen_hooks(None, None)  # nor keeps those of its parent: the collector would not see them
        self.branched, thread = True, self.machine._caller()
        for user in self.users:
            user.task = None
        self._main()
        thread.gone = True
        self.machine.hub.switch()

    @property
    def longest_way(self) -> float:
        """Seconds from here to any master, where nothing goes wrong."""
        return max(line.longest_delay for line in self.lines.values())

    def leave(self) -> None:
        """The program closes its masters, whatever is under way."""
        self.closing = True
        masters = self.masters
        if self.kind.threads:
            self.leavers.append(self.spawn(masters.close, "leaver"))
        else:
            self.loop.call_soon_threadsafe(lambda: self.leavers.append(self.loop.create_task(masters.close())))

    def main_died(self) -> None:
        for thread in self.died:
            error = thread.error
            assert error is not None
            self.judge.fail(ERROR, f"{thread} ended with {error!r}\n{''.join(traceback.format_exception(error))}")


class User:
    """One user: it thinks, wants a lock, has it for a while, and begins anew."""

    def __init__(self, client: Client, number: int) -> None:
        self.client = client
        self.number = number
        self.chance = client.chance
        self.idle = True
        self.task: asyncio.Task[Any] | None = None
        self.uses, self.inside = 0, False  # ... it may be inside once more than it knows, after two Ctrl-C

    def __repr__(self) -> str:
        return f"{self.client.name}.u{self.number}"

    def life(self) -> Steps:
        client, base = self.client, self.client.setting.base
        while not client.over():
            try:
                while client.stopping and not client.over():
                    self.idle = True
                    if client.asks is not None and self.number == 0:
                        yield from self._guarded(self._asked(client.asks))
                    yield lambda: client.kind.sleep(0.2)
                if client.over():
                    break
                self.idle = False
                if client.forks and self.number == 0:
                    client.fork_now()
                think = self.chance.choice((0.0, 0.02, 0.2)) * self.chance.random() * base.ttl
                yield partial(client.kind.sleep, think)
                yield from self._guarded(self._use())
                if self.number == 0:
                    client.judge.came_out(client)
            except KeyboardInterrupt:
                client.world.log("interrupted", self)
                client.judge.interrupted(client)
        self.idle = True

    def _guarded(self, use: Steps) -> Steps:
        """``use``, in a task of its own that may be cancelled; errors that belong to it end it."""
        client, errors = self.client, self.client.errors
        try:
            if client.kind.threads:
                yield from use
            else:
                self.task = client.loop.create_task(client.kind.drive(use))
                task = self.task
                yield lambda: asyncio.wait([task])
                self.task = None
                if not task.cancelled():
                    task.result()
        except errors.RedlockError as error:
            self._passes(error)

    def _in_time(self, began: float, stalled: float, timeout: float) -> None:
        """An acquire has ended: no later than it may (C3)."""
        client, base = self.client, self.client.setting.base
        most = timeout + 20 * base.node_timeout + CONNECT + client.judge.slack(client) + client.stalled - stalled
        slower = 1.2 if base.rate("slew") else 1 + base.drift_factor
        if (took := client.world.now - began) > most * slower:
            client.judge.fail(ENDS, f"an acquire by {self} took {took:.3f} s, at most {most:.3f} s are right")

    def _passes(self, error: Any) -> None:
        client, name = self.client, type(error).__name__
        client.judge.refuses(client, error)
        client.world.log("error", self, name, str(error)[:80])
        if name == "ConfigurationError" or (name == "RedlockError" and not client.closing):
            client.judge.fail(ERROR, f"{self} got {error!r}")
        if name in ("QuorumUnreachable", "NotExtended") and client.setting.calm and not client.setting.lists:
            client.judge.fail(ERROR, f"{self} got {error!r}, and nothing goes wrong")

    def _asked(self, name: str) -> Steps:
        """All is well, and nobody else is there: it gets the name."""
        client, base, began = self.client, self.client.setting.base, self.client.world.now
        lock = client.masters.lock(name, ttl=base.ttl, **self._told({}))
        lease = yield lambda: lock.acquire(timeout=base.free_after + 1.0)
        if lease is None:
            client.judge.fail(LIVE, f"{self} did not get {name}")
        hold = client.judge.given(client, lease, began, None, True)
        yield lambda: client.kind.sleep(0.4 * base.ttl)
        client.judge.whole(hold)
        client.judge.ended(hold)
        yield lock.release
        client.judge.back(hold, ours=True)
        client.asks = None

    # -- one use -------------------------------------------------------------------------------------

    def _use(self) -> Steps:
        self.uses += 1
        owner = f"{self} {self.uses}"
        try:
            yield from self._use_as(owner)
        finally:
            if not self.client.dead:
                self.client.judge.is_over(self.client, owner)

    def _use_as(self, owner: str) -> Steps:
        client, chance, base = self.client, self.chance, self.client.setting.base
        name = f"lock-{chance.randrange(base.names)}"
        ttl = base.ttl
        options: dict[str, Any] = {"ttl": ttl, "owner": owner, "auto_extend": chance.random() < 0.8}
        if chance.random() < 0.15:
            options["max_hold"] = chance.uniform(0.3, 2.0) * ttl
        timeout = chance.choice((0.0, 0.3 * ttl, 3 * ttl, 3 * ttl))
        how = chance.choice(
            client.setting.uses if client.setting.uses and chance.random() < 0.5 else client.setting.hows
        )
        if how in USES:
            yield from getattr(self, f"_{how}")(name, options, timeout)
        elif how == "leader":
            terms: list[Hold] = []
            term = partial(self._term, terms, client.world.now)
            try:
                yield lambda: client.kind.lead(client.masters.leader("leader", ttl=ttl), term)
            except (client.errors.RedlockError, KeyboardInterrupt):
                client.judge.keeps(terms)
                raise
        elif how == "slots" and base.slots:
            yield from self._slots(name, options, timeout)
        elif how == "hand":
            yield from self._by_hand(client.masters.lock(name, **self._told(options)), options, timeout)
        else:
            options["shared"] = how == "shared"
            yield from self._within(client.masters.lock(name, timeout=timeout, **self._told(options)), options, timeout)

    def _slots(self, _: str, options: dict[str, Any], timeout: float) -> Steps:
        masters, limit = self.client.masters, self.client.setting.base.slots
        slot = masters.slots("group", limit=limit, timeout=timeout, **self._told(options))
        yield from self._within(slot, options, timeout)

    def _dropped(self, name: str, options: dict[str, Any], timeout: float) -> Steps:
        """Its coroutine is thrown away while it waits, and the collector ends it, in whatever thread that runs."""
        client = self.client
        if client.kind.threads:
            return
        coroutine = (lock := client.masters.lock(name, **options)).acquire(timeout=timeout)

        def begins() -> Any:
            try:
                coroutine.send(None)
            except StopIteration as stop:  # at once: the process stood still in there
                return lock.release() if stop.value else False
            return True

        if not (yield begins):
            return
        try:
            yield partial(client.kind.sleep, self.chance.random() * self.chance.choice((2, 4)) * client.longest_way)
        finally:  # a user that is cancelled meanwhile drops it as well
            client.judge.drops(client, options["owner"])
            thread = None if client.dead else client.spawn(coroutine.close, "collector")
        while thread is not None and not (thread.over or thread.gone):
            yield partial(client.kind.sleep, client.longest_way)

    def _fair(self, name: str, options: dict[str, Any], timeout: float) -> Steps:
        """It waits in order (R42)."""
        lock = self.client.masters.lock(name, timeout=timeout, fair=True, **self._told(options))
        yield from self._within(lock, options, timeout)

    def _period(self, name: str, options: dict[str, Any], timeout: float) -> Steps:
        """A decorated function, which others do not run for a while after it began (R28, R30)."""
        client, began, stalled = self.client, self.client.world.now, self.client.stalled
        options = self._told({**options, "hold_at_least": (at_least := self.chance.random() * client.setting.base.ttl)})
        given: list[Hold] = []

        def body() -> Steps:
            self._in_time(began, stalled, timeout)
            lock = client.masters.lock(name, **options)
            lease = yield lambda: lock.acquire(timeout=0)  # it re-enters, to know its lease
            given.append(
                client.judge.given(client, lease, began, options.get("max_hold"), options["auto_extend"], at_least)
            )
            try:
                yield from self._hold(lock, given[0])
            finally:
                if not client.dead:
                    client.judge.ended(given[0])
                    raised = sys.exc_info()[1]
                    try:
                        yield lock.release
                    except (KeyboardInterrupt, client.errors.RedlockError) as error:  # perhaps before it did anything
                        yield from self._let_go(lock)
                        raise (raised if isinstance(raised, KeyboardInterrupt) else error) from None

        decorator = client.masters.synchronized(lambda: name, on_busy="skip", timeout=timeout, **options)
        try:
            yield lambda: client.kind.decorated(decorator, body)
        except KeyboardInterrupt:
            client.judge.keeps(given)
            raise
        except client.errors.RedlockError:
            if given:
                client.judge.back(given[0], ours=False)
            raise
        if given:
            client.judge.back(given[0], ours=True)

    def _term(self, terms: list[Hold], began: float, election: Any, term: Any) -> Steps:
        """The body of a term; the first one is the last."""
        judge, client = self.client.judge, self.client
        hold = judge.given(client, term.lease, began, None, False)
        hold.normal = True  # nobody has asked to be told
        terms.append(hold)
        try:
            until = client.clock() + self.chance.random() * client.setting.base.ttl
            while client.clock() < until and not (term.should_stop or client.stopping or client.over()):
                yield partial(client.kind.sleep, 0.05 * client.setting.base.ttl)
        finally:
            if not client.dead:
                judge.ended(hold)
                election.stop()

    def _told(self, options: dict[str, Any]) -> dict[str, Any]:
        """... and told of its loss."""
        return {**options, "on_lost": self._is_told}

    def _is_told(self, lease: Any) -> None:
        attempt = self.client.judge._by_token.get(lease.token)
        if attempt is not None and attempt.hold is not None:
            self.client.judge.told(attempt.hold)

    def _within(self, lock: Any, options: dict[str, Any], timeout: float) -> Steps:
        client, began, stalled = self.client, self.client.world.now, self.client.stalled
        given: list[Hold] = []
        outlived: list[Hold] = []  # a release of closed masters is refused, also if a Ctrl-C strikes before it is

        def body(lease: Any) -> Steps:
            hold = client.judge.given(client, lease, began, options.get("max_hold"), options["auto_extend"])
            given.append(hold)
            self._in_time(began, stalled, timeout)
            try:
                yield from self._hold(lock, hold)
            finally:
                if not client.dead:
                    client.judge.ended(hold)
                    outlived.extend([hold] * client.closing)

        try:
            yield lambda: client.kind.within(lock, body)
        except KeyboardInterrupt:
            yield from (self._let_go(lock) if self.inside else ())
            client.judge.keeps(outlived)
            raise
        except client.errors.RedlockError:
            if given:
                client.judge.back(given[0], ours=False)
            else:
                self._in_time(began, stalled, timeout)
            raise
        if given:
            client.judge.back(given[0], ours=True)

    def _by_hand(self, lock: Any, options: dict[str, Any], timeout: float) -> Steps:
        client, began, stalled = self.client, self.client.world.now, self.client.stalled
        try:
            lease = yield lambda: lock.acquire(timeout=timeout)
            self._in_time(began, stalled, timeout)
        except KeyboardInterrupt:
            # It may have struck between the grant and us: then the lock is held, and can be released.
            yield from self._let_go(lock)
            raise
        if lease is None:
            client.world.log("held", self)
            return
        hold = client.judge.given(client, lease, began, options.get("max_hold"), options["auto_extend"])
        try:
            yield from self._hold(lock, hold)
        finally:
            if not client.dead:
                client.judge.ended(hold)
                released_at, closed, body = client.world.now, client.closing, sys.exc_info()[1]
                try:
                    yield lock.release
                    yield from (self._let_go(lock) if self.inside else ())
                    client.judge.back(hold, ours=True)
                    if not client.closing:
                        client.judge.took(client, client.world.now - released_at, "a release")
                except client.errors.RedlockError as error:
                    client.judge.back(hold, ours=False)
                    raise (body if isinstance(body, KeyboardInterrupt) else error) from None
                except KeyboardInterrupt:
                    yield from self._let_go(lock)
                    if closed:  # it would have been refused, as that of any lease which outlives its masters
                        client.judge.keeps([hold])
                    raise

    def _let_go(self, lock: Any) -> Steps:
        """A Ctrl-C has struck, and another one may strike where the first one is handled."""
        while lock.owned():
            with contextlib.suppress(KeyboardInterrupt):
                yield lock.release
        self.inside = False

    def _hold(self, lock: Any, hold: Hold) -> Steps:
        """Work for a while, as long as the lease is valid."""
        client, chance, base = self.client, self.chance, self.client.setting.base
        lasts = chance.choice((0.0, 0.05, 0.4, client.setting.longest)) * chance.random() * base.ttl
        until = client.clock() + lasts
        while (left := until - client.clock()) > 0 and not client.stopping and not client.closing:
            client.judge.looked(hold)
            if not hold.valid():
                return
            roll = chance.random()
            if roll < 0.1:
                yield from self._extends(lock)
            elif roll < 0.15 and type(lock).__name__.endswith("MultiLock"):
                try:
                    again = yield lambda: lock.acquire(timeout=0)  # it re-enters
                    if again is not None:
                        yield lock.release
                except KeyboardInterrupt:
                    self.inside = True  # perhaps, once more than it knows
                    raise
            else:
                yield lambda: client.kind.sleep(min(left, 0.2 * base.ttl))
            if client.busy_for:
                blocked, client.busy_for = client.busy_for, 0.0
                client.blocks = not client.kind.threads  # nothing else of its loop runs meanwhile
                client.machine.pause(blocked)
                client.stalled += blocked
                client.blocks, client.resumed_at = False, client.clock()

    def _extends(self, lock: Any) -> Steps:
        """Who is interrupted in this goes on with what it holds.  Tasks are, now and then."""
        client, task, timer = self.client, None, None
        if not client.kind.threads:
            task = asyncio.current_task()
            assert task is not None
            timer = client.loop.call_later(2 * self.chance.random() * client.longest_way, task.cancel)
        try:
            yield lock.extend
        except asyncio.CancelledError:
            getattr(task, "uncancel", int)()
        except KeyboardInterrupt:
            client.judge.interrupted(client)
        finally:
            if timer is not None:
                timer.cancel()
