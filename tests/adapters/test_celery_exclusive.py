"""What `exclusive` refuses where it is written.  What it does in workers is in `test_celery_processes.py`."""

from __future__ import annotations

import pytest

from redlock import ConfigurationError, Masters

pytest.importorskip("celery")

from celery import Celery

from redlock.adapters.celery import exclusive


def pay(invoice):
    return invoice


def test_above_the_task(redlock_masters):
    task = Celery("tests", broker="memory://").task(pay)
    with pytest.raises(ConfigurationError, match=r"is a task already: write exclusive\(\.\.\.\) below @app\.task"):
        exclusive(redlock_masters, "invoice:{invoice}", on_busy="retry")(task)


def test_a_wrong_template_is_found_where_it_is_written(redlock_masters):
    for on_busy in ("skip", "retry", "wait", "raise"):
        with pytest.raises(ConfigurationError, match="has no argument 'bill'"):
            exclusive(redlock_masters, "invoice:{bill}", on_busy=on_busy)(pay)
    with pytest.raises(ConfigurationError, match="on_busy='never'"):
        exclusive(redlock_masters, "invoice:{invoice}", on_busy="never")(pay)  # type: ignore[arg-type]


def test_a_retry_outside_of_a_task(redlock_masters, redlock_servers):
    paid = exclusive(redlock_masters, "invoice:{invoice}", on_busy="retry")(pay)
    assert paid(7) == 7
    with Masters(redlock_servers.urls, restart_guard=False) as others, others.lock("invoice:7"):
        with pytest.raises(ConfigurationError, match="pay was called outside of a task"):
            paid(7)
