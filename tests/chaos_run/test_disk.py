"""A master whose disk was full is back when the disk is free again, whatever the master did meanwhile."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import redis

from chaos.backends.namespace import NamespaceRig


class Master:
    """Says in turn what `answers` has: an error, or True. None: its process has ended."""

    def __init__(self, answers) -> None:
        self.answers = answers

    def alive(self, _: int) -> bool:
        return self.answers[0] is not None

    def client(self, _: int) -> Any:
        return SimpleNamespace(ping=self._ping)

    def _ping(self) -> Any:
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.mark.parametrize(("answers", "restarted"), [
    ([None], True),
    # With appendfsync always: its connections end before its process does.
    ([redis.ConnectionError(), redis.ConnectionError(), None], True),
    # With everysec a restart would lose what it has not written: it is slow, or refuses writes yet.
    ([redis.TimeoutError(), True], False),
    ([redis.ResponseError("MISCONF")], False),
    ([True], False),
])  # fmt: skip
def test_a_master_that_gave_up_is_started_again(tmp_path, answers, restarted):
    (tmp_path / "filler").touch()
    rig: Any = object.__new__(NamespaceRig)
    rig._disks = {1: tmp_path}
    rig.masters = Master(answers)
    seen: list[int] = []

    def restart(master: int, *, keep_data: bool) -> None:
        assert keep_data
        seen.append(master)

    rig.restart = restart
    rig.free_disk(1)
    assert seen == [1] * restarted
    assert not (tmp_path / "filler").exists()
