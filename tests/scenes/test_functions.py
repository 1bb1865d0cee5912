"""Functions in the place of scripts: the choice of each connection, and what ends it (R44)."""

from __future__ import annotations

from functools import partial

import pytest

from tests.bench import scene
from tests.owners import proves


def only_functions(at, masters=5):
    at.load(masters)
    at.permit(masters, scripts=False)


def granted_at_once(at):
    lock = at.masters.lock("job")
    assert (yield partial(lock.acquire, timeout=0)) is not None
    yield at.sleep(0.5)  # a master that was asked again has answered as well
    assert at.keys() == 5
    yield lock.release
    yield from at.none_left(0.5)


@proves("R44")
@scene()
def test_a_user_who_may_run_no_script_takes_locks_where_the_library_is_loaded(at):
    only_functions(at)
    at.snap()
    yield from granted_at_once(at)


@scene()
@pytest.mark.parametrize("what", ["scripts are forbidden", "the library is flushed"])
def test_what_masters_take_away_while_clients_work_costs_no_vote(at, what):
    """The connections are older than a library that is loaded only now."""
    if flushed := "flushed" in what:
        at.load()
        at.snap()
    lock, lease = yield from at.held("held", ttl=3.0, then=1.5)
    if flushed:
        at.load(flush=True)
    else:
        only_functions(at)
    yield from granted_at_once(at)
    assert not (yield partial(lease.wait_lost, 10.0))
    yield lock.release


@scene()
@pytest.mark.parametrize("masters", [2, 4])
def test_some_masters_have_the_library_and_the_others_run_scripts(at, masters):
    only_functions(at, masters)
    at.snap()
    yield from granted_at_once(at)
    yield from granted_at_once(at)


@scene(ttl=30.0)
def test_a_client_that_calls_functions_and_one_that_runs_scripts_exclude_each_other():
    def scripts(at):
        lock, _ = yield from at.held("job")
        at.load()
        yield at.sleep(5.0)
        yield lock.release

    def functions(at):
        yield at.sleep(1.0)
        at.snap()
        lock = at.masters.lock("job")
        assert (yield partial(lock.acquire, timeout=0)) is None
        at.permit(scripts=False)
        yield lock.acquire
        assert at.exactly(5.0), "it was told of the release"
        yield lock.release

    return [scripts, functions]


@scene()
def test_a_master_that_lost_its_functions_in_a_restart_says_what_to_load(at):
    only_functions(at)
    at.snap()
    yield from granted_at_once(at)
    at.kill([4])
    yield at.sleep(0.5)
    at.start([4])
    yield at.sleep(0.5)
    lock = at.masters.lock("job")
    assert (yield partial(lock.acquire, timeout=0)) is not None
    yield at.sleep(0.5)
    assert at.keys() == 4
    yield lock.release
    [*_, vote] = (yield partial(at.masters.status, "job")).votes
    assert vote.outcome == "error"
    assert "load the library redlock_1, which redlock-check --functions prints" in vote.reason
    at.load()
    while (yield partial(at.masters.status, "job")).votes[4].outcome == "error":
        yield at.sleep(0.1)
