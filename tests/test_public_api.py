"""What is public stays what the design says, and says what it promises."""

from __future__ import annotations

import inspect
import subprocess
import sys

import pytest

import redlock
import redlock.testing
from redlock import errors


@pytest.mark.parametrize("module", [redlock, redlock.testing])
def test_all_is_sorted_complete_and_documented(module):
    assert module.__all__ == sorted(module.__all__)
    public = {
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and not inspect.ismodule(value) and name != "annotations"
    }
    assert public == set(module.__all__)
    for name in module.__all__:
        thing = getattr(module, name)
        assert inspect.getdoc(thing), name
        for method, function in inspect.getmembers(thing, inspect.isfunction):
            if not method.startswith("_") and function.__module__.startswith("redlock"):
                assert inspect.getdoc(function), f"{name}.{method}"


def parameters(function) -> dict[str, object]:
    return {
        name: parameter.default
        for name, parameter in inspect.signature(function).parameters.items()
        if name != "self"
    }


NONE = inspect.Parameter.empty


def test_the_defaults_are_those_of_the_design():
    """Section 5; what later versions add comes on top."""
    assert parameters(redlock.Masters) == {
        "masters": NONE, "node_timeout": 0.25, "connect_timeout": 2.0, "drift_factor": 0.01, "max_ttl": 60.0,
        "restart_guard": True, "prefix": "redlock:", "fence_ttl": 3600.0,
    }
    assert parameters(redlock.MultiLock) == {
        "name": NONE, "masters": NONE, "ttl": 30.0, "timeout": -1.0, "min_validity": None, "fencing": True,
        "retry": None,
    }
    assert parameters(redlock.MultiLock.acquire) == {"blocking": True, "timeout": None}
    assert parameters(redlock.MultiLock.extend) == {"ttl": None}
    assert parameters(redlock.Lease.wait_lost) == {"timeout": None}
    assert parameters(redlock.Lease.ensure) == {"at_least": 0.0}
    assert parameters(redlock.Masters.status) == {"name": NONE}


def test_errors_are_the_builtins_that_callers_may_already_catch():
    bases = {
        errors.ConfigurationError: ValueError,
        errors.NotAcquired: TimeoutError,
        errors.QuorumUnreachable: errors.NotAcquired,
        errors.NotExtended: TimeoutError,
        errors.NotHeld: RuntimeError,
        errors.WouldDeadlock: RuntimeError,
    }
    for kind, base in bases.items():
        assert issubclass(kind, base)
        assert issubclass(kind, redlock.RedlockError)
    assert issubclass(redlock.LockLost, redlock.RedlockError)


def test_importing_starts_nothing_and_does_not_bring_the_test_tools():
    code = (
        "import sys, threading, redlock; "
        "assert threading.active_count() == 1; "
        "assert 'redlock.testing' not in sys.modules; "
        "assert 'pytest' not in sys.modules"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True)
