"""What the users of a run were given and told, as a history (docs/chaos-history.md): for judges that know no bench.

Times are true ones.  A library that is broken plays on behind most of what it violates, so that there is more to judge.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.bench.judge import P1, P2, P5, P7, P8, R32, Judge, Violation
from tests.bench.run import Run

if TYPE_CHECKING:
    from tests.bench.judge import Hold
    from tests.bench.library import Patch
    from tests.bench.parameters import Setting

GOES_ON = (P1, P2, P5, P7, P8, R32)
MOMENT = 1e-9  # what is given back at once was held for so long
_SETS = (("acquire", "ok"), ("extend", "ok"))


class Told(NamedTuple):
    """``overlaps``: has the judge of the bench seen that?  None: P1 does not hold there, and it was not asked."""

    lines: list[dict[str, Any]]
    overlaps: bool | None


class Recorder(Judge):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.lines: list[dict[str, Any]] = []
        self.overlaps = self._looks = False
        self._by_process: dict[Any, list[Hold]] = defaultdict(list)

    def fail(self, invariant: str, text: str) -> None:
        self.overlaps = self.overlaps or self._looks
        if invariant not in GOES_ON:
            super().fail(invariant, text)

    def _write(self, process: Any, lease: Any, op: str, phase: str, at: float = 0.0, **fields: Any) -> None:
        with process.unseen():  # a look at a lease is none of its program, and cannot be interrupted
            if (op, phase) in _SETS:
                fields["valid_until"] = process.true_time(lease.valid_until)
            for name in lease.names:
                line = {"t": at or self.world.now, "process": str(process), "worker": lease.token, "op": op}
                self.lines.append(line | {"phase": phase, "lock": name, "token": lease.token, **fields})

    def _given(self, process: Any, lease: Any, invoked_at: float, *rest: Any) -> Hold:
        self._look_for_losses()
        self._write(process, lease, "acquire", "invoke", invoked_at)
        mode: dict[str, Any] = {"mode": "shared"} if lease.shared else {}
        self._write(process, lease, "acquire", "ok", **mode)
        hold = super()._given(process, lease, invoked_at, *rest)
        self._by_process[process].append(hold)
        return hold

    def _look_for_losses(self) -> None:
        """A lease that its masters denied is lost at once (R13); its holder is told a moment later."""
        for process, holds in self._by_process.items():
            for hold in [hold for hold in holds if not hold.over]:
                with process.unseen():
                    lost = hold.lease.lost
                if lost:
                    self._write(process, hold.lease, "lost", "info")

    def _alone(self, hold: Any) -> None:
        self._looks = True
        super()._alone(hold)
        self._looks = False

    def hears(self, process: Any, event: Any) -> None:
        if type(event).__name__ == "LeaseExtended":
            attempt = self._by_token.get(event.token)
            if attempt is not None and attempt.hold is not None:
                self._write(process, attempt.hold.lease, "extend", "ok")
        super().hears(process, event)

    def ended(self, hold: Hold) -> None:
        at = max(self.world.now, hold.decided_at + MOMENT)
        self._write(hold.client, hold.lease, "release", "invoke", at)
        super().ended(hold)

    def told(self, hold: Hold) -> None:
        self._write(hold.client, hold.lease, "lost", "info")
        super().told(hold)

    def crashed(self, client: Any) -> None:
        self._gone(client)
        super().crashed(client)

    def forks(self, process: Any) -> None:
        self._gone(process)
        super().forks(process)

    def _gone(self, process: Any) -> None:
        """There is nobody who could believe to hold anything."""
        for hold in self._by_process.pop(process, []):
            self._write(process, hold.lease, "lost", "info")


class Recorded(Run):
    judged_by = Recorder


def told(setting: Setting, patches: tuple[Patch, ...] = ()) -> Told:
    """Play it, whatever goes wrong."""
    run = Recorded(setting, patches)
    try:
        run.play()
    except Violation:
        pass
    judge, base = run.judge, setting.base
    assert isinstance(judge, Recorder)
    locks = sorted({line["lock"] for line in judge.lines})
    header = {"schema": 1, "seed": setting.seed, "masters": base.masters, "locks": locks, "ttl": base.ttl}
    header |= {"must": ["exclusive"]}
    # P1 does not hold while a slew is not measured yet (R43).
    asks = base.clocks_hold and not judge.slews and not (base.confirm and any("mode" in line for line in judge.lines))
    return Told([header, *judge.lines], judge.overlaps if asks else None)
