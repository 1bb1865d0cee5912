"""A leader in the lifespan of an application.  With FastAPI and uvicorn: docs/howto/web-leader.md, shutdown.md."""

import asyncio
import logging

import pytest

from redlock import ConfigurationError
from redlock.adapters import asgi
from redlock.adapters.asgi import leading
from tests.servers.look import each
from tests.servers.process import soon


@pytest.fixture
def election(async_masters, servers):
    return async_masters.leader("application", ttl=60)


async def test_it_leads_beside_the_application_and_gives_the_lock_back(async_masters, election):
    began, ended = asyncio.Event(), []

    async def lead(term):
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.append((await async_masters.status("application")).token == term.lease.token)

    async with leading(election, lead):
        await began.wait()
        assert election.term is not None
    assert ended == [True]  # it had the lock until its end
    assert election.term is None
    assert (await async_masters.status("application")).token is None


async def test_an_application_that_fails_ends_its_candidacy(async_masters, election):
    async def lead(term):
        await asyncio.Event().wait()

    with pytest.raises(OSError, match="port in use"):
        async with leading(election, lead):
            await soon(lambda: election.term)
            raise OSError("port in use")
    assert (await async_masters.status("application")).token is None


async def test_a_campaign_that_is_impossible_is_logged_and_tried_again(
    servers, async_masters, election, caplog, monkeypatch
):
    monkeypatch.setattr(asgi, "_AGAIN", 0.05)
    each(servers, "config_set", "requirepass", "unknown")
    began = asyncio.Event()

    async def lead(term):
        began.set()

    with caplog.at_level(logging.ERROR, "redlock"):
        async with leading(election, lead):
            await soon(lambda: "no campaign" in caplog.text)
            each(servers, "config_set", "requirepass", "")
            await began.wait()


async def test_the_end_does_not_wait_for_the_next_try(async_masters, election, caplog):
    async def lead(term):
        pass

    async with asyncio.timeout(asgi._AGAIN / 2):
        await async_masters.close()
        async with leading(election, lead):
            await soon(lambda: "no campaign" in caplog.text)


async def test_whoever_cancels_the_candidate_is_obeyed_and_it_is_said(async_masters, election, caplog):
    began, before = asyncio.Event(), asyncio.all_tasks()

    async def lead(term):
        began.set()
        await asyncio.Event().wait()

    with pytest.raises(asyncio.CancelledError):
        async with leading(election, lead):
            await began.wait()
            candidate = asyncio.all_tasks() - before
            for task in candidate:
                task.cancel()
            await asyncio.wait(candidate)
    assert (await async_masters.status("application")).token is None
    assert "was cancelled" in caplog.text


async def test_wrong_arguments_are_refused_where_they_are_given(election):
    async def lead(term):
        pytest.fail("it leads")

    for arguments in (
        (election, None),
        (election, lambda term: None),
        (election, lead, 5),
        (election, lead, None, 5),
        (object(), lead),
    ):
        with pytest.raises(ConfigurationError):
            async with leading(*arguments):
                pytest.fail("it began")
    with pytest.raises(TypeError, match="nonsense"):
        leading(election, lead, nonsense=1)  # type: ignore[call-arg]
