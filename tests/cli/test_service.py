"""When a service stands for election again."""

from __future__ import annotations

import contextlib

import pytest

from redlock._cli.service import Ending, Restarts, serve


def ending(code=1, *, over=False, asked=False, seconds=0.0):
    return Ending(code, over, asked, seconds)


def paused(restarts: Restarts, ended: Ending) -> float:
    pause = restarts.pause(ended)
    assert pause is not None
    return pause


@pytest.mark.parametrize(("policy", "failed", "well"), [
    ("always", True, True), ("on-failure", True, False), ("never", False, False),
])  # fmt: skip
def test_the_policy_is_about_commands_that_ended_by_themselves(policy, failed, well):
    assert (Restarts(policy).pause(ending(1)) is not None) is failed
    assert (Restarts(policy).pause(ending(0)) is not None) is well
    assert Restarts(policy).pause(ending(70, over=True)) == 0  # a lease that was lost: there is nothing to wait for
    assert Restarts(policy).pause(ending(143, asked=True)) is None
    assert Restarts(policy).pause(ending(70, over=True, asked=True)) is None


def test_pauses_grow_to_half_a_minute_and_are_random():
    many = [Restarts("always") for _ in range(20)]
    limits = [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0]
    for limit in limits:
        pauses = [paused(one, ending(0)) for one in many]
        assert all(limit / 2 <= pause <= limit for pause in pauses)
        assert len({*pauses}) > 10


def test_after_a_command_that_ran_for_long_they_begin_anew_and_not_after_a_lost_term():
    restarts = Restarts("always")
    for _ in range(10):
        paused(restarts, ending())
    paused(restarts, ending(70, over=True))
    assert paused(restarts, ending(seconds=29)) >= 15
    assert paused(restarts, ending(seconds=31)) <= 0.5
    assert paused(restarts, ending()) > 0.4


@pytest.fixture
def threads(monkeypatch):
    """How many threads there are, at one look after the other; then two."""
    counts: list[int] = []
    monkeypatch.setattr("threading.active_count", lambda: counts.pop(0) if counts else 2)
    return counts


@pytest.fixture
def slept(monkeypatch):
    """No time passes."""
    pauses: list[float] = []
    monkeypatch.setattr("time.sleep", pauses.append)
    monkeypatch.setattr("redlock._cli.service.pause", pauses.append)
    return pauses


def test_the_last_term_gives_the_exit_code(threads, slept):
    endings = [ending(70, over=True), ending(4, over=True), ending(5, asked=True), ending(6)]
    said: list[str] = []
    assert serve(lambda: endings.pop(0), "always", said.append) == 5
    assert len(endings) == 1
    assert (said, slept) == ([], [])


def test_no_term_begins_while_there_are_more_threads_than_at_first(threads, slept):
    """A fork would copy what they have locked.  One that is in the resolver cannot be ended."""
    threads += [2, 4, 3, 2]
    endings = [ending(70, over=True), ending(0, asked=True)]
    assert serve(lambda: endings.pop(0), "always", print) == 0
    assert len(slept) == 2


def test_probes_are_answered_until_the_next_term_begins(threads, slept):
    """A thread of the term before may be in the resolver for long."""
    threads += [2, 4, 3]  # the last of these is the one that answers
    begun: list[bool] = []

    @contextlib.contextmanager
    def answering():
        begun.append(True)
        yield 1
        assert len(slept) == 1

    endings = [ending(70, over=True), ending(0, asked=True)]
    assert serve(lambda: endings.pop(0), "always", print, answering) == 0
    assert begun == [True]
