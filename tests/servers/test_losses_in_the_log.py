"""A lost lease is logged, once, whoever finds it out: with its reason, its owner, and whether its body still ran."""

from tests.servers.process import run

NO_LOGGING = """
import sys, time
from redlock import Masters
with Masters(sys.argv[1:], restart_guard=False) as masters:
    lock = masters.lock("job", ttl=1, auto_extend=False)
    lock.acquire()
    time.sleep(1.1)
    print(lock.lease.valid)
"""


def test_a_program_that_configures_no_logging_is_told_on_standard_error(redlock_servers):
    """By Python's handler of last resort: an application that wants something else configures `logging`."""
    done = run("-c", NO_LOGGING, *redlock_servers.urls)
    assert done.stdout == "False\n"
    assert done.stderr.startswith("the lease on 'job' was lost: it expired")
    assert done.stderr.count("\n") == 1


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
