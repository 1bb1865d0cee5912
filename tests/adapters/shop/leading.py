"""One of the workers leads."""

import os

from redlock.adapters.django import masters
from redlock.adapters.wsgi import in_background

election = masters().leader("worker", ttl=float(os.environ.get("TTL", "50")))


def lead(term):
    print("leads", os.getpid(), term.number, flush=True)
    term.wait_stop()
    print("led", os.getpid(), term.number, flush=True)


def start():
    in_background(election, lead)
