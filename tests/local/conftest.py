"""The tables and the queue as the embedded engine plays them."""

from tests.handlers.conftest import aws, endpoint, tables

__all__ = ["aws", "endpoint", "tables"]
