# Every target creates what it needs; a second run starts at once.
# PYTHON selects the interpreter, VENV the directory, JOBS the number of parallel tests; ARGS is passed to pytest:
#   make test PYTHON=python3.13 VENV=.venv-3.13 ARGS="tests/redaction"

PYTHON ?= python3
VENV   ?= .venv
UV     ?= $(shell command -v uv 2>/dev/null)
ARGS   ?=
JOBS   ?= 2

BIN     := $(VENV)/bin
SOURCES := pyproject.toml README.md LICENSE $(shell find src examples/demo -type f ! -name '*.pyc' ! -path '*/__pycache__/*')

ifeq ($(UV),)
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check
AGAIN   := --force-reinstall
else
INSTALL := $(UV) pip install --quiet --python $(BIN)/python
AGAIN   := --reinstall-package orihon --no-cache
endif

# tests that try more cases than `make test` has time for
DEEP := tests/crash tests/chat/workspace_checkpoints/test_property.py tests/task/test_resume_property.py \
  tests/task/test_window_fuzz.py tests/context/wire/test_wire.py tests/context/test_window.py tests/context/test_rules.py \
  tests/ops/test_hostile_files.py tests/ops/test_hostile_store.py

# the extras of the adapters, which have an environment of their own
FRAMEWORKS := --extra openai-agents --extra langgraph --extra pydantic-ai --group integrations

.PHONY: help demo test test-deep test-integrations test-newest golden check bench docs site lock clean
.DEFAULT_GOAL := help

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-10s %s\n", $$1, $$2 }' Makefile

demo: $(VENV)/.package ## show what Orihon does, offline, in under a minute
	@$(BIN)/orihon demo

test: $(VENV)/.dev $(VENV)/.package check ## run every check and every test except the slow ones, against the built package
	@$(BIN)/pytest --numprocesses $(JOBS) --dist worksteal $(or $(ARGS),-m "not slow")

test-deep: $(VENV)/.dev $(VENV)/.package ## run the slow tests, and the sweeps and property tests in full
	@ORIHON_DEEP=1 $(BIN)/pytest --numprocesses $(JOBS) --dist worksteal $(or $(ARGS),$(DEEP))
	@$(if $(ARGS),,$(BIN)/pytest --numprocesses $(JOBS) --dist worksteal -m slow $(addprefix --ignore=,$(DEEP)))

test-integrations: ## run the tests of the adapters with the pinned versions of their frameworks
	@$(MAKE) --no-print-directory VENV=.venv-integrations .venv-integrations/.frameworks .venv-integrations/.package
	@.venv-integrations/bin/pytest -q -c tests_integrations/pytest.ini --rootdir . $(or $(ARGS),tests_integrations)

test-newest: $(VENV)/.dev ## run the tests of the adapters with the newest versions of their frameworks
	@rm -rf .venv-newest && $(BIN)/uv venv --quiet --python $(PYTHON) .venv-newest
	@$(BIN)/uv pip compile --quiet --upgrade pyproject.toml $(FRAMEWORKS) --output-file .venv-newest/newest.txt
	@$(BIN)/uv pip install --quiet --python .venv-newest/bin/python --requirement .venv-newest/newest.txt .
	@.venv-newest/bin/pytest -q -c tests_integrations/pytest.ini --rootdir . $(or $(ARGS),tests_integrations)

golden: $(VENV)/.dev $(VENV)/.package ## update the expected windows and the outputs in docs/operations.md
	@ORIHON_GOLDEN=1 $(BIN)/pytest -q tests/context/test_golden.py tests/e2e/test_operations_page.py

check: $(VENV)/.dev $(VENV)/.package ## formatting, lint, types, architecture
	@$(BIN)/ruff format --check --quiet . || { echo "Run '$(BIN)/ruff format .' to format."; exit 1; }
	@$(BIN)/ruff check --quiet .
	@$(BIN)/mypy --no-error-summary
	@$(BIN)/pytest -q tests/test_architecture.py

bench: $(VENV)/.dev $(VENV)/.package ## measure, and print the figures as tables
	@$(BIN)/python -m bench $(ARGS)

docs: $(VENV)/.dev $(VENV)/.package ## write the generated pages of docs/
	@$(BIN)/python docs/generate.py

site: $(VENV)/.dev ## build the documentation as a site, in site/
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

lock: $(VENV)/.dev ## choose the newest versions of all dependencies
	@$(BIN)/uv pip compile --quiet --universal --generate-hashes --upgrade --python-version 3.11 --custom-compile-command "make lock" \
	  pyproject.toml --group build --output-file locks/run.txt
	@$(BIN)/uv pip compile --quiet --universal --generate-hashes --upgrade --python-version 3.11 --custom-compile-command "make lock" \
	  pyproject.toml --extra all --group dev --constraint locks/run.txt --output-file locks/dev.txt
	@$(BIN)/uv pip compile --quiet --universal --generate-hashes --python-version 3.11 --custom-compile-command "make lock" \
	  pyproject.toml --extra all --constraint locks/dev.txt --output-file locks/all.txt
	@$(BIN)/uv pip compile --quiet --universal --generate-hashes --upgrade --python-version 3.11 --custom-compile-command "make lock" \
	  pyproject.toml $(FRAMEWORKS) --constraint locks/run.txt --output-file locks/integrations.txt

clean: ## remove everything that the other targets created
	@rm -rf $(VENV) .venv-integrations .venv-newest dist site .mypy_cache .pytest_cache .ruff_cache .hypothesis

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit("Orihon needs Python 3.11 or newer; this is %d.%d. Try: make PYTHON=python3.13" % sys.version_info[:2] if sys.version_info < (3, 11) else 0)'
	@echo "Setting up $(VENV) with $(if $(UV),uv,venv and pip); this happens once."
	@$(if $(UV),$(UV) venv --quiet --python $(PYTHON) $(VENV),$(PYTHON) -m venv $(VENV))

$(VENV)/.run: locks/run.txt | $(BIN)/python
	@$(INSTALL) --require-hashes --requirement locks/run.txt
	@touch $@

$(VENV)/.dev: locks/dev.txt | $(BIN)/python
	@$(INSTALL) --require-hashes --requirement locks/dev.txt
	@touch $@ $(VENV)/.run

$(VENV)/.frameworks: locks/integrations.txt | $(BIN)/python
	@$(INSTALL) --require-hashes --requirement locks/integrations.txt
	@touch $@

# The tests run against the installed package, not against src/.
$(VENV)/.package: $(SOURCES) | $(VENV)/.run
	@$(INSTALL) $(AGAIN) --no-deps --no-build-isolation .
	@touch $@
