"""Takes over tables that the embedded AWS kept, when the embedded DynamoDB keeps them from now on.

That is so in a data folder of an older version, and in one whose machine had no build of the database before.
Invariants: only a database that is new takes anything over, so nothing newer is overwritten; a copy that was
interrupted is made again at the next start; what is copied stays where it was; where tables are in two places, each
start says so.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from local.service.embedded_dynamodb import database

_UNFINISHED = "takeover-unfinished"
_APART = "tables-apart"
# DynamoDB's limit for one BatchWriteItem.
_BATCH = 25


def begin(folder: Path, is_embedded: bool) -> list[str]:
    """Notes what is to be taken over, before the tables of the data folder are opened; returns what there is to say.

    `is_embedded` is whether the embedded DynamoDB has the tables of this run; else the embedded AWS has them.
    """
    if not is_embedded:
        if not database(folder).exists():
            return []
        (folder / _APART).touch()
        return [f"ALERT: the tables in {database(folder)} cannot be read without dynoxide: this run has others"]
    if (folder / _APART).exists():
        return [
            f"ALERT: the tables that runs without dynoxide kept are in {folder / 'engine'}, and none of their items is"
            f" here; remove {folder / _APART} if you do not need them"
        ]
    if (folder / "engine" / "dynamodb.json").exists() and not database(folder).exists():
        (folder / _UNFINISHED).touch()
    return []


def is_pending(folder: Path) -> bool:
    """Returns whether tables are to be taken over."""
    return (folder / _UNFINISHED).exists()


def take_over(folder: Path, former: Any, dynamodb: Any, tables: Iterable[str]) -> int:
    """Copies the items of the tables that the client `former` has, and returns how many; `dynamodb` has all tables."""
    known = {name for page in former.get_paginator("list_tables").paginate() for name in page["TableNames"]}
    count = 0
    for table in known.intersection(tables):
        for items in _batches(former, table):
            requests = [{"PutRequest": {"Item": item}} for item in items]
            while requests:
                answer = dynamodb.batch_write_item(RequestItems={table: requests})
                requests = answer.get("UnprocessedItems", {}).get(table, [])
            count += len(items)
    (folder / _UNFINISHED).unlink()
    return count


def _batches(former: Any, table: str) -> Iterator[list[dict[str, Any]]]:
    for page in former.get_paginator("scan").paginate(TableName=table):
        items = page["Items"]
        yield from (items[first : first + _BATCH] for first in range(0, len(items), _BATCH))
