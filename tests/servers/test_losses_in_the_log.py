"""What the log says of a loss right before the end of a program.  The rest is in `scenes/test_loss.py`."""

from tests.servers.process import run

ENDS_RIGHT_AFTER = """
import sys, time
from redlock import Masters

masters = Masters(sys.argv[1:], restart_guard=False, node_timeout=10)
options = {"ttl": 40, "max_hold": 0.5, "bound": False}
locks = [masters.lock("first", on_lost=lambda _: time.sleep(1.0), **options), masters.lock("second", **options)]
for lease in [lock.acquire() for lock in locks]:
    assert lease.wait_lost(20)
"""


def test_a_program_that_ends_right_after_a_loss_has_it_in_the_log(redlock_servers):
    """R11: its thread is a daemon, which the interpreter stops wherever it is."""
    done = run("-c", ENDS_RIGHT_AFTER, *redlock_servers.urls)
    assert "the lease on 'second' was lost: max_hold was reached" in done.stderr
