"""Two deployed stages as the embedded engine plays them, and the command."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from local.cli import main
from tests.handlers.aws import Aws
from tests.local.deployed_stage import Deployed

# The exit status, the printed JSON, and standard error.
Typed = Callable[..., tuple[int, Any, str]]


@pytest.fixture
def here(aws: Aws) -> Iterator[Deployed]:
    """The stage that has the streams."""
    yield from _deployed(aws, "here")


@pytest.fixture
def there(aws: Aws) -> Iterator[Deployed]:
    """The stage to which they are copied."""
    yield from _deployed(aws, "there")


def _deployed(aws: Aws, name: str) -> Iterator[Deployed]:
    stage = Deployed(aws, name)
    yield stage
    stage.close()


@pytest.fixture
def typed(capsys: pytest.CaptureFixture[str]) -> Typed:
    """The command with these arguments, in the test's process."""

    def run(*arguments: str) -> tuple[int, Any, str]:
        status = main([*arguments, "--json"])
        said = capsys.readouterr()
        return status, json.loads(said.out) if said.out else None, said.err

    return run
