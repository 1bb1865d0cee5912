"""Whether the clocks of masters run at the rate of ours (R43): where they run faster, keys end before their leases.

A time daemon that slews makes the clocks of all masters do so at once, and by more than `drift_factor` (chrony by 8.3
%, its default).  A late message only makes the measured time longer: no delay makes a right clock look fast.  Also
considered: the middle between sending and answer (a delay in one direction looks like a rate); more than two readings
(a slew of a moment cannot be told from a delay).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

APART = 1.0  # the fewest seconds between two readings: a new connection is asked again after that
_UNIT = 2e-6  # seconds; TIME is cut off to half of that, and a float is nearly as exact


class Reading(NamedTuple):
    """A master's ``clock``, in seconds, at some moment between ``sent_at`` and ``at`` of ours."""

    clock: float
    sent_at: float
    at: float


def bounds(first: Reading, second: Reading) -> tuple[float, float]:
    """The least and the greatest rate at which the master's clock can have run: 1.0 is the rate of ours."""
    passed, longest, shortest = second.clock - first.clock, second.at - first.sent_at, second.sent_at - first.at
    return (passed - _UNIT) / longest, (passed + _UNIT) / shortest if shortest > 0 else float("inf")


class Rates:
    """The rates of clocks.  ``surely``: how much faster at least; negative: slower; 0.0: not sure, or allowed."""

    def __init__(self, masters: int, drift_factor: float) -> None:
        self._drift = drift_factor
        self._last: list[Reading | None] = [None] * masters
        self.surely = [0.0] * masters
        self._told = [0.0] * masters
        self._right_from = [float("-inf")] * masters  # it was fast; its vote counts after that

    def forget(self, master: int) -> None:
        """Another process answers for ``master``, perhaps on another machine: its clock is another one."""
        self._last[master] = None

    def answered(self, master: int, reading: Reading, max_ttl: float) -> float:
        """Returns in how many seconds another reading will say more; 0.0: this one says enough, or it is the first."""
        first = self._last[master]
        if first is None:
            self._last[master] = reading
        if first is None or reading.at - first.sent_at < APART:
            return 0.0
        least, greatest = bounds(first, reading)
        if least <= 1 + self._drift < greatest:  # fast or not: a longer time makes a rate surer, so the first stays
            if reading.at - reading.sent_at < (first.at - first.sent_at) / 2:
                self._last[master] = reading
            return reading.at - first.sent_at
        self._last[master] = reading
        if least > 1 + self._drift:
            self.surely[master] = least - 1
            self._right_from[master] = reading.at + max_ttl
        else:
            self.surely[master] = greatest - 1 if greatest < 1 - self._drift else 0.0
        return 0.0

    def votes_from(self, master: int) -> float:
        """The vote of ``master`` counts after that; infinity: not before its clock runs at the right rate."""
        return float("inf") if self.surely[master] > 0 else self._right_from[master]

    def why_not_counted(self, master: int, at: float) -> str:
        surely = self.surely[master]
        if surely <= 0:
            left = self._right_from[master] - at
            right = "has a clock that ran too fast, and runs at the right rate again: its vote counts in"
            return f"{right} {left:.1f} s" if left >= 0 else ""
        known = [rate for rate, last in zip(self.surely, self._last, strict=True) if last is not None]
        all_look_fast = len(known) > len(self.surely) // 2 and min(known) > 0
        ours = ", or that of this machine slower, as all masters look fast" if all_look_fast else ""
        fast = f"has a clock that runs at least {surely:.1%} faster than ours{ours}"
        text = f"{fast}, and its keys may end before their leases"
        return f"{text}: its vote counts when the rate has been right for max_ttl (for chrony, set maxslewrate 500)"

    def changes(self, names: Sequence[str], at: float) -> Iterator[tuple[int, str]]:
        """The masters whose clock has become right, fast or slow since the last call, each with a text."""
        for master, (now, before) in enumerate(zip(self.surely, self._told, strict=True)):
            self._told[master] = now
            if (now > 0) - (now < 0) == (before > 0) - (before < 0):
                continue
            text = self.why_not_counted(master, at) or "has a clock that runs at the right rate again"
            if now < 0:
                text = f"has a clock that runs at least {-now:.1%} slower than ours: no lock is in danger by that"
            yield master, f"master {names[master]} {text}"
