"""What is public stays what the design says, and says what it promises."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import redlock
import redlock.observe
import redlock.observe.otel
import redlock.observe.prometheus
import redlock.observe.traces
import redlock.testing
from tests.owners import proves
from tools import unasync

pytestmark = proves("C12", "C19")


@pytest.mark.parametrize("module", [redlock, redlock.testing])
def test_all_is_sorted_complete_and_documented(module):
    assert module.__all__ == sorted(module.__all__)
    assert set(module.__all__) <= set(dir(module))
    for name in module.__all__:  # some are imported only now
        getattr(module, name)
    public = {
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and not inspect.ismodule(value) and name != "annotations"
    }
    assert public == set(module.__all__)
    documented(module)


def test_importing_starts_nothing_and_what_few_programs_need_is_imported_when_it_is_asked_for():
    code = """
import sys, threading, redlock
assert threading.active_count() == 1
kinds = "redlock._health", "redlock._lock.observer", "redlock._events", "redlock.testing", "pytest", "email.parser"  # it reads metadata
later = [name for name in sys.modules if name.startswith(kinds) or name.endswith("_async")]
assert not later, later
from redlock import AsyncMultiLock, Health, LockAcquired
assert redlock.AsyncMultiLock is AsyncMultiLock
try:
    redlock.MultiLok
except AttributeError as error:
    assert str(error) == "module 'redlock' has no attribute 'MultiLok'", error
else:
    raise SystemExit("there is no such thing")
"""
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True)


def test_whoever_has_no_observer_has_no_events():
    """And who has one has them from the beginning: nothing is imported in the thread of the background, or in the moment of a loss."""
    code = """
import sys, redlock
urls = ["redis://127.0.0.1:1"]
redlock.Masters(urls).lock("a")
assert "redlock._events" not in sys.modules
redlock.Masters(urls, observer=print)
assert "redlock._events" in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    "module", [redlock.observe, redlock.observe.prometheus, redlock.observe.otel, redlock.observe.traces]
)
def test_what_the_observers_offer_is_defined_there_and_documented(module):
    """They are used by the path of their module, and import what they need like any program."""
    own = {
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and getattr(value, "__module__", "") == module.__name__
    }
    assert own == set(module.__all__)
    documented(module)


def documented(module):
    for name in module.__all__:
        thing = getattr(module, name)
        assert inspect.getdoc(thing), name
        for method, function in inspect.getmembers(thing, inspect.isfunction):
            if not method.startswith("_") and function.__module__.startswith("redlock"):
                assert inspect.getdoc(function), f"{name}.{method}"


def test_the_public_surface_is_the_one_that_was_reviewed():
    """`tests/surface.txt`: names, signatures, fields, commands, metrics.  Its tool says what to do."""
    command = [sys.executable, "-m", "tools.surface"]
    done = subprocess.run(command, cwd=Path(__file__).parents[1], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_classes_for_threads_are_what_the_text_for_asyncio_makes():
    """`make lint` asks the same; whoever runs the tests alone hears of it as well."""
    assert unasync.stale() == []


def test_type_checkers_know_the_options_that_are_handed_on():
    """`masters.lock(**options)` and `Masters.from_env(**options)`."""
    from redlock._lock.lock_async import AsyncMultiLockOptions  # noqa: PLC0415 - nobody else knows them
    from redlock._lock.lock_threads import MultiLockOptions  # noqa: PLC0415
    from redlock._lock.typed import ElectionOptions, MastersOptions  # noqa: PLC0415

    for kind, options in ((redlock.MultiLock, MultiLockOptions), (redlock.AsyncMultiLock, AsyncMultiLockOptions)):
        assert set(inspect.signature(kind).parameters) - {"name", "masters"} == set(options.__annotations__)
    assert set(inspect.signature(redlock.Masters).parameters) - {"masters"} == set(MastersOptions.__annotations__)
    assert set(inspect.signature(redlock.Election).parameters) - {"name", "masters"} == set(
        ElectionOptions.__annotations__
    )


WORLDS = [
    (redlock.Masters, redlock.AsyncMasters),
    (redlock.MultiLock, redlock.AsyncMultiLock),
    (redlock.Lease, redlock.AsyncLease),
    (redlock.Election, redlock.AsyncElection),
    (redlock.Term, redlock.AsyncTerm),
]
ONLY_ASYNC = ("cancel_on_loss",)  # there is no way to interrupt a thread


def members(kind: type) -> dict[str, object]:
    """What a user may call or read, by its name for threads."""
    return {
        name.replace("__aenter__", "__enter__").replace("__aexit__", "__exit__"): inspect.getattr_static(kind, name)
        for name in dir(kind)
        if not name.startswith("_")
        or name in ("__init__", "__call__", "__enter__", "__exit__", "__aenter__", "__aexit__")
    }


def shape(member: object) -> object:
    """What must be the same in both worlds (C19): kind, parameter names, their kinds and defaults."""
    if isinstance(member, (classmethod, staticmethod)):
        return type(member), shape(member.__func__)
    if inspect.isfunction(member):
        parameters = inspect.signature(member).parameters.values()
        return [(p.name, p.kind, p.default) for p in parameters if p.name not in ONLY_ASYNC]
    return type(member)


def differences(one: type, other: type) -> list[str]:
    mine, theirs = members(one), members(other)
    return [
        name
        for name in sorted(mine.keys() | theirs.keys())
        if name not in mine or name not in theirs or shape(mine[name]) != shape(theirs[name])
    ]


@pytest.mark.parametrize(("one", "other"), WORLDS)
def test_both_worlds_have_the_same_signatures(one, other):
    """C19."""
    assert differences(one, other) == []
