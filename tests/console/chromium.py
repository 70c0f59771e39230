"""A real Chromium for tests: a Node process with Playwright (`chromium.mjs`) runs pieces of JavaScript."""

import contextlib
import json
import select
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.local import support

DRIVER = Path(__file__).with_suffix(".mjs")
# The driver gives up an action of the page after two minutes; what waits for longer would wait for ever.
LONGEST_S = 300


class Chromium:
    """The browser; `do` runs the body of an async function of `page`, `context`, `axe`, `open` and `input`."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def do(self, code: str, input_: Any = None) -> Any:
        """Returns what the code returned; fails the test with what the code raised."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"code": code, "input": input_}) + "\n")
        self._process.stdin.flush()
        answer = self.read()
        assert "failure" not in answer, f"{answer['failure']}\nin: {code}"
        return answer.get("value")

    def read(self) -> dict[str, Any]:
        """Returns the next answer; stops a driver that has none within five minutes."""
        assert self._process.stdout is not None
        if not select.select([self._process.stdout], [], [], LONGEST_S)[0]:
            self._process.kill()
        line = self._process.stdout.readline()
        assert line, "the driver of the browser has ended"
        answer: dict[str, Any] = json.loads(line)
        return answer


@contextlib.contextmanager
def chromium() -> Iterator[Chromium]:
    """A browser with one empty page; skips the test on a machine without Chromium."""
    command = ["node", str(DRIVER)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=support.PROJECT
    ) as process:
        try:
            browser = Chromium(process)
            first = browser.read()
            if "missing" in first:
                pytest.skip(f"no Chromium here: {first['missing']}")
            yield browser
        finally:
            assert process.stdin is not None
            process.stdin.close()
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
