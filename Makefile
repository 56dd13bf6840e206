# make demo   set up what a user needs, then stream an answer of SmolLM2-135M-Instruct (weights pulled on first use)
# make serve  set up what a server needs, then serve that model on http://127.0.0.1:8000 (PORT=... for another)
# make test   set up what a developer needs, then run the gate: format, lint, types, import rules, budgets, all tests
# make check  the same gate
# make test-page  test the server's page in headless Chromium, which is installed if it can be; where it cannot, that is
#             said and is a failure, but with BROWSER=optional the end of it
# make test-builders  build packages of tiny models with published tools, import them, and compare with the runtimes of
#             those tools; in a venv of its own, since the tools are heavy (TORCH=torch==2.13.0 names the build of torch)
# make clean  remove what was built here (the user cache with pulled packages stays)
#
# PYTHON=python3.12 names the interpreter for a new .venv; PROMPT="..." changes the question of the demo.

VENV := .venv
BIN := $(VENV)/bin
PROMPT ?= Why is the sky blue?
PORT ?= 8000
BROWSER ?= required
TORCH ?= torch==2.13.0
BUILDERS := .venv-builders
PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check

.PHONY: demo serve test check test-page test-builders clean

demo: $(VENV)/.installed-cpu
	$(BIN)/genai-pipeline run smollm2-135m "$(PROMPT)" --max-new-tokens 256 --stats

serve: $(VENV)/.installed-server
	$(BIN)/genai-pipeline serve smollm2-135m --port $(PORT)

test: check

check: $(VENV)/.installed-dev
	PATH="$(CURDIR)/$(BIN):$$PATH" tools/check

test-page: $(VENV)/.installed-dev
	BROWSER=$(BROWSER) tools/test_page $(VENV)

test-builders: $(BUILDERS)/.installed
	$(BUILDERS)/bin/python -m pytest tests/builders

$(BIN)/python:
	tools/make_venv $(VENV)

$(BUILDERS)/bin/python:
	tools/make_venv $(BUILDERS)

# One build of torch, named first: what pip would choose for the others may bring gigabytes of another.
$(BUILDERS)/.installed: pyproject.toml | $(BUILDERS)/bin/python
	$(BUILDERS)/bin/python -m pip install --quiet --disable-pip-version-check '$(TORCH)'
	$(BUILDERS)/bin/python -m pip install --quiet --disable-pip-version-check '$(TORCH)' -e '.[cpu,image,audio,builders]'
	@touch $@

# A stamp per set of packages: installed again only when pyproject.toml changed.
$(VENV)/.installed-cpu: pyproject.toml | $(BIN)/python
	$(PIP_INSTALL) -e '.[cpu,structured,image,audio]'
	@touch $@

$(VENV)/.installed-server: pyproject.toml | $(BIN)/python
	$(PIP_INSTALL) -e '.[cpu,structured,server,image,audio]'
	@touch $@ $(VENV)/.installed-cpu

$(VENV)/.installed-dev: pyproject.toml | $(BIN)/python
	$(PIP_INSTALL) -e '.[cpu,structured,server,chat,image,audio,nxrt,dev]'
	@touch $@ $(VENV)/.installed-cpu $(VENV)/.installed-server

clean:
	rm -rf $(VENV) $(BUILDERS) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
