"""Whether other installed distributions fit this library.

A `redis-py` may not.  And another distribution may have put a module ``redlock`` in the same place as this one.
Several distributions have a module of that name (`redlock`, `redlock-py` and forks of both). pip lets them overwrite
each other's files without a word. The one that was installed last works, until another one is upgraded or removed:
that takes files of this one with it. The locks of a program must not depend on that.

This code can only detect one case: ours was installed last, and the other one is still recorded. If the other one was
installed last, or comes first on ``sys.path``, none of our code runs. Then ``from redlock import Masters`` is an
ImportError.
"""

from __future__ import annotations

import functools
from pathlib import Path

from redlock.errors import ConfigurationError

_OURS = "redlock-quorum"
FITS = "redis>=5.0,<9"  # as in pyproject.toml


def misfit(what: object) -> str:
    """The sentence about a redis-py whose inside is not what `_connect.py` needs."""
    import redis  # noqa: PLC0415 - it is there, but perhaps not all of it

    return f"redis-py {redis.__version__} does not fit this version of {_OURS} ({what}): install {FITS}"


def check() -> None:
    """Raise if there is another distribution of this module.

    The first call takes some ten milliseconds. It comes when a program makes `Masters`, not at the import, which has to
    stay cheap.

    Raises:
        ConfigurationError: there is another one. The text names it and says what to do.
    """
    others = _others()
    if others:
        raise ConfigurationError(
            f"{' and '.join(others)} also installed a module redlock, in the same place as {_OURS}: whichever is "
            f"upgraded or removed next takes files of the other with it. Have only one of them: pip uninstall "
            f"{' '.join(others)} {_OURS}, then install {_OURS} again"
        )


@functools.cache
def _others() -> tuple[str, ...]:
    try:
        return others_beside(Path(__file__).parents[2])
    except Exception:  # noqa: BLE001 - a zip file, no permission, a broken record: then it cannot be known
        return ()


def others_beside(site: Path) -> tuple[str, ...]:
    """The other distributions recorded in ``site`` that have a module ``redlock``. Empty if ours is not recorded."""
    from importlib.metadata import distributions  # noqa: PLC0415 - redis-py has loaded it anyway

    claimants = []
    for distribution in distributions(path=[str(site)]):
        modules = distribution.read_text("top_level.txt")
        if modules is None:  # not every builder writes this file
            record = distribution.read_text("RECORD") or ""
            claims = (
                record.startswith(("redlock/", "redlock.py,")) or "\nredlock/" in record or "\nredlock.py," in record
            )
        else:
            claims = "redlock" in modules.split()
        if claims:
            claimants.append(distribution.metadata["Name"])
    # If ours is not recorded, this is a source tree, or a program that was put together in some other way.
    return tuple(sorted(set(claimants) - {_OURS})) if _OURS in claimants else ()
