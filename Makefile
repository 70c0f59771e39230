# The commands people type. `make help` lists them.
PYTHON ?= python3
# Another Python needs an environment of its own: make test PYTHON=python3.13 VENV=.venv-3.13
VENV ?= .venv
# The same, from the interpreter's folder; make splits an absolute path at its spaces.
LANGUAGE_VENV = $(if $(filter /%,$(VENV)),,../)$(VENV)
# How many processes share the tests; a number instead of auto chooses it.
JOBS ?= auto
# The site's own environment and pages.
SITE = .streamkeeper-build/docs
# Each of hundreds of processes would compile what the one before has compiled.
unexport PYTHONDONTWRITEBYTECODE
.DEFAULT_GOAL := help
.PHONY: help setup run test test-all test-language check style chaos soak screenshots docs package release wheel lock clean tools

help:  ## list the commands
	@sed -n 's/^\([a-z-]*\):.*  ## /make \1\t/p' Makefile | expand -t 14

setup: tools  ## install what is needed into .venv and node_modules
	@$(MAKE) --silent --no-print-directory --jobs=2 $(VENV)/.installed node_modules/.installed

run: setup  ## start everything on this machine; PORT and STREAMKEEPER_DATA choose another port and folder
	@exec $(VENV)/bin/streamkeeper run

test: style  ## check the style, then run the tests; one of them checks the types. ROOM=store: those of a room, in a minute
	@$(VENV)/bin/$(if $(ROOM),python -m tests.room $(ROOM),pytest) --numprocesses $(JOBS) $(if $(ROOM),,--rerun-alone)

test-all: style  ## the same, and the tests that take minutes: 10,000 schedules, the deep model, benchmarks, a soak
	@$(VENV)/bin/pytest --numprocesses $(JOBS) --rerun-alone -m ""

test-language: setup  ## check and test the interpreter and its server alone, as `make -C states-language test` does
	@$(MAKE) --no-print-directory -C states-language VENV=$(LANGUAGE_VENV) test

check: style  ## check the style and the types alone
	@$(VENV)/bin/mypy --no-error-summary && $(MAKE) --no-print-directory -C states-language VENV=$(LANGUAGE_VENV) style

style: setup
	@$(VENV)/bin/ruff check --quiet && $(VENV)/bin/ruff format --check --quiet

chaos: setup  ## run generated schedules of faults in virtual time; SCHEDULES says how many, SEED where they begin
	@$(VENV)/bin/streamkeeper chaos --schedules $(or $(SCHEDULES),10000) --seed $(or $(SEED),0) --jobs 2

soak: setup  ## let the processes, network and disk of a local run fail for MINUTES (20), in the order of SEED
	@PYTHONPATH=states-language/testing exec $(VENV)/bin/python -m tests.chaos.real.soak --minutes $(or $(MINUTES),20) $(if $(SEED),--seed $(SEED))

screenshots: setup  ## make the pictures of the pages anew, in a real Chromium, of a run in which all is well
	@PYTHONPATH=states-language/testing $(VENV)/bin/python -m tests.console.screenshots

docs: setup $(SITE)/.installed  ## make a site of the pages, with search and the API's reference: site/index.html
	@$(VENV)/bin/python -m local.site_pages $(SITE)/pages
	@cp node_modules/iframe-worker/shim/index.js $(SITE)/pages/iframe-worker.js
	@NO_MKDOCS_2_WARNING=1 $(SITE)/env/bin/mkdocs build
	@echo "site/index.html"

package: setup  ## make the zip and the CloudFormation template for AWS in .serverless; STAGE chooses the stage
	@PATH="$(abspath $(VENV))/bin:$$PATH" npx --no sls package --stage $(or $(STAGE),dev)

wheel: setup  ## make the wheel of the command in dist/, with the templates that `run` needs
	@$(VENV)/bin/python packaging/wheel.py

release: setup  ## make the files of a release in FOLDER (release): zip, template with parameters, checksums, changes
	@PATH="$(abspath $(VENV))/bin:$$PATH" $(VENV)/bin/python -m local.release $(FOLDER)

lock: tools  ## resolve the dependencies anew and write the lock files
	@packaging/lock.sh $(PYTHON)

clean:  ## remove what was built; the data in .streamkeeper stays
	@rm -rf .venv .venv-* site node_modules .serverless dist build .streamkeeper-build .mypy_cache .pytest_cache .ruff_cache .hypothesis *.egg-info

tools:
	@packaging/check-tools.sh $(PYTHON)

$(VENV)/.installed: requirements-dev.txt requirements-durable.txt requirements-velocity.txt pyproject.toml states-language/pyproject.toml
	@$(PYTHON) packaging/install.py python $(VENV)
	@touch $@

$(SITE)/.installed: requirements-docs.txt
	@$(PYTHON) -m venv --clear $(SITE)/env
	@$(SITE)/env/bin/pip install --quiet --disable-pip-version-check --require-hashes --requirement requirements-docs.txt
	@touch $@

node_modules/.installed: package-lock.json package.json .npmrc
	@$(PYTHON) packaging/install.py node
	@touch $@
