"""Has all instances of a class share the names of their attributes.

CPython keeps these names once for each class, and learns them from the first instances: one name less for every
instance that is made before.  After a burst of fifty tasks it has given up, and each instance has a dict of its own,
with 200 bytes more.  So the names are declared beforehand, in the order in which instances get them.
"""

from __future__ import annotations


def declare(kind: type, *names: str) -> None:
    """``names``: the attributes that nearly every instance of ``kind`` gets."""
    first: object = object.__new__(kind)
    for name in names:
        setattr(first, name, None)
