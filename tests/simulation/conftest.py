"""What all runs in this process share."""

from __future__ import annotations

from tests.simulation.seeds import collect_rarely

collect_rarely()
