"""A pool of functions for each test, in the event loop of the test."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from local.functions.function_pool import FunctionPool
from tests.local.functions.samples import functions_of


@pytest.fixture
def anyio_backend() -> str:
    """The event loop of the service."""
    return "asyncio"


@pytest.fixture
async def functions(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[FunctionPool]:
    """The functions of samples.py; a test may give options of `functions_of`."""
    async with functions_of(tmp_path, **getattr(request, "param", {})) as pool:
        yield pool
