# `make run` and `make test` need Python 3.11 or later, make, and the package index; nothing else.
PYTHON ?= python3
BIN = .venv/bin
READY = .venv/ready

.PHONY: run test check mutants format clean

run: $(READY)
	$(BIN)/bcq demo hopper

test: $(READY)
	$(BIN)/pytest

check: $(READY)
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy
	$(BIN)/pytest

mutants: $(READY)
	$(BIN)/python tests/mutants.py

format: $(READY)
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

clean:
	rm -rf .venv

# Made anew whenever what to install changes, and never otherwise.
$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Python 3.11 or later is needed; name one with: make PYTHON=python3.12"; exit 1; }
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check \
		--constraint constraints.txt --editable '.[dev]'
	@touch $@
