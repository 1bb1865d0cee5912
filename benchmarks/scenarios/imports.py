"""What `from redlock import Masters` takes beyond `import redis`: processor time, for who else is running has no part in it.

Both are compiled beforehand, as an installer does it: a checkout that may not write bytecode compiles every time.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from typing import TYPE_CHECKING

from benchmarks.peers import ROOT
from benchmarks.records import Record, middle
from benchmarks.subjects import OURS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.lab import Lab

TITLE = "Import"
_PROGRAM = """
import json, time
began = time.process_time()
import redis, redis.asyncio
between = time.process_time()
from redlock import Masters
print(json.dumps([between - began, time.process_time() - between]))
"""


def run(lab: Lab) -> Iterator[Record]:
    taken = []
    with tempfile.TemporaryDirectory(prefix="redlock-bench-") as compiled:
        environment = {**os.environ, "PYTHONPYCACHEPREFIX": compiled, "PYTHONDONTWRITEBYTECODE": ""}
        for number in range(lab.effort.imports + 1):
            lab.progress(f"process {number + 1} of {lab.effort.imports + 1}")
            done = subprocess.run(
                [sys.executable, "-c", _PROGRAM], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
            )
            taken.append([1000 * seconds for seconds in json.loads(done.stdout)])
    del taken[0]  # which has compiled them
    lab.progress("")
    redis, redlock = zip(*taken, strict=True)
    yield middle("imports", "", "redis-py", "import redis, redis.asyncio", "ms", redis)
    yield middle(
        "imports",
        "",
        OURS[0].title.partition(",")[0],
        "from redlock import Masters, after that",
        "ms",
        redlock,
        bar=30.0,
    )
