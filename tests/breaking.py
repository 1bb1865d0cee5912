"""A pytest plugin: tests run against a library that is broken as REDLOCK_PATCHES says, which is JSON.

It imports nothing of the library itself, and is loaded before anything does: ``pytest -p tests.breaking``.
"""

from __future__ import annotations

import json
import os
import sys
from importlib.machinery import PathFinder, SourceFileLoader
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import CodeType, ModuleType

PATCHES: list[tuple[str, str, str]] = json.loads(os.environ.get("REDLOCK_PATCHES", "[]"))
BROKEN = {module.partition(".")[0] for module, _, _ in PATCHES} | {"redlock"}


class _Loader(SourceFileLoader):
    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        text = self.get_data(path).decode()
        for module, old, new in PATCHES:
            text = text.replace(old, new) if module == fullname else text
        code: CodeType = compile(text, path, "exec", dont_inherit=True)
        return code

    def exec_module(self, module: ModuleType) -> None:
        super().exec_module(module)
        if module.__name__ == "redlock.scripts":
            for script in module.ALL:
                for name, old, new in PATCHES:
                    if name == f"{script.name}.lua":
                        script.__init__(script.name, script.text.replace(old, new))


class _Finder:
    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> Any:
        spec = PathFinder.find_spec(name, path, target) if name.partition(".")[0] in BROKEN else None
        if spec is not None and isinstance(spec.loader, SourceFileLoader):
            spec.loader = _Loader(spec.loader.name, spec.loader.path)
        return spec


if PATCHES:
    assert not any(name.partition(".")[0] in BROKEN for name in sys.modules), "it is loaded as it is"
    sys.meta_path.insert(0, _Finder)
