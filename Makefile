# The whole life of a checkout: `make train` and `make test` on a fresh machine, set-up included.
# Needs GNU make and Python 3.11, 3.12 or 3.13 with its venv module; everything else comes from the locks in requirements/.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
# Later arguments win, so that ARGS can override anything: make train ARGS="--seed 2 --actors 1"
ARGS   ?=

# CI notes what fails, and runs it once more at the end.
RUN_TESTS ?= -m pytest
PYTEST     = $(BIN)/python $(RUN_TESTS)

# Containers often set this variable. Every process would then compile all that it imports, TensorFlow above all, anew.
export PYTHONDONTWRITEBYTECODE :=

NEEDS_PYTHON := distrl needs Python 3.11, 3.12 or 3.13: sudo apt-get install python3 python3-venv (or name one: make PYTHON=python3.12)
NEEDS_VENV   := $(PYTHON) lacks its venv module: sudo apt-get install python3-venv

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: types structure one-python again help install train test check fast suite long cluster part pythons format bench learning performance endurance references behaviour algorithms lock pages site image bundle clean

help:  ## Lists the targets.
	@sed -n 's/^\([a-z]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 14

install: $(VENV)/installed-train  ## Creates .venv with what training needs.

train: install  ## Trains CartPole-v1 with IMPALA on two actors until it is solved; ARGS="--seed 2" adds arguments.
	$(BIN)/distrl train --preset cartpole-impala $(ARGS)

test: check  ## Installs the test extra, and runs the checks and the tests of the core and of what the change reaches.

check: fast suite  ## Formatting, lint, types and tests; ARGS="-k codec" goes to pytest.

# What a commit breaks most often. The documentation's blocks take longer: the suite runs them.
fast: $(VENV)/installed-dev  ## Formatting, lint, types, architecture and generated pages, and figures of the source.
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(MAKE) --no-print-directory -j 2 types $(VENV)/compiled structure
	$(BIN)/python -m benchmarks.house

types:
	$(BIN)/mypy

# In a new environment each of the suite's three processes would otherwise compile the same 6,000 modules.
$(VENV)/compiled: $(VENV)/installed-dev
	$(BIN)/python -m pytest -q --collect-only > $@.log || { tail -n 40 $@.log; exit 1; }
	@touch $@

structure:
	$(BIN)/python -m pytest -q -k "not block_runs" tests/test_architecture.py tests/test_project.py tests/test_docs.py tests/test_site.py

# `make fast` runs these, and `make test` and CI begin with it.
CHECKED := $(patsubst %,--ignore=tests/test_%.py,architecture project site)
# All of these are left out anyway, by their mark, but would be imported first.
CLUSTER := --ignore=tests/cluster

# Without ALL=1, applications that the change does not reach are left out: tests/reach.py.
suite: $(VENV)/installed-dev  ## The tests of CI on this Python, without the checks before them; ALL=1: of all applications.
	$(PYTEST) -n 3 --dist worksteal $(CHECKED) $(CLUSTER) $(if $(ALL),,$(shell $(BIN)/python -m tests.reach)) $(ARGS)

# Runs tests that failed in CI once more, each alone: tests/second_run.py.
again: $(VENV)/installed-dev
	$(BIN)/python -m tests.second_run judge

long: $(VENV)/installed-dev  ## What CI has no time for: every seed, launcher and backend.
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "long and not cluster" $(ARGS)

# These begin servers and hosts (network namespaces) of their own, one after the other: they would slow each other down.
# KUBERAY_CRDS names a folder with KubeRay's CRDs, ray-operator/config/crd/bases of its repository.
cluster: $(VENV)/installed-dev build/checkov/installed  ## Tests of several hosts and of Redis as companies run it; needs root, and fails on any skip.
	CLUSTER_SKIPS_FAIL=1 $(BIN)/python -m pytest -m cluster tests/cluster $(ARGS)

part: $(VENV)/installed-dev  ## Those tests of `make cluster` for which CI has time; a test that cannot run here is skipped.
	$(PYTEST) -m "cluster and not long" tests/cluster/test_kubernetes_jobs.py tests/cluster/test_store.py $(ARGS)

# `make test` runs on one Python; these are the others. pyenv's are taken too, as its commands on PATH may be out of use.
PYTHONS := 3.12 3.13

pythons:  ## Trains, and tests what Redis serves, on the other supported Pythons that this machine has.
	@for version in $(PYTHONS); do \
		for python in python$$version $$HOME/.pyenv/versions/$$version.*/bin/python$$version; do \
			if $$python -c '' 2> /dev/null; then break; fi; \
		done; \
		if ! $$python -c '' 2> /dev/null; then echo "Python $$version: not on this machine, not tested"; continue; fi; \
		echo "Python $$version: $$python"; \
		$(MAKE) --no-print-directory PYTHON=$$python VENV=build/python-$$version one-python || exit; \
	done

one-python: $(VENV)/installed-dev
	PATH=/usr/bin:/bin $(BIN)/distrl train --plain --preset cartpole-impala --run-dir $(VENV)/run-$$$$
	@# 3.12 lies between two versions that are tested: a training and its kills suffice there.
	case $(VENV) in *3.12) ;; *) $(PYTEST) -q -n 2 tests/memory_backend tests/config tests/test_wire.py tests/test_project.py ;; esac
	$(PYTEST) -q tests/failures/test_kills.py -k 'killed_actor or killed_learner'

format: $(VENV)/installed-dev  ## Formats the code and applies safe lint fixes.
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: install  ## Measures limit, throughput and their ratio for the CartPole preset.
	$(BIN)/distrl bench --preset cartpole-impala $(ARGS)

learning: $(VENV)/installed-dev  ## Measures what every preset learns, hours; ARGS="--only cartpole-*" selects.
	$(BIN)/python -m benchmarks.learning $(ARGS)

performance: $(VENV)/installed-dev  ## Measures speed, an hour; ARGS=--publish writes docs/performance.md.
	for name in throughput startup solve transport broadcast scaling bottleneck compression accelerator dashboard; do $(BIN)/python -m benchmarks.$$name $(ARGS) || exit; done

endurance: $(VENV)/installed-dev  ## Kills, starves and feeds it anything for two hours; ARGS=--publish writes docs/reliability.md.
	$(BIN)/python -m benchmarks.endurance $(ARGS)

references: build/references/installed  ## Compares losses and updates with SB3's and rlax's, 100 s of CPU time; ARGS=--publish keeps the report.
	build/references/bin/python -m benchmarks.references $(ARGS)

behaviour: build/references/installed  ## Trains bsuite's own agents and distrl on its tasks, hours; ARGS="--only '*memory_len*'" selects.
	build/references/bin/python -m benchmarks.behaviour $(ARGS)

algorithms: $(VENV)/installed-dev  ## Writes the table at the top of docs/algorithms.md anew from the sections.
	$(BIN)/python docs/algorithms.py

# One numpy and one TensorFlow for all: the other locks are selections from the dev lock. gpu.lock adds CUDA's libraries.
COMPILE := $(BIN)/uv pip compile --no-config --universal --python-version 3.11 --fork-strategy fewest \
	--generate-hashes --no-header --annotation-style line --quiet
LOCK := $(COMPILE) pyproject.toml
STORES := --extra s3 --extra gcs --extra azure
ENVIRONMENTS := --extra atari --extra mujoco --extra box2d --extra compression
SELECT := --constraints requirements/dev.lock --output-file

lock: $(VENV)/installed-dev  ## Writes the locks anew from pyproject.toml; add LOCK_ARGS=--upgrade for newer releases.
	$(LOCK) $(LOCK_ARGS) --extra cpu --extra jax --extra ray $(ENVIRONMENTS) --extra video --extra envpool --extra gym --extra dm-control --extra minatar --extra plot --extra tune --extra wandb --extra mlflow --extra data $(STORES) --extra dashboard --extra serve --extra dev --group image-build --output-file requirements/dev.lock
	$(LOCK) $(LOCK_ARGS) --extra cpu --extra ray $(ENVIRONMENTS) --extra video --extra plot --extra dashboard --extra serve $(SELECT) requirements/train.lock
	$(LOCK) $(LOCK_ARGS) --extra cpu --extra ray $(ENVIRONMENTS) --extra video --extra plot --extra dashboard --extra serve $(STORES) --extra data $(SELECT) requirements/learner.lock
	$(LOCK) $(LOCK_ARGS) --extra gpu --extra ray $(ENVIRONMENTS) --extra video --extra plot --extra dashboard --extra serve $(STORES) --extra data $(SELECT) requirements/gpu.lock
	$(LOCK) $(LOCK_ARGS) --extra compression $(SELECT) requirements/actor.lock
	$(LOCK) $(LOCK_ARGS) $(ENVIRONMENTS) $(SELECT) requirements/environments.lock
	$(LOCK) $(LOCK_ARGS) --extra dashboard $(SELECT) requirements/dashboard.lock
	$(LOCK) $(LOCK_ARGS) --extra jax-cuda --excludes bundle/excludes.txt --constraints requirements/gpu.lock $(SELECT) requirements/bundle.lock
	$(COMPILE) $(LOCK_ARGS) --group pyproject.toml:image-build $(SELECT) requirements/build.lock
	$(LOCK) $(LOCK_ARGS) benchmarks/references/libraries.txt --extra cpu --extra jax --extra mujoco --extra data --excludes benchmarks/references/excludes.txt --override benchmarks/references/overrides.txt --no-emit-package torch $(SELECT) requirements/references.lock
	printf '%s\n' 'mkdocs-material>=9.8,<10' 'mkdocstrings[python]>=1.0,<2' ruff | $(COMPILE) - $(LOCK_ARGS) $(SELECT) requirements/site.lock
	echo 'checkov>=3.3,<4' | $(COMPILE) - $(LOCK_ARGS) --output-file requirements/checkov.lock

pages: install  ## Writes the site's pages as Markdown in build/pages: with settings.md, modules.md and capabilities.md.
	$(BIN)/python docs/pages.py

# In strict mode a link or an anchor that leads nowhere ends the build; --quiet would turn that off. The variable silences an advertisement.
site: build/mkdocs/installed pages  ## Builds the documentation in build/site: python -m http.server -d build/site shows it.
	NO_MKDOCS_2_WARNING=1 build/mkdocs/bin/mkdocs build --strict

# Debian's buildah and mmdebstrap, and root; packages come through this machine's pip.
image: install  ## Builds the container images; ARGS="actor" chooses, ARGS="--base NAME" takes another base.
	$(BIN)/python image/build.py $(ARGS)

# Its packages come through this machine's pip, too.
BUNDLE_PYTHON ?= 3.12

bundle: install  ## Makes a folder that installs distrl without an index; BUNDLE_PYTHON=3.13 chooses, ARGS=--environments adds.
	$(BIN)/python -m bundle.build --python $(BUNDLE_PYTHON) $(ARGS)

# checkov pins much that distrl uses in other versions: it has an environment of its own.
build/checkov/installed: requirements/checkov.lock | $(VENV)/installed-dev
	$(BIN)/python -m venv --clear build/checkov
	$(BIN)/uv pip install --python build/checkov/bin/python --quiet --require-hashes --requirement requirements/checkov.lock || \
		build/checkov/bin/python -m pip install --disable-pip-version-check --quiet --require-hashes --requirement requirements/checkov.lock
	@touch $@

build/mkdocs/installed: requirements/site.lock | $(VENV)/created
	$(BIN)/python -m venv --clear build/mkdocs
	$(BIN)/uv pip install --python build/mkdocs/bin/python --quiet --require-hashes --requirement requirements/site.lock || \
		build/mkdocs/bin/python -m pip install --disable-pip-version-check --quiet --require-hashes --requirement requirements/site.lock
	@touch $@

# The other libraries and distrl's own dependencies. PyTorch comes without a hash and through pip, whose configuration may
# name an index with the build for CPUs; PyPI's has CUDA's libraries, which work too and take gigabytes.
build/references/installed: requirements/references.lock benchmarks/references/libraries.txt | $(VENV)/installed-dev
	$(BIN)/python -m venv --clear build/references
	$(BIN)/uv pip install --python build/references/bin/python --quiet --no-deps --require-hashes --requirement requirements/references.lock || \
		build/references/bin/python -m pip install --disable-pip-version-check --quiet --no-deps --require-hashes --requirement requirements/references.lock
	build/references/bin/python -m pip install --disable-pip-version-check --quiet "$$(grep '^torch==' benchmarks/references/libraries.txt)"
	@touch $@

clean:  ## Removes .venv, build products and caches; runs/ stays.
	rm -rf $(VENV) build dist distrl.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The stamps live inside the environment, so that they can never outlive it. The dev lock contains the train lock.
$(VENV)/created:
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' 2>/dev/null || { echo "$(NEEDS_PYTHON)" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { echo "$(NEEDS_VENV)" >&2; exit 1; }
	$(PYTHON) -m venv --clear $(VENV)
	@awk '/^uv==/ {found = 1} found {print} found && !/\\$$/ {exit}' requirements/dev.lock > $(VENV)/uv.lock
	@$(PIP) --require-hashes --requirement $(VENV)/uv.lock || echo "uv cannot be installed here: pip takes its place"
	@touch $@

# uv takes a third of pip's time. Where it cannot (an index that only pip's own configuration knows), pip does it.
PIP = $(BIN)/python -m pip install --disable-pip-version-check --quiet
INSTALL = install() { $(BIN)/uv pip install --python $(BIN)/python --quiet "$$@" || $(PIP) "$$@"; }; install

$(VENV)/installed-train: $(VENV)/created requirements/train.lock pyproject.toml
	@echo "installing distrl into $(VENV) (a few minutes the first time)"
	$(INSTALL) --require-hashes --requirement requirements/train.lock
	$(INSTALL) --no-deps --no-build-isolation --editable .
	@touch $@

$(VENV)/installed-dev: $(VENV)/installed-train requirements/dev.lock
	$(INSTALL) --require-hashes --requirement requirements/dev.lock
	@touch $@
