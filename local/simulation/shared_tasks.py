"""Performs the Tasks that replays and chaos share: requests to DynamoDB, and functions' answers, which come later."""

import asyncio
import json
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from botocore.exceptions import BotoCoreError, ClientError

from handlers.connection.effects import Outcome
from handlers.store.connection_store import Store
from local.simulation.tables import method
from states_language import TaskCall, TaskFailure

T = TypeVar("T")


def send_table_request(client: Any, call: TaskCall) -> Any:
    """Returns the answer of `client`, which has boto3's methods; raises TaskFailure with AWS's error name."""
    try:
        return method(client, call.action)(**call.parameters)
    except ClientError as error:
        code = error.response["Error"]["Code"]
        raise TaskFailure(f"DynamoDB.{code}", error.response["Error"]["Message"]) from None
    except BotoCoreError as error:
        raise TaskFailure("DynamoDB.SdkClientException", str(error)) from None


def store_on(client: Any, names: Mapping[str, str], **settings: Any) -> Store:
    """Returns the store of a stage on `client`, without a dead-letter queue; its back-off takes no time."""
    return Store(
        client,
        no_client,
        events_table=names["events_table"],
        control_table=names["control_table"],
        dead_letter_queue_url="",
        sleep=no_sleep,
        **settings,
    )


def set_once(future: asyncio.Future[T]) -> Callable[[T], None]:
    """Returns a function that sets the future, unless it is set already."""

    def settle(result: T) -> None:
        if not future.done():
            future.set_result(result)

    return settle


def answer_of(outcome: Outcome, **details: Any) -> dict[str, str]:
    """Returns the machine's view of a function's outcome; raises TaskFailure for an error."""
    if outcome.error:
        cause = {"errorMessage": outcome.message, "errorType": outcome.error, **details}
        raise TaskFailure(outcome.error, json.dumps(cause))
    return {"status": outcome.status}


def no_sleep(_seconds: float) -> None:
    """Takes no time."""


def no_client(_service: str = "") -> Any:
    """Raises RuntimeError; nothing in virtual time should need another service."""
    raise RuntimeError("in virtual time no stream has a secret, and no event is too large for an item")
