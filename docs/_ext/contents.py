"""The lists of the index, and of the page "Inside", are the table of contents, and ``llms.txt``.

A line ``- [Title](page.md): when to read it`` below a heading ``## Caption`` is written once and used three times: on
the index, in the sidebar (Sphinx wants a ``toctree``, which is added here), and in ``llms.txt`` beside the built pages.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from sphinx.application import Sphinx

LISTS = ("index", "inside")  # of pages for users, and for developers
_LINE = re.compile(r"^- \[(?P<title>[^\]]+)\]\((?P<page>[\w/-]+)\.md\): (?P<when>\S.*)$", re.MULTILINE)


class Entry(NamedTuple):
    """One page, and when to read it."""

    title: str
    page: str
    when: str


def contents(index: str) -> dict[str, list[Entry]]:
    """The pages below each heading that has some, in order."""
    sections = (section.partition("\n") for section in index.split("\n## ")[1:])
    found = {head: [Entry(**line.groupdict()) for line in _LINE.finditer(text)] for head, _, text in sections}
    return {head: entries for head, entries in found.items() if entries}


def llms(index: str, base: str) -> str:
    """As https://llmstxt.org wants it: what this is, and a link to each page."""
    title, about = index.split("\n\n")[:2]
    parts = [title, "\n".join(f"> {line}" for line in about.splitlines())]
    for head, entries in contents(index).items():
        parts += [f"## {head}", "\n".join(f"- [{title}]({base}{page}.html): {when}" for title, page, when in entries)]
    return "\n\n".join(parts) + "\n"


def _add_toctrees(_app: Sphinx, name: str, source: list[str]) -> None:
    if name in LISTS:
        for head, entries in contents(source[0]).items():
            pages = "\n".join(f"{title} <{page}>" for title, page, _ in entries)
            source[0] += f"\n```{{toctree}}\n:caption: {head}\n:hidden:\n\n{pages}\n```\n"


def _write_llms(app: Sphinx, error: Exception | None) -> None:
    if error is None:
        index = "".join(Path(app.srcdir, f"{page}.md").read_text(encoding="utf-8") for page in LISTS)
        Path(app.outdir, "llms.txt").write_text(llms(index, app.config.html_baseurl), encoding="utf-8")


def setup(app: Sphinx) -> dict[str, bool]:
    """Called by Sphinx."""
    app.connect("source-read", _add_toctrees)
    app.connect("build-finished", _write_llms)
    return {"parallel_read_safe": True}
