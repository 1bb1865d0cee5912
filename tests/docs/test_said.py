"""What pages and texts say while nothing is published, and what an error does not offer at night."""

from __future__ import annotations

import ast
import re

from tests.docs.pages import DOCS, ROOT

INSTALL = (DOCS / "_include" / "install.md").read_text(encoding="utf-8")


def pages():
    yield from (ROOT / "README.md", *(page for page in DOCS.rglob("*.md") if "_build" not in page.parts))


def texts():
    """Every string of the package but docstrings."""
    for path in (ROOT / "redlock").rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        said = {node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in said:
                yield f"{path.relative_to(ROOT)}:{node.lineno}", node.value


def test_nobody_is_sent_to_an_index_that_does_not_have_it():
    """The name is free there: whoever takes it would be installed. A release changes the include, and this test."""
    wrong = re.compile(r"pip install [^\n]*(?<!/)redlock-quorum")
    assert [page.name for page in pages() if wrong.search(page.read_text(encoding="utf-8"))] == []
    assert [where for where, text in texts() if wrong.search(text)] == []


def test_the_readme_says_how_to_install_as_the_pages_do():
    assert INSTALL.strip() in (ROOT / "README.md").read_text(encoding="utf-8")
    for name in ("index.md", "tutorial.md"):
        assert "```{include} _include/install.md\n```" in (DOCS / name).read_text(encoding="utf-8")


def test_no_error_offers_to_switch_the_guard_off():
    """It is read at night, in an outage; the page that it names says when a new deployment may do so."""
    found = [where for where, text in texts() if re.search(r"restart_guard ?=|--no-restart-guard .*(switch|off)", text)]
    assert found == []
