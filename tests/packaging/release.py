"""``python -m tests.packaging.release v1.2.3``: what is in the way of publishing this commit as that.  No dependency."""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]


def objections(tag, project, package, changelog, citation):
    """Empty if there is none.  The texts of four files are given, so that others can be tried."""
    found = []
    version = (re.findall(r'^__version__ = "(.*?)"', package, re.MULTILINE) or [""])[0]
    released = re.findall(r"^## (\d+\.\d+\.\d+) - (.*)$", changelog, re.MULTILINE)[:1]
    if tag != f"v{version}":
        found.append(f"the tag is {tag}, and redlock/__init__.py says {version}")
    if [one[0] for one in released] != [version]:
        found.append(f"CHANGELOG.md has no part for {version} at its head")
    if re.search(r"^## Unreleased\n+[^#\s]|^## Unreleased\n+### ", changelog, re.MULTILINE):
        found.append("CHANGELOG.md has something under Unreleased: move it")
    for name, value in (("version", version), ("date-released", released[0][1] if released else "")):
        if not re.search(rf"^{name}: \"?{re.escape(value)}\"?$", citation, re.MULTILINE):
            found.append(f"CITATION.cff does not say {name}: {value}")
    if not project.get("urls"):
        found.append("pyproject.toml has no [project.urls]: an index would show no way to the source (CONTRIBUTING.md)")
    return found


def main(tag):
    texts = [
        (ROOT / name).read_text(encoding="utf-8") for name in ("redlock/__init__.py", "CHANGELOG.md", "CITATION.cff")
    ]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    found = objections(tag, project, *texts)
    for one in found:
        print(one, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
