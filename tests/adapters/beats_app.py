"""The Celery app of the beats and workers that `beats.py` starts, and of the tests with real processes."""

import os
import signal
import time
from pathlib import Path

from celery import Celery, signals

from redlock import Masters
from redlock.adapters.celery import exclusive

FOLDER = Path(os.environ["BEATS_FOLDER"])

masters = Masters.from_env(restart_guard=False, max_ttl=float(os.environ.get("BEATS_MAX_TTL", "60")))
app = Celery("beats", broker=os.environ["BEATS_BROKER"], backend=os.environ["BEATS_BROKER"])
app.conf.update(
    redlock_masters=masters,
    redlock_beat_ttl=float(os.environ.get("BEATS_TTL", "15")),
    beat_schedule={"fire": {"task": "beats.fire", "schedule": 1.0}},
    task_track_started=True,
    worker_prefetch_multiplier=1,
    broker_connection_retry_on_startup=True,
)
with masters.lock(f"imported:{os.getpid()}"):  # a worker forks with masters that are in use
    pass


def note(file, *words):
    """Append one line; many processes may do so at once."""
    with (FOLDER / file).open("a") as opened:
        opened.write(" ".join(map(str, words)) + "\n")


# -- fires -------------------------------------------------------------------------------------------


@app.task(bind=True, name="beats.fire", ignore_result=True)
def fire(self):
    origin = self.request.origin.partition("@")[0].removeprefix("gen")  # the process that sent it
    note("fires", self.request.redlock_fire, f"{time.time():.3f}", origin, self.request.id)


def die(**_):
    """Once only, whichever beat comes first."""
    try:
        (FOLDER / "died").touch(exist_ok=False)
    except FileExistsError:
        return
    os.kill(os.getpid(), signal.SIGKILL)


if "BEATS_DIE" in os.environ:
    signals.after_task_publish.connect(die)


# -- tasks that exclude each other -------------------------------------------------------------------


def work(kind, invoice, gate):
    """Say that it began, and go on when the test opens the gate."""
    note("work", "begins", kind, invoice)
    deadline = time.monotonic() + 60
    while gate and not (FOLDER / gate).exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    note("work", "ends", kind, invoice)
    return kind


@app.task
@exclusive(masters, "invoice:{invoice}", on_busy="skip", ttl=30)
def skips(invoice, gate=None):
    return work("skips", invoice, gate)


@app.task(bind=True, default_retry_delay=0.1, max_retries=None)
@exclusive(masters, "invoice:{invoice}", on_busy="retry", ttl=30)
def retries(self, invoice, gate=None):
    return work("retries", invoice, gate)


@app.task
@exclusive(masters, "invoice:{invoice}", on_busy="raise", ttl=30)
def loses(invoice):
    """Its body goes on to its end, although the lock is lost."""
    with masters.lock(f"invoice:{invoice}", ttl=30) as lease:  # the lease of this call
        note("work", "fence", lease.fence)
        assert lease.wait_lost(60)
        note("work", "lost", invoice)
    return "it ended"
