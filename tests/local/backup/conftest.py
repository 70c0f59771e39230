"""Two deployed stages as the embedded engine plays them."""

from collections.abc import Iterator

import pytest

from tests.handlers.aws import Aws
from tests.local.deployed_stage import Deployed


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
