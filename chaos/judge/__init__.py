"""What held, from a history alone: no clock, no file, no knowledge of who wrote it.

    verdict                                             all of them, and what follows
    steps                                               whether the rules allow each step
    exclusive   fenced   prompt   live   clean   kept   one promise each
    holds   operations   faults                         what the events mean
    violation                                           what is found

Linear, but for sorting: a hundred thousand events are judged in seconds.
"""

from .steps import Steps, steps
from .verdict import Outcome, Ruling, Verdict, judge
from .violation import Violation

__all__ = ["Outcome", "Ruling", "Steps", "Verdict", "Violation", "judge", "steps"]
