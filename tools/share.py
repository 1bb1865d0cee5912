"""``python -m tools.share``: the man pages and the completion of the commands, from the text of their ``--help``.

They are kept in the repository, because a build that makes them would have to run the commands, with all that those
import.  The wheel has them where man and shells look.
"""

from __future__ import annotations

import argparse
import importlib
import re
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any, Final

import shtab
from argparse_manpage.manpage import Manpage

import redlock
from redlock._cli import check, run

HERE: Final = Path(__file__).parents[1] / "share"
PLACES: Final = {
    "bash": "bash-completion/completions/{}",
    "zsh": "zsh/site-functions/_{}",
    "fish": "fish/vendor_completions.d/{}.fish",
}
_TAKES: Final[dict[str, Any]] = {"FILE": shtab.FILE, "HISTORY": shtab.FILE, "DIR": shtab.DIRECTORY}


def parsers() -> dict[str, argparse.ArgumentParser]:
    """Those of all commands, by name."""
    made = (check.parser(), run.parser(), _chaos())
    return {one.prog: one for one in made}


def _chaos() -> argparse.ArgumentParser:
    """As it is in the wheel, where it has another name."""
    if "redlock.chaos" not in sys.modules:
        folder = HERE.parent / "chaos"
        spec = spec_from_file_location(
            "redlock.chaos", folder / "__init__.py", submodule_search_locations=[str(folder)]
        )
        assert spec is not None
        assert spec.loader is not None
        package = sys.modules["redlock.chaos"] = module_from_spec(spec)
        spec.loader.exec_module(package)
    command = importlib.import_module("redlock.chaos.__main__")
    parser: argparse.ArgumentParser = command.parser(*command.COMMANDS)
    return parser


def actions(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    """Every argument of it, and of its commands.  Argparse shows them to nobody."""
    found = []
    for action in parser._actions:
        found.append(action)
        if isinstance(action, argparse._SubParsersAction):
            for one in action.choices.values():
                found += actions(one)
    return found


def files() -> dict[str, str]:
    """What is to be in which file."""
    made = {}
    for name, parser in parsers().items():
        made[f"man/man1/{name}.1"] = _manpage(parser)
        for action in actions(parser):
            if action.metavar in _TAKES:
                action.complete = _TAKES[action.metavar]  # type: ignore[attr-defined]  # how shtab is told
        for shell, place in PLACES.items():
            made[place.format(name)] = shtab.complete(parser, shell)
    return {place: re.sub(r"[ \t]+$", "", text, flags=re.MULTILINE).rstrip() + "\n" for place, text in made.items()}


def _manpage(parser: argparse.ArgumentParser) -> str:
    changes = (HERE.parent / "CHANGELOG.md").read_text(encoding="utf-8")
    released = re.findall(r"^## \d+\.\d+\.\d+ - (.*)$", changes, re.MULTILINE)[0]
    short = (parser.description or "").partition(".")[0]
    about = {"project_name": "redlock-quorum", "version": redlock.__version__, "date": released,
             "description": short[:1].lower() + short[1:], "manual_title": "User Commands"}  # fmt: skip
    return str(Manpage(parser, about))


if __name__ == "__main__":
    for place, text in files().items():
        file = HERE / place
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
