"""Out of descriptors: an outage that says so, and passes."""

import pytest

from tests.servers import worlds
from tests.servers.process import run

USED_UP = """
import asyncio, os, resource, sys
from redlock import AsyncMasters, Masters, RedlockError

def use_up():
    taken = []
    try:
        while True:
            taken.append(os.open(os.devnull, os.O_RDONLY))
    except OSError:
        return taken

def close(taken):
    for one in taken:
        os.close(one)

resource.setrlimit(resource.RLIMIT_NOFILE, (128, 128))
"""
OUTAGE = """
from tests.servers import worlds
name, free, folder, *urls = sys.argv[1:]

def asked(lock, **options):
    try:
        return "granted" if lock.acquire(**options) else "held"
    except RedlockError as error:
        return f"{type(error).__name__}: {' / '.join(str(error).splitlines())}"

assert "encodings.idna" in sys.modules  # once Python has failed to load it, no name is resolved any more
with worlds.opened(name) as world:
    with world.Masters(urls):
        pass  # the first ones import what they need
    taken = use_up()
    with world.Masters([f"rediss://localhost:1?ssl_ca_certs={folder}/cert.pem"]):
        pass
    with world.Masters(urls, restart_guard=False) as masters:
        lock = masters.lock("job", ttl=10)
        close(taken[: int(free)])
        print(asked(lock, timeout=0))
        close(taken[int(free) :])
        print(asked(lock, timeout=5))
        lock.release()
"""


@pytest.mark.parametrize("name", worlds.NAMES)
@pytest.mark.parametrize("free", [0, 4])
def test_it_is_an_outage_that_says_what_to_do_and_passes(redlock_servers, certificate, name, free):
    """With none free nothing can be made at all; with few, no majority can be connected."""
    if free and name != "threads":
        free = 1
    done = run("-c", USED_UP + OUTAGE, name, str(free), str(certificate), *redlock_servers.urls)
    assert done.returncode == 0, done.stderr
    said, later = done.stdout.splitlines()
    assert said.startswith("QuorumUnreachable")
    assert "Too many open files" in said
    assert "ulimit -n" in said
    assert later == "granted"


# The server that is not there refuses at once.
FIRST_USE = """
urls = ["redis://127.0.0.1:1"]
taken = use_up()
try:
    Masters(urls)
except RedlockError as error:
    print(error)
close(taken)
masters, tasks, loop = Masters(urls), AsyncMasters(urls), asyncio.new_event_loop()
asyncio.set_event_loop(loop)
before = {name for name in sys.modules if name.startswith("redlock")}
taken = use_up()

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
    say(lambda: kind.synchronized("job:{x}"))
    say(lambda: done(kind.status("job")))
    say(lambda: done(kind.wait_until_free("job", 0)))
    say(lambda: kind.watch("job"))
    say(lambda: next(kind.held()) if kind is masters else done(each(kind.held())))
    say(lambda: done(kind.check(timeout=0.5)))
close(taken)
print({name for name in sys.modules if name.startswith("redlock")} - before)
"""


def test_the_first_use_of_each_method_without_a_descriptor_imports_nothing():
    """An import was a bare `OSError`, a `KeyError` in a `__del__`, and a lock for ever where a time limit struck in it."""
    done = run("-c", USED_UP + FIRST_USE)
    assert done.stderr == ""
    said, later = done.stdout.splitlines()
    assert said.startswith("a part of redlock cannot be imported: ")  # where masters are made
    assert "ulimit -n" in said
    assert later == "set()"
