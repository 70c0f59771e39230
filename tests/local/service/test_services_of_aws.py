"""The services of the local run answer a machine as AWS's services did in the recordings.

The replays of `test_recorded` take the services' answers from the recordings; here the local run's own integrations
request them from the embedded AWS. Left out are the cases in which the embedded AWS answers unlike AWS. It accepts any
name of a secret and any entry of an event, words a missing topic otherwise, and its S3 reports neither checksums nor
encryption.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from adapter import flatten_event
from local.aws_endpoints import Endpoints
from local.functions.function_pool import FunctionPool
from recorded import is_equal, load_cases
from states_language import Execution, load
from states_language.clock import RealClock
from states_language.server import StepFunctions, TaskPerformer
from tests.local.service.embedded import embedded_aws_in
from tests.local.support import client, in_thread

HERE, THERE = "000000000000", "111111111111"
SAME = (
    "test_aws_sdk::test_dynamodb_put_item_no_such_table",
    "test_task_service_dynamodb::",
    "test_aws_sdk_task_service::test_list_secrets",
    "test_aws_sdk_task_service::test_dynamodb",
    "test_dynamodb_task_service::",
    "test_events_task_service::test_put_events_base",
    "test_sns_task_service::test_fifo",
    "test_sns_task_service::test_publish_message",
    "test_sqs_task_service::",
)
CASES = [case for case in load_cases("services.json") if any(part in case["id"] for part in SAME)]
Ask = Callable[[dict[str, Any]], list[dict[str, Any]]]


@contextlib.asynccontextmanager
async def local_run(folder: Path) -> AsyncIterator[Ask]:
    """Yields a function that runs a case's machine and returns its events; the resources that the cases name exist."""
    async with embedded_aws_in(folder, []) as engine:
        await asyncio.to_thread(_furnish, engine.url)
        clock = RealClock()
        pool = FunctionPool([], {}, folder, folder / "logs")
        integrations = TaskPerformer(pool.invoke, Endpoints({}, engine.url).client, StepFunctions(folder, clock))
        loop = asyncio.get_running_loop()

        async def run(case: dict[str, Any]) -> Execution:
            data = json.loads(json.dumps(case["input"]).replace(THERE, HERE))
            arn = f"arn:aws:states:us-east-1:{HERE}:execution:machine:one"
            return await load(case["definition"]).start(data, clock=clock, perform=integrations.perform, arn=arn).wait()

        def ask(case: dict[str, Any]) -> list[dict[str, Any]]:
            history = asyncio.run_coroutine_threadsafe(run(case), loop).result(30).history
            events: list[dict[str, Any]] = json.loads(json.dumps([*map(flatten_event, history)]).replace(HERE, THERE))
            return events

        try:
            yield ask
        finally:
            integrations.close()


def _furnish(url: str) -> None:
    client("dynamodb", url).create_table(
        TableName="sfn_test_table_00000001",
        KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
        BillingMode="PAY_PER_REQUEST",
    )
    client("sqs", url).create_queue(QueueName="queue-00000001")
    client("sns", url).create_topic(Name="topic")
    client("sns", url).create_topic(Name="topic-00000001.fifo", Attributes={"FifoTopic": "true"})


@pytest.fixture(scope="module")
def ask(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ask]:
    """The function that runs a case, with one engine for the module."""
    folder = tmp_path_factory.mktemp("services")
    with in_thread(lambda: local_run(folder)) as run:
        yield run


@pytest.mark.long
@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_the_local_services_answer_as_awss_did(ask: Ask, case: dict[str, Any]) -> None:
    """Parameters, output, error and cause of every event are those that AWS recorded."""
    events, expected = ask(case), case["expected"]["events"]
    assert len(events) == len(expected)
    for wanted, event in zip(expected, events, strict=True):
        assert is_equal(wanted, event), (wanted, event)
