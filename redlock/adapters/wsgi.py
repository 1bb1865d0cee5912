"""A leader in a process that has something else to do, as a worker of gunicorn: it leads in a thread of its own.

It knows no framework, and needs no extra.
"""

from __future__ import annotations

import atexit
import concurrent.futures.thread  # noqa: F401 - it registers its own call at exit, before we do
import functools
import logging
import threading
from typing import TYPE_CHECKING

from redlock import ConfigurationError, Election

if TYPE_CHECKING:
    from collections.abc import Callable

    from redlock import Term

__all__ = ["in_background"]

_log = logging.getLogger("redlock")
_AGAIN = 30.0  # seconds between campaigns that fail at once
_running: set[Callable[[], None]] = set()  # how to end each of them


def _stop_all() -> None:
    for stop in list(_running):
        stop()


# Functions registered here run in reverse order, when the main thread has just ended.  `atexit` is later: by then
# pools of threads, which a body may use, take no more work, and what ran in them was waited for.  A forked child calls
# it as well, on copies whose threads it does not have.
getattr(threading, "_register_atexit", atexit.register)(_stop_all)


def in_background(
    election: Election,
    lead: Callable[[Term], object],
    on_stopped: Callable[[Term], object] | None = None,
    on_new_leader: Callable[[str], object] | None = None,
) -> Callable[[], None]:
    """Be a candidate from now on: ``lead(term)`` is called in a thread of its own, in each term.

    Call it in the process that is to lead: threads do not survive a fork.  For gunicorn that is ``post_worker_init``,
    with and without ``--preload``.

    What ``lead`` raises is logged, and the next campaign begins after a growing random pause of up to 30 s
    (``on_error="retry"``).  A ``sys.exit()`` in it is such an error: from a thread it ends no process.  Where no
    campaign is possible (a wrong password on a majority of the masters), that is logged every 30 s, and tried again.

    Args:
        election: a new one; after the end it has stopped for good.
        lead: the body of each term, as for `Election.run`.  It should look at `Term.should_stop`.
        on_stopped: as for `Election.run`.
        on_new_leader: as for `Election.run`.

    Returns:
        A function that stops the election, and waits until ``lead`` has ended and the lock was given back.  At the exit
        of the process it is called anyway.  A process that is killed before leaves the lock to its TTL.

    Raises:
        ConfigurationError: an argument cannot be right.
    """
    if not isinstance(election, Election):
        raise ConfigurationError(f"election is a {type(election).__name__}: allowed is an Election, of Masters.leader")
    election._check(lead, on_stopped, on_new_leader)  # noqa: SLF001 - now: in its thread it would be lost
    ended = threading.Event()
    thread = threading.Thread(
        target=_campaigns,
        args=(election, _ends_nothing(lead), on_stopped and _ends_nothing(on_stopped), on_new_leader, ended),
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


def _ends_nothing(function: Callable[[Term], object]) -> Callable[[Term], object]:
    """``function``, in which `sys.exit` and the like are errors as any other.

    They would end the thread without a word, and it would not lead any more.
    """

    @functools.wraps(function)
    def called(term: Term) -> None:
        try:
            function(term)
        except Exception:
            raise
        except BaseException as error:
            raise RuntimeError(f"{type(error).__name__} ends only the term here: {error}") from error

    return called


def _campaigns(
    election: Election,
    lead: Callable[[Term], object],
    on_stopped: Callable[[Term], object] | None,
    on_new_leader: Callable[[str], object] | None,
    ended: threading.Event,
) -> None:
    while not ended.is_set():
        try:
            election.run(lead, on_stopped, on_new_leader, on_error="retry")
        except Exception:  # noqa: BLE001 - it would be lost, and the candidate would be gone
            _log.exception("no campaign for %r is possible; trying again in %g s", election.name, _AGAIN)
            ended.wait(_AGAIN)
        else:
            return  # it was stopped; or ``lead`` has forked, and this is the child
