"""The index says of every page when to read it; the sidebar and ``llms.txt`` are made of the same lines."""

from __future__ import annotations

import re

from docs._ext.contents import LISTS, contents, llms
from tests.docs.pages import DOCS

INDEX = "".join((DOCS / f"{page}.md").read_text(encoding="utf-8") for page in LISTS)


def test_every_page_is_in_a_list_once():
    listed = [entry.page for entries in contents(INDEX).values() for entry in entries]
    pages = [
        page.relative_to(DOCS).with_suffix("").as_posix()
        for page in DOCS.rglob("*.md")
        if not {"_build", "_include"} & set(page.parts)
    ]
    assert sorted(listed) == sorted(page for page in pages if page != "index")


def test_every_list_of_the_index_is_read():
    """A line without its reason would be on the index, and nowhere else."""
    lists = INDEX[INDEX.index("\n## Learn\n") :]
    assert len(re.findall("^- ", lists, re.MULTILINE)) == sum(map(len, contents(INDEX).values()))


def test_llms_txt_has_a_line_for_each_page():
    index = (
        "# Locks\n\nTwo\nlines.\n\n## A table\n\n| [a](a.md) |\n\n## Use it\n\n- [A page](howto/a.md): when you must\n"
    )
    assert llms(index, "https://x.org/") == (
        "# Locks\n\n> Two\n> lines.\n\n## Use it\n\n- [A page](https://x.org/howto/a.html): when you must\n"
    )
