"""For people and for programs: what was judged, where to look, and how it came about.

    text        for a terminal; and of_steps
    document    verdict.json
    timeline    timeline.html: one file, no network
    directory   as an argument
    write       both files into a directory

Nothing in here judges.
"""

from .document import document
from .text import of_steps, text
from .timeline import timeline
from .write import directory, write

__all__ = ["directory", "document", "of_steps", "text", "timeline", "write"]
