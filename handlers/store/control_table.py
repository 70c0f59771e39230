"""Reads records of the control table: one by its key, or the newest of a kind.

handlers/store/control_items.py knows what a record means. Invariants: every read is consistent, and nothing is written;
any answer of AWS but the records raises `StoreUnavailable`, after the client's own retries.
"""

from typing import Any

from handlers.aws.error_translation import translate_errors
from handlers.store import control_items

# The index of all records by their sort keys.
BY_RECORD = "by-record"


class ControlTable:
    """The control table of a client, which is made once and shared by all invocations of a sandbox."""

    def __init__(self, dynamodb: Any, name: str) -> None:
        self._dynamodb = dynamodb
        self._name = name

    def get(self, stream_id: str, key: str) -> control_items.Item | None:
        """The record of the stream with this sort key; None where there is none."""
        with translate_errors("GetItem"):
            response = self._dynamodb.get_item(
                TableName=self._name, Key=control_items.key(stream_id, key), ConsistentRead=True
            )
        item: control_items.Item | None = response.get("Item")
        return item

    def newest(self, stream_id: str, prefix: str, most: int) -> list[control_items.Item]:
        """The records of the stream whose sort keys begin with `prefix`, the newest first and `most` at most."""
        with translate_errors("Query"):
            response = self._dynamodb.query(
                TableName=self._name,
                KeyConditionExpression="PK = :stream AND begins_with(SK, :prefix)",
                ExpressionAttributeValues={":stream": {"S": stream_id}, ":prefix": {"S": prefix}},
                ScanIndexForward=False,
                Limit=most,
                ConsistentRead=True,
            )
        records: list[control_items.Item] = response["Items"]
        return records

    def behind(self, stream_id: str, prefix: str, after: str, most: int) -> list[control_items.Item]:
        """The records whose sort keys begin with `prefix` and are greater than `after`, the oldest first."""
        with translate_errors("Query"):
            response = self._dynamodb.query(
                TableName=self._name,
                # No sort key of the prefix has a tilde.
                KeyConditionExpression="PK = :stream AND SK BETWEEN :after AND :end",
                ExpressionAttributeValues={
                    ":stream": {"S": stream_id},
                    # The least text that is greater.
                    ":after": {"S": f"{max(prefix, after)}\0"},
                    ":end": {"S": f"{prefix}~"},
                },
                Limit=most,
                ConsistentRead=True,
            )
        records: list[control_items.Item] = response["Items"]
        return records
