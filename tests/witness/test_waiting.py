"""Each rule about waiting, once, on real servers.  The scenes of the same subject prove it."""

import subprocess
import sys

from tests.owners import witness
from tests.servers.commands import environment
from tests.servers.look import eventually, in_line, take
from tests.servers.waiter import NEVER, Waiting, subscribers_up

WAITS = "from redlock import Masters; Masters({!r}, restart_guard=False).lock('job', fair=True).acquire()"


@witness("R24")
def test_a_release_wakes_a_waiter_of_another_process(world, masters, others):
    held = others.lock("job", ttl=30)
    take(held)
    waiting = Waiting(masters.lock("job", ttl=30, retry=NEVER))
    eventually(lambda: subscribers_up(world, masters) == 5)
    held.release()
    assert waiting.end() is not None


@witness("R42")
def test_a_waiter_in_order_is_served_behind_one_that_is_killed(redlock_servers, masters, others):
    held = others.lock("job", ttl=30)
    take(held)
    with subprocess.Popen([sys.executable, "-c", WAITS.format(redlock_servers.urls)], env=environment()) as dead:
        try:
            eventually(lambda: sum(one == 1 for one in in_line(redlock_servers)) >= 3)
            waiting = Waiting(masters.lock("job", fair=True, retry=NEVER))
            eventually(lambda: sum(one == 2 for one in in_line(redlock_servers)) >= 3)
        finally:
            dead.kill()
    held.release()
    assert waiting.end() is not None
