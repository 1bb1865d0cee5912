"""Hypothesis chooses parameters that no seed would draw, and shrinks what it finds.

What is drawn here stays inside the assumptions that the judge knows of; see ``Parameters``.
"""

from __future__ import annotations

from hypothesis import given, settings, strategies as st

from tests.properties.profile import PROPERTY
from tests.simulation.parameters import FAULTS, FEED_FAULTS, draw
from tests.simulation.run import simulate

# A jump ends a quarantine early and nothing is promised then, so it is not drawn with amnesia.
RATES = st.dictionaries(st.sampled_from(FAULTS + FEED_FAULTS), st.sampled_from((0.05, 0.2, 0.6, 2.0)), max_size=5).map(
    lambda rates: tuple((fault, rate) for fault, rate in rates.items() if fault != "jump" or "amnesia" not in rates)
)


@settings(PROPERTY, max_examples=80)
@given(
    seed=st.integers(0, 2**32),
    faults=RATES,
    masters=st.integers(1, 7),
    clients=st.integers(1, 6),
    actors=st.integers(1, 3),
    names=st.integers(1, 3),
    delay=st.floats(0.005, 0.2),
)
def test_any_schedule_keeps_every_promise(seed, faults, masters, clients, actors, names, delay):
    drawn = draw(seed)
    skew = min(drawn.skew, 0.98 * drawn.max_ttl, 0.98 * drawn.fence_ttl)
    simulate(
        draw(
            seed, faults=faults, masters=masters, clients=clients, actors=actors, names=names,
            delay=delay * drawn.node_timeout, skew=skew, fence_ttl=3600.0, budget=600,
        )
    )  # fmt: skip
