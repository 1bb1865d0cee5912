"""What becomes of a request that a master did not answer.

This file imports nothing of the core: the effects, the replies and the pipeline all need it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from redlock.errors import Unheard

NEVER = float("-inf")  # `Send.sent_at` of a request that was not sent


class Failure(NamedTuple):
    """Why a master has given no answer.

    ``sent`` False: not one byte of the request left, so there is nothing to roll back there.
    ``configuration`` True: waiting will not help, somebody has to change a setting.
    ``refused`` True: the master is well, and objects to this request.  It may accept a part of it.
    ``of_name`` True: the master objects to the values at the keys of this name.  Other names can be locked there.
    """

    outcome: Unheard
    reason: str
    sent: bool = True
    configuration: bool = False
    refused: bool = False
    of_name: bool = False
