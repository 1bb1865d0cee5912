"""What was broken in the choice between scripts and functions (R44)."""

from __future__ import annotations

from tests.bench.library import Patch
from tests.bench.parameters import FAMILIES
from tests.bench.variants.variant import broken, seeded

_ALONE = "test_functions.test_a_user_who_may_run_no_script_takes_locks_where_the_library_is_loaded"
_FLUSHED = "test_functions.test_what_masters_take_away_while_clients_work_costs_no_vote"
_MIXED = "test_functions.test_some_masters_have_the_library_and_the_others_run_scripts"

VARIANTS = {
    "functions-never-called": broken("A client runs scripts also where the library is loaded (R44)", _ALONE,
        Patch("redlock._connect", "functions = isinstance(library, bytes)", "functions = False")),
    "chosen-for-ever": broken("A connection whose library is gone goes on calling functions (R44)", _FLUSHED,
        Patch("redlock._core.pipeline", "if error.withdrawn:", "if False:")),
    "flushed-is-a-vote-less": broken("What was asked when the library was flushed fails, and is not asked over the next connection (R44)", _FLUSHED,
        Patch("redlock._core.pipeline", "self.heard_at = NEVER\n            raise", "raise")),
    "chosen-for-a-restarted-master": seeded(
        "A master that has lost its library in a restart is called as before: the first connection has chosen (R44)",
        ("R14 whole", "P7 clean", "ends"),
        FAMILIES["functions"],
        Patch(
            "redlock._io.connections",
            "connection.pipeline.functions = facts.functions",
            "connection.pipeline.functions |= facts.functions",
        ),
    ),
    "all-asked-as-most-are": broken("What is packed for most masters is sent to those as well that are asked in the other way (R44)", _MIXED,
        Patch("redlock._io.connections", "pipeline.odd = pipeline.functions is not functions", "pipeline.odd = False")),
}  # fmt: skip
