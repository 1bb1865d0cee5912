"""The library, broken, by name: what the bench must be able to see.

Each is a bug that was there, or could have been.  A patch names the text that it replaces, in a module or in a script
(``acquire.lua``): where that has gone, the variant says so, and has to be written anew.  A bench that is green for one
of these would prove nothing by being green.
"""

from tests.bench.variants import (
    client,
    confirming,
    decisions,
    fleet,
    functions,
    holding,
    leading,
    quorum,
    rates,
    sharing,
    waiting,
)
from tests.bench.variants.variant import Caught, Variant, cases, hunt

_BY_SUBJECT = (
    client, holding, leading, fleet, quorum, rates, functions, confirming, waiting, sharing, decisions,
)  # fmt: skip
VARIANTS: dict[str, Variant] = {name: one for module in _BY_SUBJECT for name, one in module.VARIANTS.items()}

__all__ = ["VARIANTS", "Caught", "Variant", "cases", "hunt"]
