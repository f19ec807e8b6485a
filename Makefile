# Needs Python 3.11 or newer and make. Everything is installed into .venv/, once: the marks in it say what is there, and
# a change of pyproject.toml or constraints.txt renews them. The install is editable, so code may change freely.
# Another interpreter: make run PYTHON=python3.12

PYTHON ?= python3
WORKERS ?= 2
# Slow tests also wait for other processes: three at a time take 14.5 minutes on two cores, two take 16.
SLOW_WORKERS ?= $(shell expr $(WORKERS) + 1)
VENV := .venv
PY := $(VENV)/bin/python
PIP := $(PY) -m pip --disable-pip-version-check -qq
SCENARIO ?= kimi-k2-256xh20

# Tests start some hundred processes, each of which would compile hundreds of modules anew where this is set.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help run test slow slow-together slow-alone bench docs pictures lint ruff types floors hooks lock profiles ledger pages wheel clean

help:  ## this list
	@sed -n 's/^\([a-z]*\):.*## /  make \1\t/p' $(MAKEFILE_LIST) | expand -t 16

run: $(VENV)/.run  ## predict one weight update: a table, and a folder with report, CSV and trace
	$(VENV)/bin/runcast simulate data/scenarios/$(SCENARIO).toml --out out/$(SCENARIO)

# On two idle cores: test takes 4 minutes (the aim), slow an hour, and .ci/run more (20 are the aim). A test that
# takes longer than some seconds is a slow one, beside a smaller one of the same (tests/command.py and tests/examples.py
# help).
test: $(VENV)/.test  ## all tests but the slow ones and the benchmarks: 4 minutes
	$(PY) -m pytest -m "not slow" -n $(WORKERS) --dist loadfile --durations 10

slow: slow-together slow-alone  ## the slow tests, and every example of the properties: an hour

slow-together: $(VENV)/.test
	RUNCAST_EVERY_EXAMPLE=1 $(PY) -m pytest -m "(slow or hypothesis) and not alone" -n $(SLOW_WORKERS) --dist worksteal --durations 10

# Only files with such tests are collected: all of them are ten seconds of one core.
slow-alone: $(VENV)/.test
	$(PY) -m pytest -m alone $$(grep -rl --include='test_*.py' 'mark\.alone' tests)

bench: $(VENV)/.test  ## how fast the engine is
	$(PY) -m pytest tests/bench --benchmark-only

docs: $(VENV)/.run  ## the docs as a site in out/site/: open out/site/index.html
	@$(PIP) install -c constraints.txt -e '.[docs]'
	NO_MKDOCS_2_WARNING=1 $(VENV)/bin/mkdocs build -q -f docs/site/mkdocs.yml

pictures: $(VENV)/.test  ## the pictures of docs/pictures/ again, by the commands beside them (needs Chromium)
	$(PY) -m tests.docs.pictures

lint: ruff types floors  ## ruff, mypy and the floors between packages (-k: all three, whatever fails)

ruff: $(VENV)/.lint
	$(PY) -m ruff check .
	$(PY) -m ruff format --check --quiet .

# mypy and import-linter read folders, not installed packages: here those beside this file have the names that they are
# imported by, in a `runcast` without a file of its own (simulator/runcast is read as a room of simulator).
NAMED = mkdir -p $(VENV)/types && ln -sfn ../.. $(VENV)/types/runcast

types: $(VENV)/.lint
	@$(NAMED)
	$(PY) -m mypy

floors: $(VENV)/.lint
	@$(NAMED)
	PYTHONPATH=$(VENV)/types $(VENV)/bin/lint-imports

hooks: $(VENV)/.lint  ## run ruff and mypy before every commit (.pre-commit-config.yaml)
	$(VENV)/bin/pre-commit install

# Both files come from one resolution, for all platforms and Pythons. A pin stays unless pyproject.toml forbids it.
# UPGRADE=--upgrade takes the newest version of everything, UPGRADE='--upgrade-package NAME' that of one package.
LOCK = $(VENV)/bin/uv pip compile -q pyproject.toml --all-extras --universal --python-version 3.11 --no-annotate
UPGRADE ?=

lock: $(VENV)/.made  ## write constraints.txt and requirements.lock from the ranges in pyproject.toml
	$(PIP) install -c constraints.txt uv
	$(LOCK) $(UPGRADE) --custom-compile-command "make lock" -o constraints.txt
	$(LOCK) --custom-compile-command "make lock  (without torch and triton: CONTRIBUTING.md says why)" \
	  -c constraints.txt --generate-hashes --no-emit-package torch --no-emit-package triton -o requirements.lock

# What ledgers say of software stacks and of how sure predictions are, and the pages that show every row of the ledgers.
# The predictions of training steps are kept beside their ledger, and a figure needs a Chromium. What other pages show
# moves with it: make pages.
CALIBRATE = $(VENV)/bin/runcast calibrate
ledger: $(VENV)/.test  ## stacks fitted to published updates and steps again, and the pages of all ledgers: 15 minutes
	$(CALIBRATE) stacks --out data/validation/weight_update_fit.json
	$(PY) tests/docs/ledger_page.py > docs/weight-update-ledger.md
	$(CALIBRATE) stacks --kind train_step --out data/validation/training_fit.json
	$(CALIBRATE) errors --out data/validation/training_errors.json
	$(CALIBRATE) memory --out data/validation/memory_errors.json
	$(CALIBRATE) data-sheets --out data/validation/data_sheet_errors.json
	$(CALIBRATE) run-errors --out data/validation/run_errors.json
	$(CALIBRATE) cycle-errors --out data/validation/cycle_errors.json
	mkdir -p out
	$(VENV)/bin/runcast validate --kind train_step --csv out/training-ledger.csv
	$(PY) tests/docs/training_ledger_page.py out/training-ledger.csv
	$(PY) tests/docs/run_ledger_page.py > docs/run-ledger.md
	$(PY) -m tests.docs.cycle_ledger_page > docs/rl-cycle-ledger.md
	$(PY) -m tests.docs.uncertainty_page
	$(PY) -m tests.docs.unseen_page

# What commands print on pages, and two pages that are tables of predictions. Read the difference before you commit it.
PLAYED := choosing-a-stack collectives compare devices explain fabrics own-runs own-schedules questions run search sweeps
PLAYED := README.md $(PLAYED:%=docs/%.md) docs/traces.md $(wildcard docs/tutorials/*.md)
pages: $(VENV)/.test  ## what commands print in README and docs, anew: three minutes
	$(PY) -m tests.docs.console $(PLAYED)
	$(PY) -m tests.report.test_train_page
	$(PY) -m tests.report.test_costs_page
	$(PY) -m tests.docs.what_ifs_page
	$(PY) -m tests.docs.own_runs_page

# The shipped profiles again, from tables that stay outside: make profiles TABLES=DIR. --wider is what
# carrying models from one device to another was seen to cost, in one generation and across two (docs/profiles.md).
TABLES ?= ../shared/data/micro
FIT = $(VENV)/bin/runcast calibrate fit -o data/profiles/
NCCL := $(TABLES)/aic_nccl.csv
KERNELS := $(addprefix $(TABLES)/,aic_gemm.csv aic_attention_context.csv aic_moe.csv)
OTHERS := $(addprefix $(TABLES)/,multinode_collectives.csv vidur_network.csv vidur_membound.csv)
SUITE := data/measured/h100-sxm/suite.jsonl.gz
COPIES := $(TABLES)/transfers.csv
AIC := NVIDIA AIConfigurator 095f58a (Apache-2.0)
VIDUR := Microsoft Vidur 7d47513 (MIT)
LOGS := logs of nccl-tests and nvbandwidth in public issues

profiles: $(VENV)/.run  ## fit the shipped profiles again (TABLES=DIR with the published tables)
	$(FIT)h100-sxm.json $(NCCL) $(KERNELS) $(OTHERS) $(COPIES) data/measured/figures.csv $(SUITE) --classes memory --classes attention \
	  --also data/measured/h100.toml --device "H100 SXM" --cluster dgx-h100 --prefer "nccl 2" --prefer vllm --prefer "torch cudnn" \
	  --prefer triton --prefer torch \
	  --source "$(AIC), $(VIDUR), $(LOGS), our suite (docs/measuring.md)"
	$(FIT)h200-sxm.json $(NCCL) $(KERNELS) --device "H200 SXM" --cluster h200-hgx --base h100-sxm --wider 0.08 \
	  --prefer "nccl 2" --prefer sglang --prefer unquantized --prefer moe_torch_flow_cutlass \
	  --source "$(AIC); what it lacks from H100 SXM"
	$(FIT)a100-sxm.json $(NCCL) $(KERNELS) $(OTHERS) --device "A100 SXM 80GB" --cluster dgx-a100 --base h100-sxm \
	  --wider 0.25 --also data/measured/a100.toml --prefer "nccl 2" \
	  --source "$(AIC), $(VIDUR); what they lack from H100 SXM, a generation later"
	$(FIT)b200-sxm.json $(NCCL) $(KERNELS) --device "B200 SXM" --cluster dgx-b200 --base h100-sxm --wider 0.25 \
	  --also data/measured/b200.toml --prefer "nccl 2.29" --source "$(AIC); what it lacks from H100 SXM, a generation earlier"
	$(FIT)gb200.json $(NCCL) --device GB200 --cluster gb200-nvl72 --base b200-sxm --wider 0.08 \
	  --source "$(AIC); kernels from B200 SXM at this device's data-sheet rates"
	$(FIT)b300.json --device "B300 SXM" --cluster b300-hgx --base b200-sxm --wider 0.1 \
	  --source "all from B200 SXM at this device's data-sheet rates"
	$(FIT)gb300.json $(COPIES) --device GB300 --cluster gb300-nvl72 --base gb200 --wider 0.1 \
	  --source "copies: $(LOGS); all else from GB200 and B200 SXM at this device's data-sheet rates"
	$(FIT)h800.json $(COPIES) --device "H800 SXM" --cluster h800-hgx --base h100-sxm --wider 0.08 \
	  --also data/measured/h800.toml --source "copies and NVLink: $(LOGS); all else from H100 SXM at this device's data-sheet rates"
	$(FIT)h20.json --device H20 --cluster h20-hgx --base h100-sxm --wider 0.1 --also data/measured/h20.toml \
	  --source "small all-reduces and local copies: $(LOGS); all else from H100 SXM at this device's data-sheet rates"
	$(FIT)v100.json --device "V100 SXM2 32GB" --cluster dgx-v100 --base a100-sxm --wider 0.3 --also data/measured/v100.toml \
	  --source "all from A100 SXM at this device's data-sheet rates, a generation later"
	$(FIT)l40s.json --device L40S --cluster l40s-pcie --base a100-sxm --wider 0.3 \
	  --source "all from A100 SXM at this device's data-sheet rates; no NVLink: its collectives go far beyond the range"

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
