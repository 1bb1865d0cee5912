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
)  # fmt: skip
from tests.bench.variants.variant import Caught, Variant, cases, hunt

VARIANTS: dict[str, Variant] = {
    **client.VARIANTS,
    **holding.VARIANTS,
    **leading.VARIANTS,
    **fleet.VARIANTS,
    **quorum.VARIANTS,
    **rates.VARIANTS,
    **functions.VARIANTS,
    **confirming.VARIANTS,
    **waiting.VARIANTS,
    **sharing.VARIANTS,
    **decisions.VARIANTS,
}

__all__ = ["VARIANTS", "Caught", "Variant", "cases", "hunt"]
