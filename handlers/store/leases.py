"""Lists the leases of all streams.

Invariants: nothing is written; each lease is read consistently. The index that names them may be behind by a moment.
"""

from collections.abc import Iterator
from typing import Any

from handlers.connection.lease import Lease
from handlers.store import control_items
from handlers.store.control_table import LEASES


def all_leases(dynamodb: Any, control_table: str) -> Iterator[tuple[str, Lease]]:
    """Every stream that was ever started, with its lease as it stands now; `dynamodb` is boto3's client."""
    for page in dynamodb.get_paginator("scan").paginate(TableName=control_table, IndexName=LEASES):
        for entry in page["Items"]:
            # The index has keys alone, and no heartbeat.
            stream_id = entry["PK"]["S"]
            yield stream_id, read_lease(dynamodb, control_table, stream_id)


def read_lease(dynamodb: Any, control_table: str, stream_id: str) -> Lease:
    """The lease of a stream as it stands now; an empty one where there is none."""
    key = control_items.key(stream_id, "lease")
    answer = dynamodb.get_item(TableName=control_table, Key=key, ConsistentRead=True)
    return control_items.lease(answer.get("Item", {}))
