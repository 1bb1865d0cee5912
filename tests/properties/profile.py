"""How all properties look: enough to find what a reader would not, within seconds."""

from __future__ import annotations

from hypothesis import HealthCheck, core, settings

# A slow machine is no reason to fail, and the test command gives the same answer twice; --hypothesis-seed=N draws others.
PROPERTY = settings(
    derandomize=core.global_force_seed is None,
    database=None,
    deadline=None,
    max_examples=150,
    suppress_health_check=[HealthCheck.too_slow],
)
