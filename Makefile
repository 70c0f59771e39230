# The commands people type. `make help` lists them.
PYTHON ?= python3
.DEFAULT_GOAL := help
.PHONY: help setup run test chaos package lock clean tools

help:  ## list the commands
	@sed -n 's/^\([a-z]*\):.*  ## /make \1\t/p' Makefile | expand -t 14

setup: tools .venv/.installed node_modules/.installed  ## install what is needed into .venv and node_modules

run: setup  ## start everything on this machine; PORT and STREAMKEEPER_DATA choose another port and folder
	@exec .venv/bin/streamkeeper run

test: setup  ## check the style and the types, then run every test
	@.venv/bin/ruff check --quiet && .venv/bin/ruff format --check --quiet && .venv/bin/mypy --no-error-summary && .venv/bin/pytest

chaos: setup  ## run generated schedules of faults in virtual time; SCHEDULES says how many, SEED where they begin
	@.venv/bin/streamkeeper chaos --schedules $(or $(SCHEDULES),10000) --seed $(or $(SEED),0) --jobs 2

package: setup  ## make the zip and the CloudFormation template for AWS in .serverless; STAGE chooses the stage
	@PATH="$(CURDIR)/.venv/bin:$$PATH" npx --no sls package --stage $(or $(STAGE),dev)

lock: tools  ## resolve the dependencies anew and write the lock files
	@packaging/lock.sh $(PYTHON)

clean:  ## remove what was built; the data in .streamkeeper stays
	@rm -rf .venv node_modules .serverless .streamkeeper-build .mypy_cache .pytest_cache .ruff_cache .hypothesis *.egg-info

tools:
	@packaging/check-tools.sh $(PYTHON)

.venv/.installed: requirements-dev.txt pyproject.toml states-language/pyproject.toml
	@$(PYTHON) -m venv .venv
	@.venv/bin/python -m pip install -qq --disable-pip-version-check --require-hashes -r requirements-dev.txt
	@.venv/bin/python -m pip install -qq --disable-pip-version-check --no-deps --no-build-isolation --editable ./states-language --editable .
	@touch $@

node_modules/.installed: package-lock.json package.json .npmrc
	@npm ci --loglevel=error
	@touch $@
