# `make` or `make help` lists the targets.
PYTHON ?= python3
VENV ?= .venv
# More packages for the test environment, for instance: make test-all TEST_EXTRAS="mypy ruff ray[default] vastai"
TEST_EXTRAS ?=
# Options for pytest, for instance: make test ARGS="-k gpu -x"; for soak, those of bench/soak.py
ARGS ?=
CORES := $(shell getconf _NPROCESSORS_ONLN)
# How many tests run side by side. Those of `make test` compute; most others wait for two thirds of their time.
WORKERS ?= $(shell expr $(CORES) \* 2)
ALL_WORKERS ?= $(shell expr $(CORES) \* 3)
PYTEST = $(BIN)/python -m pytest --dist loadfile --no-loadscope-reorder

BIN := $(VENV)/bin
INSTALL ?= $(BIN)/python -m pip install --quiet --disable-pip-version-check
# The file is made last, so it says that the environment is complete; in it are the extras installed so far.
STAMP := $(VENV)/.installed
INSTALLED := $(shell cat '$(STAMP)' 2>/dev/null)
MISSING := $(filter-out $(INSTALLED),$(TEST_EXTRAS))
# Quoted, since ray[default] is a pattern to the shell.
QUOTED_EXTRAS := $(foreach extra,$(sort $(INSTALLED) $(TEST_EXTRAS)),'$(extra)')
# A relative folder would lose its meaning where a test changes directory.
export PATH := $(abspath $(BIN)):$(PATH)
# Hundreds of tests start the command; each would compile the package anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help test test-all venv lint lint-if-installed demo bench soak hostile fuzz clean FORCE

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' Makefile

test: $(STAMP) lint-if-installed ## unit and contract tests, and one of each real part that is here (4 minutes)
	TRAINING_MONITOR_QUICK=1 $(PYTEST) -n $(WORKERS) @tests/quick.txt $(ARGS)

test-all: $(STAMP) lint-if-installed ## run everything, with whatever tools are here (half an hour)
	$(PYTEST) -n $(ALL_WORKERS) $(ARGS)

venv: $(STAMP) ## make or update the test environment only

lint: ## ruff, and mypy --strict on the package and the programs in bench/
	@$(MAKE) --no-print-directory TEST_EXTRAS='$(TEST_EXTRAS) mypy ruff' venv
	@$(MAKE) --no-print-directory lint-if-installed

lint-if-installed: $(STAMP)
	@if [ -x $(BIN)/ruff ] && [ -x $(BIN)/mypy ]; then \
	  set -ex; $(BIN)/ruff check training_monitor tests bench examples; $(BIN)/mypy --strict; \
	  $(BIN)/mypy --explicit-package-bases bench; \
	else echo "lint: skipped, ruff and mypy are not in $(VENV); 'make lint' installs them"; fi

demo: ## supervise a small training that crashes and hangs
	$(PYTHON) -m training_monitor demo

bench: ## measure everything that has a goal, beside a reference (minutes)
	@PYTHONPATH=. $(PYTHON) -m bench --growth

soak: ## see what grows in an hour of faults: make soak ARGS="--minutes 15" (an hour)
	@PYTHONPATH=. $(PYTHON) -m bench.soak $(ARGS)

hostile: $(STAMP) ## attack and break everything, and count what got through (minutes)
	$(PYTEST) -n $(ALL_WORKERS) tests/hostile $(ARGS)

fuzz: $(STAMP) ## a million hostile inputs through every parser (minutes)
	TRAINING_MONITOR_FUZZ=1000000 $(BIN)/python -m pytest tests/unit/test_hostile_input.py $(ARGS)

clean: ## remove what the other targets made
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Compat: a path, instead of an import hook that costs each start of Python 15 ms.
$(STAMP): setup.cfg pyproject.toml $(if $(MISSING),FORCE)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
	  { echo "make: $(PYTHON) is not Python 3.10 or later; name one: make PYTHON=python3.12 test" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
	  { echo "make: $(PYTHON) lacks venv or ensurepip; on Debian and Ubuntu: apt-get install python3-venv" >&2; exit 1; }
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(VENV)
	$(INSTALL) --config-settings editable_mode=compat -e '.[test]' $(QUOTED_EXTRAS)
	@echo '$(sort $(INSTALLED) $(TEST_EXTRAS))' > $(STAMP)

FORCE:
