"""A FastAPI application, of whose workers one leads."""

import asyncio
import contextlib
import os

from fastapi import FastAPI

from redlock import AsyncMasters
from redlock.adapters.asgi import leading


async def lead(term):
    print("leads", os.getpid(), term.number, flush=True)
    await asyncio.sleep(3600)


@contextlib.asynccontextmanager
async def lifespan(app):
    async with AsyncMasters.from_env(restart_guard=False) as masters:
        app.state.election = masters.leader("application", ttl=float(os.environ["TTL"]))
        async with leading(app.state.election, lead):
            yield


app = FastAPI(lifespan=lifespan)


@app.get("/wait")
async def wait():
    print("waits", flush=True)
    async with AsyncMasters.from_env(restart_guard=False) as masters, masters.lock("held"):
        pass


@app.get("/health")
async def health():
    term = app.state.election.term
    return {"term": term and term.number}
