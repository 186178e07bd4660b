# Every target does its own set-up, in .venv, from Python 3 alone.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready

.PHONY: setup demo lint test check bench clean

setup: $(READY)

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	touch $(READY)

demo: $(READY)  ## MLE, MGS, MRT and PG on the embedded corpus, in minutes
	$(BIN)/mgs demo --out demo

test: $(READY)
	$(BIN)/python -m pytest

lint: $(READY)  ## lint, format and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

check: lint test  ## all that must hold before a commit

bench: $(READY)  ## ratios, measured side by side in one run
	$(BIN)/mgs bench
	$(BIN)/python benchmarks/decoding.py

clean:
	rm -rf .venv demo runs .pytest_cache .mypy_cache .ruff_cache
