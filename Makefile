# Needs Python 3.11 or newer and make. Everything is installed into .venv/, once: the marks in it say what is there, and
# a change of pyproject.toml or constraints.txt renews them. The install is editable, so code may change freely.
# Another interpreter: make run PYTHON=python3.12

PYTHON ?= python3
WORKERS ?= 2
VENV := .venv
PY := $(VENV)/bin/python
PIP := $(PY) -m pip --disable-pip-version-check -qq
SCENARIO ?= kimi-k2-256xh20

.DEFAULT_GOAL := help
.PHONY: help run test slow bench lint ruff types floors wheel clean

help:  ## this list
	@sed -n 's/^\([a-z]*\):.*## /  make \1\t/p' $(MAKEFILE_LIST) | expand -t 16

run: $(VENV)/.run  ## predict one weight update: a table, and a folder with report, CSV and trace
	$(VENV)/bin/runcast simulate data/scenarios/$(SCENARIO).toml --out out/$(SCENARIO)

test: $(VENV)/.test  ## all tests but the slow ones and the benchmarks
	$(PY) -m pytest -m "not slow" -n $(WORKERS) --dist loadfile

slow: $(VENV)/.test  ## the slow tests: the wheel in a fresh environment, and others
	$(PY) -m pytest -m slow

bench: $(VENV)/.test  ## how fast the engine is
	$(PY) -m pytest tests/bench --benchmark-only

lint: ruff types floors  ## ruff, mypy and the floors between packages (-k: all three, whatever fails)

ruff: $(VENV)/.lint
	$(PY) -m ruff check .

types: $(VENV)/.lint
	@mkdir -p $(VENV)/types && ln -sfn ../.. $(VENV)/types/runcast
	$(PY) -m mypy

floors: $(VENV)/.lint
	$(VENV)/bin/lint-imports

wheel: $(VENV)/.made  ## dist/*.whl
	rm -rf build dist
	$(PIP) wheel --no-deps --wheel-dir dist .

clean:  ## remove everything that was made, .venv/ too
	rm -rf $(VENV) build dist out *.egg-info .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis .benchmarks
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# An environment that was copied, moved or made by a Python that is gone starts over.
HERE = $(shell $(PY) -c 'import sys; print("$(CURDIR)", *sys.version_info[:2])' 2>/dev/null)
ifneq ($(HERE),$(shell cat $(VENV)/.made 2>/dev/null))
$(shell rm -f $(VENV)/.made $(VENV)/.run $(VENV)/.test $(VENV)/.lint)
endif

$(VENV)/.made:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "runcast needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) --version 2>/dev/null || echo missing)." >&2; \
	  echo "Name another one: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || { \
	  echo "$(PYTHON) cannot make environments; on Debian and Ubuntu: apt-get install python3-venv" >&2; exit 1; }
	@$(PY) -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(VENV)
	@$(PY) -c 'import sys; print("$(CURDIR)", *sys.version_info[:2])' > $@

$(VENV)/.run: $(VENV)/.made pyproject.toml constraints.txt
	@echo "Installing runcast into $(VENV)/ ..."
	@$(PIP) install -c constraints.txt -e '.[fast]'
	@touch $@

$(VENV)/.test: $(VENV)/.run
	@echo "Installing what the tests need into $(VENV)/ (torch too: some hundred MB) ..."
	@$(PIP) install -c constraints.txt -e '.[test]'
	@touch $@

$(VENV)/.lint: $(VENV)/.run
	@$(PIP) install -c constraints.txt -e '.[lint]'
	@touch $@
