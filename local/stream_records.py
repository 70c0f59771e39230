"""Writes a record of a table's stream as Lambda hands it to a function: bytes in Base64, the time as epoch seconds.

Pure. Invariant: what was handed in is as it was.
"""

import base64
from typing import Any

Record = dict[str, Any]


def as_event(record: Record) -> Record:
    """The record as Lambda hands it to a function."""
    written = dict(record["dynamodb"])
    written["ApproximateCreationDateTime"] = written["ApproximateCreationDateTime"].timestamp()
    return {**record, "dynamodb": plain(written)}


def plain(value: Any) -> Any:
    """The value with its bytes in Base64, however deep they lie."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, dict):
        return {name: plain(inner) for name, inner in value.items()}
    return [plain(inner) for inner in value] if isinstance(value, list) else value
