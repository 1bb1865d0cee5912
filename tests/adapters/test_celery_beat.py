"""The beat of Celery: who leads sends, and each fire is sent once.

The scheduler is the real one, in this process.  Its entries have fires in the past: so nothing waits for a clock.
"""

import contextlib
import gc
import os
import signal
import threading
import time
from datetime import UTC, datetime, timedelta

import pytest

from redlock import ConfigurationError, Masters
from tests.servers.interrupt import Interrupt, at_every_line
from tests.servers.look import each, eventually, no_thread_besides, pause, resume

pytest.importorskip("celery")

from celery import Celery, signals
from celery.schedules import crontab, schedule

from redlock.adapters import celery
from redlock.adapters.celery import LeaderScheduler

MAX_TTL = 600.0
OLDEST = MAX_TTL / 2
TASK = "tests.job"


def ago(seconds):
    return datetime.now(UTC) - timedelta(seconds=seconds)


def every(seconds, last):
    """An entry whose fires began so many seconds ago."""
    return {"task": TASK, "schedule": schedule(seconds), "last_run_at": ago(last)}


class Beat:
    """A beat that ticks when the test says so."""

    def __init__(self, urls, folder, entries, *, max_ttl=MAX_TTL, owner=None, confirms=False, **settings):
        self.masters = Masters(urls, restart_guard=False, max_ttl=max_ttl, owner=owner, confirm_expiry=confirms)
        self.app = Celery("tests", broker="memory://")
        self.app.conf.update(redlock_masters=self.masters, beat_schedule=entries, timezone="Asia/Kathmandu")
        self.app.conf.update(settings)
        try:
            self.scheduler = LeaderScheduler(app=self.app, schedule_filename=str(folder / f"schedule-{id(self)}"))
        except BaseException:
            self.masters.close()
            raise

    def tick(self):
        return self.scheduler.tick()

    def until_leading(self):
        """Tick once while leading: that sends one fire at most."""
        while self.scheduler._term is None:
            time.sleep(min(0.01, self.tick()))

    def catch_up(self):
        """Tick until nothing is due."""
        self.until_leading()
        while self.tick() <= 0:
            pass

    def until(self, done):
        deadline = time.monotonic() + 60
        while not done():
            assert time.monotonic() < deadline
            time.sleep(max(0.0, min(0.05, self.tick())))

    def close(self):
        self.scheduler.close()
        self.masters.close()


@pytest.fixture
def sent():
    """The fires that were sent, as (entry, fire)."""
    fires = []

    def note(headers=None, **_):
        fires.append((headers["shadow"] or headers["task"], datetime.fromisoformat(headers["redlock_fire"])))

    signals.before_task_publish.connect(note)
    yield fires
    signals.before_task_publish.disconnect(note)


@pytest.fixture
def beat(redlock_servers, tmp_path):
    with contextlib.ExitStack() as opened:

        def make(entries, **settings):
            one = Beat(redlock_servers.urls, tmp_path, entries, **settings)
            opened.callback(one.close)
            return one

        yield make


def grid(first, period, count):
    return [first + index * timedelta(seconds=period) for index in range(count)]


def test_the_fires_of_an_interval_are_its_multiples(beat, sent):
    one = beat({"job": every(10, last=100)})
    one.catch_up()
    fires = [fire for _, fire in sent]
    assert all(fire.timestamp() % 10 == 0 for fire in fires)
    assert fires == grid(fires[0], 10, len(fires))
    assert len(fires) >= 10


@pytest.mark.parametrize("confirms", [False, True])
def test_a_new_leader_sends_what_the_last_one_did_not_and_nothing_else(beat, sent, confirms):
    """The second one has an older schedule: it was started earlier, and never led."""
    first = beat({"job": every(10, last=100)}, owner="first", confirms=confirms)
    first.catch_up()
    before = list(sent)
    first.close()
    second = beat({"job": every(10, last=200)}, owner="second", confirms=confirms)
    second.catch_up()
    fires = [fire for _, fire in sent]
    assert len(fires) == len(set(fires))
    assert sorted(fires) == grid(min(fires), 10, len(fires))
    assert min(fires) < min(fire for _, fire in before)


def test_crontabs_agree_whatever_the_schedule_of_each_beat_says(beat, sent):
    for last in (250, 130, 290):
        one = beat({"job": {"task": TASK, "schedule": crontab(), "last_run_at": ago(last)}})
        one.catch_up()
        one.close()
    fires = [fire for _, fire in sent]
    assert len(fires) == len(set(fires)) >= 4


def test_entries_do_not_keep_each_other_out(beat, sent):
    one = beat(
        {
            "one": {**every(50, last=100), "options": {"shadow": "one"}},
            "two": {**every(50, last=100), "options": {"shadow": "two"}},
        }
    )
    one.catch_up()
    fires = {name: [fire for entry, fire in sent if entry == name] for name in ("one", "two")}
    assert fires["one"] == fires["two"] != []


def test_older_fires_than_half_of_max_ttl_are_not_sent(beat, sent):
    """Nobody remembers for so long whether they were."""
    one = beat({"job": every(10, last=7200)})
    before = ago(OLDEST)
    one.catch_up()
    assert min(fire for _, fire in sent) >= before
    assert len(sent) >= OLDEST / 10 - 1


def test_who_does_not_lead_sends_nothing(beat, sent):
    first = beat({"job": every(10, last=100)}, owner="first")
    first.catch_up()
    sent.clear()
    second = beat({"job": every(10, last=300)}, owner="second")
    for _ in range(20):
        assert second.tick() > 0
    assert sent == []


def test_close_gives_the_leadership_back_at_once(beat, sent):
    first = beat({}, owner="first", redlock_beat_ttl=300.0)
    first.until_leading()
    eventually(lambda: first.masters.status("celery-beat").owner == "first")
    first.scheduler.close()
    first.scheduler.close()  # Celery does it twice
    eventually(lambda: first.masters.status("celery-beat").token is None)


def test_an_outage_of_a_majority_only_delays(beat, sent, redlock_servers, caplog):
    one = beat({"job": every(10, last=100)}, redlock_beat_ttl=300.0)
    one.until_leading()
    before = len(sent)
    pause(redlock_servers, 3)
    assert one.tick() > 0
    assert one.tick() > 0
    assert len(sent) == before
    assert "not sent yet" in caplog.text
    resume(redlock_servers, 3)
    one.until(lambda: len(sent) >= 10)
    fires = [fire for _, fire in sent]
    assert fires == grid(fires[0], 10, len(fires))


def test_a_fire_that_nobody_got_is_tried_again(beat, sent, redlock_servers):
    """Two beats that try at once may both be refused.  Then neither of them may believe that the other one has it."""
    entry = every(100, last=150)
    one = beat({"job": entry})
    fire = datetime.fromtimestamp((entry["last_run_at"].timestamp() // 100 + 1) * 100, UTC)
    key = f"redlock:celery-beat:job:{fire.isoformat()}"
    for number, token in enumerate(("a" * 40, "a" * 40, "b" * 40, "b" * 40)):
        redlock_servers.client(number).set(key, token, px=600_000)
    one.until_leading()
    assert one.tick() > 0
    assert sent == []
    each(redlock_servers, "delete", key, masters=4)
    one.until(lambda: sent)
    assert sent[0] == (TASK, fire)


def test_a_beat_that_was_frozen_before_it_took_a_fire_does_not_send_it(beat, sent):
    """When it wakes the masters may have forgotten that another one has sent it."""
    one = beat({"job": every(1, last=1)}, max_ttl=6.0, redlock_beat_ttl=3.0)
    take = one.masters.lock
    names: list[str] = []

    def lock(name, **options):
        if not names:
            time.sleep(3.5)
        names.append(name)
        return take(name, **options)

    one.masters.lock = lock
    try:
        one.until(lambda: sent)
    finally:
        del one.masters.lock
    assert datetime.fromisoformat(names[0].removeprefix("celery-beat:job:")) not in [fire for _, fire in sent]


def test_a_signal_waits_until_the_fire_is_sent(beat, sent):
    """It would end beat between taking a fire and sending it, and nobody could send it any more."""
    one = beat({"job": every(10, last=100)})
    came = []
    one.until_leading()
    first = len(sent)

    def ends(number, frame):
        came.append((number, len(sent)))
        raise SystemExit

    before = signal.signal(signal.SIGTERM, ends)
    take = one.masters.lock

    def lock(*args, **kwargs):
        os.kill(os.getpid(), signal.SIGTERM)
        return take(*args, **kwargs)

    one.masters.lock = lock
    try:
        with pytest.raises(SystemExit):
            one.tick()
    finally:
        signal.signal(signal.SIGTERM, before)
        del one.masters.lock
    assert came == [(signal.SIGTERM, first + 1)]


def test_what_ends_the_election_ends_beat(beat, redlock_servers):
    """And does not leave one that never leads again."""
    one = beat({})
    one.masters.close()
    with pytest.raises(Exception, match="closed"):
        for _ in range(1000):
            one.tick()
            time.sleep(0.01)


def test_a_lazy_one_stands_for_nothing(redlock_masters):
    """Celery makes one to show its banner."""
    app = Celery("tests", broker="memory://", set_as_current=False)
    app.conf.redlock_masters = redlock_masters
    before = set(threading.enumerate())
    LeaderScheduler(app=app, lazy=True)
    assert no_thread_besides(before)


@pytest.mark.parametrize(("settings", "text"), [
    ({"redlock_masters": None}, "redlock_masters is a NoneType"),
    ({"redlock_masters": ["redis://:secret@h:1"]}, "redlock_masters is a list"),
    ({"redlock_beat_ttl": 400.0}, "redlock_beat_ttl=400.0: allowed is half of max_ttl at most, 300 s"),
    ({"redlock_beat_ttl": "x"}, "ttl"),
])  # fmt: skip
def test_settings_that_cannot_be_right(beat, settings, text):
    with pytest.raises(ConfigurationError, match=text) as raised:
        beat({}, **settings)
    assert "secret" not in str(raised.value)


def test_a_period_of_nothing(beat):
    one = beat({"job": every(0, last=10)})
    with pytest.raises(ConfigurationError, match="0 s: allowed is more than 0"):
        one.until_leading()


class InAdapter(Interrupt):
    package = str(celery.__file__)


def test_an_exception_at_any_line_leaves_no_handler_behind_a_tick():
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    for interrupt in at_every_line(3, InAdapter):
        with interrupt.strikes(), celery._signals_later():
            pass
        gc.collect()  # a struck end leaves a generator, which puts back what there was
        assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)] == before
