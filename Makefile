# Everything a checkout needs; "make" alone tells what there is.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.installed
TESTS ?=
WORKERS ?= 3

# The tests start "scrapy" and private servers, which Debian keeps in /usr/sbin.
export PATH := $(CURDIR)/$(BIN):$(PATH):/usr/sbin

.DEFAULT_GOAL := help
.PHONY: help venv servers test lint demo bench bench-claims bench-journal bench-writer mutants stress clean

help: ## Show this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 22

venv: $(READY) ## Make .venv with the package and all it is tested with

$(READY): setup.cfg pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[test]'
	@touch $@

servers: ## Install the servers that the tests start for themselves (Debian, as root)
	@command -v mariadbd >/dev/null && command -v redis-server >/dev/null || { \
	  apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq -y \
	    --no-install-recommends mariadb-server-core mariadb-client-core redis-server >/dev/null; } || { \
	  echo 'The tests need the programs mariadbd and redis-server: please install them' >&2; \
	  exit 1; }

test: $(READY) servers ## Run the tests; TESTS="tests/unit -k cursor" picks some
	@$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder -r R $(TESTS)

lint: $(READY) ## Check style, types and the layers of imports
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

demo: $(READY) ## Kill a crawl, start it again and compare what it stored
	@$(BIN)/python -m example_project.demo

bench: $(READY) servers ## Measure the speed against plain Scrapy
	@$(BIN)/python benchmarks/speed.py

bench-claims: $(READY) servers ## Measure how fast a fleet plans, restores and claims shards
	@$(BIN)/python benchmarks/claims.py

bench-journal: $(READY) servers ## Measure what the journal costs
	@$(BIN)/python benchmarks/journal.py

bench-writer: $(READY) servers ## Measure the item writer against SQL written by hand
	@$(BIN)/python benchmarks/writer.py

mutants: $(READY) servers ## Remove each safeguard in turn; a test must notice
	@$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile -m mutant
	@$(BIN)/python tests/mutants.py

stress: $(READY) servers ## Kill crawls again and again, for a long time
	@$(BIN)/python -m pytest -m stress -o faulthandler_timeout=0 $(TESTS)

clean: ## Remove .venv and all caches
	rm -rf $(VENV) .cache build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis \
	  .import_linter_cache .grimp_cache .coverage .coverage.* htmlcov
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
