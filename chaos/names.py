"""How masters and clients are called in a history."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .plan import Strike


def master(number: int) -> str:
    return f"master-{number}"


def client(seat: int, generation: int) -> str:
    """``generation`` 0 is the first process on this seat; later ones came when that had been killed."""
    return f"client-{seat}" if not generation else f"client-{seat}+{generation}"


def struck(strike: Strike) -> tuple[str, ...]:
    """The masters and clients at the ends of what ``strike`` strikes, but for clients that it strikes themselves."""
    masters = {master for _, master in strike.links} | set(strike.masters)
    clients = {client for client, _ in strike.links}
    return (*(client(seat, 0) for seat in sorted(clients)), *(master(number) for number in sorted(masters)))
