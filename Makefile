# Everything a fresh machine needs: Python >= 3.11 and make. `make` alone lists the targets.

PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
READY_DOCS := .venv/.ready-docs
READY_DEVICE := .venv-device/.ready

# Bytecode is written where the environment forbids it: each process would compile torch again,
# for eight seconds.
export PYTHONDONTWRITEBYTECODE :=

# uv needs a cache, which a home that cannot be written does not hold.
ifneq ($(shell test -w "$$HOME" && echo writable),writable)
export UV_NO_CACHE := 1
endif

.DEFAULT_GOAL := help
.PHONY: help setup demo docs test exact slow browser device sweep lint format types contracts check clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*##/ {printf "make %-10s %s\n", $$1, $$2}' Makefile

setup: $(READY)  ## create .venv and install visprism with its development tools

$(READY): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "visprism needs Python >= 3.11; name one: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	command -v uv >/dev/null || test -x $(BIN)/uv || $(BIN)/python -m pip install --quiet uv
	PATH="$$PATH:$(CURDIR)/$(BIN)" uv pip install --python $(BIN)/python --editable . --group dev
	touch $@

demo: $(READY)  ## examine two small packaged networks and write demo/report.html
	$(BIN)/visprism demo --out demo

$(READY_DOCS): $(READY)
	PATH="$$PATH:$(CURDIR)/$(BIN)" uv pip install --python $(BIN)/python --group docs
	touch $@

docs: $(READY_DOCS)  ## build the site in docs/_build/html; warnings are errors
	$(BIN)/python -m sphinx -W --keep-going -q -j auto $(DOCS_OPTIONS) -b html docs docs/_build/html

test: $(READY)  ## run the tests but for the slow ones
	$(BIN)/pytest -n 2 --dist worksteal -rs -m "not slow and not sweep"

exact: $(READY)  ## run them with each call checked against its annotations, in twice the time
	$(BIN)/pytest -n 2 --dist worksteal -rs -m "not slow and not sweep" \
	  --jaxtyping-packages=visprism,beartype.beartype

slow: $(READY)  ## run the slow tests: simulations of coverage, several processes, commands
	$(BIN)/pytest -n 2 --dist loadfile -rs -m slow

browser: $(READY)  ## run the app in a browser: its forms and buttons as a user meets them
	$(BIN)/pytest -n 2 -rs tests/app/test_browser.py

# XLA on a CPU is a second device on any machine. It needs the oldest torch that is supported,
# so all packages are the oldest; some warn of newer ones that they require.
$(READY_DEVICE): pyproject.toml $(READY)
	test -x .venv-device/bin/python || $(PYTHON) -m venv .venv-device
	PATH="$$PATH:$(CURDIR)/$(BIN)" uv pip install --no-config --resolution lowest-direct \
	  --python .venv-device/bin/python --editable . --group dev \
	  'torch==2.9.*' 'torchvision==0.24.*' 'torch_xla==2.9.0'
	touch $@

device: $(READY_DEVICE)  ## run every analysis on a second device: XLA, with the oldest packages
	OMP_NUM_THREADS=1 .venv-device/bin/python -m pytest -n 0 -o filterwarnings=default \
	  tests/device tests/images/test_pixels.py

sweep: $(READY)  ## try every network of the zoo, and every analysis on every network
	$(BIN)/pytest -n 2 --dist worksteal -rs -m sweep

lint: $(READY)  ## look for mistakes
	$(BIN)/ruff check

format: $(READY)  ## check the formatting; `ruff format` repairs it
	$(BIN)/ruff format --check

types: $(READY)  ## check the types
	$(BIN)/pyrefly check

contracts: $(READY)  ## check that imports follow the layers
	$(BIN)/lint-imports

check: lint format types contracts docs test slow  ## all of the above

clean:  ## remove the environment, the site and the demo's output
	rm -rf .venv .venv-device demo docs/_build docs/generated
