"""What becomes of a mutant: which scene, seed or test kills it; or which promise it breaks in seeds of all families."""

from __future__ import annotations

import importlib
import multiprocessing
import re
import resource
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tests import bench
from tests.bench.judge import HANGS, LIVE, P1, P2, P8, Judge, Violation
from tests.bench.library import ROOT, text_of
from tests.bench.parameters import FAMILIES
from tests.bench.run import Run, play
from tests.bench.variants.variant import cases, fails

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tools.mutants.drawing import Mutant

PROMISES: Final = (P1, P2, P8)
LONGEST: Final = 900  # seconds of a processor for one mutant; an endless loop is one
ENDLESS: Final = "it does not end"
_SCENES: Final = ROOT / "tests" / "scenes"
_CORE: Final = ROOT / "tests" / "core"


class Fate(NamedTuple):
    """``by``: what has killed it, or which promises it breaks; nothing: it lives.  ``grants``: of the seeds that it played."""

    mutant: Mutant
    by: str
    grants: int = 0

    def __str__(self) -> str:
        more = f" ({self.grants} grants)" if self.grants else ""
        return f"{self.mutant.name} (line {self.mutant.line}): {self.by or 'lives'}{more}"


# -- inside ----------------------------------------------------------------------------------------------------


def killed(mutant: Mutant, seeds: int) -> Fate:
    """What is quick is asked first: the file of tests that is named as it is, seeds, all of `tests/core`, all scenes."""
    stem = Path(mutant.file).stem
    near = [f"core/{file.name}" for file in sorted(_CORE.glob(f"test_{stem}*.py"))]
    by = (
        _limited(_tests, mutant, near)
        or _limited(_seeds, mutant, seeds)
        or _limited(_tests, mutant, ["core"])
        or _limited(_scenes, mutant)
    )
    return Fate(mutant, by or "")


def _tests(mutant: Mutant, among: list[str]) -> str | None:
    for tests in among:
        try:
            said = fails(tests, (mutant.patch,))
        except RuntimeError as error:  # they cannot be collected, or do not end
            said = str(error)
        if said is not None:
            red = re.search(r"^(?:FAILED|ERROR) (\S+)", said, re.MULTILINE)
            return red[1] if red is not None else f"tests/{tests}"
    return None


def _seeds(mutant: Mutant, seeds: int) -> str | None:
    for family, seed in mixed(seeds):
        try:
            play(FAMILIES[family](seed), (mutant.patch,))
        except Exception as error:  # noqa: BLE001 - whatever it raises, it is seen
            return f"--family {family} --trace {seed}: {_shown(error)}"
    return None


def _scenes(mutant: Mutant) -> str | None:
    with bench.broken([mutant.patch]):
        for name in scenes():
            for case, test in cases(name):
                try:
                    test()
                except BaseException as error:  # noqa: BLE001 - likewise; pytest's own are no `Exception`
                    return f"{case}: {_shown(error)}"
    return None


def mixed(seeds: int) -> Iterator[tuple[str, int]]:
    """Of all families in turn."""
    names = [*FAMILIES]
    yield from ((names[seed % len(names)], seed) for seed in range(seeds))


def scenes() -> Iterator[str]:
    for file in sorted(_SCENES.glob("test_*.py")):
        module = importlib.import_module(f"tests.scenes.{file.stem}")
        yield from (f"{file.stem}.{name}" for name in vars(module) if name.startswith("test_"))


def _shown(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".partition("\n")[0][:120]


# -- outside ---------------------------------------------------------------------------------------------------


class Patient(Judge):
    """Fails for the promises of the trusted files alone, and where a run could not come to its end."""

    def fail(self, invariant: str, text: str) -> None:
        if invariant in (*PROMISES, HANGS, LIVE):
            super().fail(invariant, text)


class Waits(Run):
    judged_by = Patient


def broken(mutant: Mutant, seeds: int) -> Fate:
    mutant.patch.applied(text_of(mutant.patch.module))  # one that changes nothing would break nothing
    found = _limited(_breaks, mutant, seeds)
    return Fate(mutant, *found) if isinstance(found, tuple) else Fate(mutant, "")


def _breaks(mutant: Mutant, seeds: int) -> tuple[str, int]:
    promises: dict[str, str] = {}
    grants = 0
    for family, seed in mixed(seeds):
        run = Waits(FAMILIES[family](seed), (mutant.patch,))
        try:
            run.play()
        except Violation as violation:
            if violation.invariant in PROMISES:
                promises.setdefault(violation.invariant, f"--family {family} --trace {seed}")
        except Exception:  # noqa: BLE001, S110 - whatever else it breaks
            pass
        grants += run.judge.grants
    return "; ".join(f"{promise}: {how}" for promise, how in promises.items()), grants


def loaded() -> set[str]:
    """Modules of the library that some process of the bench has: changes of the others would change nothing there."""
    runs = [play(FAMILIES[family](seed)) for family, seed in mixed(len(FAMILIES))]
    return {name for run in runs for client in run.clients for name in client.library.modules}


# -- each in a process of its own --------------------------------------------------------------------------------


def _limited(call: Callable[..., Any], *arguments: Any) -> Any:
    """What it returns, or `ENDLESS`."""
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe(duplex=False)
    process = context.Process(target=_sends, args=(there, call, arguments))
    process.start()
    there.close()
    try:
        return here.recv()
    except EOFError:
        return ENDLESS
    finally:
        process.join()


def _sends(there: Any, call: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (LONGEST, LONGEST))
    there.send(call(*arguments))
