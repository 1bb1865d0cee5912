"""What users of slots do: what those of locks do, with whichever slot of the group they get (R32)."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

from redlock import scripts
from redlock._core import slots as slotting, wire
from redlock._core.confirm import ConfirmingSlotTarget
from redlock._core.slots import KnownSlots, SlotTarget, group_of
from tests.simulation.actor import Actor, spec_for
from tests.simulation.invariants import PREFIX

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redlock._core.effects import Send
    from tests.simulation.client import Client, Task
    from tests.simulation.invariants import Hold


class SlotUser(Actor):
    """Its names are the one of the group."""

    def __init__(self, client: Client) -> None:
        super().__init__(client)
        boards: dict[str, KnownSlots] = client.__dict__.setdefault("boards", {})  # one for all threads of a client
        self._board = boards.setdefault("lock-0", KnownSlots())
        self._asking: SlotTarget

    def __repr__(self) -> str:
        return f"a user of slots of {self.client}"

    def acquire(self, names: Sequence[str], ttl: float, timeout: float) -> None:
        client, limit = self.client, self.client.parameters.slots
        (name,) = names
        records = client.parameters.confirm
        keys = [wire.keys_for(PREFIX, [slotting.slot_name(name, slot)], records=records) for slot in range(limit)]
        spec = spec_for(client, names, ttl)._replace(refused=self._refused)
        group = group_of(spec, keys, PREFIX, self._board)
        kind = ConfirmingSlotTarget if records else SlotTarget
        self._asking = kind(client.settings, group)
        self._acquire(self._asking, timeout)

    def _sends_acquire(self, request: Send, task: Task) -> None:
        if request.call.script in (scripts.OCCUPY, scripts.OCCUPY_RECORDED):
            self._spec = self._asking.spec
            self._attempts(request, task)
        self._sends(request, task)

    def _hold_of(self, task: Task, outcome: Any) -> Hold:
        self._spec = self._asking.group.slots[self._asking.slot]
        assert task.attempt is not None
        task.attempt.names = self._spec.names
        task.attempt.over = False  # what was sent and is owed takes back what masters gave beside this slot
        hold = super()._hold_of(task, outcome)
        self._board.took(self._asking.slot, weakref.ref(hold.lease))
        return hold

    def close(self) -> None:
        if self.client.crashed:
            return
        if self.hold is not None:
            self._release(self.hold, self._spec)
        elif self._acquiring is not None:
            self._acquiring.strike()
