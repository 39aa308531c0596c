# Everything is set up by the first command that needs it: only Python (3.11 or newer), pip and make have to be there.
PYTHON ?= python3
VENV   ?= .venv
DIST   ?= dist
BIN    := $(VENV)/bin
PIP    := -m pip install --quiet --disable-pip-version-check

.PHONY: demo test slow lint types docs lock tour reliability reliability-full site dist clean

demo: $(VENV)/.run
	$(BIN)/elman demo

# A few minutes: what takes longer is in `make slow`. Both watch that nothing unpickles, calls another machine or starts a program.
test: lint types
	$(BIN)/python -m pytest -p tests.audit -n 2 --dist worksteal -m "not slow"

slow: $(VENV)/.test
	$(BIN)/python -m pytest -p tests.audit -n 2 --dist worksteal -m slow

lint: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.test
	$(BIN)/mypy

docs: $(VENV)/.test
	$(BIN)/python docs/make_cli.py
	$(BIN)/python docs/make_errors.py
	$(BIN)/python docs/make_settings.py

# Hashes of everything that elman needs to run, from the package index; after constraints.txt has changed.
lock: $(VENV)/.test
	$(BIN)/python docs/make_lock.py

# Runs every command of the tour and of the pages of the tasks, and writes what they print into the pages: ten minutes.
tour: $(VENV)/.test
	$(BIN)/python docs/make_tour.py

# What elman survives: kills, full disks, faults, damage. Writes docs/reliability.md; 15 minutes, or 75 for a release.
reliability: $(VENV)/.test
	$(BIN)/python -m reliability

reliability-full: $(VENV)/.test
	$(BIN)/python -m reliability --full

# The documentation as a site: open site/index.html, no server is needed.
site: $(VENV)/.test
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict --site-dir site

# Wheel and source package, tried in an empty environment without the sources.
dist: $(VENV)/.test
	rm -rf $(DIST)
	$(BIN)/python -m hatchling build -d $(DIST)
	$(PYTHON) -m venv $(DIST)/venv
	$(DIST)/venv/bin/python $(PIP) $(DIST)/elman-*.whl
	cd $(DIST) && venv/bin/elman demo --quick --out demo

# constraints.txt pins every version, of what builds the package too, so that two installs are equal.
export PIP_CONSTRAINT := $(abspath constraints.txt)
export PIP_BUILD_CONSTRAINT := $(PIP_CONSTRAINT)
$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.run: pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/python $(PIP) --editable .
	touch $@

$(VENV)/.test: pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/python $(PIP) --editable '.[test,lint,serve,export,hf,scale]'
	touch $@ $(VENV)/.run

clean:
	rm -rf $(VENV) $(DIST) site .pytest_cache .mypy_cache .ruff_cache .hypothesis
