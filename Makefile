# `make` prints this help. Everything here is what the gate runs too; nothing else is needed.
VENV ?= .venv
# The system's, where it can: it is built with all optimisations (decision 95).
PYTHON ?= $(shell requirements/python.sh)
ARGS ?=
# For `make machine` and `make soak`.
EXAMPLES ?= 400
MINUTES ?= 10
# Tests wait for leases and processes more than they compute: they run side by side, each lane with
# servers of its own. On servers of yours there is one lane.
LANES ?= $(if $(DATABASE_URL)$(REDIS_URL),0,4)
BIN := $(VENV)/bin
CHROMIUM := $(firstword $(shell command -v chromium chromium-browser google-chrome 2>/dev/null))
INSTALL := requirements/install.sh $(VENV)

.DEFAULT_GOAL := help
.PHONY: help setup demo dev seed reset fix check lint test browser bench vendor lock crash guards \
	faketime machine soak

help: ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# Stamps: an environment is filled again only when its requirements have changed.
$(VENV)/.made:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed")'
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.demo: $(VENV)/.made requirements/uv.txt requirements/runtime.txt requirements/demo.txt
	$(INSTALL) runtime demo
	@touch $@

$(VENV)/.dev: $(VENV)/.demo requirements/dev.txt
	$(INSTALL) runtime demo dev
	@touch $@

setup: $(VENV)/.dev browser ## everything for working on it, browser included

demo: $(VENV)/.demo ## the whole console with four stories on real targets (ARGS=--once, PORT=…)
	$(BIN)/python manage.py up --demo $(ARGS)

dev: $(VENV)/.dev ## the console from source: pages and static files as they are on the disk
	DEBUG=1 $(BIN)/python manage.py up $(ARGS)

seed: $(VENV)/.demo ## fill this home with sagas in every state; repeatable
	$(BIN)/python manage.py seed $(ARGS)

reset: ## forget this home (SAGA_HOME, var/ by default): all data is deleted
	@home="$${SAGA_HOME:-var}"; \
	if [ -e "$$home/run/up.lock" ] && ! flock --nonblock "$$home/run/up.lock" true; then \
		echo "$$home is in use: stop the console first" >&2; exit 1; fi; \
	rm -rf "$$home"

fix: $(VENV)/.dev ## format, and repair what can be repaired
	$(BIN)/ruff check --fix --quiet . || true
	$(BIN)/ruff format --quiet .
	if [ -d templates ]; then $(BIN)/djlint templates --reformat --quiet || true; fi

check: lint test ## the gate: everything that must hold before a merge

lint: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy manage.py saga_console approvals ledger bench tests
	$(BIN)/lint-imports
	$(BIN)/djlint templates --lint --quiet
	$(BIN)/python manage.py makemigrations --check --dry-run
	SECURE=1 $(BIN)/python manage.py check --deploy --fail-level WARNING

test: setup ## every test, browser included (ARGS="-k name")
	$(BIN)/python -m pytest -n $(LANES) --dist loadfile --no-loadscope-reorder $(ARGS)

machine: $(VENV)/.dev ## anything in any order for longer than `make test` does (EXAMPLES=400)
	MACHINE_EXAMPLES=$(EXAMPLES) MACHINE_STEPS=60 MACHINE_SHRINK=1 \
		$(BIN)/python -m pytest -s tests/test_machine.py $(ARGS)

soak: $(VENV)/.dev ## a whole console under load, things killed at random (MINUTES=10 ARGS="--seed 1")
	$(BIN)/python -m tests.soak --minutes $(MINUTES) $(ARGS)

# The browser tests need a Chromium of the system. Without one they say so, loudly;
# REQUIRE_BROWSER=1 makes that an error.
browser:
ifeq ($(CHROMIUM),)
	@if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		echo "installing chromium for the browser tests"; \
		apt-get -qq update && DEBIAN_FRONTEND=noninteractive apt-get -qq install -y \
			--no-install-recommends chromium >/dev/null; \
	else \
		echo "*** no chromium here: browser tests will not run (apt install chromium)" >&2; \
		[ -z "$$REQUIRE_BROWSER" ]; \
	fi
endif

# Clocks are moved with Debian's libfaketime; without it the rows that need it are red.
faketime:
	@if [ -z "$$(ls /usr/lib/*/faketime/libfaketimeMT.so.1 2>/dev/null)" ]; then \
		if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
			apt-get -qq update && DEBIAN_FRONTEND=noninteractive apt-get -qq install -y \
				--no-install-recommends libfaketime >/dev/null; \
		else echo "*** no libfaketime here: apt install libfaketime" >&2; fi; fi

crash: $(VENV)/.dev faketime ## every crash point on real processes, and the table of docs/recovery.md (ARGS="P11")
	$(BIN)/python -m tests.crash $(if $(ARGS),$(ARGS),--write)

guards: $(VENV)/.dev ## remove one guard at a time: a test must fail each time (ARGS="Fence")
	$(BIN)/python -m tests.guards $(if $(ARGS),$(ARGS),--write)

bench: $(VENV)/.demo ## p50/p99 of one caller and steps/s of sixteen, beside this machine's commits
	$(BIN)/python -m bench.bench $(ARGS)

# Committed, so that nobody needs npm to use or to work on the console.
HTMX := 2.0.11
vendor: ## fetch the pinned browser libraries again
	@folder=$$(mktemp -d) && trap 'rm -rf "$$folder"' EXIT && \
	npm pack --silent --pack-destination "$$folder" htmx.org@$(HTMX) >/dev/null && \
	tar -xzf "$$folder/htmx.org-$(HTMX).tgz" -C "$$folder" && \
	mkdir -p static/vendor/htmx && \
	cp "$$folder/package/dist/htmx.min.js" "$$folder/package/LICENSE" static/vendor/htmx/

lock: $(VENV)/.dev ## compile requirements/*.in again
	PATH="$(abspath $(BIN)):$$PATH" requirements/lock.sh
