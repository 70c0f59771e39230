"""The Step Functions API as an SDK uses it: machines, versions of them, tags, tokens and Express executions."""

import concurrent.futures
import json
from pathlib import Path
from typing import Any

import pytest

from tests.local.stepfunctions.server import (
    PASS,
    PREFIX,
    ROLE,
    WAIT,
    created,
    over,
    refusal,
    service,
    states_client,
    task,
)
from tests.local.support import client, in_thread, until


def test_a_machine_from_creation_to_deletion(states: Any) -> None:
    """Created, described, listed, run, deleted: then it is gone."""
    arn = created(states, "life", tags=[{"key": "a", "value": "b"}])
    assert arn == PREFIX + "life"
    described = states.describe_state_machine(stateMachineArn=arn)
    assert (described["name"], described["status"], described["type"], described["roleArn"]) == (
        "life",
        "ACTIVE",
        "STANDARD",
        ROLE,
    )
    assert json.loads(described["definition"]) == PASS
    assert described["loggingConfiguration"]["level"] == "OFF"
    assert arn in [one["stateMachineArn"] for one in states.list_state_machines()["stateMachines"]]
    ended = over(states, states.start_execution(stateMachineArn=arn, input='{"a":1}')["executionArn"])
    assert (ended["status"], ended["output"]) == ("SUCCEEDED", '{"a":1}')
    assert states.list_tags_for_resource(resourceArn=arn)["tags"] == [{"key": "a", "value": "b"}]
    states.delete_state_machine(stateMachineArn=arn)
    states.delete_state_machine(stateMachineArn=arn)
    told = f"State Machine Does Not Exist: '{arn}'"
    assert refusal(states.describe_state_machine, stateMachineArn=arn) == ("StateMachineDoesNotExist", told)
    assert refusal(states.start_execution, stateMachineArn=arn) == ("StateMachineDoesNotExist", told)


def test_creating_again_is_no_error_unless_something_differs(states: Any) -> None:
    """Name, definition, type and configurations are compared; role and tags are not."""
    arn = created(states, "again")
    assert created(states, "again", tags=[{"key": "a", "value": "b"}]) == arn
    wish = {"name": "again", "roleArn": ROLE}
    other = refusal(states.create_state_machine, **wish, definition=json.dumps(WAIT))
    assert other == ("StateMachineAlreadyExists", f"State Machine Already Exists: '{arn}'")
    other = refusal(states.create_state_machine, **wish, definition=json.dumps(PASS), type="EXPRESS")
    assert other[0] == "StateMachineAlreadyExists"


@pytest.mark.parametrize("name", ["a b", "a/b", "a:b", "a*", "a$", "x" * 81, "a\x01"])
def test_names_that_no_machine_may_have(states: Any, name: str) -> None:
    """White space, special and control characters, more than 80 characters: InvalidName."""
    told = refusal(states.create_state_machine, name=name, definition=json.dumps(PASS), roleArn=ROLE)
    assert told == ("InvalidName", f"Invalid Name: '{name}'")


def test_bad_requests_have_awss_names(states: Any) -> None:
    """A definition, a role and an ARN that are none, and a value out of its set."""
    wish = {"name": "bad", "roleArn": ROLE}
    told = refusal(states.create_state_machine, **wish, definition='{"StartAt": "S"}')
    assert told == (
        "InvalidDefinition",
        "Invalid State Machine Definition: 'SCHEMA_VALIDATION_FAILED: These fields are required: [States] at /'",
    )
    assert refusal(states.create_state_machine, **wish, definition="no")[0] == "InvalidDefinition"
    assert refusal(states.create_state_machine, **wish, definition='{"TimeoutSeconds": NaN}')[0] == "InvalidDefinition"
    assert refusal(states.create_state_machine, **wish, definition=" " * 1_048_577) == (
        "ValidationException",
        "1 validation error detected: Value at 'definition' failed to satisfy constraint: "
        "Member must have length less than or equal to 1048576",
    )
    assert refusal(states.create_state_machine, name="b", roleArn="me", definition=json.dumps(PASS)) == (
        "InvalidArn",
        "Invalid Role Arn: 'me'",
    )
    assert refusal(states.describe_state_machine, stateMachineArn="x") == ("InvalidArn", "Invalid Arn: 'x'")
    execution = PREFIX.replace("stateMachine", "execution") + "a:b"
    assert refusal(states.describe_state_machine, stateMachineArn=execution) == (
        "InvalidArn",
        "Invalid Arn: 'Resource type not valid in this context: execution'",
    )
    assert refusal(states.create_state_machine, **wish, definition=json.dumps(PASS), type="FAST") == (
        "ValidationException",
        "1 validation error detected: Value 'FAST' at 'type' failed to satisfy constraint: "
        "Member must satisfy enum value set: [STANDARD, EXPRESS]",
    )
    assert refusal(states.list_state_machines, maxResults=1001)[0] == "ValidationException"
    assert refusal(states.create_state_machine, **wish, definition=json.dumps(PASS), publish=True) == (
        "ValidationException",
        "Versions of state machines are not offered by the local service.",
    )


def test_what_runs_keeps_its_definition(states: Any) -> None:
    """An update is for the next execution; DescribeStateMachineForExecution says what each one runs."""
    arn = created(states, "changes", WAIT)
    old = states.start_execution(stateMachineArn=arn)["executionArn"]
    updated = states.update_state_machine(stateMachineArn=arn, definition=json.dumps(PASS))
    new = states.start_execution(stateMachineArn=arn)["executionArn"]
    assert over(states, new)["status"] == "SUCCEEDED"
    assert states.describe_execution(executionArn=old)["status"] == "RUNNING"
    before = states.describe_state_machine_for_execution(executionArn=old)
    after = states.describe_state_machine_for_execution(executionArn=new)
    assert (json.loads(before["definition"]), json.loads(after["definition"])) == (WAIT, PASS)
    assert ("revisionId" in before, after["revisionId"]) == (False, updated["revisionId"])
    assert refusal(states.update_state_machine, stateMachineArn=arn)[0] == "MissingRequiredParameter"
    assert refusal(states.update_state_machine, stateMachineArn=arn, definition="{}")[0] == "InvalidDefinition"
    states.stop_execution(executionArn=old)


def test_a_machine_that_runs_is_gone_when_it_has_ended(states: Any) -> None:
    """Until then its status is DELETING and nothing new starts."""
    arn = created(states, "going", WAIT)
    execution = states.start_execution(stateMachineArn=arn)["executionArn"]
    states.delete_state_machine(stateMachineArn=arn)
    assert states.describe_state_machine(stateMachineArn=arn)["status"] == "DELETING"
    assert refusal(states.start_execution, stateMachineArn=arn)[0] == "StateMachineDeleting"
    assert refusal(states.update_state_machine, stateMachineArn=arn, roleArn=ROLE)[0] == "StateMachineDeleting"
    states.stop_execution(executionArn=execution)
    assert refusal(states.describe_state_machine, stateMachineArn=arn)[0] == "StateMachineDoesNotExist"


def test_tags_are_added_and_taken_away(states: Any) -> None:
    """A later value of a key takes the place of the earlier."""
    arn = created(states, "tagged")
    states.tag_resource(resourceArn=arn, tags=[{"key": "a", "value": "1"}, {"key": "b", "value": "2"}])
    states.tag_resource(resourceArn=arn, tags=[{"key": "a", "value": "3"}])
    states.untag_resource(resourceArn=arn, tagKeys=["b"])
    assert states.list_tags_for_resource(resourceArn=arn)["tags"] == [{"key": "a", "value": "3"}]
    assert refusal(states.list_tags_for_resource, resourceArn=PREFIX + "no")[0] == "ResourceNotFound"
    many = [{"key": str(number), "value": ""} for number in range(51)]
    assert refusal(states.tag_resource, resourceArn=arn, tags=many)[0] == "TooManyTags"


def test_created_machines_are_there_after_a_restart(tmp_path: Path) -> None:
    """With their tags and their executions; a machine of the stack is again as the stack says."""
    with in_thread(lambda: service(tmp_path)) as url:
        states = states_client(url)
        arn = created(states, "kept", tags=[{"key": "a", "value": "b"}])
        execution = states.start_execution(stateMachineArn=arn, name="one")["executionArn"]
        over(states, execution)
        states.update_state_machine(stateMachineArn=arn, definition=json.dumps(WAIT))
        states.update_state_machine(stateMachineArn=PREFIX + "deployed", definition=json.dumps(WAIT))
        states.delete_state_machine(stateMachineArn=created(states, "gone"))
    with in_thread(lambda: service(tmp_path)) as url:
        states = states_client(url)
        assert {one["name"] for one in states.list_state_machines()["stateMachines"]} == {"deployed", "kept"}
        assert json.loads(states.describe_state_machine(stateMachineArn=arn)["definition"]) == WAIT
        deployed = states.describe_state_machine(stateMachineArn=PREFIX + "deployed")
        assert json.loads(deployed["definition"]) == PASS
        assert states.list_tags_for_resource(resourceArn=arn)["tags"] == [{"key": "a", "value": "b"}]
        assert states.describe_execution(executionArn=execution)["status"] == "SUCCEEDED"
        kept = states.describe_state_machine_for_execution(executionArn=execution)
        assert json.loads(kept["definition"]) == PASS


SEND = "arn:aws:states:::lambda:invoke.waitForTaskToken"
HANDED = {"FunctionName": "echo", "Payload": {"token.$": "$$.Task.Token"}}


def handed_over(states: Any, name: str, **more: Any) -> tuple[str, str]:
    """The ARN of an execution that waits for a token, and the token."""
    arn = created(states, name, task(SEND, HANDED, End=True, **more))
    execution = states.start_execution(stateMachineArn=arn)["executionArn"]

    def submitted() -> str:
        events = states.get_execution_history(executionArn=execution)["events"]
        outputs = [one["taskSubmittedEventDetails"]["output"] for one in events if one["type"] == "TaskSubmitted"]
        return str(json.loads(outputs[0])["Payload"]["given"]["token"]) if outputs else ""

    return execution, until(submitted)


def test_the_holder_of_a_token_ends_the_task(states: Any) -> None:
    """A function gets the token; SendTaskSuccess gives the result, once."""
    execution, token = handed_over(states, "token-success")
    states.send_task_heartbeat(taskToken=token)
    assert refusal(states.send_task_success, taskToken=token, output="{")[0] == "InvalidOutput"
    states.send_task_success(taskToken=token, output='{"done": true}')
    assert json.loads(over(states, execution)["output"]) == {"done": True}
    over_told = ("TaskTimedOut", "Task Timed Out: 'Provided task does not exist anymore'")
    assert refusal(states.send_task_success, taskToken=token, output="{}") == over_told
    assert refusal(states.send_task_heartbeat, taskToken=token) == over_told
    assert refusal(states.send_task_failure, taskToken="none") == ("InvalidToken", "Invalid Token: 'Invalid token'")


def test_the_holder_of_a_token_fails_the_task(states: Any) -> None:
    """SendTaskFailure gives error and cause."""
    execution, token = handed_over(states, "token-failure")
    states.send_task_failure(taskToken=token, error="Bad", cause="It was.")
    ended = over(states, execution)
    assert (ended["status"], ended["error"], ended["cause"]) == ("FAILED", "Bad", "It was.")


def test_a_stopped_execution_hears_of_no_token(states: Any) -> None:
    """Its tokens are over."""
    execution, token = handed_over(states, "token-stopped")
    states.stop_execution(executionArn=execution)
    assert until(lambda: refusal(states.send_task_success, taskToken=token, output="1")[0] == "TaskTimedOut")


def test_a_missed_heartbeat_times_the_task_out(states: Any) -> None:
    """HeartbeatSeconds without SendTaskHeartbeat is States.Timeout."""
    execution, _ = handed_over(states, "token-silence", HeartbeatSeconds=1)
    ended = over(states, execution)
    assert (ended["status"], ended["error"]) == ("FAILED", "States.Timeout")


@pytest.mark.parametrize(("pattern", "output"), [("sync", '{"n":5}'), ("sync:2", {"n": 5})])
def test_a_nested_execution_is_waited_for(states: Any, pattern: str, output: Any) -> None:
    """.sync gives the output as text, .sync:2 as JSON."""
    inner = created(states, "inner")
    resource = f"arn:aws:states:::states:startExecution.{pattern}"
    outer = created(
        states, f"outer-{len(pattern)}", task(resource, {"StateMachineArn": inner, "Input": {"n": 5}}, End=True)
    )
    ended = over(states, states.start_execution(stateMachineArn=outer)["executionArn"])
    found = json.loads(ended["output"])
    assert (found["Status"], found["StateMachineArn"], found["Output"]) == ("SUCCEEDED", inner, output)


def test_a_nested_execution_that_fails_fails_the_task(states: Any) -> None:
    """States.TaskFailed; one that cannot be started fails under the service's name."""
    fail = {"StartAt": "S", "States": {"S": {"Type": "Fail", "Error": "Bad"}}}
    resource = "arn:aws:states:::states:startExecution.sync"
    parameters = {"StateMachineArn": created(states, "inner-bad", fail)}
    outer = created(states, "outer-bad", task(resource, parameters, End=True))
    ended = over(states, states.start_execution(stateMachineArn=outer)["executionArn"])
    assert (ended["error"], json.loads(ended["cause"])["Error"]) == ("States.TaskFailed", "Bad")
    none = created(states, "outer-none", task(resource, {"StateMachineArn": PREFIX + "no"}, End=True))
    ended = over(states, states.start_execution(stateMachineArn=none)["executionArn"])
    assert ended["error"] == "StepFunctions.StateMachineDoesNotExistException"


def test_a_machine_may_ask_step_functions_anything(states: Any) -> None:
    """aws-sdk:sfn reaches this service: names in Pascal case, dates as texts, errors by the SDK's names."""
    listing = created(
        states, "lists", task("arn:aws:states:::aws-sdk:sfn:listStateMachines", {"MaxResults": 1}, End=True)
    )
    found = json.loads(over(states, states.start_execution(stateMachineArn=listing)["executionArn"])["output"])
    assert (len(found["StateMachines"]), found["StateMachines"][0]["Type"]) == (1, "STANDARD")
    looks = task("arn:aws:states:::aws-sdk:sfn:describeStateMachine", {"StateMachineArn": PREFIX + "no"}, End=True)
    arn = created(states, "looks", looks)
    ended = over(states, states.start_execution(stateMachineArn=arn)["executionArn"])
    assert ended["error"] == "Sfn.StateMachineDoesNotExistException"
    assert ended["cause"].startswith(f"State Machine Does Not Exist: '{PREFIX}no' (Service: Sfn, Status Code: 400, ")


def test_an_express_execution_is_answered_at_once(states: Any) -> None:
    """StartSyncExecution gives output or error; a Standard machine has no such start."""
    arn = created(states, "express", type="EXPRESS")
    answer = states.start_sync_execution(stateMachineArn=arn, input='{"a":1}', name="one")
    assert (answer["status"], answer["output"], answer["name"]) == ("SUCCEEDED", '{"a":1}', "one")
    assert answer["executionArn"].startswith(PREFIX.replace("stateMachine", "express") + "express:one:")
    assert answer["billingDetails"]["billedMemoryUsedInMB"] == 64
    fail = {"StartAt": "S", "States": {"S": {"Type": "Fail", "Error": "Bad"}}}
    failed = states.start_sync_execution(stateMachineArn=created(states, "express-bad", fail, type="EXPRESS"))
    assert (failed["status"], failed["error"]) == ("FAILED", "Bad")
    told = refusal(states.start_sync_execution, stateMachineArn=PREFIX + "deployed")
    assert told == ("StateMachineTypeNotSupported", "This operation is not supported by this type of state machine")
    started = states.start_execution(stateMachineArn=arn)["executionArn"]
    assert refusal(states.describe_execution, executionArn=started)[0] == "InvalidArn"
    assert refusal(states.list_executions, stateMachineArn=arn)[0] == "StateMachineTypeNotSupported"


def test_an_express_machine_waits_for_nobody(states: Any) -> None:
    """Recorded: task tokens and .sync are refused when it is created."""
    wish = {"name": "express-token", "roleArn": ROLE, "type": "EXPRESS"}
    told = refusal(states.create_state_machine, **wish, definition=json.dumps(task(SEND, HANDED, End=True)))
    assert told == (
        "InvalidDefinition",
        "Invalid State Machine Definition: 'SCHEMA_VALIDATION_FAILED: Express state machine does not support "
        "'.waitForTaskToken' service integration  at /States/S/Resource'",
    )


def test_definitions_are_judged(states: Any) -> None:
    """ValidateStateMachineDefinition creates nothing."""
    good = states.validate_state_machine_definition(definition=json.dumps(PASS))
    assert (good["result"], good["diagnostics"], good["truncated"]) == ("OK", [], False)
    bad = states.validate_state_machine_definition(definition="{}", type="EXPRESS")
    assert (bad["result"], bad["diagnostics"]) == (
        "FAIL",
        [
            {
                "severity": "ERROR",
                "code": "SCHEMA_VALIDATION_FAILED",
                "location": "/",
                "message": "These fields are required: [States, StartAt]",
            }
        ],
    )


def test_every_problem_of_a_definition_is_told(states: Any) -> None:
    """In the order in which they stand, as many as were asked for."""
    bad = {"StartAt": "S", "States": {"S": {"Type": "Pass", "Next": "T"}, "U": {"Type": "Wait", "End": True}}}
    told = states.validate_state_machine_definition(definition=json.dumps(bad))
    assert [one["location"] for one in told["diagnostics"]] == ["/States/U", "/States/S/Next"]
    first = states.validate_state_machine_definition(definition=json.dumps(bad), maxResults=1)
    assert (len(first["diagnostics"]), first["truncated"], first["result"]) == (1, True, "FAIL")


def test_a_history_that_grows_is_read_backwards_without_a_shift(states: Any) -> None:
    """A page goes on after the last event that was shown, whatever has been added meanwhile."""
    execution, token = handed_over(states, "grows")
    first = states.get_execution_history(executionArn=execution, reverseOrder=True, maxResults=2)
    assert [event["id"] for event in first["events"]] == [5, 4]
    states.send_task_success(taskToken=token, output="{}")
    over(states, execution)
    rest = states.get_execution_history(
        executionArn=execution, reverseOrder=True, maxResults=9, nextToken=first["nextToken"]
    )
    assert ([event["id"] for event in rest["events"]], "nextToken" in rest) == ([3, 2, 1], False)
    of_another_list = refusal(states.list_state_machines, nextToken=first["nextToken"])
    assert of_another_list[0] == "InvalidToken"


def test_lists_that_are_empty_here(states: Any) -> None:
    """Versions, aliases and map runs are asked for by tools; there are none."""
    arn = PREFIX + "deployed"
    assert states.list_state_machine_versions(stateMachineArn=arn)["stateMachineVersions"] == []
    assert states.list_state_machine_aliases(stateMachineArn=arn)["stateMachineAliases"] == []
    execution = states.start_execution(stateMachineArn=arn)["executionArn"]
    assert states.list_map_runs(executionArn=execution)["mapRuns"] == []
    assert refusal(states.list_executions)[0] == "ValidationException"


_GROUP = "arn:aws:logs:us-east-1:000000000000:log-group:mine:*"
_ONE = "Invalid Logging Configuration: Must specify exactly one Log Destination."


def _to(*groups: str) -> list[dict[str, Any]]:
    return [{"cloudWatchLogsLogGroup": {"logGroupArn": group}} for group in groups]


@pytest.mark.parametrize(
    ("logging", "told"),
    [
        ({"level": "ALL"}, _ONE),
        ({"level": "ALL", "destinations": []}, _ONE),
        ({"level": "OFF", "destinations": _to(_GROUP, _GROUP)}, _ONE),
        ({"level": "ALL", "destinations": _to("mine")},
         "Invalid Logging Configuration: 'mine' is not the ARN of a log group that ends with :*"),
    ],
)  # fmt: skip
def test_a_bad_logging_configuration_is_refused(states: Any, logging: dict[str, Any], told: str) -> None:
    """More than one destination, none where something is logged (recorded), and one that is no log group."""
    wish = {"name": "logs", "definition": json.dumps(PASS), "roleArn": ROLE}
    assert refusal(states.create_state_machine, **wish, loggingConfiguration=logging) == (
        "InvalidLoggingConfiguration",
        told,
    )


def test_a_configuration_is_described_whole_and_compared_whole(states: Any) -> None:
    """What a configuration leaves out is as usual, so that to say the usual is to say nothing (recorded)."""
    arn = created(states, "whole", loggingConfiguration={"level": "ALL", "destinations": _to(_GROUP)})
    assert states.describe_state_machine(stateMachineArn=arn)["loggingConfiguration"] == {
        "level": "ALL",
        "includeExecutionData": False,
        "destinations": _to(_GROUP),
    }
    usual = {"loggingConfiguration": {"level": "OFF"}, "tracingConfiguration": {"enabled": False}}
    assert created(states, "plain") == created(states, "plain", **usual)


def test_true_is_not_the_input_that_1_was(states: Any) -> None:
    """The same name and the same data are the execution that runs; true is other data than 1, and 1.0 is not."""
    arn = created(states, "alike", WAIT)
    wish = {"stateMachineArn": arn, "name": "one"}
    first = states.start_execution(**wish, input='{"a":1}')["executionArn"]
    assert states.start_execution(**wish, input='{ "a" : 1.0 }')["executionArn"] == first
    told = refusal(states.start_execution, **wish, input='{"a":true}')
    assert told == ("ExecutionAlreadyExists", f"Execution Already Exists: '{first}'")


def test_a_function_answers_with_six_megabytes_at_most(states: Any) -> None:
    """A longer answer is the function's error, a longer request is refused."""
    functions = client("lambda", states.meta.endpoint_url)
    whole = functions.invoke(FunctionName="large", Payload=json.dumps({"size": 6_291_554}))
    assert (len(whole["Payload"].read()), "FunctionError" in whole) == (6_291_556, False)
    cut = functions.invoke(FunctionName="large", Payload=json.dumps({"size": 6_291_555}))
    assert (cut["FunctionError"], json.loads(cut["Payload"].read())) == (
        "Unhandled",
        {
            "errorType": "Function.ResponseSizeTooLarge",
            "errorMessage": "Response payload size exceeded maximum allowed payload size (6291556 bytes).",
        },
    )
    for kind, size in (("RequestResponse", 6_291_456), ("Event", 1_048_576)):
        told = refusal(functions.invoke, FunctionName="echo", InvocationType=kind, Payload=json.dumps("x" * size))
        assert told == (
            "RequestTooLargeException",
            f"Request must be smaller than {size} bytes for the InvokeFunction operation",
        )


def test_a_worker_asks_for_an_activitys_work(states: Any) -> None:
    """Created, asked for while there is no work, handed out once, answered by its token; then deleted."""
    activity = states.create_activity(name="dig")["activityArn"]
    assert states.create_activity(name="dig")["activityArn"] == activity
    assert states.describe_activity(activityArn=activity)["name"] == "dig"
    assert [one["name"] for one in states.list_activities()["activities"]] == ["dig"]
    definition = {"StartAt": "S", "States": {"S": {"Type": "Task", "Resource": activity, "End": True}}}
    machine = created(states, "digs", definition)
    with concurrent.futures.ThreadPoolExecutor() as pool:
        asked = pool.submit(states.get_activity_task, activityArn=activity, workerName="mole")
        execution = states.start_execution(stateMachineArn=machine, input='{"deep":1}')["executionArn"]
        work = asked.result(10)
    assert json.loads(work["input"]) == {"deep": 1}
    states.send_task_heartbeat(taskToken=work["taskToken"])
    states.send_task_success(taskToken=work["taskToken"], output='"dug"')
    assert over(states, execution)["output"] == '"dug"'
    events = states.get_execution_history(executionArn=execution)["events"]
    assert [event["type"] for event in events][2:5] == ["ActivityScheduled", "ActivityStarted", "ActivitySucceeded"]
    states.delete_activity(activityArn=activity)
    told = ("ActivityDoesNotExist", f"Activity does not exist: '{activity}'")
    assert refusal(states.get_activity_task, activityArn=activity) == told
    ended = over(states, states.start_execution(stateMachineArn=machine)["executionArn"])
    assert ended["error"] == "States.Runtime"
    assert ended["cause"].endswith(f" The activity {activity} does not exist.")


def test_the_runs_of_a_distributed_map_are_told(states: Any) -> None:
    """Listed, described with their counts, and each item's execution listed; also after the end."""
    inner = {"StartAt": "C", "States": {
        "C": {"Type": "Choice", "Choices": [{"Variable": "$", "NumericEquals": 2, "Next": "F"}], "Default": "P"},
        "F": {"Type": "Fail", "Error": "Bad"}, "P": {"Type": "Pass", "End": True},
    }}  # fmt: skip
    processor = inner | {"ProcessorConfig": {"Mode": "DISTRIBUTED", "ExecutionType": "STANDARD"}}
    mapped = {"Type": "Map", "ItemProcessor": processor, "ToleratedFailureCount": 1, "MaxConcurrency": 2, "End": True}
    arn = created(states, "maps", {"StartAt": "M", "States": {"M": {**mapped, "Label": "each"}}})
    execution = states.start_execution(stateMachineArn=arn, input="[1, 2, 3]")["executionArn"]
    assert over(states, execution)["status"] == "SUCCEEDED"
    (run,) = states.list_map_runs(executionArn=execution)["mapRuns"]
    assert (run["executionArn"], run["stateMachineArn"]) == (execution, f"{arn}/each")
    described = states.describe_map_run(mapRunArn=run["mapRunArn"])
    assert (described["status"], described["maxConcurrency"], described["toleratedFailureCount"]) == ("SUCCEEDED", 2, 1)
    assert described["itemCounts"] | {"pending": 0} == {
        "pending": 0, "running": 0, "succeeded": 2, "failed": 1, "timedOut": 0, "aborted": 0, "total": 3,
        "resultsWritten": 3, "failuresNotRedrivable": 0, "pendingRedrive": 0,
    }  # fmt: skip
    children = states.list_executions(mapRunArn=run["mapRunArn"])["executions"]
    assert sorted(one["status"] for one in children) == ["FAILED", "SUCCEEDED", "SUCCEEDED"]
    failed = states.list_executions(mapRunArn=run["mapRunArn"], statusFilter="FAILED")["executions"]
    assert [one["mapRunArn"] for one in failed] == [run["mapRunArn"]]
    of_two = states.describe_execution(executionArn=failed[0]["executionArn"])
    assert (of_two["status"], of_two["input"], of_two["error"]) == ("FAILED", "2", "Bad")
    assert of_two["mapRunArn"] == run["mapRunArn"]
    told = states.get_execution_history(executionArn=failed[0]["executionArn"])["events"]
    assert [event["type"] for event in told][-2:] == ["FailStateEntered", "ExecutionFailed"]
    assert states.describe_execution(executionArn=children[-1]["executionArn"])["output"] == "1"
    assert refusal(states.describe_map_run, mapRunArn=run["mapRunArn"] + "x")[0] == "ResourceNotFound"
