"""Two beats, one after the other, on the schedule that django-celery-beat keeps in a database.

    python -m tests.adapters.django_beat DATABASE URL ...

Prints the fires that each of them sent, as JSON.  A process of its own, for Django is configured once in each.
"""

import json
import sys
import time
from datetime import UTC, datetime, timedelta

import django
from celery import Celery, signals
from django.conf import settings
from django.core.management import call_command

from redlock import Masters
from redlock.adapters.celery import LeaderScheduler


def main():
    database, *urls = sys.argv[1:]
    settings.configure(
        DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": database}},
        INSTALLED_APPS=["django_celery_beat"], USE_TZ=True, TIME_ZONE="Asia/Kathmandu",
        CELERY_BROKER_URL="memory://", CELERY_TIMEZONE="Asia/Kathmandu", CELERY_REDLOCK_BEAT_SCHEDULER="django",
        CELERY_RESULT_EXPIRES=None,
    )  # fmt: skip
    django.setup()
    call_command("migrate", verbosity=0)
    from django_celery_beat.models import ClockedSchedule, CrontabSchedule, IntervalSchedule, PeriodicTask  # noqa: PLC0415

    now = datetime.now(UTC)
    interval = IntervalSchedule.objects.create(every=10, period=IntervalSchedule.SECONDS)
    minutes = CrontabSchedule.objects.create(minute="*", timezone="Europe/Berlin")
    clocked = ClockedSchedule.objects.create(clocked_time=now - timedelta(seconds=20))
    old = now - timedelta(seconds=150)
    PeriodicTask.objects.create(name="interval", task="interval", interval=interval)
    PeriodicTask.objects.create(name="crontab", task="crontab", crontab=minutes)
    PeriodicTask.objects.create(name="clocked", task="clocked", clocked=clocked, one_off=True)
    PeriodicTask.objects.create(name="disabled", task="disabled", interval=interval, enabled=False)
    PeriodicTask.objects.update(last_run_at=old)

    sent: list[tuple[str, str]] = []

    def note(headers, **_):
        sent.append((headers["task"], headers["redlock_fire"]))

    signals.before_task_publish.connect(note)
    beats = [_beat(urls, f"beat-{number}") for number in (1, 2)]  # both have read the same schedule
    found = []
    for beat in beats:
        until = time.monotonic() + 60
        while beat._term is None and time.monotonic() < until:
            time.sleep(min(0.01, beat.tick()))
        while beat.tick() <= 0:
            pass
        beat.close()
        found.append(list(sent))
        sent.clear()
    print(json.dumps({"sent": found, "once": PeriodicTask.objects.get(name="clocked").enabled}))


def _beat(urls, owner):
    app = Celery("tests", set_as_current=False)
    app.config_from_object("django.conf:settings", namespace="CELERY")
    app.conf.redlock_masters = Masters(urls, restart_guard=False, max_ttl=600, owner=owner)
    return LeaderScheduler(app=app)


if __name__ == "__main__":
    main()
