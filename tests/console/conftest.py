"""One browser for the tests of a file."""

from collections.abc import Iterator

import pytest

from tests.console.chromium import Chromium, chromium


@pytest.fixture(scope="module")
def browser() -> Iterator[Chromium]:
    """A real Chromium; tests open the page in contexts of their own. It ends with them: a page goes on asking."""
    with chromium() as one:
        yield one
