"""Whether another distribution has put a module ``redlock`` where this one is.

Several distributions of that module name exist (`redlock`, `redlock-py` and forks of both), and pip lets them
overwrite each other's files without a word.  Whichever was installed last works, until the other one is upgraded or
removed and takes files of this one with it: the locks of a program must not depend on that.

What can be seen from here is that ours came last and the other one is still recorded.  Where the other one came last,
or stands before us on ``sys.path``, none of our code runs: ``from redlock import Masters`` is an ImportError then.
"""

from __future__ import annotations

import functools
from pathlib import Path

from redlock.errors import ConfigurationError

_OURS = "redlock-quorum"


def check() -> None:
    """Raise if there is another one.

    Takes some ten milliseconds, once, and only where somebody makes `Masters`: importing has to stay cheap.

    Raises:
        ConfigurationError: there is; the text names it and says what to do.
    """
    others = _others()
    if others:
        raise ConfigurationError(
            f"{' and '.join(others)} also installed a module redlock, in the same place as {_OURS}: whichever is "
            f"upgraded or removed next takes files of the other with it. Have only one of them: pip uninstall "
            f"{' '.join(others)} {_OURS}, then pip install {_OURS}"
        )


@functools.cache
def _others() -> tuple[str, ...]:
    try:
        return others_beside(Path(__file__).parent.parent)
    except Exception:  # noqa: BLE001 - a zip file, no permission, a broken record: then nobody can tell
        return ()


def others_beside(site: Path) -> tuple[str, ...]:
    """Distributions recorded in ``site`` that have a module ``redlock`` there, if ours is one of them."""
    # redis-py has loaded it anyway
    from importlib.metadata import distributions  # noqa: PLC0415

    claimants = []
    for distribution in distributions(path=[str(site)]):
        modules = distribution.read_text("top_level.txt")
        if modules is None:  # not every builder writes that
            record = distribution.read_text("RECORD") or ""
            claims = (
                record.startswith(("redlock/", "redlock.py,")) or "\nredlock/" in record or "\nredlock.py," in record
            )
        else:
            claims = "redlock" in modules.split()
        if claims:
            claimants.append(distribution.metadata["Name"])
    # Without ours this is a source tree, or a program that was put together some other way.
    return tuple(sorted(set(claimants) - {_OURS})) if _OURS in claimants else ()
