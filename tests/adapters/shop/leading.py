"""One of the workers leads."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from redlock.adapters.django import masters
from redlock.adapters.wsgi import in_background

if TYPE_CHECKING:
    from redlock import Term

election = masters().leader("worker", ttl=float(os.environ.get("TTL", "50")))


def lead(term: Term) -> None:
    print("leads", os.getpid(), term.number, flush=True)
    term.wait_stop()
    print("led", os.getpid(), term.number, flush=True)


def start() -> None:
    in_background(election, lead)
