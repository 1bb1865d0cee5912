"""`make uneven`: two of five masters are late, in every test.  A plugin: ``pytest -p tests.servers.uneven``.

Their answers pass a relay that holds each for a while, as if these two were far away or busy.  A test that looks at one
master where a majority is meant shows that within minutes, as it does on a busy machine within weeks.  What a test itself
asks a server (`LocalMasters.client`) passes no relay.

It is for reading, and no part of CI: tests that count the descriptors of this process, fork it, or expect the vote or the
address of each single master see the relay as well, and fail here for that reason alone.
"""

import os
from functools import cache, partial
from unittest import mock

from chaos.backends.relay import Relay
from redlock.testing import LocalMasters

LATE = float(os.environ.get("REDLOCK_TEST_LATE", "0.03"))  # seconds that each answer of these two is held


_opened: dict[int, int] = {}


@cache
def _relay():
    return Relay()


def _late(port):
    """The port of a relay before the master that listens on ``port``; it is there as long as this process."""
    if port not in _opened:
        _opened[port] = _relay().open((0, port), "127.0.0.1", 0, port)
        _relay().change({(0, one): {"slow": LATE} for one in _opened})
    return _opened[port]


def _urls(straight, masters):
    """Those of `LocalMasters`, where the last ones, always a minority, are those of relays."""
    urls, ports = straight(masters), masters.ports
    first = len(urls) // 2 + 1
    return [
        url.replace(f":{port}", f":{_late(port)}") if number >= first else url
        for number, (url, port) in enumerate(zip(urls, ports, strict=True))
    ]


def pytest_configure(config):
    straight = vars(LocalMasters)["urls"].fget
    patch = mock.patch.object(LocalMasters, "urls", property(partial(_urls, straight)))
    patch.start()
    config.add_cleanup(patch.stop)
