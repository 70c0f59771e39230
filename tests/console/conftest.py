"""One browser for all tests of the page, and the run that this process's tests share."""

from collections.abc import Iterator

import pytest

from tests.console.chromium import Chromium, chromium


@pytest.fixture(scope="session")
def browser() -> Iterator[Chromium]:
    """A real Chromium; tests open the page in contexts of their own."""
    with chromium() as one:
        yield one
