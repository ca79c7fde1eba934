# Each target works on a fresh machine that has Python (3.10 or later, with pip and venv) and make; nothing need be
# prepared. Say 'make PYTHON=python3.12 …' for another interpreter, and 'make clean' before changing it.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP_INSTALL := -m pip install --quiet --disable-pip-version-check

MADE := $(VENV)/.made
FLOORS := .venv-floors
FLOORS_MADE := $(FLOORS)/.made
FLOOR_VERSION := 3.10
FLOOR_PYTHON ?= $(shell scripts/find_python $(FLOOR_VERSION))

SERVICES := .services
PHOENIX := $(SERVICES)/phoenix
PHOENIX_MADE := $(PHOENIX)/.made
LITELLM_MADE := $(SERVICES)/litellm/.made
SERVERS_MADE := $(LITELLM_MADE) $(SERVICES)/transformers/.made
VLLM := $(SERVICES)/vllm
VLLM_MADE := $(VLLM)/.made
VLLM_VERSION := 3.12
VLLM_PYTHON ?= $(shell scripts/find_python $(VLLM_VERSION))

# A hanging test is a failure with a stack, not a run that never ends.
PYTEST := -m pytest -n auto --dist=worksteal --timeout=300
# One process: each would start servers of its own, which take longer to start than their tests to run.
PYTEST_APART := -m pytest --timeout=600
# Servers of hundreds of MB in environments of their own: by their own targets.
APART := not litellm and not transformers and not sglang and not vllm
QUICK := not slow and not servers and $(APART)

.PHONY: help demo test test-floors test-litellm test-servers test-vllm test-wheel services phoenix check bench lock clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(MADE) ## three rollouts of real clients against a captured model server, under a minute
	@$(BIN)/python -m demo

test: $(MADE) services-where-go ## the whole suite, on the locked development versions
	@echo "==> the whole suite"
	$(BIN)/python $(PYTEST) -m "$(APART)" $(ARGS)

test-litellm: $(LITELLM_MADE) ## LiteLLM's proxy, unmodified (800 MB; a minute or two once installed)
	@echo "==> LiteLLM's proxy in an environment of its own"
	$(BIN)/python $(PYTEST_APART) -m litellm tests/servers $(ARGS)

test-servers: $(SERVERS_MADE) ## LiteLLM's proxy and transformers serve, unmodified (5.5 GB; 3 minutes once installed)
	@echo "==> servers in environments of their own"
	$(BIN)/python $(PYTEST_APART) -m "litellm or transformers or sglang" tests/servers $(ARGS)

test-vllm: $(VLLM_MADE) ## the CPU build of vLLM, unmodified, with Python 3.12 (5.9 GB, about 10 minutes)
	@echo "==> vLLM"
	$(BIN)/python -m pytest -m vllm tests/servers $(ARGS)

test-floors: ## the quick part of the suite on Python 3.10 and the oldest supported dependencies
	@if [ -n "$(FLOOR_PYTHON)" ]; then $(MAKE) --no-print-directory run-floors; \
	elif [ "$${CI:-}" = true ]; then echo "==> no Python $(FLOOR_VERSION) here, and CI must have it" >&2; exit 1; \
	else echo "==> left out: no Python $(FLOOR_VERSION) here (make test-floors FLOOR_PYTHON=/path/to/python)"; fi

.PHONY: run-floors
run-floors: $(FLOORS_MADE)
	@echo "==> the quick part of the suite on $(FLOOR_PYTHON) and requirements/floors.txt"
	$(FLOORS)/bin/python $(PYTEST) -m "$(QUICK)" -p no:cacheprovider $(ARGS)

test-wheel: $(MADE) ## build the wheel, install it alone, and use it from outside the tree
	@echo "==> the wheel, in an environment with only its own dependencies"
	rm -rf dist .venv-wheel
	$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation --wheel-dir dist .
	$(BIN)/python -m venv .venv-wheel
	.venv-wheel/bin/python $(PIP_INSTALL) --constraint requirements/dev.txt dist/otel_gym-*.whl
	cd "$$(mktemp -d)" && "$(CURDIR)/.venv-wheel/bin/python" -I "$(CURDIR)/scripts/smoke_wheel.py" "$(CURDIR)"

services: ## build Jaeger and a Collector for the suite (needs Go; about 8 minutes, once, then seconds)
	@echo "==> services, into $(SERVICES)"
	@$(PYTHON) scripts/build_services.py

.PHONY: services-where-go
services-where-go:
	@if command -v go > /dev/null; then $(MAKE) --no-print-directory services; \
	else echo "==> no Go here: what needs Jaeger or a Collector is left out, unless $(SERVICES) has them"; fi

phoenix: $(PHOENIX_MADE) ## install Phoenix for the tests marked 'backends' (about 90 seconds, 850 MB)

check: $(MADE) ## lint, format, types, import contracts, rules of the house
	@echo "==> lint"
	$(BIN)/ruff check .
	@echo "==> format"
	$(BIN)/ruff format --check .
	@echo "==> types"
	$(BIN)/mypy
	@echo "==> import contracts"
	$(BIN)/lint-imports
	@echo "==> rules of the house"
	$(BIN)/python scripts/check_house.py

bench: $(MADE) ## what capture costs, beside the bare application and the disk
	@$(BIN)/python -m benchmarks $(ARGS)

COMPILE := $(BIN)/uv pip compile --quiet --upgrade --no-emit-index-url --no-annotate --no-header

lock: $(MADE) ## take the newest versions into requirements/*.txt
	$(COMPILE) --python-version 3.10 --universal pyproject.toml --all-extras requirements/dev.in --output-file requirements/dev.txt
	$(COMPILE) --python-version 3.10 requirements/floors.in --output-file requirements/floors.txt
	$(COMPILE) --python-version 3.11 --universal services/phoenix/requirements.in \
		--output-file services/phoenix/requirements.txt
	$(COMPILE) --python-version 3.11 --universal pyproject.toml --extra otlp services/litellm/requirements.in \
		--output-file services/litellm/requirements.txt
	$(COMPILE) --python-version 3.11 --universal pyproject.toml --extra otlp services/transformers/requirements.in \
		--output-file services/transformers/requirements.txt
	$(COMPILE) --python-version $(VLLM_VERSION) pyproject.toml --extra otlp services/vllm/requirements.in \
		--override services/vllm/overrides.txt --output-file services/vllm/requirements.txt

clean: ## remove what the targets made, but for the services
	rm -rf $(VENV) $(FLOORS) .venv-wheel dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

$(MADE): requirements/dev.txt pyproject.toml
	@echo "==> $(VENV): $(PYTHON) with the locked development versions (about a minute)"
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 10) or sys.exit("otel-gym needs Python 3.10 or later: make PYTHON=…")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python $(PIP_INSTALL) --requirement requirements/dev.txt
	$(BIN)/python $(PIP_INSTALL) --no-deps --no-build-isolation --editable .
	@touch $@

$(FLOORS_MADE): requirements/floors.txt pyproject.toml
	@echo "==> $(FLOORS): $(FLOOR_PYTHON) with the oldest supported versions"
	$(FLOOR_PYTHON) -m venv --clear $(FLOORS)
	$(FLOORS)/bin/python $(PIP_INSTALL) --requirement requirements/floors.txt
	$(FLOORS)/bin/python $(PIP_INSTALL) --no-deps --no-build-isolation --editable .
	@touch $@

$(PHOENIX_MADE): services/phoenix/requirements.txt
	@echo "==> $(PHOENIX): Phoenix with the versions of services/phoenix/requirements.txt (about 90 seconds, 850 MB)"
	@mkdir -p $(SERVICES)
	$(PYTHON) -m venv --clear $(PHOENIX)
	$(PHOENIX)/bin/python $(PIP_INSTALL) --requirement services/phoenix/requirements.txt
	@touch $@

$(SERVERS_MADE): $(SERVICES)/%/.made: services/%/requirements.txt pyproject.toml | $(MADE)
	@echo "==> $(@D): a server with the versions of $< (a minute; transformers: 4.7 GB)"
	@mkdir -p $(SERVICES)
	$(PYTHON) -m venv --clear $(@D)
	$(@D)/bin/python $(PIP_INSTALL) --requirement $<
	$(@D)/bin/python $(PIP_INSTALL) --no-deps --editable .
	@touch $@

# Its command looks for the metadata of a distribution that is named vllm; the CPU build has another name.
$(VLLM_MADE): services/vllm/requirements.txt pyproject.toml scripts/name_vllm.py | $(MADE)
	@echo "==> $(VLLM): the CPU build of vLLM on Python $(VLLM_VERSION) (5.9 GB, a minute or more)"
	@test -n "$(VLLM_PYTHON)" || { echo "no Python $(VLLM_VERSION) here: make test-vllm VLLM_PYTHON=/path/to/python" >&2; exit 1; }
	@mkdir -p $(SERVICES)
	$(VLLM_PYTHON) -m venv --clear $(VLLM)
	$(BIN)/uv pip install --quiet --python $(VLLM)/bin/python --no-deps --requirement $<
	$(BIN)/uv pip install --quiet --python $(VLLM)/bin/python --no-deps --editable .
	$(VLLM)/bin/python scripts/name_vllm.py
	@touch $@
