"""Takes back what an attempt may have left on masters (R9), despite interruptions (R11)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redlock._core.effects import Leave, Op, Send
from redlock._core.outcomes import NEVER

if TYPE_CHECKING:
    from redlock._core.kernel.rounds import Round
    from redlock._core.settings import LockSpec


def rollback(spec: LockSpec, token: str, round_: Round) -> Op[BaseException | None]:
    """Release on all masters that may have the key, above all on the silent ones (R9).

    No caller waits for the answers.  On each connection the release follows the acquire (R10).  If the connection
    breaks before the answer, the release is owed for as long as the key can live.  Returns an interruption, or None.
    """
    sent_at = round_.sent_at
    if sent_at == NEVER:  # interrupted before the round was sent
        return None
    call = spec.mode.release(spec.keys, token, 0.0, None)
    return (yield from despite_interrupts(Send(call, to=round_.reached(), owed_until=sent_at + 2 * spec.lasts)))


def carry_out(*effects: Send | Leave) -> Op[None]:
    """`despite_interrupts`, and raise the first interruption."""
    interruption = yield from despite_interrupts(*effects)
    if interruption is not None:
        raise interruption


def raise_graver(first: BaseException, second: BaseException | None) -> None:
    """Raise ``second``, if it is a Ctrl-C that struck in the cleanup after an error: the caller must get it (R11)."""
    if isinstance(first, Exception) and second is not None and not isinstance(second, Exception):
        raise second


def despite_interrupts(*effects: Send | Leave) -> Op[BaseException | None]:
    """Carry out each effect, up to three times if Ctrl-C comes: that does no harm.  Returns the first interruption."""
    first: BaseException | None = None
    for effect in effects:
        for _ in range(3):
            try:
                yield effect
            except GeneratorExit:
                raise
            except BaseException as interruption:  # noqa: BLE001 - handed to the caller
                first = first or interruption
            else:
                break
    return first
