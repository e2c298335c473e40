# Everything this project is done with. `make help` lists it.

SHELL := /usr/bin/env bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory

VENV := .venv
BIN := $(VENV)/bin
CODE = $(wildcard sqlqueue_spark pyspark_sqlqueue.py jobs benchmarks docs tests)
PYTEST_OPTIONS ?=
# Three files of tests at a time, each with a database server and, where one asks for it, a Spark of its own; the slow ones
# first. Two leave two processors idle where tests wait for a server; four are no quicker.
PYTEST := $(BIN)/python -m pytest --numprocesses 3 --dist loadfile --no-loadscope-reorder

# Spark looks its own host name up and fails where that name is odd; its workers must use this environment.
export SPARK_LOCAL_IP := 127.0.0.1
export PYSPARK_PYTHON := $(CURDIR)/$(BIN)/python
export PYSPARK_DRIVER_PYTHON := $(PYSPARK_PYTHON)
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Python compiles what it imports. To compile all that is installed takes half of the installation's time.
export PIP_NO_COMPILE := 1
# Containers often forbid it; each of Spark's many Python processes would then compile our modules anew.
unexport PYTHONDONTWRITEBYTECODE

##@ Use it

.PHONY: demo
demo: java $(VENV)/.demo ## send 300,000 messages to a real queue table and drain them into Delta
	$(BIN)/sqlqueue demo

.PHONY: demo-store-and-forward
demo-store-and-forward: java $(VENV)/.demo ## orders to a second server and answers back, though that one is killed meanwhile
	$(BIN)/sqlqueue demo store-and-forward

##@ Work on it

.PHONY: setup
setup: $(VENV)/.dev ## make .venv with everything, again only when a dependency has changed

.PHONY: check
check: packages lint ## style, types and unit tests without a server, in 90 s
	$(PYTEST) --tier check $(PYTEST_OPTIONS)

.PHONY: test
test: java packages lint ## check, then what all engines promise, faults of the core, and each promise of the README on Spark, in 5 min (PYTEST_OPTIONS='-k witness -x' for some)
	$(PYTEST) --tier check,test $(PYTEST_OPTIONS)

.PHONY: test-all
test-all: java packages $(if $(AFTER),,lint) ## all but the night, in 20 min: Spark, the whole machine, wheel, demos, notebooks (AFTER=test: not what make test ran)
	$(PYTEST) --tier $(if $(AFTER),all,check,test,all) $(PYTEST_OPTIONS)

NIGHTLY := $(addprefix test-nightly-,harness soak postgresql spark live)

.PHONY: test-nightly
test-nightly: ## in hours: fixes taken out, tests of the tests, soak, PostgreSQL 13 to 18, Spark 4.0 and 4.1, and a SQL Server if one is given
	$(MAKE) --keep-going $(NIGHTLY)

.PHONY: $(NIGHTLY)
test-nightly-harness: java packages $(VENV)/.dev
	$(PYTEST) --tier nightly $(PYTEST_OPTIONS)

test-nightly-soak: soak

test-nightly-postgresql: java packages $(VENV)/.dev
	$(BIN)/python -m tests.nightly.postgresql_versions $(PYTEST_OPTIONS)

test-nightly-spark: java packages $(VENV)/.dev
	tests/nightly/spark.sh 4.0.1
	tests/nightly/spark.sh 4.1.0

test-nightly-live:
	@if [ -n "$${SQLQUEUE_TEST_SQLSERVER:-}" ]; then $(MAKE) test-live; \
		else echo "sqlserver: MISSING, its live tests are skipped; set SQLQUEUE_TEST_SQLSERVER to a connection string"; fi

# In the environment, where a password does not show: SQLQUEUE_TEST_SQLSERVER='mssql://…' make test-live
ifdef URL
export SQLQUEUE_TEST_SQLSERVER := $(URL)
export SQLQUEUE_BENCH_URL := $(URL)
export SQLQUEUE_VERDICT_URL := $(URL)
endif

.PHONY: test-live
test-live: java packages $(VENV)/.dev ## the tests of SQL Server against a real one (URL='mssql://…')
	@[ -n "$${SQLQUEUE_TEST_SQLSERVER:-}" ] || { echo >&2 "Nothing says which server: make test-live" \
		"URL='mssql://user:password@host/master'."; exit 2; }
	$(PYTEST) tests/conformance tests/command_line tests/streaming tests/faults --only sqlserver --require sqlserver \
		--watch-events --timeout 600 $(PYTEST_OPTIONS)

.PHONY: verdict
verdict: packages $(VENV)/.dev ## prove what the package takes for granted of a server, and report it (URL='mssql://…')
	$(BIN)/python -m tests.verdict $(VERDICT_OPTIONS)

.PHONY: lint
lint: $(VENV)/.dev ## style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --num-workers 2 $(CODE)

.PHONY: format
format: $(VENV)/.dev ## bring the code into style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

.PHONY: docs
docs: $(VENV)/.dev ## write the tables of docs/options.md as the options are declared
	$(BIN)/python docs/options_page.py

.PHONY: bench
bench: java $(VENV)/.dev ## run the comparisons in some 20 min, and render benchmarks/latest.md with a plot
	$(BIN)/python benchmarks/page.py

.PHONY: bench-drain
bench-drain: java $(VENV)/.dev ## measure draining against Spark's JDBC source, one DELETE and one-row receivers (URL=… on a server)
	$(BIN)/python benchmarks/drain.py

.PHONY: bench-pace
bench-pace: java $(VENV)/.dev ## measure what users get who set nothing, against the best size set by hand (URL=… on a server)
	$(BIN)/python benchmarks/pace.py

.PHONY: bench-send
bench-send: java $(VENV)/.dev ## measure sending against Spark's JDBC append, a raw COPY and one-row senders (URL=… on a server)
	$(BIN)/python benchmarks/send.py
	$(BIN)/python benchmarks/delayed.py

.PHONY: bench-neighbours
bench-neighbours: java $(VENV)/.dev ## measure in two hours what a stream costs one-row receivers of its queue, with a plot
	$(BIN)/python benchmarks/neighbours.py

.PHONY: bench-latency
bench-latency: java $(VENV)/.dev ## measure how long a message takes to its commit, and how soon a job has its first rows
	$(BIN)/python benchmarks/latency.py

.PHONY: soak
soak: java $(VENV)/.dev ## search for lost and doubled messages for MINUTES=30; SCENARIOS=10000, MACHINE_ONLY=1, SPARK_ONLY=1, SEED=…
	$(BIN)/python -m tests.machine.soak --minutes $(or $(MINUTES),30) $(if $(SCENARIOS),--scenarios $(SCENARIOS)) \
		$(if $(MACHINE_ONLY),--only machine) $(if $(SPARK_ONLY),--only spark) $(if $(SEED),--seed $(SEED))

.PHONY: pins
pins: $(BIN)/python ## write requirements/*.txt anew: versions and hashes (UPGRADE=1: the newest that fit together)
	requirements/pin.sh $(BIN)/python $(if $(UPGRADE),--upgrade)

.PHONY: clean
clean: ## remove everything that was made here, .venv included
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache spark-warehouse metastore_db derby.log .demo
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

.PHONY: help
help: ## this list
	@awk 'BEGIN { FS = ":.*## " } \
		/^##@ / { printf "\n%s\n", substr($$0, 5) } \
		/^[a-z-]+:.*## / { printf "  make %-22s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# What the targets stand on.

# The oldest Python we support comes first: the pinned versions were tested with it.
PYTHON ?= $(shell for python in python3.11 python3.12 python3.13 python3 python; do \
	"$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && echo "$$python" && break; done)

$(BIN)/python:
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 || { echo >&2 \
		"Python 3.11 or newer is missing: install it, or name one with 'make PYTHON=/path/to/python3.11'."; exit 1; }
	"$(PYTHON)" -m venv $(VENV) || { rm -rf $(VENV); echo >&2 \
		"Python could not make a virtual environment: install its venv package (Debian: apt-get install python3-venv)."; exit 1; }

# Nothing is installed that is not the file whose hash is noted, not even to build what comes as source.
$(VENV)/.demo: pyproject.toml requirements/demo.txt | $(BIN)/python
	requirements/install.sh $(BIN)/python demo
	touch $@

$(VENV)/.dev: pyproject.toml requirements/dev.txt tests/scriptdom.txt | $(BIN)/python
	requirements/install.sh $(BIN)/python dev
	tests/install_scriptdom.sh $(VENV)
	touch $@ $(VENV)/.demo

.PHONY: packages
packages:
	@tests/install_packages.sh

.PHONY: java
java:
	@java="$${JAVA_HOME:+$$JAVA_HOME/bin/}java"; \
	major="$$( ("$$java" -version 2>&1 || true) | sed -n 's/.* version "\([0-9]*\).*/\1/p' | head -n 1)"; \
	[ "$${major:-0}" -ge 17 ] || { echo >&2 "Java 17 is missing ($$java is $${major:-not there}):" \
		"install a JRE 17 (Debian: apt-get install openjdk-17-jre-headless) or set JAVA_HOME to one."; exit 1; }
