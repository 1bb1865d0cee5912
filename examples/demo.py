"""Five real masters on this machine, and what the lock does when they die, freeze and forget.

``make demo``, or ``python -m examples.demo``.
"""

from __future__ import annotations

import logging
import sys
import time
from typing import TYPE_CHECKING

from redlock import LockUnavailable, Masters, NotAcquired, QuorumUnreachable
from redlock.testing import LocalMasters

if TYPE_CHECKING:
    from redlock import MultiLock, Vote

NAME = "invoice:42"
# So short that the demo needs no patience; 30 s and 60 s are usual.
TTL = 2.0


def say(title: str, explanation: str) -> None:
    bold, plain = ("\033[1m", "\033[0m") if sys.stdout.isatty() else ("", "")
    print(f"\n{bold}{title}{plain}\n{explanation}")


def show(votes: tuple[Vote, ...]) -> None:
    for vote in votes:
        print(f"    {vote}")


def show_error(error: LockUnavailable) -> None:
    print("  " + f"{type(error).__name__}: {error}".replace("\n", "\n  "))


def demo(servers: LocalMasters) -> None:
    with Masters(servers.urls, max_ttl=TTL, node_timeout=0.2) as ours:
        say(
            "0. Five masters have just been started",
            f"None may vote until it has been up for max_ttl ({TTL:g} s): it might have forgotten a lock (R21).",
        )
        began = time.monotonic()
        with ours.lock("warm-up", ttl=TTL, timeout=10):
            print(f"  the first lock was granted after {time.monotonic() - began:.1f} s")
        while not all_vote(ours):  # two of them are killed soon
            if time.monotonic() > began + 30:
                sys.exit("One of the five masters does not vote after 30 s: is the machine very busy? Try again.")
            time.sleep(0.05)
        print(f"  all five vote after {time.monotonic() - began:.1f} s")
        with Masters(servers.urls, max_ttl=TTL, node_timeout=0.2) as theirs:
            with theirs.lock("warm-up", ttl=TTL, timeout=10):
                pass
            first = taken_and_refused(ours, theirs)

        lock = ours.lock(NAME, ttl=TTL)
        say("3. Two masters are killed", "Three of five are a majority: a lease is kept, and extended.")
        with lock as lease:
            servers.kill(0)
            servers.kill(1)
            lock.extend()
            print(f"  extended: valid for {lease.remaining():.3f} s")
        with lock as lease:
            print("  and taken anew:")
            show(lease.votes)

        say(
            "4. A third one freezes",
            "No majority can answer: an outage is told apart from a lock that somebody holds.",
        )
        servers.pause(2)
        began = time.monotonic()
        try:
            lock.acquire(timeout=0)
        except QuorumUnreachable as error:
            show_error(error)
            print(f"  after {(time.monotonic() - began) * 1000:.0f} ms; node_timeout is 200 ms")
        servers.resume(2)

        say(
            "5. A killed master is restarted empty",
            "It would grant what it forgot: it is asked, and its vote is not counted.",
        )
        servers.restart(0, keep_data=False)
        show(votes_with_the_restarted(lock))

        say("6. The next grant has a greater fence", "Whatever died in between, and without a clock that agrees.")
        with lock as lease_after:
            assert lease_after.fence is not None
            print(f"  {lease_after.fence} is {lease_after.fence - first:,} more than {first}")
            assert lease_after.fence > first

    left = [key for keys in servers.keys("redlock:*") if keys for key in keys]
    print(f"\nLock keys left on the masters that are up: {len(left)}")
    assert not left, left


def all_vote(masters: Masters) -> bool:
    try:
        return {vote.outcome for vote in masters.status(NAME).votes} == {"free"}
    except QuorumUnreachable:
        return False


def taken_and_refused(ours: Masters, theirs: Masters) -> int:
    say(
        "1. A lease",
        "Held on a majority; valid for the TTL less the time it took, less 1 % and 2 ms for clock drift.",
    )
    began = time.monotonic()
    with ours.lock(NAME, ttl=TTL) as lease:
        print(f"  granted in {(time.monotonic() - began) * 1000:.2f} ms, valid for {lease.remaining():.3f} s")
        print(f"  fencing token {lease.fence}: hand it to the store that you write to, which refuses smaller ones")
        show(lease.votes)
        assert lease.fence is not None

        say("2. A second client is refused", "It is told who holds the lock, and for how long.")
        try:
            with theirs.lock(NAME, ttl=TTL, timeout=0):
                raise AssertionError("two holders")
        except NotAcquired as error:
            show_error(error)
        return lease.fence


def votes_with_the_restarted(lock: MultiLock) -> tuple[Vote, ...]:
    """It is connected to in the background, and may answer after the round is decided."""
    until = time.monotonic() + 1.5
    while True:
        with lock as lease:
            votes = lease.votes
        if votes[0].outcome == "quarantined" or time.monotonic() > until:
            return votes
        time.sleep(0.01)


def main() -> None:
    # The library says once when a master goes down and when it is back; a silent logger is the default.
    logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="  (log: %(message)s)")
    with LocalMasters(5) as servers:
        demo(servers)
    print("Servers stopped: nothing is left behind.")


if __name__ == "__main__":
    main()
