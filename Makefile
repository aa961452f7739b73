# The only entrance: `make help` lists what there is. Each target does its own set-up.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# What a target needs is installed once for each state of the lock.
READY := $(VENV)/.ready-$(shell cat requirements.lock pyproject.toml | sha256sum | cut -c1-16)
TEST_HELPERS := $(wildcard tests/*.py tests/soak/*.py tests/alerts/rules.py tests/dashboards/scene.py tests/dashboards/pictures.py tests/integration/*/server.py tests/integration/*/world.py)
COMPILE = $(BIN)/pip-compile pyproject.toml --quiet --generate-hashes --allow-unsafe --strip-extras --no-header \
  --no-emit-index-url --no-emit-trusted-host --no-emit-find-links
# Tests run side by side, each process with servers of its own: TEST_WORKERS=0 for one, to debug or to use -s.
TEST_WORKERS ?= 2
POSTGRES ?= /usr/lib/postgresql/15/bin
SIDE_BY_SIDE = -n $(TEST_WORKERS) --dist loadfile
export PYTHONPATH := worker-image:operator:.

##@ Start here

.PHONY: help
help: ## Show this list
	@awk 'BEGIN {FS = ":.*## "} /^##@/ {printf "\n\033[1m%s\033[0m\n", substr($$0, 5)} /^[a-z-]+:.*## / {printf "  \033[36m%-16s\033[0m %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: demo
demo: setup ## Apply three AgentRuns, kill a worker, watch the takeover (KEEP=1 leaves it running, CONTEXT=name uses your cluster)
	@$(BIN)/python -m demo $(if $(KEEP),--keep) $(if $(CONTEXT),--context $(CONTEXT))

.PHONY: test
test: setup binaries ## Run every test but those of node-test: unit, integration, acceptance, chaos, migration (ARGS="-k takeover" selects)
	$(BIN)/python -m pytest $(SIDE_BY_SIDE) -m "not node" $(ARGS)

##@ Daily work

.PHONY: setup
setup: $(READY) ## Make .venv from the lock

$(READY): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit("Rowlock needs Python 3.11 or newer, this is " + sys.version.split()[0] + ": set PYTHON=python3.x") if sys.version_info < (3, 11) else None'
	@echo "setup: installing the locked packages into $(VENV)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@rm -f $(VENV)/.ready-*; touch $@

.PHONY: test-unit
test-unit: setup ## Run the tests that need no server
	$(BIN)/python -m pytest tests/unit $(SIDE_BY_SIDE) $(ARGS)

.PHONY: test-cluster
test-cluster: setup binaries ## Run the tests that need a Kubernetes API server (started by themselves)
	$(BIN)/python -m pytest -m cluster $(SIDE_BY_SIDE) $(ARGS)

.PHONY: test-database
test-database: setup ## Run the tests of schema and store on another PostgreSQL (POSTGRES=/usr/lib/postgresql/15/bin)
	@test -x "$(POSTGRES)/initdb" || { echo "test-database: no initdb in POSTGRES=$(POSTGRES): name the folder of a PostgreSQL's programs" >&2; exit 2; }
	@"$(POSTGRES)/postgres" --version
	TEST_POSTGRES=$(POSTGRES) $(BIN)/python -m pytest tests/integration/store tests/migration $(SIDE_BY_SIDE) $(ARGS)

.PHONY: chart-test
chart-test: setup binaries ## Render the Helm charts over many values; install, upgrade and uninstall them on a real API server
	$(BIN)/python -m pytest tests/chart $(SIDE_BY_SIDE) $(ARGS)

.PHONY: alerts-test
alerts-test: setup binaries alerts-tools ## Try the alerts with promtool
	$(BIN)/python -m pytest tests/alerts $(ARGS)

.PHONY: alerts-tools
alerts-tools: ## Install Debian's prometheus, of which the tests of alerts need promtool and prometheus (root)
	@if command -v promtool >/dev/null && command -v prometheus >/dev/null; then :; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends prometheus >/dev/null; \
	else echo "alerts-tools: skipped, this is not root on Debian: install the package prometheus; without it these tests are skipped"; fi

.PHONY: chaos
chaos: setup binaries ## Run the tests that kill, stop and restart real processes
	$(BIN)/python -m pytest tests/chaos $(SIDE_BY_SIDE) $(ARGS)

.PHONY: soak
soak: setup ## Kill workers and PostgreSQL at random under load, then count (MINUTES=10 SEED=random)
	$(BIN)/python -m tests.soak --minutes $(or $(MINUTES),10) $(if $(SEED),--seed $(SEED))

.PHONY: check
check: setup ## Check style, types, layers, generated files and changelog fragments
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/mypy $(TEST_HELPERS)
	$(BIN)/mypy --strict tests/typing/authors.py
	$(BIN)/pyright --pythonpath $(BIN)/python -p tests/typing
	$(BIN)/lint-imports
	$(BIN)/python -m rowlock_operator.api verify
	$(BIN)/python -m rowlock_operator.reference --verify
	$(BIN)/python -m charts.dashboards --verify
	$(BIN)/towncrier build --draft >/dev/null

.PHONY: format
format: setup ## Format the code and mend what can be mended by itself
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

.PHONY: bench
bench: setup binaries ## Measure: the store alone, a durable run, 1,000 streams, 100 long runs at once, and 1,000 AgentRuns on a real API server
	$(BIN)/python -m bench store
	$(BIN)/python -m bench support --model instant --runs 5000 --repeat 3
	$(BIN)/python -m bench support --model hosted --concurrency 256 --runs 1280
	$(BIN)/python -m bench streams --streams 1000
	$(BIN)/python -m bench long --scale 0.1
	$(BIN)/python -m bench kubernetes --runs 1000

##@ A Kubernetes of one's own

.PHONY: binaries
binaries: setup ## Build the control plane's binaries and helm (once; about 10 minutes on 2 cores)
	@$(BIN)/python -m localcluster build

.PHONY: cluster-up
cluster-up: setup ## Start a control plane that stays (NAME=dev)
	@$(BIN)/python -m localcluster up $(if $(NAME),--name $(NAME))

.PHONY: cluster-down
cluster-down: setup ## End it and delete its data
	@$(BIN)/python -m localcluster down $(if $(NAME),--name $(NAME))

.PHONY: cluster-status
cluster-status: setup ## Say what runs
	@$(BIN)/python -m localcluster status $(if $(NAME),--name $(NAME))

.PHONY: node-packages
node-packages: setup ## Install the packages of Debian that a node needs, those that are missing (root)
	@$(BIN)/python -m localcluster packages --install

.PHONY: node-up
node-up: setup node-packages ## Start a cluster with nodes that run containers (root; NAME=node NODES=1); the first time builds for a minute
	@$(BIN)/python -m localcluster up --name $(or $(NAME),node) --nodes $(or $(NODES),1)

.PHONY: node-load
node-load: setup ## Give its nodes an image that buildah built (IMAGE=, NAME=node)
	@$(BIN)/python -m localcluster load --name $(or $(NAME),node) $(IMAGE)

.PHONY: node-down
node-down: setup ## End it with its containers, mounts, network and control groups (NAME=node)
	@$(BIN)/python -m localcluster down --name $(or $(NAME),node)

.PHONY: node-binaries
node-binaries: setup ## Build all that a cluster with nodes needs (once)
	@$(BIN)/python -m localcluster build --nodes

.PHONY: node-test
node-test: setup node-packages node-binaries ## Run the tests in which real containers run (root)
	$(BIN)/python -m pytest tests/e2e/test_node.py tests/e2e/test_node_end.py $(ARGS)

##@ Container images

.PHONY: images
images: ## Build the images of worker, operator and trial database with buildah or docker (TAG=, BASE_IMAGE=, REPOSITORY=, ENGINE=)
	@images/build worker operator postgres

.PHONY: e2e
e2e: ## Install the charts on a real node and try them: losses, upgrades, scaling (root, buildah, debootstrap; ARGS=)
	@if [ "$$(id -u)" = 0 ]; then $(MAKE) --no-print-directory e2e-here; else echo "e2e: skipped: nodes and images need root"; fi

.PHONY: e2e-here
e2e-here: setup binaries node-packages node-binaries
	@buildah inspect --type image localhost/rowlock-base >/dev/null 2>&1 || images/base
	@REPOSITORY=localhost/rowlock-e2e TAG=e2e ENGINE=buildah images/build worker operator postgres
	ROWLOCK_E2E_IMAGES=localhost/rowlock-e2e $(BIN)/python -m pytest tests/e2e -m node \
	  --ignore=tests/e2e/test_node.py --ignore=tests/e2e/test_node_end.py $(ARGS)

.PHONY: base-image
base-image: ## Make a base image of Debian's packages where no image registry is reached (root, debootstrap, buildah)
	@images/base

.PHONY: images-test
images-test: setup ## Build the images for real and run them without root, on a read-only root file system
	ROWLOCK_TEST_IMAGES=1 $(BIN)/python -m pytest tests/integration/test_images.py $(ARGS)

##@ Generated files

.PHONY: crds
crds: setup ## Generate crds/ and the reference pages from the models
	$(BIN)/python -m rowlock_operator.api generate
	$(BIN)/python -m rowlock_operator.api docs
	$(BIN)/python -m rowlock_operator.reference

.PHONY: dashboards
dashboards: setup ## Generate the dashboards of the chart and their reference page
	$(BIN)/python -m charts.dashboards

.PHONY: dashboards-pictures
dashboards-pictures: setup binaries alerts-tools ## Draw the dashboards of that page anew, from a real Prometheus
	WRITE_PICTURES=1 $(BIN)/python -m pytest tests/dashboards

.PHONY: crds-verify
crds-verify: setup ## Fail when crds/ or a reference page differs from the models
	$(BIN)/python -m rowlock_operator.api verify

.PHONY: lock
lock: setup ## Resolve the locked versions anew, without any registry's address
	$(COMPILE) --upgrade --extra dev --extra operator --extra traces --extra embedded -o requirements.lock
	@$(MAKE) --no-print-directory lock-images

.PHONY: lock-images
lock-images: setup ## Take what the images hold out of the lock, with its versions
	$(COMPILE) -c requirements.lock --extra traces -o requirements-worker.lock
	$(COMPILE) -c requirements.lock --extra operator --extra traces -o requirements-operator.lock
	$(COMPILE) -c requirements.lock --only-build-deps --build-deps-for wheel -o requirements-build.lock

.PHONY: changelog
changelog: setup ## Show what the next release will say
	$(BIN)/towncrier build --draft

.PHONY: clean
clean: ## Delete what the targets made here (not the cached binaries)
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache dist build
