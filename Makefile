# Everything runs in a virtual environment inside the checkout; nothing else on the machine is touched.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# What the product needs, and what its developers need besides: `make demo` waits only for the first.
RUNTIME := $(VENV)/.runtime
STAMP := $(VENV)/.installed
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
# The variables that would let the caller's Python leak into ours.
export PYTHONPATH :=
export PYTHONDONTWRITEBYTECODE :=

.PHONY: demo test check lint coverage protos docs results bench paper setup clean dist release site image verify-deploy

demo: $(RUNTIME)
	$(BIN)/dcfpca demo

# Two at a time, each module in one process: most tests wait for daemons more than they compute. In the order of
# tests/conftest.py, long modules first; xdist's own, most tests first, ends with a long one alone.
PARALLEL ?= -n 2 --dist loadscope --no-loadscope-reorder

test: lint
	$(BIN)/python -m pytest $(PARALLEL)

check: lint
	$(BIN)/python -m pytest -m "not slow" $(PARALLEL)

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# Branch coverage of the tiers that run in one process; COVERED names others, COVERAGE_FLAGS more of pytest's.
COVERED ?= tests/unit tests/property tests/simulation
coverage: $(STAMP)
	mkdir -p build
	$(BIN)/python -m pytest $(COVERED) -m "not slow" -n auto --cov --cov-report=term --cov-report=xml $(COVERAGE_FLAGS)

protos: $(STAMP)
	$(BIN)/python protos/generate.py

docs: $(STAMP)
	$(BIN)/python docs/generate.py

# docs/results.md and the paper's figures, from the data under benchmarks/results.
results: $(STAMP)
	$(BIN)/python -m benchmarks.report

bench: $(STAMP)
	$(BIN)/python -m benchmarks.solve --rows 500 --columns 500 --rank 25 --participants 10

# The paper's figures and tables, measured again: hours; PAPER="--quick" takes minutes.
PAPER ?=
paper: $(STAMP)
	$(BIN)/python -m benchmarks.paper $(PAPER)

setup: $(STAMP)

$(RUNTIME): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit("error: Python 3.11 or newer is needed, this is %d.%d; name another with make PYTHON=…" % sys.version_info[:2] if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)
	$(PIP) -e .
	touch $(RUNTIME)

$(STAMP): $(RUNTIME)
	$(PIP) -e '.[dev]'
	touch $(STAMP)

# What is released, tried in an empty environment: sdist, wheel and SBOM.
dist:
	deploy/verify.sh dist

# All of a release, below dist/: wheel, sdist, SBOM, site, image, notes, checksums. The wheel is tried with each extra on
# every Python of RELEASE_PYTHONS that is here. Half an hour.
RELEASE_PYTHONS ?= 3.11 3.12 3.13
release: $(STAMP)
	VERIFY_SECONDS=7200 RELEASE_PYTHONS="$(RELEASE_PYTHONS)" deploy/verify.sh release

# The documentation as a site, in build/site; a warning is an error.
site: $(STAMP)
	rm -rf build/site
	$(BIN)/python -m docs.site.assemble build
	$(BIN)/python -m sphinx --builder html --fail-on-warning --quiet --doctree-dir build/doctrees build/site-source build/site
	@echo "build/site/index.html"

# The image dcfpca:VERSION and dcfpca:latest; deploy/Dockerfile says how to reach an index of your own.
image:
	docker build -f deploy/Dockerfile -t dcfpca:latest -t dcfpca:$$(sed -n 's/^__version__ = "\(.*\)"/\1/p' dcfpca/version.py) .

# Lints, builds and runs everything in deploy/; says what it had to skip.
verify-deploy:
	deploy/verify.sh

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist
