"""Runs the examples of a page of the documentation, from top to bottom, on real masters.

Sybil finds the blocks and compiles them with the line numbers of the page; what is meant by each:

- ``python`` is run; all blocks of a page share their names, as a reader would paste them one by one;
- ``sh`` is run in an empty directory, and has to end with 0;
- a block with the caption *Output* is what the block before it printed; ``…`` stands for anything, and
  what was measured or drawn (times, ports, tokens, attempts) may differ;
- a block whose caption is a file name is written to that file, for a later ``sh`` to use.

``redis://10.0.0.1:6379`` and so on are addresses of real masters, as the examples are for deployments.
They forget nothing (``appendfsync always``), so they may vote although they have just been started.
"""

from __future__ import annotations

import contextlib
import io
import linecache
import os
import re
import signal
import subprocess
import sys
import unittest
from pathlib import Path
from tempfile import TemporaryFile

import yaml
from sybil import Sybil
from sybil.evaluators.python import PythonEvaluator
from sybil.parsers.myst import CodeBlockParser, SkipParser

import redlock

ROOT = Path(__file__).parent.parent.parent
DOCS = ROOT / "docs"
# Pages that others write, with examples of their own kind.
_NOT_OURS = ("design.md", "redlock-", "chaos")
PAGES = [
    ROOT / "README.md",
    *(
        page
        for page in sorted(DOCS.rglob("*.md"))
        if "_build" not in page.parts and not page.relative_to(DOCS).as_posix().startswith(_NOT_OURS)
    ),
]


class Page:
    """One page: reads it, and runs it in a directory of its own on ``urls``."""

    def __init__(self, path, urls, directory, settle=lambda: None):
        """``settle`` waits for what is still on its way when the last example has ended."""
        self._addresses = [
            (f"10.0.0.{number}:6379", url.rpartition("@")[2].removeprefix("redis://"))
            for number, url in enumerate(urls, start=1)
        ]
        self._directory = directory
        self._settle = settle
        self._urls = urls
        self._python = PythonEvaluator()
        self._printed: str | None = ""  # None: what came before was not run
        self.files: list[str] = []
        run = {"python": self._run_python, "sh": self._run_shell, **dict.fromkeys(OTHER, self._other)}
        parsers = [CodeBlockParser(language, evaluator) for language, evaluator in run.items()]
        self.document = Sybil([*parsers, SkipParser()]).parse(path)
        self.document.namespace["__name__"] = "__main__"  # as in a script

    def run(self):
        try:
            for example in self.document.examples():
                with contextlib.suppress(unittest.SkipTest):  # a `% skip:` with its reason
                    example.evaluate()
            self._settle()
        finally:
            for thing in list(self.document.namespace.values()):
                if isinstance(thing, redlock.Masters):
                    thing.close()
            self.document.namespace.clear()
            if (self._directory / "local").exists():  # the page stops them itself, if nothing goes wrong
                subprocess.run([sys.executable, "-m", "redlock", "--stop-local"], env=self._environment, check=True)

    def _run_python(self, example):
        if self._caption(example):
            self._other(example)
            return
        source = example.parsed
        example.parsed = type(source)(self._here(str(source)), source.offset, source.line_offset)
        linecache.checkcache(example.path)
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            self._python(example)
        self._printed = printed.getvalue()

    def _run_shell(self, example):
        # Into files, and in a group of its own: an example that failed may have left something in the background.
        with TemporaryFile("w+") as printed, TemporaryFile("w+") as complained:
            shell = subprocess.Popen(
                ["bash", "-euo", "pipefail", "-c", self._here(str(example.parsed))],
                cwd=self._directory, env=self._environment, stdin=subprocess.DEVNULL, stdout=printed, stderr=complained,
                start_new_session=True,
            )  # fmt: skip
            try:
                code = shell.wait(60)
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(shell.pid, signal.SIGTERM)
                shell.wait()
            printed.seek(0)
            complained.seek(0)
            self._printed = printed.read()
            assert code == 0, f"{example.path}:{example.line}: exit {code}\n{self._printed}\n{complained.read()}"

    @property
    def _environment(self):
        binaries = Path(sys.executable).parent
        return {
            **os.environ,
            "PYTEST_ADDOPTS": "",  # what a page shows of pytest is shown without options of ours
            "PATH": f"{binaries}{os.pathsep}{os.environ['PATH']}",
            "REDLOCK_MASTERS": ",".join(self._urls),
            "REDLOCK_LOCAL_DIR": str(self._directory / "local"),
        }

    def _other(self, example):
        caption = self._caption(example)
        if caption == "Output" and self._printed is not None:
            expected = str(example.parsed)
            printed = self._there(self._printed)
            assert matches(expected, printed), (
                f"{example.path}:{example.line}: expected\n{expected}\nbut it printed\n{printed}"
            )
        elif example.region.lexemes["arguments"] == "yaml":
            yaml.safe_load(str(example.parsed))
        elif re.fullmatch(r"[\w./-]+\.\w+", caption):
            self.files.append(caption)
            (self._directory / caption).write_text(self._here(str(example.parsed)), encoding="utf-8")

    @staticmethod
    def _caption(example):
        options: dict[str, str] = example.region.lexemes.get("options") or {}
        return options.get("caption", "")

    def _here(self, text):
        for there, here in self._addresses:
            text = text.replace(there, here)
        return text

    def _there(self, text):
        for there, here in self._addresses:
            text = text.replace(here, there)
        return text


# Directives of Sphinx, which its own build checks.
DIRECTIVES = ("{eval-rst}", "{glossary}", "{include}", "{timeline}", "{toctree}")
# Everything that is not run: output, configuration, programs in other languages.
OTHER = ("text", "ini", "yaml", "toml", "sql", "lua", "javascript", "go", "java")


# A page shows one run, and the next one measures and draws something else.
_MEASURED = (
    (re.compile(r"\b[0-9a-f]{40}\b"), "TOKEN"),
    (re.compile(r"\b1[78]\d{14}\b"), "FENCE"),
    (re.compile(r"127\.0\.0\.1:\d+"), "ADDRESS"),
    (re.compile(r"seen \d+(?:\.\d+)? s ago"), "SEEN"),
    (re.compile(r"\b\d+\.\d+ (m?s)\b"), r"TIME \1"),
    (re.compile(r"\b\d+ attempts?\b"), "ATTEMPTS"),
    # For how long is known only if enough masters have said so before it was decided.
    (re.compile(r" for up to (?:TIME|…)(?: s)?"), ""),
)


def matches(expected, printed):
    """Line by line; ``…`` is anything in a line, and a line of its own any number of lines."""
    for measured, name in _MEASURED:
        expected, printed = measured.sub(name, expected), measured.sub(name, printed)
    pattern = "".join(
        r"(?:.*\n)*" if line.strip() == "…" else ".*".join(map(re.escape, line.rstrip().split("…"))) + r"[ \t]*\n"
        for line in expected.strip().splitlines()
    )
    return re.fullmatch(pattern, printed.strip() + "\n") is not None


def blocks(path):
    """Language (or directive) and text of every block, as Markdown has them, whoever runs them or not."""
    fence = r"^(`{3,}|:{3,})(?:\{code-block\} *)?(\{?[\w-]*\}?)[^\n]*\n(.*?)^\1$"
    found = re.findall(fence, path.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    return [(language, text) for _, language, text in found]
