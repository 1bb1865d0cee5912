"""Out of descriptors: an outage that says so, and passes."""

import pytest

from tests.servers import worlds
from tests.servers.process import run, started


@pytest.mark.parametrize("name", worlds.NAMES)
@pytest.mark.parametrize("free", [0, 4])
def test_it_is_an_outage_that_says_what_to_do_and_passes(redlock_servers, certificate, name, free):
    """With none free nothing can be made at all; with few, no majority can be connected."""
    if free and name != "threads":
        free = 1
    command = ["-m", "tests.servers.hog", name, str(certificate), *redlock_servers.urls]
    with started(*command, environment={"FREE": str(free)}) as process:
        process.says("made", seconds=60)
        said = process.says("then")
        assert said.startswith("then: QuorumUnreachable")
        assert "Too many open files" in said
        assert "ulimit -n" in said
        assert process.says("later") == "later: granted"
        assert process.ends() == 0


# The server that is not there refuses at once.
FIRST_USE = """
import asyncio, os, resource, sys
from redlock import AsyncMasters, Masters, RedlockError

masters, tasks = Masters({urls!r}), AsyncMasters({urls!r})
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
loop = asyncio.new_event_loop()
asyncio.set_event_loop(loop)
before = {{name for name in sys.modules if name.startswith("redlock")}}
taken = []
try:
    while True:
        taken.append(os.open(os.devnull, os.O_RDONLY))
except OSError:
    pass

async def each(found):
    async for one in found:
        return one

def say(use):
    try:
        use()
    except (RedlockError, TypeError):  # the latter: there is no such option
        pass

for kind, done in (masters, lambda found: found), (tasks, loop.run_until_complete):
    say(lambda: done(kind.lock("job", timeout=0).acquire()))
    say(lambda: done(kind.lock("job", fair=True, timeout=0).acquire()))
    say(lambda: kind.lock("job", tttl=3))
    say(lambda: done(kind.slots("slots", limit=2, timeout=0).acquire()))
    say(lambda: kind.leader("leader"))
    say(lambda: kind.synchronized("job:{{x}}"))
    say(lambda: done(kind.status("job")))
    say(lambda: done(kind.wait_until_free("job", 0)))
    say(lambda: kind.watch("job"))
    say(lambda: next(kind.held()) if kind is masters else done(each(kind.held())))
    say(lambda: done(kind.check(timeout=0.5)))
for one in taken:
    os.close(one)
later = {{name for name in sys.modules if name.startswith("redlock")}} - before
print(sorted(later))
"""


def test_the_first_use_of_each_method_without_a_descriptor_imports_nothing():
    """An import was a bare `OSError`, a `KeyError` in a `__del__`, and a lock for ever where a time limit struck in it."""
    done = run("-c", FIRST_USE.format(urls=["redis://127.0.0.1:1"]))
    assert (done.stdout, done.stderr) == ("[]\n", "")


MADE = """
import os, resource
from redlock import Masters, RedlockError

resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
taken = []
try:
    while True:
        taken.append(os.open(os.devnull, os.O_RDONLY))
except OSError:
    pass
try:
    Masters(["redis://127.0.0.1:1"])
except RedlockError as error:
    print(error)
for one in taken:
    os.close(one)
print(Masters(["redis://127.0.0.1:1"]).lock("job"))
"""


def test_masters_that_are_made_without_a_descriptor():
    done = run("-c", MADE)
    assert done.stderr == ""
    said, later = done.stdout.splitlines()
    assert said.startswith("a part of redlock cannot be imported: ")
    assert "ulimit -n" in said
    assert later == "<MultiLock 'job' on 1 masters>"
