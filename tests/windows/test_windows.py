"""On Windows: what works, and the sentence where nothing can.  Elsewhere a Windows is pretended (`pretended.py`)."""

import pkgutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import redlock

ROOT = Path(__file__).parents[2]
PYTHON = [sys.executable, "-W", "error"]
if sys.platform != "win32":
    PYTHON.append(str(Path(__file__).with_name("pretended.py")))
SENTENCE = "redlock-quorum takes no locks on Windows: "
MODULES = [  # Django's are no modules for users
    one.name
    for one in pkgutil.walk_packages(redlock.__path__, "redlock.", onerror=lambda _: None)
    if "._" not in one.name and not one.name.startswith("redlock.fenced.django")
]
# What a machine of CI does not have there, and some modules are for.
OTHERS = ("apscheduler", "celery", "django", "opentelemetry", "prometheus")


def ran(program, code=0):
    """What it prints, and says."""
    command = [*PYTHON, "-c", program]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=100)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def user(program):
    """Without the log: on a busy machine masters are said to be down before all is closed."""
    quiet = "import logging; logging.disable()\n"
    return ran(quiet + "from redlock import *; from redlock.testing import *\n" + program)


def test_each_module_and_each_name_is_there():
    assert "redlock.adapters.celery" in MODULES
    assert (
        user(f"""
import importlib, pickle, redlock
for name in {MODULES}:
    try:
        importlib.import_module(name)
    except ImportError as error:
        assert any(other in (error.name or str(error)) for other in {OTHERS}), (name, error)
for name in redlock.__all__:
    getattr(redlock, name)
print(pickle.loads(pickle.dumps(NotAcquired("not had", name="job"))).name)
""")
        == "job\n"
    )


@pytest.mark.parametrize("call", [
    "Masters(['redis://10.0.0.1:6379'])", "AsyncMasters(['redis://127.0.0.1:6379'])", "Masters.from_env()",
    "MultiLock('job', ['redis://10.0.0.1:6379'])", "LocalMasters(1).start()",
])  # fmt: skip
def test_what_takes_real_masters_says_the_sentence(call):
    said = user(f"""
import os
os.environ["REDLOCK_MASTERS"] = "local"
try:
    {call}
except ConfigurationError as error:
    print(error)
""")
    assert said.startswith(SENTENCE)
    assert said.count("\n") == 1
    assert all(way in said for way in ("WSL", "container", "FixedMasters"))


@pytest.mark.parametrize(("command", "code"), [("redlock-check", 3), ("redlock-run", 71)])
def test_the_commands_say_it(command, code):
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["scripts"]
    module, _, function = scripts[command].partition(":")
    begun = f"import sys; sys.argv = [{command!r}, 'redis://10.0.0.1:6379']; from {module} import {function} as entry"
    said = ran(f"{begun}; entry()", code=code)
    assert said.startswith(f"{command}: {SENTENCE}")
    assert said.count("\n") == 1


def test_fixed_masters_in_threads():
    assert user("""
import threading
with FixedMasters("granted") as fixed:
    with fixed.masters.lock("job", ttl=1) as lease:
        before = lease.valid_until
        while lease.valid_until == before:      # renewed
            assert not lease.wait_lost(timeout=0.01)
    def several():
        for number in range(20):
            with fixed.masters.lock(f"{threading.get_ident()}-{number}"):
                pass
    threads = [threading.Thread(target=several) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with Masters(fixed.urls) as own, own.lock("job"):       # as the program under test makes them
        pass
for outcome in "refused", "unreachable", "lost":
    try:
        with FixedMasters(outcome) as fixed, fixed.masters.lock("job", ttl=1, timeout=0.5) as lease:
            lease.wait_lost()
    except RedlockError as error:
        print(type(error).__name__)
""").splitlines() == ["NotAcquired", "QuorumUnreachable", "LockLost"]


def test_fixed_masters_in_tasks():
    lost, sentence = user("""
import asyncio

async def main():
    with FixedMasters("granted") as fixed:
        async def one(name):
            async with fixed.async_masters.lock(name):
                await asyncio.sleep(0)
        await asyncio.gather(*(one(f"job-{number}") for number in range(50)))
        await fixed.async_masters.close()
    with FixedMasters("lost") as fixed:
        try:
            async with fixed.async_masters.lock("job", ttl=1):
                await asyncio.sleep(60)
        except LockLost as error:
            print(error.reason)
        await fixed.async_masters.close()

with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
    runner.run(main())
try:
    asyncio.run(main())
except ConfigurationError as error:
    print(error)
""").splitlines()
    assert lost == "taken"
    assert "asyncio.SelectorEventLoop" in sentence


def test_the_fixtures(tmp_path):
    (tmp_path / "test_it.py").write_text("""
import pytest, redlock

def test_pays_once(redlock_refused, redlock_granted):
    with redlock_granted.masters.lock("invoice"), pytest.raises(redlock.NotAcquired):
        redlock_refused.masters.lock("invoice", timeout=0.2).__enter__()
""")
    options = ["-q", *(f"-pno:{plugin}" for plugin in ("cacheprovider", "xdist", "randomly")), str(tmp_path)]
    assert "1 passed" in ran(f"import pytest, sys; sys.exit(pytest.main([*{options}, '--rootdir', {options[-1]!r}]))")
