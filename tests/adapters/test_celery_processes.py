"""Real beats that die, and real workers that fork: with a broker, and processes that are killed and stopped."""

import signal

import pytest

from tests.servers.look import steal

pytest.importorskip("celery")

from celery import Celery

from tests.adapters.beats import Fleet, counted, eventually

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def fleet(tmp_path):
    """Others lead soon.  No fire is too old, however slow this machine is."""
    with Fleet(tmp_path, BEATS_TTL="3", BEATS_MAX_TTL="3000") as fleet:
        yield fleet


def twice_and_never(fleet, lost=0):
    """Of the fires until now, once all have run but so many: a worker may be late with one."""
    last = max(run.fire for run in fleet.runs())

    def until_now():
        return counted([run for run in fleet.runs() if run.fire <= last])

    eventually(lambda: len(until_now()[1]) <= lost)
    return until_now()


def test_beats_are_killed_frozen_and_stopped_and_each_fire_is_sent_once(fleet):
    """Only a beat that is killed may take the fire with it that it was about to send."""
    fleet.start_worker("worker", 2)
    for number in (1, 2, 3):
        fleet.start_beat(number)
    killed = fleet.wait_for_leader()
    fleet.wait_for_fires(2)
    fleet.beats[killed].kill()
    frozen = fleet.wait_for_leader(other_than=killed)
    fleet.wait_for_fires(2)
    fleet.beats[frozen].send_signal(signal.SIGSTOP)
    stopped = fleet.wait_for_leader(other_than=frozen)
    fleet.wait_for_fires(2)
    fleet.beats[frozen].send_signal(signal.SIGCONT)
    fleet.wait_for_fires(2)
    fleet.beats[stopped].terminate()
    assert fleet.beats[stopped].wait(30) == 0
    assert fleet.wait_for_leader() == frozen  # it has stood again
    fleet.wait_for_fires(2)
    assert twice_and_never(fleet, lost=1)[0] == [], fleet.logs()


def test_a_beat_that_dies_after_it_has_sent_a_fire(fleet):
    """It has written nothing down.  The next leader comes to the same fire."""
    fleet.start_worker("worker", 2)
    fleet.start_beat(1, BEATS_DIE="yes")
    fleet.start_beat(2, BEATS_DIE="yes")
    eventually((fleet.folder / "died").exists)
    fleet.wait_for_fires(5)
    assert twice_and_never(fleet) == ([], []), fleet.logs()


# -- tasks -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def workers(tmp_path_factory):
    with Fleet(tmp_path_factory.mktemp("workers")) as fleet:
        fleet.start_worker("worker", 3)
        fleet.masters.status("invoice:1")  # their thread lives for as long as these workers, not for a test
        yield fleet


@pytest.fixture(scope="module")
def tasks(workers):
    app = Celery("client", broker=workers.environment["BEATS_BROKER"], backend=workers.environment["BEATS_BROKER"], set_as_current=False)  # fmt: skip

    def send(name, *args, **options):
        return app.send_task(f"beats_app.{name}", args, **options)

    yield send
    app.backend.result_consumer.stop()
    app.backend.client.close()
    app.close()


def begun(workers, kind, invoice):
    eventually(lambda: f"begins {kind} {invoice}" in workers.lines("work"))


def states(result, *wanted):
    eventually(lambda: result.state in wanted)


def test_skip(workers, tasks):
    first = tasks("skips", 1, "gate-1")
    begun(workers, "skips", 1)
    assert tasks("skips", 1).get(60) is None
    assert tasks("skips", 2).get(60) == "skips"
    (workers.folder / "gate-1").touch()
    assert first.get(60) == "skips"
    assert workers.lines("work").count("begins skips 1") == 1


def test_retry(workers, tasks):
    first = tasks("retries", 3, "gate-3")
    begun(workers, "retries", 3)
    second = tasks("retries", 3)
    states(second, "RETRY")
    (workers.folder / "gate-3").touch()
    assert first.get(60) == second.get(60) == "retries"
    assert [line for line in workers.lines("work") if line.endswith(" retries 3")] == ["begins retries 3", "ends retries 3"] * 2  # fmt: skip


def test_a_lost_lease_fails_the_task(workers, tasks):
    result = tasks("loses", 6)
    eventually(lambda: any(line.startswith("fence") for line in workers.lines("work")))
    steal(workers.servers, "redlock:invoice:6")
    with pytest.raises(Exception, match="invoice:6") as raised:
        result.get(60)
    assert type(raised.value).__name__ == "LockLost"
    assert "lost 6" in workers.lines("work")  # nothing has interrupted it


def test_a_soft_time_limit_gives_the_name_back(workers, tasks):
    """A hard one kills the process: whether that has a moment to give the lock back, Celery does not promise."""
    with pytest.raises(Exception, match="SoftTimeLimitExceeded"):
        tasks("skips", 7, "never", soft_time_limit=1).get(60)
    assert workers.masters.status("invoice:7").token is None
