"""P8: nothing that the library does removes, shortens or extends somebody else's lock.

The state, the steps and what is true of them are those of P1.  Here the question is about a step alone: what a
request does to keys that are not its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from .exclusive import Exclusive
from .logic import State, Term, both, either, implies, no, same

if TYPE_CHECKING:
    from collections.abc import Sequence


class Foreign(Exclusive):
    promise = "P8"
    title: ClassVar = "Nothing that arrives removes, shortens or extends the key of another token."
    steps: ClassVar[tuple[str, ...]] = (
        "on_acquire",
        "on_settle",
        "on_extend",
        "on_repair",
        "on_release",
        "on_release_to_keep",
    )
    inductive = False
    elsewhere: ClassVar = {}
    needs: ClassVar = (
        "on_acquire, P8: the name is free",
        "on_extend, R12: it still has the key",
        "on_extend, R33: a reader does not write again",
        "on_repair, P8: the name is free",
        "on_release, P8: the key is its own",
        "on_release_to_keep, P8: the key is its own",
    )

    def kept(self, before: State, after: State, args: Sequence[Term]) -> Term:
        """... of master m and token t: what was nobody's key may become one that is nobody's (R28)."""
        _, t, *rest = args
        kept = rest[0] if self.step == "on_release_to_keep" else t
        return self.every("master token", lambda m, u: implies(
            both(before.key[m, u], no(either(u == t, u == kept))),
            both(after.key[m, u], same((after.key_left[m, u],), (before.key_left[m, u],))),
        ))  # fmt: skip
