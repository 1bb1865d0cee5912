"""A signal that interrupts no system call ends a pause all the same."""

from __future__ import annotations

from tests.servers.process import run

CODE = """
import signal, sys, threading, time
from redlock._cli.pause import pause

def strike():  # a thread that strikes itself interrupts no other thread
    time.sleep(0.2)
    signal.pthread_kill(threading.get_ident(), signal.SIGINT)

try:
    threading.Thread(target=strike, daemon=True).start()
    pause(100)
except KeyboardInterrupt:
    print("ended")
"""


def test_a_signal_just_before_a_sleep_is_not_lost():
    done = run("-c", CODE)
    assert (done.stdout, done.stderr) == ("ended\n", "")
