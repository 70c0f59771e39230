"""A port of the service."""

import pytest

from local.listener import bind
from local.user_error import UserError


def test_a_taken_port_is_named() -> None:
    """The sentence names the port and what it was for."""
    with bind(0, "a test") as taken:
        port = taken.getsockname()[1]
        with pytest.raises(UserError, match=rf"^Port {port}, needed for the HTTP API, is in use;"):
            bind(port, "the HTTP API")
