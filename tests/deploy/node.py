"""Node for the tests of packaging: one process runs all their scripts, each the body of an asynchronous function."""

import atexit
import functools
import json
import subprocess
from pathlib import Path
from typing import Any

from local.stages import ROOT

# Answers each line with a line: what the script returns, or why it failed. It requires as a file of the folder does.
SERVER = """
const { createRequire } = require('node:module');
const Script = (async () => {}).constructor;
const known = new Map();
require('node:readline').createInterface({ input: process.stdin }).on('line', async (line) => {
  const { folder, script, given } = JSON.parse(line);
  try {
    if (!known.has(script)) known.set(script, new Script('require', 'given', script));
    console.log(JSON.stringify({ said: await known.get(script)(createRequire(`${folder}/x.cjs`), given) }));
  } catch (error) {
    console.log(JSON.stringify({ failed: error.message }));
  }
});
"""


class Failed(Exception):
    """The error that a script threw."""


@functools.cache
def _process() -> "subprocess.Popen[str]":
    process = subprocess.Popen(
        ["node", "-e", SERVER], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    atexit.register(process.communicate)
    return process


def run(script: str, given: Any = None, folder: Path = ROOT) -> Any:
    """Return the script's result; the script gets `given`. Raises Failed."""
    process = _process()
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(json.dumps({"folder": str(folder), "script": script, "given": given}) + "\n")
    process.stdin.flush()
    answer = json.loads(process.stdout.readline())
    if "failed" in answer:
        raise Failed(answer["failed"])
    return answer.get("said")
