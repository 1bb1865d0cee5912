"""A fresh virtual environment, and distributions made for the test."""

from __future__ import annotations

import subprocess
import venv
import zipfile

from tests.servers.needs import missing

# Where pip says that there is no index to be reached, the machine is offline; anything else is a mistake of ours.
_OFFLINE = ("No matching distribution found", "Could not fetch URL", "NewConnectionError", "Temporary failure")


class Environment:
    """Only what the test installs is in it."""

    def __init__(self, path):
        venv.create(path, with_pip=True)
        self.python = path / "bin" / "python"
        self.elsewhere = path.parent  # a folder without a module redlock
        (self.site,) = path.glob("lib/python3*/site-packages")

    def run(self, *words):
        command = [str(self.python), *words]
        return subprocess.run(command, cwd=self.elsewhere, capture_output=True, text=True, check=False, timeout=300)

    def program(self, code):
        """Isolated from the environment variables and folders of whoever runs the tests."""
        return self.run("-I", "-W", "error", "-c", code)

    def pip(self, *words):
        done = self.run("-m", "pip", "--quiet", "--disable-pip-version-check", *words)
        if done.returncode and any(sign in done.stderr for sign in _OFFLINE):
            missing("an index of packages to install from")
        assert done.returncode == 0, done.stdout + done.stderr

    def install(self, what, *options):
        self.pip("install", *options, what)


def distribution(folder, name, files):
    """A wheel of somebody else, version 1.0."""
    info = f"{name.replace('-', '_')}-1.0.dist-info"
    content = files | {
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: made up\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    content[f"{info}/RECORD"] = "".join(f"{path},,\n" for path in [*content, f"{info}/RECORD"])
    path = folder / f"{name.replace('-', '_')}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for inside, text in content.items():
            archive.writestr(inside, text)
    return path
