"""The scheduler runs where the leader is, with the real APScheduler."""

import asyncio
import contextlib
import threading
from datetime import UTC, datetime, timedelta
from queue import SimpleQueue

import pytest
from apscheduler.jobstores.redis import RedisJobStore
from apscheduler.schedulers.asyncio import AsyncIOScheduler
from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.schedulers.base import STATE_PAUSED, STATE_RUNNING
from apscheduler.schedulers.blocking import BlockingScheduler

from redlock import AsyncMasters, ConfigurationError, Masters
from redlock.adapters.apscheduler import AsyncWhileLeading, WhileLeading
from tests.adapters import jobs
from tests.servers.look import each, eventually
from tests.servers.process import run, soon

OFTEN = {"trigger": "interval", "seconds": 0.05, "misfire_grace_time": None, "coalesce": True}


@contextlib.contextmanager
def candidate(servers, scheduler, **options):
    """Runs the election in a thread, with `Masters` of its own.  At the end it is stopped."""
    with Masters(servers.urls, restart_guard=False) as masters:
        election = masters.leader("scheduler", **options)

        def run():
            with WhileLeading(scheduler) as lead:
                election.run(lead)

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield election
        finally:
            election.stop()
            thread.join()


def lose(servers):
    """Somebody else has the lock, for a moment."""
    each(servers, "set", "redlock:scheduler", "f" * 40, px=300)


def test_jobs_run_where_the_leader_is_and_nowhere_else(servers):
    ran: SimpleQueue[str] = SimpleQueue()
    first, second = BackgroundScheduler(), BackgroundScheduler()
    first.add_job(ran.put, args=["first"], **OFTEN)
    second.add_job(ran.put, args=["second"], **OFTEN)
    with candidate(servers, first) as election:
        assert ran.get(timeout=20) == "first"
        with candidate(servers, second) as other:
            assert [ran.get(timeout=20) for _ in range(5)] == ["first"] * 5
            election.stop()
            eventually(lambda: other.term)
            assert first.state != STATE_RUNNING
            while not ran.empty():
                ran.get()
            assert [ran.get(timeout=20) for _ in range(5)] == ["second"] * 5
    assert not first.running
    assert not second.running


def test_the_lock_is_given_back_when_the_last_job_has_ended(servers):
    begun, go_on = threading.Event(), threading.Event()
    numbers = []

    def job():
        numbers.append(election.term.number)
        begun.set()
        go_on.wait(20)
        numbers.append(election.term.number)

    scheduler = BackgroundScheduler()
    scheduler.add_job(job)
    with candidate(servers, scheduler) as election, Masters(servers.urls, restart_guard=False) as others:
        assert begun.wait(20)
        election.stop()
        eventually(lambda: scheduler.state == STATE_PAUSED)
        assert others.status("scheduler").token
        go_on.set()
        assert others.wait_until_free("scheduler", 20)
    assert numbers[0] == numbers[1]


def test_a_job_never_sees_a_later_term_than_its_own(servers):
    """The next campaign begins when the jobs of a lost term have ended."""
    begun: SimpleQueue[int] = SimpleQueue()
    go_on = threading.Event()
    seen: list[object] = []

    def job():
        begun.put(election.term.number)
        if not seen:
            eventually(lambda: election.term is None)
            go_on.wait(20)
            seen.append(election.term)

    scheduler = BackgroundScheduler()
    scheduler.add_job(job, **OFTEN)
    with Masters(servers.urls, restart_guard=False) as others, candidate(servers, scheduler, ttl=1) as election:
        number = begun.get(timeout=20)
        lose(servers)
        with others.lock("scheduler", timeout=20, hold_at_least=1):
            go_on.set()
            eventually(lambda: seen)
        assert seen == [None]
        assert begun.get(timeout=20) > number  # the scheduler was resumed


class Hasty(BackgroundScheduler):  # type: ignore[misc]
    """Looks for due jobs before anybody can pause it again, as its thread may after the process was frozen."""

    def start(self, *args, **options):
        super().start(*args, **options)
        self._process_jobs()


def test_no_job_begins_after_the_end_of_the_term(servers):
    ran: list[str] = []
    scheduler = Hasty()
    scheduler.add_job(ran.append, args=["job"], misfire_grace_time=None)
    with Masters(servers.urls, restart_guard=False) as masters, WhileLeading(scheduler) as lead:
        for term in masters.leader("scheduler", ttl=1).terms():
            with term:
                lose(servers)
                assert term.wait_lost(20)
                lead(term)
            break
    assert ran == []


def test_what_was_due_before_the_term_is_skipped(servers):
    """A store in memory does not know that another one has done it."""
    ran: SimpleQueue[str] = SimpleQueue()
    past = datetime.now(UTC) - timedelta(minutes=10)
    scheduler = BackgroundScheduler()
    options = {"next_run_time": past, "misfire_grace_time": None}
    hourly = scheduler.add_job(ran.put, "interval", args=["hourly"], hours=1, **options)
    once = scheduler.add_job(ran.put, "date", args=["once"], run_date=past, **options)
    off = scheduler.add_job(ran.put, "interval", args=["off"], hours=1, next_run_time=None)
    scheduler.add_job(ran.put, args=["often"], **OFTEN)
    scheduler.start(paused=True)
    with candidate(servers, scheduler):
        assert [ran.get(timeout=20) for _ in range(3)] == ["often"] * 3
        assert hourly.next_run_time > datetime.now(UTC)
        assert scheduler.get_job(once.id) is None
        assert off.next_run_time is None


def test_a_shared_store_goes_on_where_it_was(servers):
    store = RedisJobStore(host="127.0.0.1", port=servers.ports[0])
    scheduler = BackgroundScheduler(jobstores={"default": store})
    past = datetime.now(UTC) - timedelta(minutes=10)
    job = scheduler.add_job(jobs.late, "interval", hours=1, next_run_time=past, misfire_grace_time=None)
    scheduler.start(paused=True)
    with candidate(servers, scheduler):
        assert jobs.begun.get(timeout=20) == "late"
        job.remove()


def test_a_scheduler_that_runs_already_waits_for_its_first_term(servers):
    ran: SimpleQueue[str] = SimpleQueue()
    scheduler = Hasty()
    scheduler.add_job(ran.put, args=["job"], **OFTEN)
    with WhileLeading(scheduler) as lead, Masters(servers.urls, restart_guard=False) as masters:
        scheduler.start()
        assert ran.empty()
        election = masters.leader("scheduler")
        thread = threading.Thread(target=election.run, args=[lead])
        thread.start()
        assert ran.get(timeout=20) == "job"
        election.stop()
        thread.join()


@pytest.mark.parametrize(("scheduler", "adapter", "allowed"), [
    (BlockingScheduler, WhileLeading, "BackgroundScheduler"),
    (BlockingScheduler, AsyncWhileLeading, "AsyncIOScheduler or BackgroundScheduler"),
    (AsyncIOScheduler, WhileLeading, "BackgroundScheduler"),
    (dict, WhileLeading, "BackgroundScheduler"),
])  # fmt: skip
def test_what_is_no_scheduler_for_it(scheduler, adapter, allowed):
    with pytest.raises(ConfigurationError, match=f"is a {scheduler.__name__}: allowed is a {allowed}$"):
        adapter(scheduler())


def test_one_scheduler_is_led_once():
    scheduler = BackgroundScheduler()
    with WhileLeading(scheduler), pytest.raises(ConfigurationError, match="led already"):
        WhileLeading(scheduler)
    with WhileLeading(scheduler):
        pass


@pytest.mark.parametrize("kind", [AsyncIOScheduler, BackgroundScheduler])
async def test_asyncio(servers, kind):
    """Jobs run in a term, the last one is awaited, and nothing is left."""
    begun: asyncio.Queue[int] = asyncio.Queue()
    loop = asyncio.get_running_loop()
    go_on = threading.Event()

    def job():
        term = election.term
        assert term is not None
        loop.call_soon_threadsafe(begun.put_nowait, term.number)
        go_on.wait(20)

    scheduler = kind()
    scheduler.add_job(job)
    async with AsyncMasters(servers.urls, restart_guard=False) as masters:
        election = masters.leader("scheduler")

        async def run():
            async with AsyncWhileLeading(scheduler) as lead:
                await election.run(lead, signals=())

        task = asyncio.create_task(run())
        async with asyncio.timeout(20):
            number = await begun.get()
            election.stop()
            await soon(lambda: scheduler.state == STATE_PAUSED)
            assert (await masters.status("scheduler")).fence == number
            assert (await masters.status("scheduler")).token
            go_on.set()
            await task
        assert not scheduler.running
        assert (await masters.status("scheduler")).token is None
    assert asyncio.all_tasks() == {asyncio.current_task()}


EXITS = """
import sys, threading, time
from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.schedulers.base import STATE_PAUSED
from redlock import Masters
from redlock.adapters.apscheduler import WhileLeading
from redlock.adapters.wsgi import in_background

began = threading.Event()
scheduler = BackgroundScheduler()

@scheduler.scheduled_job("date")
def long():
    began.set()
    until = time.monotonic() + 20
    while scheduler.state != STATE_PAUSED and time.monotonic() < until:
        time.sleep(0.01)
    print(election.term is not None, scheduler.state == STATE_PAUSED)

scheduler.add_job(int, "interval", seconds=0.05)
election = Masters(sys.argv[1:], restart_guard=False).leader("scheduler", ttl=60)
in_background(election, WhileLeading(scheduler))
assert began.wait(20)
"""


def test_at_exit_it_is_paused_before_its_pool_ends(servers, tmp_path):
    done = run("-c", EXITS, *servers.urls, cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "True True\n", "")
