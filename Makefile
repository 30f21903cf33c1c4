# The commands of this project; CI runs the same ones. Needs Python 3.10 to 3.14, git and make.
# All that is installed goes to .venv, and nothing outside this folder is changed.
#
#   make lab PYTHON=python3.12                    with another Python
#   make lab TORCH=cpu                            PyTorch without CUDA: 0.2 GB to download in place of 5
#   make lab LAB_ARGS="--no-browser --port 8899"  options for JupyterLab
#   make test PYTEST_ARGS="tests/unit -k build"   options for pytest
#   make build LESSONS=01_who_am_i                   only this lesson, even if nothing changed
#
# PYTHON and TORCH count when .venv is made; `make clean` removes it.

PYTHON ?= python3
TORCH ?=
LAB_ARGS ?=
PYTEST_ARGS ?=
LESSONS ?=
BENCH_ARGS ?=
COURSE_ARGS ?=
GPU_ARGS ?=

VENV := .venv
PY := $(VENV)/bin/python
# JupyterLab's first question, whether to fetch news, is answered with no: it would cover the first lesson's last line.
LAB_SETTINGS := $(VENV)/share/jupyter/lab/settings
FIRST_LESSON := 00_is_this_machine_ready.ipynb
# nbgrader builds and grades the exercises; its menu and its Validate button would puzzle a learner.
LAB_PAGE := $(VENV)/etc/jupyter/labconfig
NO_NBGRADER := {"disabledExtensions": {"@jupyter/nbgrader": true}}
NO_NEWS := {"@jupyterlab/apputils-extension:notification": {"fetchNews": "false", "checkForUpdates": false}}
# Jupyter refuses to run as root, the usual user in a container, unless told so.
AS_ROOT := $(if $(filter 0,$(shell id -u)),--allow-root)

export PIP_DISABLE_PIP_VERSION_CHECK := 1

.DEFAULT_GOAL := help
.PHONY: help lab test build check course bench browser-test cluster-test gpu-check clean

help:
	@echo "make lab           set up .venv once, then open JupyterLab on the lessons"
	@echo "make test          all tests that need nothing but Python"
	@echo "make browser-test  a lesson driven in JupyterLab with Chromium"
	@echo "make cluster-test  jobs on a Slurm of two nodes, started here for the tests (Debian: slurm-wlm and munge)"
	@echo "make build         rebuild the notebooks whose sources changed"
	@echo "make course        run all lessons, solved, in one go: minutes and verdicts (COURSE_ARGS=--unsolved)"
	@echo "make check         ruff, mypy, and whether the built notebooks follow from their sources"
	@echo "make gpu-check     what only a GPU can show: 8 minutes at most, and a CSV (GPU_ARGS=--help)"
	@echo "make bench         how fast explain() reads a log, and a launch starts, beside torchrun and Accelerate"
	@echo "make clean         remove .venv and caches; your notebooks, scripts and runs stay"
	@echo "Variables (PYTHON, TORCH, LAB_ARGS, …) are explained at the top of the Makefile."

# With .venv/bin first, python and torchrun in JupyterLab's terminal are those of the notebooks.
lab: $(VENV)/.installed
	PATH="$(CURDIR)/$(VENV)/bin:$$PATH" $(PY) -m jupyterlab --ip=127.0.0.1 --ServerApp.root_dir=notebooks \
	  --LabApp.default_url=/lab/tree/$(FIRST_LESSON) $(AS_ROOT) $(LAB_ARGS)

# Two tests at a time: most wait for processes. Who is done first takes of the other's. PYTEST_ARGS="-n 0": one at a time.
test: $(VENV)/.installed
	$(PY) -m pytest -n 2 --dist worksteal $(PYTEST_ARGS)

browser-test: $(VENV)/.installed
	$(PY) -m pytest -m browser tests/browser $(PYTEST_ARGS)

cluster-test: $(VENV)/.installed
	$(PY) -m pytest -m cluster tests/cluster $(PYTEST_ARGS)

build: $(VENV)/.installed
	$(PY) tools/build_notebooks.py $(LESSONS)

check: $(VENV)/.installed
	$(PY) -m ruff check
	$(PY) -m ruff format --check
	$(PY) -m mypy
	$(PY) tools/build_notebooks.py --check

course: $(VENV)/.installed
	$(PY) tools/run_course.py $(COURSE_ARGS)

bench: $(VENV)/.installed-bench
	$(PY) tests/benchmarks/bench_explain.py
	$(PY) tests/benchmarks/bench_launch.py $(BENCH_ARGS)

gpu-check: $(VENV)/.installed
	$(PY) tools/gpu_check.py $(GPU_ARGS)

clean:
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache build dist
	find ddp_helpers tests tools -name __pycache__ -prune -exec rm -rf {} +

# The stamps make a second call quick: pip runs again only when pyproject.toml or this file changed.
$(VENV)/.installed: pyproject.toml Makefile | $(VENV)/.made
	@echo "Installing into $(VENV), once. With CUDA that is about 5 GB to download; TORCH=cpu takes 0.2 GB."
ifneq ($(TORCH),)
	$(PY) -m pip install torch torchvision --index-url https://download.pytorch.org/whl/$(TORCH)
endif
	$(PY) -m pip install -e '.[dev]'
	@mkdir -p $(LAB_SETTINGS) $(LAB_PAGE)
	@echo '$(NO_NBGRADER)' >$(LAB_PAGE)/page_config.json
	@echo '$(NO_NEWS)' >$(LAB_SETTINGS)/overrides.json
	@touch $@

$(VENV)/.installed-bench: $(VENV)/.installed
	$(PY) -m pip install -e '.[dev,bench]'
	@touch $@

# A .venv that was made halfway (Ctrl-C) is made again; one that works is kept.
$(VENV)/.made:
	@"$(PYTHON)" -c '' 2>/dev/null || { \
	  echo "There is no $(PYTHON) here that runs. Install Python 3.10 to 3.14, or name yours: make lab PYTHON=python3.12" >&2; exit 1; }
	@"$(PYTHON)" -c 'import sys; sys.exit(not (3, 10) <= sys.version_info[:2] < (3, 15))' || { \
	  echo "$(PYTHON) is $$("$(PYTHON)" --version 2>&1). PyTorch needs Python 3.10 to 3.14. Name another: make lab PYTHON=python3.12" >&2; exit 1; }
	@"$(PYTHON)" -c 'import venv, ensurepip' 2>/dev/null || { \
	  echo "$(PYTHON) comes without its venv module. On Debian and Ubuntu: sudo apt install python3-venv" >&2; exit 1; }
	@$(PY) -m pip --version >/dev/null 2>&1 || { echo "Making $(VENV) with $$("$(PYTHON)" --version)"; "$(PYTHON)" -m venv $(VENV); }
	@touch $@
