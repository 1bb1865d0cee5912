"""Other distributions install a module ``redlock``, too.  What can be noticed is, with a clear message.

Installed into the fresh environment of the wheel, in an order that people meet; and made up in a folder.
"""

from __future__ import annotations

from unittest.mock import Mock

import pytest

from redlock import ConfigurationError, Masters
from redlock._system import installed
from tests.packaging.build import distribution

FOREIGN = {"redlock/__init__.py": "class RedLock: pass\n", "redlock/lock.py": ""}
MAKE_MASTERS = "from redlock import Masters; Masters(['redis://10.0.0.1'])"


def test_the_life_of_an_environment_with_two_of_them(environment, wheel, tmp_path):
    foreign = distribution(tmp_path, "redlock-py", FOREIGN)
    options = ("--no-index", "--no-deps", "--force-reinstall")
    assert environment.program(MAKE_MASTERS).returncode == 0

    # Theirs came last.  None of our code runs, so all there is to see is what Python says; the README explains it.
    environment.install(str(foreign), *options)
    done = environment.program(MAKE_MASTERS)
    assert done.stderr.splitlines()[-1].startswith("ImportError: cannot import name 'Masters' from 'redlock'")

    # Ours came last, and works until somebody touches theirs: refused now, every time, not then.
    environment.install(str(wheel), *options)
    done = environment.program("import redlock; print('imports')")
    assert (done.returncode, done.stdout.strip()) == (0, "imports"), done.stderr
    for _ in range(2):
        done = environment.program(MAKE_MASTERS)
        last = done.stderr.splitlines()[-1]
        assert last.startswith("redlock.errors.ConfigurationError: redlock-py also installed a module redlock"), last
        assert "pip uninstall redlock-py redlock-quorum, then install redlock-quorum again" in last

    # What the message says helps.
    environment.pip("uninstall", "--yes", "redlock-py", "redlock-quorum")
    environment.install(str(wheel), *options)
    done = environment.program(MAKE_MASTERS)
    assert done.returncode == 0, done.stderr


@pytest.fixture
def beside(monkeypatch):
    """What is found beside us, looked for anew."""
    installed._others.cache_clear()
    monkeypatch.setattr(installed, "others_beside", Mock(return_value=("redlock",)))
    yield installed.others_beside
    installed._others.cache_clear()


def test_it_is_refused_each_time_and_looked_for_once(beside):
    for _ in range(2):
        with pytest.raises(ConfigurationError, match="redlock also installed a module redlock"):
            Masters(["redis://10.0.0.1"])
    beside.assert_called_once()


def test_what_cannot_be_read_is_no_reason_to_refuse(beside):
    beside.side_effect = PermissionError("mine")
    assert repr(Masters(["redis://10.0.0.1"]))


# -- made up -----------------------------------------------------------------------------------------


def record(site, name, *, record=None, top_level=None, kind="dist-info"):
    folder = site / f"{name.replace('-', '_')}-1.0.{kind}"
    folder.mkdir()
    (folder / ("METADATA" if kind == "dist-info" else "PKG-INFO")).write_text(f"Metadata-Version: 2.1\nName: {name}\n")
    if record is not None:
        (folder / "RECORD").write_text("".join(f"{path},sha256=x,1\n" for path in record))
    if top_level is not None:
        (folder / "top_level.txt").write_text("".join(f"{module}\n" for module in top_level))


@pytest.mark.parametrize(("options", "noticed"), [
    pytest.param({"record": ["redlock/__init__.py"]}, True, id="record"),
    pytest.param({"record": ["a/b.py", "redlock/cli.py"]}, True, id="any file"),
    pytest.param({"record": ["a.py", "redlock.py"]}, True, id="module"),
    pytest.param({"top_level": ["redlock"], "record": []}, True, id="top level"),
    pytest.param({"top_level": ["a", "redlock"], "kind": "egg-info"}, True, id="egg-info"),
    pytest.param({"record": ["aioredlock/__init__.py", "x/redlock/a.py", "redlock_more.py"]}, False, id="other names"),
    pytest.param({"top_level": ["redlocked", "aioredlock"], "record": []}, False, id="other top level"),
    pytest.param({}, False, id="nothing recorded"),
])  # fmt: skip
def test_which_ones_are_noticed(tmp_path, options, noticed):
    record(tmp_path, "redlock-quorum", record=["redlock/__init__.py"])
    record(tmp_path, "made-up", **options)
    assert installed.others_beside(tmp_path) == (("made-up",) if noticed else ())


def test_without_ours_nobody_is_in_its_way(tmp_path):
    """A source tree, or a program that was put together some other way."""
    record(tmp_path, "redlock-fork", record=["redlock/__init__.py"])
    assert installed.others_beside(tmp_path) == ()
    assert installed.others_beside(tmp_path / "nowhere") == ()


def test_several_are_all_named(tmp_path):
    for name in ("redlock-quorum", "redlock", "redlock-py"):
        record(tmp_path, name, record=["redlock/__init__.py"])
    assert installed.others_beside(tmp_path) == ("redlock", "redlock-py")
