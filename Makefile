# Everything runs in a virtual environment inside the checkout; nothing else on the machine is touched.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# The variables that would let the caller's Python leak into ours.
export PYTHONPATH :=
export PYTHONDONTWRITEBYTECODE :=

.PHONY: demo test check lint protos docs bench setup clean

demo: $(STAMP)
	$(BIN)/dcfpca demo

test: lint
	$(BIN)/python -m pytest

check: lint
	$(BIN)/python -m pytest -m "not slow"

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

protos: $(STAMP)
	$(BIN)/python protos/generate.py

docs: $(STAMP)
	$(BIN)/python docs/generate.py

bench: $(STAMP)
	$(BIN)/dcfpca bench solve --rows 500 --columns 500 --rank 25 --participants 10

setup: $(STAMP)

$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit("error: Python 3.11 or newer is needed, this is %d.%d; name another with make PYTHON=…" % sys.version_info[:2] if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade pip
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	touch $(STAMP)

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist
