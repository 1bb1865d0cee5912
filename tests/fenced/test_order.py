"""The order of a fenced transaction, whatever raises in it (R39): no database, no master."""

from __future__ import annotations

import pytest

from redlock import LockLost, NotHeld
from redlock.fenced._order import CommitUnknown, Ended, Release, Step, transaction

ALL = [Step.ACQUIRE, Step.BEGIN, Step.RAISE, Step.BODY, Step.ENSURE, Step.COMMIT, "release"]


class Broken(Exception):  # noqa: N818
    """What a database raises."""


def unknown():
    return CommitUnknown("nobody knows", name="account:7")


def run(failing=None, *, ended=Ended.UNDONE):
    """The steps that are carried out where some raise.  Returns them, and what ends the transaction."""
    failing = failing or {}
    done: list[object] = []
    steps = transaction(unknown)
    result: object = None
    while True:
        try:
            step = steps.send(result)
        except StopIteration as end:
            return done, end.value
        name = "release" if isinstance(step, Release) else step
        done.append(name)
        result = failing.get(name, ended if step is Step.ROLLBACK else None)


def test_the_order():
    assert run() == (ALL, None)


def test_without_the_lock_nothing_begins():
    error = Broken()
    assert run({Step.ACQUIRE: error}) == ([Step.ACQUIRE], error)


@pytest.mark.parametrize("step", [Step.BEGIN, Step.RAISE, Step.BODY, Step.ENSURE, Step.COMMIT])
@pytest.mark.parametrize("error", [Broken(), KeyboardInterrupt(), LockLost("lost")])
def test_what_raises_before_the_release_rolls_back_and_releases(step, error):
    done, raised = run({step: error})
    assert done == [*ALL[: ALL.index(step) + 1], Step.ROLLBACK, "release"]
    assert raised is error


@pytest.mark.parametrize("lost", [LockLost("lost"), NotHeld("not held")])
def test_a_lease_that_is_lost_after_the_commit_is_no_error(lost):
    """The store has kept the order, and the work is done: an error would have it done again."""
    assert run({"release": lost}) == (ALL, None)


def test_a_lease_that_was_lost_in_the_body_is_what_the_release_makes_of_it():
    """In asyncio the body is cancelled, and the end of the lock says why."""
    lost = LockLost("lost")
    _, raised = run({Step.BODY: KeyboardInterrupt(), "release": lost})
    assert raised is lost


def test_a_commit_that_was_refused_is_told_as_it_is():
    error = Broken("deferred constraint")
    assert run({Step.COMMIT: error}, ended=Ended.UNDONE)[1] is error


def test_a_commit_without_an_answer_is_unknown():
    error = Broken("connection lost")
    done, raised = run({Step.COMMIT: error}, ended=Ended.UNKNOWN)
    assert isinstance(raised, CommitUnknown)
    assert raised.__cause__ is error
    assert done[-1] == "release"


def test_a_commit_and_a_rollback_that_both_fail_are_unknown():
    _, raised = run({Step.COMMIT: Broken(), Step.ROLLBACK: Broken()})
    assert isinstance(raised, CommitUnknown)


def test_what_raises_after_the_commit_is_told_as_it_is():
    """Whatever a program has hung behind its commit."""
    error = Broken("in after_commit")
    assert run({Step.COMMIT: error}, ended=Ended.DONE)[1] is error


def test_a_lease_that_is_lost_while_the_commit_is_on_its_way_is_no_error():
    """In asyncio that cancels, and the end of the lock says that the cancellation was its own."""
    assert run({Step.COMMIT: KeyboardInterrupt(), "release": LockLost("lost")}, ended=Ended.DONE)[1] is None


def test_who_interrupts_a_commit_hears_that_nobody_knows():
    """A cancellation goes on (C13): it is not replaced."""
    error = KeyboardInterrupt()
    _, raised = run({Step.COMMIT: error}, ended=Ended.UNDONE)
    assert raised is error
    assert raised.__notes__ == ["nobody knows"]


def test_a_rollback_that_is_interrupted_releases():
    interruption = KeyboardInterrupt()
    done, raised = run({Step.BODY: Broken(), Step.ROLLBACK: interruption})
    assert raised is interruption
    assert done[-1] == "release"
