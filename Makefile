# `make demo` and `make test` set up everything they need in .venv; only python3, pip and make must be there.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/ready
COPY := build/installed
WORKERS ?= 2

.PHONY: demo test lint copy types pytest slow bench wheel dist oldest docs site clean

demo: $(READY)
	$(BIN)/npro-aif demo

# What needs one core goes side by side, as the tests keep two busy.
test: $(READY)
	$(MAKE) --jobs 2 --output-sync=target lint types site
	$(MAKE) pytest

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --quiet --check .

# The folders models/ and guides/ are packages of npro_aif only once it is installed, so that types are checked and the
# site's reference is made in a copy.
copy: $(READY)
	rm -rf $(COPY) && $(BIN)/pip install --quiet --no-deps --target $(COPY) .

types: copy
	cd $(COPY) && ../../$(BIN)/mypy --config-file ../../pyproject.toml --cache-dir ../../.mypy_cache -p npro_aif

pytest: $(READY)
	$(BIN)/pytest -n $(WORKERS) --dist worksteal

slow: $(READY)
	$(BIN)/pytest -m slow

bench: $(READY)
	$(BIN)/python benchmarks/bench_sequence.py
	$(BIN)/python benchmarks/bench_planning.py
	$(BIN)/python benchmarks/bench_peers.py

# The wheel in an empty environment: the core alone, with every missing extra named, and then the command line.
wheel: $(READY)
	rm -rf $(VENV)/wheel && $(BIN)/pip wheel --quiet --no-deps --wheel-dir $(VENV)/wheel .
	$(PYTHON) -m venv --clear $(VENV)/empty && $(VENV)/empty/bin/pip install --quiet $(VENV)/wheel/*.whl
	cd $(VENV) && empty/bin/python ../tests/core_alone.py
	$(VENV)/empty/bin/pip install --quiet "$$(echo $(VENV)/wheel/*.whl)[cli]"
	cd $(VENV) && empty/bin/npro-aif run tmaze --episodes 2

# What goes to PyPI, in dist/: source and wheel, with a README that renders there.
dist:
	$(PYTHON) -m venv --clear $(VENV)/release && $(VENV)/release/bin/pip install --quiet build twine
	rm -rf dist && $(VENV)/release/bin/python -m build --outdir dist .
	$(VENV)/release/bin/twine check --strict dist/*

# The lower bounds of pyproject.toml, exactly, in an environment of their own; TESTS says which tests, all by default.
# (Old versions of others on new ones of what they need say that these are deprecated.)
oldest:
	mkdir -p $(VENV) && $(PYTHON) tests/oldest.py > $(VENV)/oldest.txt
	$(PYTHON) -m venv --clear $(VENV)/oldest
	$(VENV)/oldest/bin/pip install --quiet --requirement $(VENV)/oldest.txt
	$(VENV)/oldest/bin/pip install --quiet --no-deps --editable .
	$(VENV)/oldest/bin/pytest -n $(WORKERS) --dist worksteal -W ignore::DeprecationWarning $(TESTS)

# The documentation site in build/site: every notebook of the course is run, and what is not right is an error.
docs: NOTEBOOKS =
docs: site

# The same with the outputs of one notebook only, which is quicker.
NOTEBOOKS ?= first_plan
site: copy
	$(BIN)/python docs/course/run.py $(NOTEBOOKS)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet

$(READY): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade pip
	$(BIN)/pip install --quiet --editable ".[dev]"
	touch $(READY)

clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .ruff_cache .mypy_cache
