"""A world without faults, for scenes that are told directly."""

from __future__ import annotations

from tests.simulation.client import Client
from tests.simulation.parameters import Parameters
from tests.simulation.run import Run


def quiet(**values):
    """A world without faults: one client a name, all links up."""
    return Run(Parameters(seed=1, duration=1.0, clients=0, ttl=30.0, max_ttl=60.0, delay=0.001, **values))


def client_of(run, skew=0.0):
    client = Client(run.world, run.judge, run.parameters, run.masters, f"c{len(run.clients)}", rate=1.0, skew=skew)
    client.closing = True  # its actors do what they are told, and nothing else
    run.clients.append(client)
    for link in client.links:
        client.connect(link)
    run.world.run(run.world.now + 0.05)
    return client
