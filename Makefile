# What contributors run. Needs GNU make, Python 3.11 or newer and a package index; nothing else.
# Another interpreter beside the usual one: make test PYTHON=python3.13 VENV=.venv-3.13

PYTHON ?= python3
VENV ?= .venv
BENCH ?= .venv-bench
# What people run is built with the compiler's profile; one that was built from source often is not,
# and takes a third longer. So the benchmark prefers the system's own, for Rota and for every peer.
BENCH_PYTHON ?= $(shell for python in /usr/bin/python3 $(PYTHON); do \
	$$python -c 'import sys, ensurepip, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
	&& echo $$python && break; done)
# oban alone needs 3.12; pyenv's own names answer only where they are switched on, so look inside.
OBAN_PYTHON ?= $(shell for python in python3.12 python3.13 python3.14 \
	"$${PYENV_ROOT:-$$HOME/.pyenv}"/versions/3.1[2-9]*/bin/python3; do \
	"$$python" -c 'import sys, ensurepip, venv; sys.exit(sys.version_info < (3, 12))' 2>/dev/null \
	&& echo "$$python" && break; done)
APP ?= hello:app
EXAMPLES ?= examples
SEEDS ?= 2000
NEWEST_PYTHON ?= python3.13
# What the oldest and the newest packages are tried with.
SURFACES := tests/unit tests/api tests/web tests/surface

BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
READY := $(VENV)/.installed

.DEFAULT_GOAL := help
.PHONY: help up test test-long test-lowest test-newest check simulate faults bench bench-quick bench-lock screenshots docs package lock clean clean-demo

help: ## List the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1|\2/p' $(MAKEFILE_LIST) | \
		while IFS='|' read -r target text; do printf '%-18s %s\n' "$$target" "$$text"; done

# In the folder of examples, a project as `rota init` makes it: what it writes is ignored by git.
up: $(READY) ## Start Rota with the jobs of examples/, which run every few seconds; Ctrl-C stops it
	@echo "Dashboard: the address beside \`web\` below; any browser on this machine may operate"
	@echo "Jobs: $(EXAMPLES)/jobs.d (SQL and Python; edit them while it runs) and $(EXAMPLES)/hello.py"
	@echo "In another terminal: cd $(EXAMPLES), then $(abspath $(BIN))/rota runs, … show daily_report"
	@echo
	@cd $(EXAMPLES) && exec $(abspath $(BIN))/rota up --open-local $(APP)

test: ## Install, check, run every test, and print what each phase cost
	@started=$$(date +%s); \
	$(MAKE) --no-print-directory $(READY) && \
	$(BIN)/python scripts/chromium.py && \
	$(BIN)/python scripts/test.py --check --slowest 10 --install-seconds $$(($$(date +%s) - started))

test-long: $(READY) ## Run every test, also the long ones
	@$(BIN)/python scripts/test.py --long

check: $(READY) ## Lint, formatting, types, declared packages, which room may import which, words to avoid
	@failed=0; \
	for tool in "ruff check" "ruff format --check" "mypy --strict src" "lint-imports --no-logo" \
		"deptry --no-ansi src" "python scripts/words.py"; do \
		echo "$$tool"; $(BIN)/$$tool || failed=1; \
	done; exit $$failed

# The oldest and the newest versions that pyproject.toml allows, each in an environment of its own.
test-lowest: .venv-lowest/.installed ## Run the tests of the surfaces with the oldest packages allowed
	@.venv-lowest/bin/python -m pytest -q -n 2 $(SURFACES)

test-newest: .venv-newest/.installed ## The same with the newest packages, on Python 3.13 (NEWEST_PYTHON)
	@.venv-newest/bin/python -m pytest -q -n 2 $(SURFACES)

simulate: $(READY) ## Try 2,000 seeds of the simulation (one of them: make simulate SEED=17)
	@$(BIN)/python -m tests.simulation $(or $(SEED),--seeds $(SEEDS))

faults: $(READY) ## Run the long campaign of faults, resumable, and write docs/reliability.md
	@$(BIN)/python scripts/faults.py

screenshots: $(READY) ## Take a picture of every screen of the dashboard (KEEP=1: those of the documents, too)
	@$(BIN)/python scripts/chromium.py
	@$(BIN)/python scripts/screenshots.py $(if $(KEEP),--keep)

bench: $(BENCH)/.installed $(BENCH)/oban/.installed ## Measure Rota beside its peers, three rounds; writes docs/benchmarks.md
	@$(BENCH)/bin/python benchmarks/run.py

bench-quick: $(BENCH)/.installed ## The same in five minutes: one short round, the main peers
	@$(BENCH)/bin/python benchmarks/run.py --quick

bench-lock: $(READY) ## Pin the newest versions of the peers in benchmarks/requirements.txt
	$(PIP) install --quiet uv
	UV_CUSTOM_COMPILE_COMMAND="make bench-lock" $(BIN)/uv pip compile --quiet --upgrade --universal \
		--system-certs --python-version 3.11 --extra postgres pyproject.toml \
		benchmarks/requirements.in --output-file benchmarks/requirements.txt

# The variable leaves out the theme's notice about the next MkDocs: decision 0050 knows of it.
docs: $(READY) ## Build the docs as a site in build/site, without network; a warning is an error
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet --strict
	@echo "open build/site/index.html, or: $(BIN)/python -m http.server --directory build/site"

package: $(READY) ## Build wheel and sdist in dist; try each extra in an empty environment (needs the index)
	@$(BIN)/python scripts/package.py

lock: $(READY) ## Pin the newest versions of all dependencies in requirements-dev.lock
	$(PIP) install --quiet uv
	UV_CUSTOM_COMPILE_COMMAND="make lock" $(BIN)/uv pip compile --quiet --upgrade --universal --system-certs \
		--python-version 3.11 --extra all --group dev --group docs pyproject.toml --output-file requirements-dev.lock

clean-demo: ## Begin the demo anew: remove what `make up` wrote into examples/ (store, warehouse, token, files)
	rm -rf $(EXAMPLES)/rota.db* $(EXAMPLES)/warehouse.duckdb* $(EXAMPLES)/.rota $(EXAMPLES)/data/partner.csv
	[ ! -d $(EXAMPLES)/out ] || find $(EXAMPLES)/out -type f ! -name .gitkeep -delete

clean: clean-demo ## Remove the environment, caches, builds, and what the demo wrote
	rm -rf $(VENV) build dist .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The stamp is written last: an interrupted install starts over.
$(READY): pyproject.toml requirements-dev.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
		echo "Rota needs Python 3.11 or newer, and '$(PYTHON)' is not:" \
			"$$($(PYTHON) --version 2>&1). Try: make test PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { \
		echo "'$(PYTHON)' cannot create environments: its modules venv and ensurepip are missing." \
			"On Debian and Ubuntu: apt install python3-venv" >&2; exit 1; }
	@$(PIP) --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(VENV)
	@echo "Installing into $(VENV), once; this takes about a minute."
	$(PIP) install --quiet --requirement requirements-dev.lock
	$(PIP) install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

.venv-lowest/.installed .venv-newest/.installed: pyproject.toml requirements-dev.lock $(READY)
	@$(PIP) install --quiet uv
	$(BIN)/python scripts/environment.py $(@:.venv-%/.installed=%) $(@D) \
		$(if $(findstring newest,$@),$(NEWEST_PYTHON),$(PYTHON))
	@touch $@

# Peers live in an environment of their own. Without npm the two that need it are left out.
$(BENCH)/.installed: pyproject.toml benchmarks/requirements.txt benchmarks/peers/node/package-lock.json
	@$(BENCH)/bin/python -m pip --version >/dev/null 2>&1 || $(BENCH_PYTHON) -m venv --clear $(BENCH)
	@echo "Installing what is measured into $(BENCH), once."
	$(BENCH)/bin/python -m pip --disable-pip-version-check install --quiet --requirement benchmarks/requirements.txt
	$(BENCH)/bin/python -m pip --disable-pip-version-check install --quiet --no-deps --no-build-isolation --editable .
	@npm ci --silent --prefix benchmarks/peers/node || \
		echo "npm is missing or failed: graphile-worker and pg-boss are left out" >&2
	@touch $@

# Only where the benchmark's own Python is too old for it. Without another one nothing is made, and
# the next `make bench` looks again.
$(BENCH)/oban/.installed: $(BENCH)/.installed
	@if [ -z "$(OBAN_PYTHON)" ] || \
		$(BENCH)/bin/python -c 'import sys; sys.exit(sys.version_info < (3, 12))'; then exit 0; fi; \
	"$(OBAN_PYTHON)" -m venv --clear $(BENCH)/oban && \
	$(BENCH)/oban/bin/python -m pip --disable-pip-version-check install --quiet \
		--constraint benchmarks/requirements.txt oban uvloop && \
	touch $@ || { rm -rf $(BENCH)/oban; echo "oban is left out: $(OBAN_PYTHON) cannot install it" >&2; }
