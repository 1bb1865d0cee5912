"""``python -m tests.simulation.bare``: how long leases rest on a bare majority, with and without R37, and what it costs.

Many clients want one name at once, and the clock of one master steps to and fro.  That is more than P1 allows, and a lease
on a bare majority is what it takes to see that.  Printed for the shipped lock and for one that is never made whole: the
share of lease-seconds in which no more masters than a bare majority had the key, and how many grants overlapped.
"""

from __future__ import annotations

import argparse
import random
from dataclasses import dataclass
from unittest import mock

from redlock._core import renewals, whole as whole_module
from tests.simulation.invariants import P1, Judge
from tests.simulation.parameters import rivals
from tests.simulation.run import Run, collect_rarely

LOOK = 1.0  # seconds between two looks at all keys
TTL = 16.0


@dataclass
class Measured:
    """Of all runs together; seconds."""

    grants: int = 0
    held: float = 0.0
    bare: float = 0.0
    overlaps: int = 0

    def __str__(self) -> str:
        share = 100 * self.bare / self.held
        return (
            f"{self.grants} grants, {self.held:.0f} lease-seconds, {self.bare:.0f} of them on a bare majority "
            f"({share:.1f} %), {self.overlaps} overlaps"
        )


def measure(seeds: range, *, steps: bool, whole: bool) -> Measured:
    """``steps``: the clock of one master steps.  ``whole``: leases are made whole, as they are shipped."""
    found = Measured()
    lacking = whole_module.lacking if whole else lambda lease: []

    def failed(_: Judge, invariant: str, text: str) -> None:
        found.overlaps += invariant == P1

    for seed in seeds:
        run = Run(
            rivals(
                seed, clients=5, names=1, ttl=TTL, max_ttl=2 * TTL, eager=0.03, episodes=1, several=0.0,
                duration=200.0, budget=10**6,
            )
        )  # fmt: skip
        with mock.patch.object(Judge, "fail", failed), mock.patch.object(renewals, "lacking", lacking):
            _look_again(run, found, steps)
            run.play()
        found.grants += run.judge.grants
    return found


def _look_again(run: Run, found: Measured, steps: bool) -> None:
    world, chance = run.world, random.Random(f"steps of {run.parameters.seed}")
    need = len(run.masters) // 2 + 1

    def look() -> None:
        for hold in run.judge.held():
            having = sum(
                run.judge._has(master, f"redlock:{hold.attempt.names[0]}", hold.attempt) for master in run.masters
            )
            found.held += LOOK
            found.bare += LOOK * (having <= need)
        world.after(LOOK, look)

    def step() -> None:
        if world.now < run.parameters.duration:
            run.masters[0].step(chance.choice((-1, 1)) * 1.2 * TTL)
            world.after(chance.uniform(0.5, 1.5) * TTL, step)

    look()
    if steps:
        step()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seeds", type=int, default=100)
    seeds = range(parser.parse_args().seeds)
    collect_rarely()
    for steps in (False, True):
        print("one clock steps:" if steps else "all clocks are right:")
        for whole in (False, True):
            print(
                f"  {'made whole' if whole else 'as granted'}: {measure(seeds, steps=steps, whole=whole)}", flush=True
            )


if __name__ == "__main__":
    main()
