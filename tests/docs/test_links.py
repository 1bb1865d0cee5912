"""Every path in a Markdown file leads to a file, and what follows a # to a heading in it.

Sphinx sees to it within the pages; a reader of the repository has these as well.
"""

from __future__ import annotations

import re
import subprocess
from functools import cache

import pytest

from tests.docs.pages import DOCS, ROOT

_LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
_FENCED = re.compile(r"^(`{3,}).*?^\1`*$", re.DOTALL | re.MULTILINE)


def texts():
    """Of the repository or of an unpacked source distribution, without what was built or installed in it."""
    found = [
        path
        for path in sorted(ROOT.rglob("*.md"))
        if not {"_build", "node_modules"} & set(path.parts)
        and not any(part.startswith(".") and part != ".github" for part in path.relative_to(ROOT).parts)
    ]
    listed = subprocess.run(["git", "ls-files", "*.md"], cwd=ROOT, capture_output=True, text=True, check=False)
    known = {ROOT / name for name in listed.stdout.splitlines()}
    return [path for path in found if not known or path in known]


@cache
def anchors(path):
    """Of its headings, as GitHub and MyST make them."""
    text = _FENCED.sub("", path.read_text(encoding="utf-8"))
    titles = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}


def broken(path, text):
    """The links of ``text``, which stands in ``path``, that lead nowhere."""
    for target in _LINK.findall(_FENCED.sub("", text)):
        if target.startswith(("https://", "http://", "mailto:")):
            continue
        name, _, anchor = target.partition("#")
        file = (path.parent / name).resolve() if name else path
        if not file.exists() or (anchor and file.suffix == ".md" and anchor not in anchors(file)):
            yield target


@pytest.mark.parametrize("path", texts(), ids=lambda path: path.relative_to(ROOT).as_posix())
def test_no_link_leads_nowhere(path):
    assert list(broken(path, path.read_text(encoding="utf-8"))) == []


def test_one_that_does_is_noticed():
    page = DOCS / "index.md"
    text = "[a](tutorial.md) [b](tutorial.md#install) [c](nowhere.md) [d](tutorial.md#nowhere) ![e](x.png) [f](#redlock-quorum)"
    assert {ROOT / "README.md", DOCS / "tutorial.md", ROOT / "CONTRIBUTING.md"} <= set(texts())
    assert list(broken(page, text)) == ["nowhere.md", "tutorial.md#nowhere", "x.png"]
