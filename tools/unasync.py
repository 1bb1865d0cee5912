"""Makes the public classes for threads from those for asyncio, so that each has one text.

    python -m tools.unasync [--check]

``await`` and ``async`` go, names and words change as `WORDS` says, and ruff sorts and formats the rest.  What the two
worlds do not share is marked in the text for asyncio:

    code  # asyncio only
    code  # > other code, which takes its place

    # asyncio only
    code
    # threads instead
    # > other code, which takes its place
    # both again

``--check`` writes nothing.  Its exit code is 1 if a file is not what its source makes; `make lint` asks for that.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
FACES: Final = ("election", "lease", "lock", "masters", "resume", "slots")
# What is made, and of what.
FILES: Final = {f"redlock/_lock/{name}_threads.py": f"redlock/_lock/{name}_async.py" for name in FACES} | {
    "redlock/fenced/_threads.py": "redlock/fenced/_tasks.py",
}
HEAD: Final = "# Made from {} by tools/unasync.py: change that file, then run `make faces`.\n"

# In this order.  A pattern is a regular expression.
WORDS: Final = [
    (r"  # noqa: ASYNC109.*", ""),
    (r"\bawait ", ""),
    (r"\b([Aa])n ``async (with|for)\b", r"\1 ``\2"),
    (r"\basync (def|with|for)\b", r"\1"),
    (r"\bAwaitable\[(\w+)\]", r"\1"),
    (r"\benter_async_context\b", "enter_context"),
    (r"\bCoroutine\[Any, Any, ((?:[^][]|\[[^][]*\])*)\]", r"\1"),
    (r", Coroutine\b|\bCoroutine, ", ""),
    (r"\b__a(enter|exit)__", r"__\1__"),
    (r"(?<=\w)_async\b", "_threads"),
    (r"\bfor asyncio\b", "for threads"),
    (r"\bcoroutine function\b", "function"),
    (r"\bAsync(?=[A-Z])", ""),
    (r"\bTask(?=[A-Z])", "Thread"),
    (r"\btask(s?)\b", r"thread\1"),
    (r"\bTask(s?)\b", r"Thread\1"),
]


def made_from(text: str) -> str:
    """The text for threads, before it is formatted."""
    lines: list[str] = []
    skipped = False
    for line in text.splitlines():
        code, marked, other = line.partition("# >")
        match line.strip():
            case "# asyncio only":
                skipped = True
            case "# threads instead" | "# both again":
                skipped = False
            case _ if marked:
                lines.append(_indent(code) + other.removeprefix(" "))
            case _ if not skipped and not line.endswith("  # asyncio only"):
                lines.append(_spoken(line))
    return "\n".join(lines) + "\n"


def _indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip())]


def _spoken(line: str) -> str:
    for pattern, word in WORDS:
        line = re.sub(pattern, word, line)
    return line


def formatted(text: str, path: Path) -> str:
    """``text`` as ruff would leave it in ``path``: imports sorted, what is not used left out."""
    name = f"--stdin-filename={path}"
    for command in (
        ["check", "--fix-only", "--unsafe-fixes", "--select=I,F401,SIM110,UP028", name, "-"],
        ["format", name, "-"],
    ):
        text = subprocess.run(
            [sys.executable, "-m", "ruff", *command, "--quiet"],
            input=text,
            encoding="utf-8",
            capture_output=True,
            check=True,
        ).stdout
    return text


def made(name: str) -> str:
    """The whole of the file ``name``, as its source makes it."""
    text = made_from((ROOT / FILES[name]).read_text(encoding="utf-8"))
    return HEAD.format(FILES[name]) + formatted(text, ROOT / name)


def stale() -> list[str]:
    """The files that are not what their source makes."""
    return [name for name in FILES if not (ROOT / name).exists() or (ROOT / name).read_text("utf-8") != made(name)]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.unasync", description=__doc__.partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if a file is out of date")
    check = parser.parse_args().check
    names = stale()
    for name in names:
        if not check:
            (ROOT / name).write_text(made(name), encoding="utf-8")
        print(f"{name}: {'is out of date: run `make faces`' if check else 'written'}")
    return 1 if check and names else 0


if __name__ == "__main__":
    sys.exit(main())
