"""verdict.json."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ..history import History
    from ..judge import Verdict
    from ..summary import Summary

SCHEMA: Final = 1


def document(history: History, verdict: Verdict, summary: Summary) -> dict[str, object]:
    """What docs/chaos-history.md describes; `json.dumps` takes it as it is."""
    return {
        "schema": SCHEMA,
        **verdict.as_dict(),
        "perhaps_cut": history.perhaps_cut,
        "history": history.header.as_dict(),
        "summary": summary.as_dict(),
    }
