"""How long to look: enough to find what a reader would not, within seconds."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

PROPERTY = settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.too_slow])
