# `make demo`, `make check` and `make test` all work as the first command after a clone: they need python3, make and git.

PYTHON ?= python3
# Two workers and more: tests do not depend on each other. BLAS has one thread in each: with more, workers wait for cores.
PYTEST_ARGS ?= -n auto

BIN := .venv/bin
PIP := PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_BUILD_CONSTRAINT=constraints.txt PIP_CONSTRAINT=constraints.txt \
       $(BIN)/pip install -qq -c constraints.txt
SAY := @printf '\033[1m==> %s\033[0m\n'

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo check test test-machines lint bench papers format clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' Makefile

demo: .venv/.installed  ## run the demonstration
	@$(BIN)/python examples/demo.py

check: .venv/.installed  ## the fast lane: ruff, and the tests without the slow ones (about a minute)
	$(SAY) ruff
	@$(BIN)/ruff check --quiet
	$(SAY) 'pytest, the fast lane'
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -m 'not slow' --hypothesis-profile=check $(PYTEST_ARGS)

test: lint  ## lint, then run the tests, the doctests and the README (PYTEST_ARGS="-k kernels -n 2")
	$(SAY) pytest
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q $(PYTEST_ARGS)

test-machines: .venv/.installed  ## run tests as on other machines: other BLAS, other processors, one thread (half an hour)
	@$(BIN)/python tests/machines.py $(PYTEST_ARGS)

lint: .venv/.installed  ## check style, types and the direction of imports
	$(SAY) ruff
	@$(BIN)/ruff check --quiet
	@$(BIN)/ruff format --check --quiet || { echo 'unformatted files: run make format'; exit 1; }
	$(SAY) mypy
	@$(BIN)/mypy
	$(SAY) import-linter
	@$(BIN)/lint-imports --no-logo

bench: .venv/.installed-bench  ## compare speed and accuracy with other libraries
	@$(BIN)/python -m benchmarks

papers: .venv/.installed  ## run the experiments of the papers again, or one (PAPER=compact_kernels); results go to docs/papers
	@$(BIN)/python -m papers $(PAPER)

format: .venv/.installed  ## fix what ruff can fix, and format
	@$(BIN)/ruff check --fix --quiet || true
	@$(BIN)/ruff format

clean:  ## remove the environment, the caches and what was built
	@rm -rf .venv build dist .hypothesis .mypy_cache .pytest_cache .ruff_cache .import_linter_cache \
	       .numba_generic
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

.venv/.installed: pyproject.toml constraints.txt
	$(SAY) 'creating .venv (once; a minute or two)'
	@$(PYTHON) -m venv .venv
	@$(PIP) -e '.[dev,report]'
	@touch $@

.venv/.installed-bench: .venv/.installed
	$(SAY) 'installing what the benchmarks need'
	@$(PIP) -e '.[bench]'
	@touch $@
