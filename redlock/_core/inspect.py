"""Ask masters who holds a name, and change nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from redlock._core import wire
from redlock._core.quorum import majority
from redlock._core.rounds import Round
from redlock._core.tokens import owner_of, whose

if TYPE_CHECKING:
    from redlock._core.effects import Op
    from redlock._core.quorum import Tally
    from redlock._core.rounds import RoundEnd
    from redlock._core.settings import MastersSettings
    from redlock.errors import Outcome, Vote


@dataclass(frozen=True, slots=True)
class LockStatus:
    """The holder of a name, as its masters saw it a moment ago.

    This is a look and no promise: the holder may have changed before you read it.

    Attributes:
        name: the name that was looked at.
        token: the token that a majority of masters has, None if no majority is known to have one; see ``votes``.
        remaining: seconds until the holder loses its majority, unless the lease is extended.
        fence: the greatest fencing token that a master showed, None if none did.
        votes: what each master said: ``held``, ``free``, or why it did not count.
    """

    name: str
    token: str | None
    remaining: float
    fence: int | None
    votes: tuple[Vote, ...]

    @property
    def owner(self) -> str:
        """Who has the lock, as the token says; "" if it does not say, or nobody has it.  A hint, no proof (R27)."""
        return owner_of(self.token)


class Look(Round):
    """The round of a status: what every master knows of a name."""

    _end: ClassVar[RoundEnd] = "complete"

    def __init__(self, settings: MastersSettings, call: wire.Call) -> None:
        super().__init__(settings, call)
        self.seen: dict[int, wire.Seen] = {}

    def read(self, master: int, value: Any) -> tuple[Outcome, str]:
        self.seen[master] = answer = wire.read_status(value)
        if answer.holder:
            return "held", f"by {whose(answer.holder)} {wire.how_long(answer.remaining)}"
        return "free", ""


def inspect(settings: MastersSettings, name: str, key: str) -> Op[tuple[LockStatus, Tally]]:
    """Ask all masters, and wait for all of them up to `node_timeout`: a view with holes helps nobody."""
    look = Look(settings, wire.status(key))
    yield from look.ask()
    seen, tally = look.seen, look.tally
    counted = [answer for master, answer in seen.items() if tally.outcome(master) in ("held", "free")]
    need = majority(tally.size)
    token, remaining = None, 0.0
    for holder in {answer.holder for answer in counted if answer.holder}:
        left = sorted((answer.remaining for answer in counted if answer.holder == holder), reverse=True)
        if len(left) >= need:
            # The majority lasts as long as its need-th longest key.  The median of the answers is something else.
            token, remaining = holder, left[need - 1]
    fence = max((answer.fence for answer in seen.values()), default=0)
    return LockStatus(name, token, remaining, fence or None, tally.votes()), tally
