"""What was tried, and what it found: docs/track-record.md is made of it.

    python -m tools.track_record simulation [--seeds 200]     the next seeds of every family, from where the last record ended
    python -m tools.track_record simulation --family shipped  of all that programs do, mixed
    python -m tools.track_record chaos [OPTION ...]           `python -m chaos ci` with these options; --out DIR keeps the histories
    python -m tools.track_record judges FOLDER                other judges, of the histories in there and of so many seeds of the bench;
                                                              --porcupine PROGRAM asks tools/porcupine as well
    python -m tools.track_record page                         docs/track-record.md again

A run adds its lines to runs.jsonl itself, with the commit that it ran on, and makes the page; people write defects.toml, and nothing
into runs.jsonl. A violation is recorded as well as its absence. `--runs FILE` takes another file than runs.jsonl.

Exit codes: 0 nothing was violated, 1 something was, or two judges differ, 2 nothing was recorded.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tools.track_record import judges, page, runs

if TYPE_CHECKING:
    from collections.abc import Sequence

NOT_RECORDED = 2


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tools.track_record",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("what", choices=("simulation", "chaos", "judges", "page"))
    parser.add_argument("--seeds", type=int, default=200, help="of each family (default: 200)")
    parser.add_argument(
        "--family", action="append", choices=runs.ALL, help="only this one; may be given more than once"
    )
    parser.add_argument(
        "--jobs", type=int, help="at a time; as many as there are processors, or as chaos ci has, unless given"
    )
    parser.add_argument(
        "--out",
        type=Path,
        metavar="DIR",
        help="a new folder, for the histories of chaos; they are removed unless given",
    )
    parser.add_argument("--porcupine", metavar="PROGRAM", help="what was built of tools/porcupine")
    parser.add_argument(
        "--runs", type=Path, default=runs.FILE, help="where the lines are (default: tools/track_record/runs.jsonl)"
    )
    options, rest = parser.parse_known_args(arguments)
    folder = Path(rest.pop(0)) if options.what == "judges" and rest else None
    if options.what == "judges" and (folder is None or not folder.is_dir()):
        parser.error(f"{folder or 'no folder'}: it must be one with histories, such as `chaos ci --out` leaves")
    if rest and options.what != "chaos":
        parser.error(f"unknown: {' '.join(rest)}")
    if options.out is not None and (options.what != "chaos" or options.out.exists()):
        parser.error(f"--out is {options.out}: it must be a folder that is not there yet, and is for chaos alone")
    if options.seeds < 1:
        parser.error(f"--seeds is {options.seeds}, it must be at least 1")
    violated = False
    if options.what != "page":
        try:
            source = runs.source()
            known = runs.read(options.runs)
            if options.what == "simulation":
                made = runs.simulated(known, options.seeds, options.jobs, source, options.family or runs.ALL)
            elif folder is not None:
                made = judges.recorded(known, folder, options.seeds, options.porcupine, options.jobs, source)
            else:
                jobs = [] if options.jobs is None else ["--jobs", str(options.jobs)]
                made = runs.under_chaos([*rest, *jobs], source, options.out and options.out.resolve())
            for line in made:
                runs.add(options.runs, line)
                print(runs.told(line), flush=True)
                violated = violated or bool(line["violated"] or line.get("differ"))
        except runs.NotRecorded as why:
            print(f"record: {why}", file=sys.stderr)
            return NOT_RECORDED
    page.write(runs.read(options.runs))
    return int(violated)


if __name__ == "__main__":
    sys.exit(main())
