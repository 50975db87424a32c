# `make run` and `make test` need Python 3.11 or later, make, and the package index; nothing else.
PYTHON ?= python3
BIN = .venv/bin
READY = .venv/ready
PEERS = .venv-bench
QUICK = buffer claims dataset doctor environments estimate experiments figures files hdf5 imports \
	inspection kernel learning minari npz plots progress rollouts table tables tabular_batch tabular_mdp
PARALLEL = --numprocesses auto --dist loadfile --no-loadscope-reorder

.PHONY: run test quick-test check mutants regression-mutants bench format clean

run: $(READY)
	$(BIN)/bcq demo cheetah

test: $(READY)
	$(BIN)/pytest $(PARALLEL)

# Without training: for the inner loop.
quick-test: $(READY)
	$(BIN)/pytest $(PARALLEL) $(QUICK:%=tests/test_%.py)

check: $(READY)
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy
	$(BIN)/pytest $(PARALLEL)

# The share of N random faults that the tests notice; stopped, it goes on where it was.
SEED = 1
N = 150
COMMIT = HEAD
mutants: $(READY)
	$(BIN)/python tests/mutation_sample.py --seed $(SEED) --count $(N) --commit $(COMMIT)

# The faults that must be noticed, one by one.
regression-mutants: $(READY)
	$(BIN)/python tests/mutants.py

# Against other software, in an environment of its own; on idle cores, about an hour.
bench: $(READY) $(PEERS)/ready
	$(BIN)/python benchmarks/agreement.py write $(PEERS)/agreement.npz
	$(PEERS)/bin/python benchmarks/agreement.py check $(PEERS)/agreement.npz
	$(BIN)/python benchmarks/compare.py --peers $(PEERS)/bin/python
	$(BIN)/python benchmarks/where.py
	$(BIN)/python benchmarks/growth.py
	$(BIN)/python benchmarks/waiting.py --peers $(PEERS)/bin/python
	$(BIN)/python benchmarks/acting.py --peers $(PEERS)/bin/python
	$(BIN)/python benchmarks/serving.py
	$(BIN)/python benchmarks/report.py

format: $(READY)
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

clean:
	rm -rf .venv $(PEERS)

# Made anew whenever what to install changes, and never otherwise.
$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Python 3.11 or later is needed; name one with: make PYTHON=python3.12"; exit 1; }
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check \
		--constraint constraints.txt --editable '.[dev]'
	@touch $@

$(PEERS)/ready: benchmarks/requirements.txt
	$(PYTHON) -m venv $(PEERS)
	$(PEERS)/bin/python -m pip install --quiet --disable-pip-version-check --requirement $<
	@touch $@
