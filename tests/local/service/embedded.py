"""The embedded AWS for tests, on a folder, and a table and a queue."""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

from local.listener import bind
from local.service.embedded_aws import EmbeddedAws, lock

TABLE = {
    "TableName": "events",
    "BillingMode": "PAY_PER_REQUEST",
    "KeySchema": [{"AttributeName": "PK", "KeyType": "HASH"}],
    "AttributeDefinitions": [{"AttributeName": "PK", "AttributeType": "S"}],
    "PointInTimeRecoverySpecification": {"PointInTimeRecoveryEnabled": True},
    "TimeToLiveSpecification": {"AttributeName": "expires_at", "Enabled": True},
}
QUEUE = {"QueueName": "dead-letters", "MessageRetentionPeriod": 1209600}


@contextlib.asynccontextmanager
async def embedded_aws_in(folder: Path, log: list[str]) -> AsyncIterator[EmbeddedAws]:
    """Yields an embedded AWS on `folder`; its lines and its own actions are appended to `log`."""
    held = lock(folder, wait_s=5)

    async def restarted() -> None:
        log.append("restarted")

    aws = EmbeddedAws(folder, bind(0, "a test"), held, lambda: log.append("died"), restarted, log.append, log.append)
    try:
        await aws.start()
        yield aws
    finally:
        await aws.stop()
        held.close()


def is_saved(folder: Path, text: str) -> bool:
    """Returns whether the saved state contains `text`."""
    path = folder / "engine" / "dynamodb.json"
    return path.exists() and text in path.read_text()
