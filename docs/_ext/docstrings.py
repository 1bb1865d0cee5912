"""Docstrings are written for people with an editor; here they become links.

One backtick means a name: a public one is linked, any other is set as code.  ``(R7)`` leads to the rules.
"""

from __future__ import annotations

import builtins
import inspect
import re
from typing import TYPE_CHECKING

from docutils import nodes

import redlock
from redlock import testing

if TYPE_CHECKING:
    from sphinx.addnodes import pending_xref
    from sphinx.application import Sphinx
    from sphinx.environment import BuildEnvironment

_NAME = re.compile(r"(?<![`:])`([^`\n]+)`(?![`_])")
_ATTRIBUTE = object()  # what a class does not have, an object does
_RULE = re.compile(r"\b([RPC][1-9]\d?)\b(?!`)")
_PAGE = {"P": "concepts/promises"}  # all others are rules
_FOR_TYPE_CHECKERS = re.compile(
    r": ?[\w.~]*Unpack\[[^\]]*\]"
)  # of options that are handed on; the class that takes them has them all
_WORLDS = ("Masters", "Lease", "Term")  # each has two, and ``Any…`` stands for the right one
# Types of others, and of ours that have no page: they are shown, and lead nowhere.
_NO_PAGE = frozenset(
    (
        "Any",
        "AsyncIterator",
        "Awaitable",
        "Callable",
        "Iterator",
        "Coroutine",
        "Iterable",
        "Mapping",
        "Sequence",
        "P",
        "R",
        "B",
        "Naming",
        "MultiLockOptions",  # of signatures that stand beside others (`typing.overload`), which come here as they are
        "AsyncMultiLockOptions",
        "Persistence",
        "Self",
        "Reason",
        "Outcome",
        "MeterProvider",
        "TracerProvider",
        "os.PathLike",
        "wait_base",
        "BaseException",
        "TracebackType",
        "Literal",
        "ParamSpec",
    )
)


def _linked(match: re.Match[str], around: str) -> str:
    """``around`` is the full name of the class that is being described."""
    name = match[1].removeprefix("redlock.")
    for module in (redlock, testing):
        first, _, member = name.partition(".")
        if first in module.__all__:
            thing = getattr(getattr(module, first), member, _ATTRIBUTE) if member else None
            # Attributes stand in the description of their class, where nothing can be linked to.
            unlinked = thing is _ATTRIBUTE or inspect.ismemberdescriptor(thing)
            return f"``{name}``" if unlinked else f":py:obj:`~{module.__name__}.{name}`"
        if around.startswith(module.__name__ + ".") and name.isidentifier() and not name.startswith("_"):
            owner = getattr(module, around.removeprefix(module.__name__ + "."), None)
            thing = getattr(owner, name, None)
            if inspect.isfunction(thing) or isinstance(thing, property):
                return f":py:obj:`~{around}.{name}`"
    return f"``{match[1]}``"


def _docstring(_app: Sphinx, kind: str, name: str, _thing: object, _options: object, lines: list[str]) -> None:
    around = name if kind in ("class", "exception") else name.rpartition(".")[0]
    for number, line in enumerate(lines):
        text = _NAME.sub(lambda match: _linked(match, around), line)
        lines[number] = _RULE.sub(lambda match: f":doc:`{match[1]} </{_PAGE.get(match[1][0], 'rules')}>`", text)


def _signature(
    _app: Sphinx, kind: str, name: str, _thing: object, _options: object, signature: str | None, returns: str | None
) -> tuple[str | None, str | None]:
    """The type variables that both worlds share have one meaning in each; users make no lease, term or error."""
    if signature and kind == "exception":
        return "", None
    if name in ("redlock.Lease", "redlock.AsyncLease", "redlock.Term", "redlock.AsyncTerm"):
        return "", None
    world = "Async" if name.startswith("redlock.Async") else ""

    def plain(text: str | None) -> str | None:
        if not text:
            return text
        text = _FOR_TYPE_CHECKERS.sub("", text)
        for word in _WORLDS:
            text = text.replace(f"Any{word}", f"{world}{word}")
        return text

    return plain(signature), plain(returns)


def _missing(_app: Sphinx, _env: BuildEnvironment, node: pending_xref, shown: nodes.TextElement) -> nodes.Node | None:
    """What comes from elsewhere is no broken link."""
    if node.get("refdomain") != "py":
        return None
    target: str = node["reftarget"]
    for word in _WORLDS:
        if target.endswith(f"Any{word}"):
            return nodes.Text(f"Async{word}" if "Async" in node.get("py:class", "") else word)
    if (
        hasattr(builtins, target)
        or target.removeprefix("redlock._lock.masters_threads.").removeprefix("redlock._lock.masters_async.")
        in _NO_PAGE
        or target.startswith(("redis.", "collections.abc.", "asyncio.", "pathlib."))
    ):
        return shown
    return None


def setup(app: Sphinx) -> dict[str, bool]:
    """Called by Sphinx."""
    app.connect("autodoc-process-docstring", _docstring, priority=400)  # before napoleon
    app.connect("autodoc-process-signature", _signature)
    app.connect("missing-reference", _missing)
    return {"parallel_read_safe": True}
