#!/bin/sh
# Writes requirements.txt (for Lambda), requirements-dev.txt (with the rest that a laptop needs), requirements-velocity.txt
# (for one test), requirements-durable.txt (for one strategy of compare), requirements-docs.txt (for the site) and
# package-lock.json, from the pyproject.toml of both distributions and package.json. $1 is the Python to resolve for. No lock names a registry.
set -eu
tools=.streamkeeper-build/lock
[ -x "$tools/bin/pip-compile" ] || {
  "$1" -m venv "$tools"
  "$tools/bin/python" -m pip install --quiet --disable-pip-version-check pip-tools
}
compile() {
  "$tools/bin/pip-compile" --quiet --upgrade --generate-hashes --allow-unsafe --strip-extras --no-header \
    --no-emit-index-url --no-emit-trusted-host --no-emit-find-links --output-file "$@"
}
compile requirements.txt pyproject.toml
compile requirements-dev.txt --extra local --extra parquet --extra dev pyproject.toml states-language/pyproject.toml
compile requirements-docs.txt --extra docs pyproject.toml
compile requirements-velocity.txt --constraint requirements-dev.txt --extra velocity pyproject.toml
# They are installed without what they depend on, which is newer than the others allow.
compile "$tools/durable.txt" --extra durable pyproject.toml
awk '/^[^ ]/ { kept = /^aws-durable-/ } kept' "$tools/durable.txt" > requirements-durable.txt
npm install --package-lock-only --ignore-scripts --loglevel=error
