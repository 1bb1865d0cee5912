from __future__ import annotations

import pytest

from tests.observe.read import SYSTEMS, Observed


@pytest.fixture(params=sorted(SYSTEMS))
def observed(request):
    """Each system of metrics."""
    system = SYSTEMS[request.param]()
    yield Observed(system)
    system.close()
