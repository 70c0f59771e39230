"""The fixture of the tests of the API."""

from collections.abc import Iterator
from typing import Any

import pytest

from endpoint import service, states_client
from patience import in_thread


@pytest.fixture(scope="module")
def states(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A client of one server for the whole module; each test creates machines under its own names."""
    folder = tmp_path_factory.mktemp("api")
    with in_thread(lambda: service(folder)) as url:
        yield states_client(url)
