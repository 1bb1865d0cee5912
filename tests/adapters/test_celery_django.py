"""The beat around django-celery-beat's scheduler, with a database."""

import json
import subprocess
import sys
from datetime import datetime, timedelta

import pytest

pytest.importorskip("django_celery_beat", reason="needs django-celery-beat")


def test_two_beats_send_each_fire_of_the_database_once(redlock_servers, tmp_path):
    program = [sys.executable, "-m", "tests.adapters.django_beat", str(tmp_path / "db.sqlite3"), *redlock_servers.urls]
    ended = subprocess.run(program, capture_output=True, text=True, timeout=110, check=False)
    assert ended.returncode == 0, ended.stderr
    result = json.loads(ended.stdout)
    first, second = result["sent"]
    sent = [(task, datetime.fromisoformat(fire)) for task, fire in first + second]
    assert len(sent) == len(set(sent))
    for task, period, least in (("interval", 10, 14), ("crontab", 60, 2)):
        fires = sorted(fire for name, fire in sent if name == task)
        assert len(fires) >= least
        assert fires == [fires[0] + index * timedelta(seconds=period) for index in range(len(fires))]
        assert fires[0].timestamp() % period == 0
    assert [name for name, _ in sent].count("clocked") == 1
    assert not result["once"]  # it is over, as the database knows
    assert "disabled" not in {name for name, _ in sent}
