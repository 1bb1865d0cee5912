# Two commands do all the set-up, on a machine with Python >= 3.11 (pip, venv) and make:
#   make demo    see the lock at work on five local masters
#   make test    everything that CI runs
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
SEEDS ?= 100000
OLDEST = tests/properties tests/observe $(addprefix tests/servers/test_,lock.py flavours.py minority.py metrics.py)
# One process per core for what only computes; the tests with real servers stay in one.
JOBS ?= auto

.DEFAULT_GOAL := help
.PHONY: help demo test lint types core simulation servers package oldest simulation-long bench clean

help:
	@sed -n 's/^## //p' $(MAKEFILE_LIST)

$(BIN)/.ready: pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or newer is needed, this is " + sys.version.split()[0]) if sys.version_info < (3, 11) else None'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'
	$(BIN)/python -m pip install --quiet --editable '.[local,prometheus,otel]' --group dev
	@touch $@

## make demo              five local masters: held, refused, two killed, three gone, restarted empty
demo: $(BIN)/.ready
	@$(BIN)/python -m examples.demo

## make test              lint, types, core, simulation and real servers: what CI runs
test: lint types core simulation servers package oldest

lint: $(BIN)/.ready
	$(BIN)/ruff check

types: $(BIN)/.ready
	$(BIN)/mypy
	$(BIN)/basedpyright --pythonpath $(BIN)/python

## make core              unit tests of the algorithm and of the event loop's driver: no server, no sleep
core: $(BIN)/.ready
	$(BIN)/pytest -q tests/core tests/properties tests/asyncio tests/observe tests/test_floor_plan.py tests/test_public_api.py

## make simulation        the fixed seeds, the broken variants, the exhaustive small scope
simulation: $(BIN)/.ready
	$(BIN)/pytest -q -n $(JOBS) tests/simulation

## make servers           real servers on loopback ports: killed, frozen, full, restarted
servers: $(BIN)/.ready
	$(BIN)/pytest -q tests/servers

## make package           what is in the wheel, and that it works in a fresh environment
package: $(BIN)/.ready
	$(BIN)/pytest -q tests/packaging

## make oldest            what touches a dependency, with the oldest of each; `nox` has all versions
oldest: $(BIN)/.ready
	$(BIN)/nox $(if $(REDLOCK_TEST_REQUIRE_ALL),--error-on-missing-interpreters) -s "oldest(server='redis')" -- $(OLDEST)

## make simulation-long   SEEDS=100000 more seeds
simulation-long: $(BIN)/.ready
	$(BIN)/python -m tests.simulation --seeds $(SEEDS)

## make bench             ratios to bare sockets, measured in the same run
bench: $(BIN)/.ready
	@$(BIN)/python -m benchmarks.bench

clean:
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis .nox dist
