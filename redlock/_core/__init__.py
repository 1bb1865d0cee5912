"""Every decision of the algorithm, as pure generators and plain state.

Only the delays of `retry` are random, and nothing in here uses a clock, a socket, a thread or an event loop.  Times
arrive with events.  Tokens and wall time come from sources that are handed in.  So the same code runs under threads,
asyncio and the virtual time of the simulation.  ``tests/test_floor_plan.py`` proves it.
"""
