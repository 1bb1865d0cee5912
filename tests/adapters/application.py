"""A FastAPI application, of whose workers one leads."""

from __future__ import annotations

import asyncio
import contextlib
import os
from typing import TYPE_CHECKING

from fastapi import FastAPI

from redlock import AsyncMasters
from redlock.adapters.asgi import leading

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from redlock import AsyncTerm


async def lead(term: AsyncTerm) -> None:
    print("leads", os.getpid(), term.number, flush=True)
    await asyncio.sleep(3600)


@contextlib.asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    async with AsyncMasters.from_env(restart_guard=False) as masters:
        app.state.election = masters.leader("application", ttl=float(os.environ["TTL"]))
        async with leading(app.state.election, lead):
            yield


app = FastAPI(lifespan=lifespan)


@app.get("/wait")
async def wait() -> None:
    print("waits", flush=True)
    async with AsyncMasters.from_env(restart_guard=False) as masters, masters.lock("held"):
        pass


@app.get("/health")
async def health() -> dict[str, int | None]:
    term = app.state.election.term
    return {"term": term and term.number}
