#!/bin/sh
# Exits with 2 if a tool is missing, after one sentence that names it. $1 is the Python that `make setup` will use.
"$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || {
  echo "Python 3.11 or later is needed as $1: install it, or name another with PYTHON=python3.12 make setup." >&2
  exit 2
}
node -e 'process.exit(Number(process.versions.node.split(".")[0]) < 20 ? 1 : 0)' 2>/dev/null || {
  echo "Node 20 or later is needed as node: install it and try again." >&2
  exit 2
}
command -v npm >/dev/null || {
  echo "npm is needed: it comes with Node, install it and try again." >&2
  exit 2
}
