"""One browser and one run for all tests of the page."""

from collections.abc import Iterator

import pytest

from tests.console.chromium import Chromium, chromium
from tests.console.page import unlisted
from tests.local_run import LocalRun


@pytest.fixture(scope="package")
def browser() -> Iterator[Chromium]:
    """A real Chromium; each test opens contexts of its own. No page stays open after its file, so none polls on."""
    with chromium() as one:
        yield one


@pytest.fixture(scope="module")
def service(local_run: LocalRun, browser: Chromium) -> Iterator[LocalRun]:
    """The shared run; records that a test puts into its table are removed."""
    assert browser  # without one nothing is started
    yield local_run
    browser.do("await page.goto('about:blank')")
    unlisted(local_run)


@pytest.fixture(scope="module")
def demo(request: pytest.FixtureRequest, service: LocalRun) -> str:
    """A running stream of the test file's own: `demo:stream` for test_stream.py."""
    stream_id = f"demo:{request.path.stem.removeprefix('test_')}"
    service.post(stream_id)
    return stream_id
