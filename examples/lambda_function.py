"""A function that prints each event; it names the key of one that it cannot process, which then comes again."""

from typing import Any


def handler(batch: dict[str, Any], _context: object) -> dict[str, Any]:
    """Which events come again: in their order, so the first that failed is enough."""
    for event in batch["events"]:
        try:
            print(batch["stream"], event["key"], flush=True)
        except OSError:
            return {"batchItemFailures": [{"itemIdentifier": event["key"]}]}
    return {"batchItemFailures": []}
