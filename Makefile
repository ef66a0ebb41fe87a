# make demo, make test: both install what they need into .venv the first time and are quick afterwards.

PYTHON ?= python3.11
BIN := .venv/bin
export OMP_NUM_THREADS ?= 1

.PHONY: help demo test test-long check clean

help:
	@echo "make demo       run three real trainings on a small cluster of processes"
	@echo "make test       check the style, types and imports, and run the tests"
	@echo "make test-long  run new random examples, the kill rounds and the full matrices"
	@echo "make clean      remove .venv and caches"

demo: .venv/.installed
	$(BIN)/jct demo

test: check
	$(BIN)/python -m pytest -m "not long" -n logical --maxprocesses 4 --dist worksteal

test-long: .venv/.installed-dev
	JCT_TEST_EXAMPLES=nightly $(BIN)/python -m pytest tests/property tests/wire -m "not long" --timeout 14400
	JCT_TEST_EXAMPLES=random $(BIN)/python -m pytest -m long --timeout 1800

check: .venv/.installed-dev
	$(BIN)/python -m ruff check
	$(BIN)/python -m mypy
	$(BIN)/lint-imports

.venv/.installed: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	touch $@

.venv/.installed-dev: .venv/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	touch $@

clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
