"""The durable function runs on AWS's SDK, and its executions stay short."""

import json
from collections import Counter

from aws_durable_execution_sdk_python.lambda_service import OperationType
from hypothesis import given, settings
from hypothesis import strategies as st

from local.compare import durable as played_durable
from local.compare import strategies_page as page
from tests.examples import examples

SHORT = ("--limit", "45", "--wait", "35")


def test_the_sdk_checkpoints_each_connection_and_each_wait() -> None:
    """The SDK checkpointed each connection as an invocation under the lane's name, and each wait too."""
    world, played = played_durable.simulate(page.scenario_of([*SHORT, "--hours", "0.05"]))
    (execution,) = played.executions
    counted = Counter((one.operation_type, one.name) for one in execution.operations)
    assert counted[OperationType.CHAINED_INVOKE, "A"] + counted[OperationType.CHAINED_INVOKE, "B"] == len(world.tasks)
    assert counted[OperationType.WAIT, "A"] + counted[OperationType.WAIT, "B"] == len(world.waits) == 5
    # 25 ms until the first start, and 35 s with what a wait took longer on AWS.
    assert next((wait.from_ms, wait.to_ms) for wait in world.waits if wait.lane == "A") == (25, 35_080)
    assert json.loads(execution.start_input.input or "")["number"] == 0


@settings(max_examples=examples(6))
@given(st.integers(7, 20), st.sampled_from(["none", "rough"]), st.integers(0, 2**53))
def test_a_fresh_execution_takes_over_before_the_limit(operations: int, faults: str, seed: int) -> None:
    """Each execution stays below the limit and starts the next one once; without faults there is no gap."""
    options = [*SHORT, "--hours", "0.1", "--faults", faults, "--seed", str(seed)]
    world, played = played_durable.simulate(page.scenario_of(options), operations)
    assert max(len(one.operations) for one in played.executions) <= operations
    assert len(played.executions) > 1
    assert [one.start_input.execution_name for one in played.executions] == [
        f"replay-{number}" for number in range(len(played.executions))
    ]
    assert [one.is_complete for one in played.executions] == [True] * (len(played.executions) - 1) + [False]
    if faults == "none":
        assert world.make_result("durable").gaps == []


def test_a_durable_function_is_charged_by_its_operations_and_bytes() -> None:
    """Charged are the operations, the bytes of checkpoints, and the handler's invocations besides the functions'."""
    source = page.scenario_of([*SHORT, "--hours", "0.05"])
    world, played = played_durable.simulate(source)
    result = played_durable.run("durable", source)
    assert result.charges["lambda_durable", "million_operations"] == len(played.executions[0].operations)
    assert result.charges["lambda_durable", "gb_written"] == played.written_bytes / 1e9
    assert result.invocations == len(world.tasks) + played.invocations
