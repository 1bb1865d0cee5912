"""Spans of real locks hang where the caller stands, and renewals in the background change nothing of that."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest
from opentelemetry import trace

from redlock import AsyncMasters, Masters
from tests.observe.spans import Spans, events, under
from tests.servers.look import take
from tests.servers.process import soon

TTL = 4.5  # a renewal is soon, and none too late on a machine that stands still for a second or two


@pytest.fixture
def spans():
    return Spans()


async def test_parents_in_tasks(redlock_servers, spans):
    async with AsyncMasters(redlock_servers.urls, restart_guard=False, observer=spans.observer) as masters:

        async def work(name):
            with spans.tracer.start_as_current_span(name) as span:
                async with masters.lock(name, ttl=TTL) as lease:
                    valid_until = lease.valid_until
                    await soon(lambda: lease.valid_until > valid_until)  # renewed
                assert trace.get_current_span() is span
            return span

        of = dict(zip("ab", await asyncio.gather(work("a"), work("b")), strict=True))
    for kind in ("redlock.acquire", "redlock.held"):
        found = spans.all(kind)
        assert len(found) == 2
        for span in found:
            assert under(span, of[span.attributes["redlock.lock"]])
    for held in spans.all("redlock.held"):
        assert events(held, "redlock.renewed")
    assert len({span.context.trace_id for span in spans.all("redlock.held")}) == 2


def test_a_lease_outlives_the_span_in_which_it_was_taken(redlock_servers, spans):
    """A request takes it and ends; it is renewed, extended elsewhere, and released by another request."""
    with Masters(redlock_servers.urls, restart_guard=False, observer=spans.observer) as masters:
        lock = masters.lock("job", ttl=TTL, bound=False)
        with spans.tracer.start_as_current_span("first") as first:
            take(lock)
        with spans.tracer.start_as_current_span("second") as second:
            lock.extend()
        with ThreadPoolExecutor(1) as pool:
            pool.submit(lock.release).result()
    assert under(spans.one("redlock.held"), first)
    assert under(spans.one("redlock.extend"), second)
