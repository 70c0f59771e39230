#!/bin/sh
# Writes requirements.txt (for Lambda), requirements-dev.txt (with the rest that a laptop needs), requirements-velocity.txt
# (for one test), requirements-durable.txt (for one strategy of compare), requirements-docs.txt (for the site) and
# package-lock.json, from the pyproject.toml of both distributions and package.json. $1 is the Python to resolve for. No lock
# names a registry.
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
# A group of pyproject.toml is not part of the distribution, and pip-compile does not read groups.
group() {
  "$1" -c 'import sys, tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["dependency-groups"][sys.argv[1]], sep="\n")' \
    "$2" > "$tools/$2.in"
}
group "$1" lambda
group "$1" velocity
group "$1" durable
group "$1" docs
compile requirements.txt "$tools/lambda.in"
compile requirements-dev.txt --extra archive --extra dev pyproject.toml states-language/pyproject.toml
compile requirements-docs.txt "$tools/docs.in"
compile requirements-velocity.txt --constraint requirements-dev.txt "$tools/velocity.in"
# These are installed without their dependencies, which are newer than the other packages allow.
compile "$tools/durable.txt" "$tools/durable.in"
awk '/^[^ ]/ { kept = /^aws-durable-/ } kept' "$tools/durable.txt" > requirements-durable.txt
npm install --package-lock-only --ignore-scripts --loglevel=error
