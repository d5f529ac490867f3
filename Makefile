# make run · make test · make bench · make soak · make check · make lock; each prepares what it needs and is
# safe to repeat.

PYTHON ?= python3
EXAMPLE ?= basic_pitch
PORT ?= 8080
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
LOCKS := container/requirements container/requirements-embedded requirements-dev

.PHONY: run test bench soak check setup lock docs clean

run: setup
	$(BIN)/python examples/$(EXAMPLE)/build.py build/examples/$(EXAMPLE)
	exec $(BIN)/pierhead serve build/examples/$(EXAMPLE) --port $(PORT)

test: setup
	$(BIN)/python -m pytest -n 2 --dist loadfile $(ARGS)

bench: setup
	$(BIN)/python -m benchmarks
	$(BIN)/python -m benchmarks.multi_model

soak: setup
	PYTHONPATH=tests/stack $(BIN)/python -m benchmarks.soak

check: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(BIN)/python docs/generate.py --check

docs: setup
	$(BIN)/python docs/generate.py

setup: $(READY)

# Every package comes locked, with hashes and without resolution: tensorflow-serving-api asks for a second
# TensorFlow beside tensorflow-cpu, which --no-deps leaves out.
$(READY): requirements-dev.lock setup.cfg pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r requirements-dev.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	touch $(READY)

lock:
	$(PYTHON) -m venv build/lock
	build/lock/bin/python -m pip install --quiet uv
	for name in $(LOCKS); do build/lock/bin/uv pip compile --quiet --universal --python-version 3.11 \
	  --generate-hashes --no-header --no-annotate --no-emit-index-url \
	  --override container/overrides.txt $$name.in -o $$name.lock $(ARGS) || exit 1; done

clean:
	rm -rf $(VENV) build
