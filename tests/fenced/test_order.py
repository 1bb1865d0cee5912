"""The order of a fenced transaction, whatever raises in it (R39): no database, no master."""

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


ERROR, LOST, STRUCK = Broken(), LockLost("lost"), KeyboardInterrupt()


@pytest.mark.parametrize(("failing", "ended", "told"), [
    # The store has kept the order, and the work is done: an error would have it done again.
    ({"release": LOST}, Ended.UNDONE, None),
    ({"release": NotHeld("not held")}, Ended.UNDONE, None),
    # In asyncio the body is cancelled, and so is a commit that is on its way: the end of the lock says why.
    ({Step.BODY: STRUCK, "release": LOST}, Ended.UNDONE, LOST),
    ({Step.COMMIT: STRUCK, "release": LOST}, Ended.DONE, None),
    ({Step.COMMIT: ERROR}, Ended.UNDONE, ERROR),  # it was refused
    ({Step.COMMIT: ERROR}, Ended.DONE, ERROR),  # whatever a program has hung behind its commit
    ({Step.BODY: ERROR, Step.ROLLBACK: STRUCK}, Ended.UNDONE, STRUCK),
])  # fmt: skip
def test_what_is_told(failing, ended, told):
    done, raised = run(failing, ended=ended)
    assert raised is told
    assert done[-1] == "release"


def test_a_commit_without_an_answer_is_unknown():
    done, raised = run({Step.COMMIT: ERROR}, ended=Ended.UNKNOWN)
    assert isinstance(raised, CommitUnknown)
    assert raised.__cause__ is ERROR
    assert done[-1] == "release"
    assert isinstance(run({Step.COMMIT: Broken(), Step.ROLLBACK: Broken()})[1], CommitUnknown)


def test_who_interrupts_a_commit_hears_that_nobody_knows():
    """A cancellation goes on (C13): it is not replaced."""
    error = KeyboardInterrupt()
    _, raised = run({Step.COMMIT: error}, ended=Ended.UNDONE)
    assert raised is error
    assert raised.__notes__ == ["nobody knows"]
