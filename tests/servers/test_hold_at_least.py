"""A lock that nobody else gets for a while after a grant, whatever becomes of its holder (R28)."""

import re

import pytest

from redlock import ConfigurationError
from tests.servers.commands import CHECK, NO_WAIT, RUN, run
from tests.servers.look import eventually, take

NEW = "--no-restart-guard"


def values(servers):
    return [keys["redlock:job"][0] for keys in servers.keys() if keys and "redlock:job" in keys]


def test_the_last_release_keeps_it_whichever_lock_that_goes_through(redlock_servers, masters):
    outer, inner = masters.lock("job", ttl=30, hold_at_least=20), masters.lock("job", ttl=30)
    take(outer)
    take(inner)
    outer.release()
    assert not values(redlock_servers)[0].startswith("released:")
    inner.release()
    eventually(lambda: [value[:9] for value in values(redlock_servers)] == ["released:"] * 5)


def test_who_asks_for_more_than_the_lease_has_is_refused(masters):
    with masters.lock("job", ttl=30, hold_at_least=5):
        with masters.lock("job", ttl=30, hold_at_least=5), masters.lock("job", ttl=30, hold_at_least=1):
            pass
        with pytest.raises(ConfigurationError, match="with hold_at_least=5, and asks for hold_at_least=6"):
            masters.lock("job", ttl=30, hold_at_least=6).acquire()


def test_it_cannot_be_extended_to_less(masters):
    lock = masters.lock("job", ttl=30, hold_at_least=5)
    lease = take(lock)
    with pytest.raises(ConfigurationError, match=r"ttl=4: allowed is at least hold_at_least \(5 s\)"):
        lock.extend(4)
    assert lease.ttl == 30
    lock.extend(5)
    lock.release()


def test_redlock_run_runs_once_in_a_period(redlock_servers):
    command = [*RUN, NEW, "job", *NO_WAIT, "--hold-at-least", "40", "--verbose", "--owner", "cron-1"]
    first = run([*command, "--", "echo", "ran"], redlock_servers.urls)
    assert (first.returncode, first.stdout) == (0, "ran\n"), first.stderr
    assert "TTL 40 s" in first.stderr  # at least that
    assert re.search(r"released 'job'; no other client gets it for another \d+\.\d s", first.stderr)
    second = run([*command, "--", "echo", "ran"], redlock_servers.urls)
    assert (second.returncode, second.stdout) == (75, ""), second.stderr
    assert re.search(r"'job' was released by cron-1, and no client gets it for \d+\.\d s more", second.stderr)
    listed = r"(?m)^job +cron-1, released +\d+\.\d s +[345] of 5 +0$"
    eventually(lambda: re.search(listed, run([*CHECK, NEW, "--held"], redlock_servers.urls).stdout))  # some may be late
