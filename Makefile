# Every target makes its own environment in .venv; nothing but Python 3.11 (or newer) and make is needed.
#   make demo PYTHON=/path/to/python3.12      another interpreter
#   make test WORKERS=0                       tests in one process

PYTHON   ?= $(shell python3.11 -c '' 2>/dev/null && echo python3.11 || echo python3)
PIPFLAGS ?= --quiet --quiet --disable-pip-version-check
# one more than the two cores of continuous integration: tests that wait for a browser or an engine leave one idle
WORKERS  ?= 3
DRAWS    ?= 10
SEED     ?= 46
TRAINCAST_FUZZ ?= 10000
FRAMEWORKS ?= .venv/frameworks
ORACLES    := torch==2.13.0 transformers==5.23.0
READINGS   ?= .cache/readings
LAUNCHED   ?= tests/frameworks tests/launch/test_published_files.py
# `make frameworks` runs them, where the frameworks are installed
NO_FRAMEWORKS := --ignore tests/frameworks
HOURS      := 7200# seconds that a test may take which is known to take long

# Many containers forbid Python to keep what it compiled. Then each process compiles the package and each worker of the tests
# rewrites all of them anew, which takes a sixth of their time.
unexport PYTHONDONTWRITEBYTECODE

BIN     := .venv/bin
# In the versions that the tests of this commit ran with; `make update` renews them.
INSTALL := $(BIN)/python -m pip install $(PIPFLAGS) --constraint constraints.txt
BACKEND := hatchling editables# build the package, as pyproject.toml says

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.NOTPARALLEL:
.PHONY: help demo quick test nightly engines trials random coverage lint bench answers scoreboard refit kernels oracle frameworks mutants release lowest pythons update sbom docs clean distclean

help:  ## List the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

demo: .venv/.demo  ## Install, then plan Llama 3 70B on 512 H100 and GPT3-1T on 2048 H200
	@echo 'Llama 3 70B on a machine that is calibrated to published runs:'
	$(BIN)/traincast plan llama-3-70b --system dgx-h100 --gpus 512 --global-batch 512 --top 5
	@echo
	@echo 'The model of arXiv 2410.00273 on its idealised machine, by plans that Megatron-Core runs:'
	$(BIN)/traincast plan gpt3-1t --system h200-nvs8 --gpus 2048 --framework megatron --assumptions paper --top 5

# Folders that hold the formulas: a change of a count or of a time fails here first.
QUICK := tests/test_imports.py tests/test_public_api.py tests/core tests/operations tests/times tests/ui/cli/test_usage_errors.py

quick: .venv/.dev  ## Test the formulas and the public names, in a minute, after each edit
	$(BIN)/python -m pytest -q -n $(WORKERS) --dist worksteal $(QUICK)

test: .venv/.dev  ## Run the tests; with CI=strict one that is skipped for want of something fails
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal $(NO_FRAMEWORKS)

nightly: .venv/.dev  ## Run what takes long (engines, lowest, pythons, trials, frameworks, random) and write nightly.json
	$(BIN)/python tools/nightly.py

engines: .venv/.dev  ## Install what studies run on and what is compared with: MPI, Slurm, torch, transformers
	bash .ci/engines
	$(INSTALL) $(ORACLES) || echo 'torch or transformers: not installed, tests are skipped' >&2

trials: .venv/.dev  ## Tune this computer, which must be idle: trials are timed
	$(BIN)/python -m pytest -m nightly --timeout $(HOURS) tests/tuner/test_live.py

random: .venv/.dev  ## Ask ten thousand random questions (TRAINCAST_FUZZ), run the slow commands of the docs, kill engines
	TRAINCAST_FUZZ=$(TRAINCAST_FUZZ) $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -m 'nightly or random' \
	  --timeout $(HOURS) --ignore tests/tuner/test_live.py $(NO_FRAMEWORKS)

coverage: .venv/.dev  ## Run the tests and measure which lines they reach, which takes half as long again
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal $(NO_FRAMEWORKS) --cov

lint: .venv/.dev  ## Check style, types, the layering of imports and the names that cross between packages
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python tools/size.py --check

bench: .venv/.dev  ## Measure how fast the engine is
	$(BIN)/python benchmarks/bench.py
	$(BIN)/python benchmarks/tuning.py
	$(BIN)/traincast tune --replay --details

answers: .venv/.dev  ## Renew the answers to fixed questions; a change of more than 2 % needs its reason in changelog.d
	OPENBLAS_NUM_THREADS=1 $(BIN)/python calibration/answers.py

scoreboard: .venv/.dev  ## Renew the errors of published runs that tests and docs hold the code to
	OPENBLAS_NUM_THREADS=1 $(BIN)/python calibration/scoreboard.py

refit: .venv/.dev  ## Fit the catalogue to the published runs again (ten minutes), and renew the scoreboard
	OPENBLAS_NUM_THREADS=1 $(BIN)/python calibration/refit.py

kernels: .venv/.dev  ## Fit constants of kernels to tables of timed kernels in TABLES, a folder
	cd calibration && OPENBLAS_NUM_THREADS=1 ../$(BIN)/python kernel_tables.py $(abspath $(TABLES))

oracle: .venv/.dev  ## Compare configurations, FLOPs and saved activations with transformers and torch
	$(INSTALL) $(ORACLES)
	$(BIN)/python tools/oracle.py --draws $(DRAWS)
	$(BIN)/python -m pytest -m "" --timeout $(HOURS) tests/operations/test_torch_oracle.py

frameworks: DRAWS := 1000
frameworks: export HF_HUB_OFFLINE := 1
frameworks: .venv/.dev  ## Let the frameworks, installed in FRAMEWORKS, read what is exported and DRAWS random files, and launch on CPUs
	@test -x $(FRAMEWORKS)/bin/python || $(PYTHON) -m venv $(FRAMEWORKS)
	$(FRAMEWORKS)/bin/python -m pip install $(PIPFLAGS) $(ORACLES) accelerate==1.15.0 deepspeed==0.19.8 || \
	  echo 'DeepSpeed or Accelerate: not installed, tests are skipped' >&2
	for packages in 'torchtitan==0.3.0 torchao triton' lightning==2.6.6 'trl==1.16.0 peft==0.21.2' \
	  'addict blobfile einops fire omegaconf sentencepiece tiktoken'; do \
	  $(FRAMEWORKS)/bin/python -m pip install $(PIPFLAGS) $$packages || echo "$$packages: not installed, tests are skipped" >&2; done
	for parser in megatron:megatron-core==0.19.2 axolotl:axolotl==0.19.0 llama-factory:llamafactory==0.9.5 torchtune:torchtune==0.6.1 \
	  ms-swift:ms-swift==4.6.0 ms-swift:modelscope==1.40.2 ms-swift:modelscope-hub==0.5.1; do \
	  folder=$(FRAMEWORKS)/parsers/$${parser%%:*}; \
	  test -n "$$(find $$folder -maxdepth 1 -name "*-$${parser##*==}.dist-info" 2>/dev/null)" || \
	  $(FRAMEWORKS)/bin/python -m pip install $(PIPFLAGS) --ignore-requires-python --no-deps --upgrade --target $$folder $${parser#*:} || \
	    echo "$$parser: not installed, tests are skipped and its readings stay as they are" >&2; done
	$(FRAMEWORKS)/bin/python tools/defaults.py || echo 'a framework is not installed: the tables of defaults stay as they are' >&2
	if [ '$(DRAWS)' != 0 ]; then \
	  $(FRAMEWORKS)/bin/python tools/launch_oracle || echo 'a framework is not installed: its readings stay as they are' >&2; \
	  rm -rf $(READINGS); \
	  $(FRAMEWORKS)/bin/python tools/launch_oracle --draws $(DRAWS) --output $(READINGS) || \
	    echo 'a framework is not installed: it reads no random files' >&2; \
	  TRAINCAST_READINGS=$(abspath $(READINGS)) $(BIN)/python -m pytest --timeout $(HOURS) tests/launch/test_launch_oracle.py || exit 1; \
	fi
	TRAINCAST_FRAMEWORKS=$(abspath $(FRAMEWORKS)/bin) $(BIN)/python -m pytest --timeout $(HOURS) $(LAUNCHED)

mutants: DRAWS := 200
mutants: .venv/.dev  ## Change the formulas in DRAWS places, one at a time, and see whether a test fails (hours; resumable)
	$(BIN)/python tools/mutants.py --draws $(DRAWS) --seed $(SEED)

release: .venv/.dev  ## Build wheel and source distribution into dist/, and run each in an environment of its own
	$(INSTALL) build==1.3.0
	$(BIN)/python tools/release.py

lowest: .venv/.dev  ## Install the lowest declared version of every dependency in .venv/lowest, and run tests there
	$(BIN)/python tools/lowest.py

pythons: .venv/.python  ## Install the package on Python 3.12 to 3.14, where they are at hand, and run the tests of `make quick`
	$(BIN)/python tools/pythons.py $(QUICK)

update: .venv/.python  ## Renew constraints.txt, the versions that all others install: the newest that pyproject.toml allows
	$(BIN)/python tools/constraints.py

sbom: .venv/.python  ## List every installed dependency with version and licence in dist/sbom.json (CycloneDX)
	@mkdir -p dist
	@test -x .venv/sbom/bin/cyclonedx-py || $(PYTHON) -m venv .venv/sbom
	.venv/sbom/bin/python -m pip install $(PIPFLAGS) cyclonedx-bom==7.5.0
	@test -x .venv/plain/bin/python || $(PYTHON) -m venv .venv/plain
	.venv/plain/bin/python -m pip install $(PIPFLAGS) '.[all]'
	.venv/sbom/bin/cyclonedx-py environment --pyproject pyproject.toml --output-reproducible --output-file dist/sbom.json .venv/plain/bin/python

docs: .venv/.dev  ## Build the documentation into site/
	$(BIN)/python tools/docs/generate.py
	$(BIN)/python examples/renew.py
	$(BIN)/zensical build --clean --strict

clean:  ## Remove what the targets built, but not .venv
	rm -rf build dist site .cache .coverage .coverage.* coverage.xml htmlcov .benchmarks .hypothesis
	rm -rf .pytest_cache .mypy_cache .ruff_cache .import_linter_cache
	find . -name .venv -prune -o -name .git -prune -o -name __pycache__ -type d -prune -exec rm -rf {} +

distclean: clean  ## Remove .venv as well
	rm -rf .venv

# The stamps: an environment, what a user installs, what a developer adds. The last two are redone when pyproject.toml
# or constraints.txt changes.

.venv/.python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo 'traincast needs Python 3.11 or newer; $(PYTHON) is' "$$($(PYTHON) --version 2>/dev/null || echo missing)." \
	       'Name one with: make PYTHON=/path/to/python3.11 ...' >&2; exit 1; }
	@$(PYTHON) -m venv .venv || { \
	  echo 'Could not make .venv with $(PYTHON); some systems package the venv module apart (python3-venv).' >&2; exit 1; }
	@touch $@

.venv/.demo: .venv/.python pyproject.toml constraints.txt
	@echo 'Installing traincast into .venv (once, about a minute) ...'
	@$(INSTALL) $(BACKEND)
	@$(INSTALL) --no-build-isolation --editable '.[all]'
	@touch $@

.venv/.dev: .venv/.python pyproject.toml constraints.txt
	@echo 'Installing traincast and its development tools into .venv (once, about a minute) ...'
	@$(INSTALL) $(BACKEND)
	@$(INSTALL) --no-build-isolation --editable '.[all,dev]'
	@touch .venv/.demo $@
