"""A leader in a process that has something else to do, as a worker of gunicorn: it leads in a thread of its own.

It knows no framework, and needs no extra.
"""

from __future__ import annotations

import atexit
import concurrent.futures.thread  # noqa: F401 - it registers its own call at exit, before we do
import logging
import threading
from typing import TYPE_CHECKING, Any

from redlock import ConfigurationError, RedlockError

if TYPE_CHECKING:
    from collections.abc import Callable

    from redlock import Election, Term

__all__ = ["in_background"]

_log = logging.getLogger("redlock")
_AGAIN = 30.0  # seconds between campaigns that fail at once
_running: set[Callable[[], None]] = set()  # how to end each of them


def _stop_all() -> None:
    for stop in list(_running):
        stop()


# What is registered here is called in reverse order, when the main thread has just ended.  `atexit` is later: by then
# pools of threads, which a body may use, take no more work, and what ran in them was waited for.  A forked child calls
# it as well, on copies whose threads it does not have.
getattr(threading, "_register_atexit", atexit.register)(_stop_all)


def in_background(election: Election, lead: Callable[[Term], object], **options: Any) -> Callable[[], None]:
    """Be a candidate from now on: ``lead(term)`` is called in a thread of its own, in each term.

    Call it in the process that is to lead: threads do not survive a fork.  For gunicorn that is ``post_worker_init``,
    with and without ``--preload``.

    What ``lead`` raises is logged, and the next campaign begins after a growing random pause of up to 30 s
    (``on_error="retry"``).  Where no campaign is possible (a wrong password on a majority of the masters), that is
    logged every 30 s, and tried again.

    Args:
        election: a new one; after the end it has stopped for good.
        lead: the body of each term, as for `Election.run`.  It should look at `Term.should_stop`.
        options: ``on_stopped`` and ``on_new_leader``, as for `Election.run`.

    Returns:
        A function that stops the election, and waits until ``lead`` has ended and the lock was given back.  At the exit
        of the process it is called anyway.  A process that is killed before leaves the lock to its TTL.
    """
    ended = threading.Event()
    thread = threading.Thread(
        target=_campaigns,
        args=(election, lead, options, ended),
        name=f"redlock-leader {election.name}",
        daemon=True,  # `_stop_all` waits for it
    )

    def stop() -> None:
        _running.discard(stop)
        ended.set()
        election.stop()
        thread.join()

    thread.start()
    _running.add(stop)
    return stop


def _campaigns(
    election: Election, lead: Callable[[Term], object], options: dict[str, Any], ended: threading.Event
) -> None:
    while not ended.is_set():
        try:
            election.run(lead, on_error="retry", **options)
        except ConfigurationError:
            raise  # `threading.excepthook` shows it
        except RedlockError:
            _log.exception("no campaign for %r is possible; trying again in %g s", election.name, _AGAIN)
            ended.wait(_AGAIN)
        else:
            return  # it was stopped; or ``lead`` has forked, and this is the child
