# The commands of this project; each sets up what it needs and can be run again at any time.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.ready
# Threads that wait asleep leave the cores to others; see docs/lab-notes.md.
export OMP_WAIT_POLICY ?= PASSIVE

.PHONY: setup demo test test-slow test-all lint bench docs clean

setup: $(STAMP)

# torch first and by its pinned version: a bare `torch` would bring gigabytes of GPU libraries along.
$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -c "import torch" 2>/dev/null || $(BIN)/pip install -q -c constraints.txt torch
	$(BIN)/pip install -q -c constraints.txt -e '.[test,lint]'
	touch $@

demo: $(STAMP)
	$(BIN)/python demo/run.py

# As many processes as cores, one thread in each: threads that outnumber cores wait for one another.
test test-slow: export OMP_NUM_THREADS ?= 1

test: $(STAMP)
	$(BIN)/python -m pytest -m "not slow" -n auto

test-slow: $(STAMP)
	$(BIN)/python -m pytest -m slow -n auto

test-all: test test-slow

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(STAMP)
	$(BIN)/python bench/run.py

# The documentation, into site/; the build itself needs no network. mkdocs is no part of `setup`: few need it.
docs: $(STAMP)
	$(BIN)/python -c "import material, mkdocstrings_handlers.python" 2>/dev/null \
		|| $(BIN)/pip install -q -c constraints.txt -e '.[docs]'
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet

clean:
	rm -rf .venv site demo/work bench/.venv bench/results/*-unfinished.json
