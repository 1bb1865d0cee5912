"""What comes of a request that no master answered.

A leaf: the vocabulary of effects, what the wire says and what waits in line all speak of it.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

NEVER = float("-inf")  # when a request was sent that was not


class Failure(NamedTuple):
    """Why a master has no answer.

    ``sent`` False: not one byte of the request left, so there is nothing to roll back there.
    ``configuration`` True: waiting will not help, somebody has to change a setting.
    ``refused`` True: the master is well and objects to this request; to a part of it perhaps not.
    ``of_name`` True: it objects to what stands at the keys of this name; other names can be locked there.
    """

    outcome: Literal["error", "timeout"]
    reason: str
    sent: bool = True
    configuration: bool = False
    refused: bool = False
    of_name: bool = False
