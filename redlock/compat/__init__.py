"""The calls of two libraries that are not maintained any more, on the locks of this one: for migrations.

Change the import, and the rest of a program goes on.  Each call warns with the line to write instead.

    from redlock.compat.redlock_py import Redlock       # was: from redlock import Redlock
    from redlock.compat.aioredlock import Aioredlock    # was: from aioredlock import Aioredlock

The prefix is empty, as theirs: while a deployment is on its way, the old and the new programs exclude each other.
"""
