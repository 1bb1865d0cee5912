"""What `exclusive` refuses where it is written.  What it does in workers is in `test_celery_processes.py`."""

import pytest

from redlock import ConfigurationError, Event, LockRefused, Masters, NotAcquired, QuorumUnreachable
from redlock.testing import FixedMasters

pytest.importorskip("celery")

from celery import Celery

from redlock.adapters.celery import exclusive


def pay(invoice):
    return invoice


def test_above_the_task(redlock_masters):
    task = Celery("tests", broker="memory://").task(shared=False)(pay)
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
        with pytest.raises(NotAcquired):  # nobody can retry it
            paid(7)


@pytest.mark.parametrize(("on_busy", "attempts"), [("retry", 3), ("skip", 1), ("wait", 1), ("raise", 1)])
def test_an_outage_is_tried_again_by_who_retries_and_is_never_skipped(on_busy, attempts):
    """Busy and broken are both worth a retry.  The task fails with what the masters said last."""
    seen: list[Event] = []
    with FixedMasters("unreachable") as nobody, Masters(nobody.urls, observer=seen.append) as masters:
        paid = exclusive(masters, "invoice:{invoice}", on_busy=on_busy)(pay)
        task = Celery("tests", broker="memory://").task(shared=False, max_retries=2, default_retry_delay=0)(paid)
        done = task.apply(args=[7])
    assert type(done.result) is QuorumUnreachable
    assert [event.kind for event in seen if isinstance(event, LockRefused)] == ["unreachable"] * attempts


def test_an_outage_that_the_body_meets_is_its_own_affair(redlock_masters):
    calls = []

    def body(invoice):
        calls.append(invoice)
        raise QuorumUnreachable("of the body")

    paid = exclusive(redlock_masters, "invoice:{invoice}", on_busy="retry")(body)
    done = (
        Celery("tests", broker="memory://")
        .task(shared=False, max_retries=2, default_retry_delay=0)(paid)
        .apply(args=[7])
    )
    assert (str(done.result), calls) == ("of the body", [7])


def test_an_outage_outside_of_a_task():
    with FixedMasters("unreachable") as nobody, pytest.raises(QuorumUnreachable):
        exclusive(nobody.masters, "invoice:{invoice}", on_busy="retry")(pay)(7)
