"""The findings of `streamkeeper doctor` for answers of AWS's services, and for their refusals."""

import contextlib
import json
import signal
import threading
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import boto3
import pytest
from botocore.stub import Stubber

from local.api_client.http_client import Api
from local.costs import prices
from local.doctor import fleet_checks, stage_checks
from local.doctor.account_facts import DELIVERY, LOCAL_SERVICES, MANAGER, MAPPINGS, Account
from local.doctor.command import run_demo
from local.doctor.findings import Finding, Mend, NoAnswer, State
from local.doctor.stage_template import DeployedStage, Resource, read_deployed_stage
from tests.client import api_server
from tests.deploy.delivery import delivery_resources
from tests.handlers.servers import Peer, serving

ARN = "arn:aws:states:eu-west-1:111111111111:stateMachine:streamkeeper-prod-connections"
NEW, OLD = (
    f"arn:aws:dynamodb:eu-west-1:111111111111:table/events/stream/{day}" for day in ("2026-11-02", "2026-11-01")
)
MAPPING = dict(delivery_resources()["DeliveryMapping"]["Properties"]) | {"FilterCriteria": {"Filters": []}}
REFUSED = NoAnswer("describe failed with AccessDeniedException", "AccessDeniedException")
GONE = NoAnswer("describe failed with ResourceNotFoundException", "ResourceNotFoundException")
TABLE = Resource(
    "EventsTable", "AWS::DynamoDB::Table", "events", {"StreamSpecification": {"StreamViewType": "NEW_IMAGE"}}
)
STUCK = {"AlarmDescription": "Stuck.", "Threshold": 0, "Period": 300, "TreatMissingData": "notBreaching",
         "Dimensions": [{"Name": "QueueName", "Value": "letters"}], "AlarmActions": ["topic"]}  # fmt: skip
ALARM = {"AlarmName": "stuck", "StateValue": "OK", "AlarmDescription": "Its words may be others.", "Threshold": 0.0,
         "Period": 300, "TreatMissingData": "notBreaching", "Dimensions": STUCK["Dimensions"],
         "AlarmActions": ["topic", "a pager"], "ActionsEnabled": True}  # fmt: skip
RESOURCES = (
    TABLE,
    Resource("DeliveryMapping", "AWS::Lambda::EventSourceMapping", "uuid", MAPPING),
    Resource("AlertsTopic", "AWS::SNS::Topic", "topic", {"Subscription": [{"Endpoint": "ops@example.org"}]}),
    Resource("StuckAlarm", "AWS::CloudWatch::Alarm", "stuck", STUCK),
    Resource("Sweep", "AWS::Events::Rule", "sweep", {}),
    Resource(MANAGER, "AWS::Lambda::Function", "manager", {}),
    Resource(DELIVERY, "AWS::Lambda::Function", "delivery", {"ReservedConcurrentExecutions": 2}),
    Resource("Connections", "AWS::StepFunctions::StateMachine", ARN, {}),
    Resource("Key", "AWS::ApiGateway::ApiKey", "key", {}),
)
STACK = "arn:aws-cn:cloudformation:cn-north-1:123456789012:stack/streamkeeper-prod/1"
STAGE = DeployedStage("prod", RESOURCES, {"StackStatus": "UPDATE_COMPLETE", "StackId": STACK})


def test_the_account_is_known_without_the_state_machine() -> None:
    """The account is read from the stack: a failed first deployment has no machine, and doctor printed a traceback."""
    assert replace(STAGE, resources=()).account == ("aws-cn", "cn-north-1", "123456789012")


def answers(**other: Any) -> dict[str, Any]:
    """Returns the answers of a healthy stage, except for those that a test gives."""
    table = {
        "TableStatus": "ACTIVE", "StreamSpecification": {"StreamEnabled": True, "StreamViewType": "NEW_IMAGE"},
        "LatestStreamArn": NEW, "SSEDescription": {"SSEType": "KMS", "Status": "ENABLED"},
    }  # fmt: skip
    recovery = {"PointInTimeRecoveryDescription": {"PointInTimeRecoveryStatus": "ENABLED"}}
    function = {"State": "Active", "LastUpdateStatus": "Successful", "CodeSha256": "x",
                "Environment": {"Variables": {"WAIT_S": "840"}}}  # fmt: skip
    return {
        "tables": {"EventsTable": {
            "table": {"Table": table}, "ttl": {"TimeToLiveDescription": {"TimeToLiveStatus": "DISABLED"}},
            "backups": {"ContinuousBackupsDescription": recovery},
        }},
        "functions": {one.key: function for one in RESOURCES if one.kind == "AWS::Lambda::Function"},
        "reserved": {one.key: dict(one.properties) for one in RESOURCES if one.kind == "AWS::Lambda::Function"},
        "machines": {"Connections": {"status": "ACTIVE"}},
        "rules": {"Sweep": {"State": "ENABLED"}},
        "subscriptions": {"AlertsTopic": [{"Endpoint": "ops@example.org", "SubscriptionArn": "arn:aws:sns:x"}]},
        "alarms": [ALARM],
        "stable": {"alias": {"FunctionVersion": "4"}, "version": function},
        "mappings": [{"UUID": "uuid", "EventSourceArn": NEW, "State": "Enabled"}],
        "queue": {"Attributes": {"QueueArn": "arn:queue", "ApproximateNumberOfMessages": "0"}},
        "bucket": {},
        "api_stage": {"methodSettings": {"*/*": {"throttlingRateLimit": 200}}},
        "api_account": {"throttleSettings": {"rateLimit": 10_000}},
        "api_keys": {"key": {"enabled": True}},
        "api_plan_keys": {"plan": {"items": [{"id": "key"}]}},
        "concurrency": {"AccountLimit": {"ConcurrentExecutions": 1000}},
        "limits": {"TableMaxWriteCapacityUnits": 40_000},
        "held": {"prices:a": "arn:1", "prices:b": "#7", "#7": "arn:7"},
        "measured": {},
        "profiles": {"prices": {"secrets": {"the secret 'key'": ""}, "hosts": {"https://prices.example:443": ""}}},
        "sinks": {},
        **other,
    }  # fmt: skip


def find_bad(**other: Any) -> dict[str, Finding]:
    """Returns the findings that are neither good nor notes, by their subject."""
    facts = answers(**other)
    every = [*stage_checks.check_stage(STAGE, facts), *fleet_checks.check_fleet(STAGE, facts, prices.read())]
    return {one.what: one for one in every if not one.is_well}


def test_a_healthy_stage_has_no_finding() -> None:
    """A stage that is as the template requests has no finding."""
    assert find_bad() == {}


@pytest.mark.parametrize(
    ("changed", "definition", "words"),
    [
        ({}, "{}", "4, the deployed one"),
        ({"CodeSha256": "y"}, "{}", "4, not the deployed one, whose code differs"),
        # As after "raise memory_mb" of the runbook.
        ({"MemorySize": 512}, "{} ", "4, not the deployed one, whose memory and definition differ"),
    ],
)
def test_a_version_that_differs_from_the_deployed_one_is_noted(
    changed: dict[str, Any], definition: str, words: str
) -> None:
    """Changed code, settings and definition wait for an upgrade; a waiting definition ends with a space."""
    facts = answers(machines={"Connections": {"status": "ACTIVE", "definition": definition}})
    facts["functions"] = {key: one | changed for key, one in facts["functions"].items()}
    (one,) = (each for each in stage_checks.check_stage(STAGE, facts) if each.what == "version that streams run")
    assert (one.found, one.state is State.NOTE) == (words, words[3:6] == "not")


def test_a_throttled_function_gets_back_the_templates_reservation() -> None:
    """The console's button "Throttle" sets the reservation to 0; a function without one in the template loses it again.

    A reservation that is gone is no throttle.
    """
    gone = find_bad(reserved={MANAGER: {}, DELIVERY: {}})
    assert [(one.found, one.wanted) for one in gone.values()] == [("none", "2")]
    throttled = find_bad(reserved={key: {"ReservedConcurrentExecutions": 0} for key in (MANAGER, DELIVERY)})
    assert [(one.found, one.wanted, one.mend) for one in throttled.values()] == [
        ("0", "none", Mend("lambda", "delete_function_concurrency", {"FunctionName": "manager"})),
        ("0", "2", Mend("lambda", "put_function_concurrency", {
            "FunctionName": "delivery", "ReservedConcurrentExecutions": 2,
        })),
    ]  # fmt: skip


# For each problem: the answer that differs, the subject of the finding, and its state.
ONE: dict[str, tuple[dict[str, Any], str, State]] = {
    "a machine is deleted": ({"machines": {"Connections": GONE}}, "state machine Connections", State.WRONG),
    "nobody may ask": ({"machines": {"Connections": REFUSED}}, "state machine Connections", State.UNKNOWN),
    "nobody may ask for reservations": (
        {"reserved": dict.fromkeys((MANAGER, DELIVERY), REFUSED)}, "reserved concurrency", State.UNKNOWN,
    ),
    "a schedule is off": ({"rules": {"Sweep": {"State": "DISABLED"}}}, "schedule Sweep", State.WRONG),
    "a mail is not confirmed": (
        {"subscriptions": {"AlertsTopic": [{"Endpoint": "ops@example.org", "SubscriptionArn": "PendingConfirmation"}]}},
        "subscribers of the alarms", State.WRONG,
    ),
    "the subscriber has left": ({"subscriptions": {"AlertsTopic": []}}, "subscribers of the alarms", State.WRONG),
    "an alarm is deleted": ({"alarms": []}, "alarm Stuck", State.WRONG),
    "an alarm rings": ({"alarms": [ALARM | {"StateValue": "ALARM"}]}, "alarm Stuck", State.WRONG),
    "an alarm is mute": ({"alarms": [ALARM | {"ActionsEnabled": False}]}, "alarm Stuck, settings", State.WRONG),
    "the alias is deleted": ({"stable": {"alias": GONE}}, "alias stable, which all streams call", State.WRONG),
    "a key is disabled": ({"api_keys": {"key": {"enabled": False}}}, "API key", State.WRONG),
    "too few functions": (
        {"concurrency": {"AccountLimit": {"ConcurrentExecutions": 2}}},
        "quota, concurrent functions of the account", State.WRONG,
    ),
    "starts were refused": (
        {"measured": {"starts_refill": 150, "starts_throttled": 3}}, "quota, StartExecution a second", State.WRONG,
    ),
    "a table is written too fast": (
        {"measured": {"EventsTable": 60 * 50_000}}, "quota, write units a second of EventsTable", State.WRONG,
    ),
    "the API takes more than the account": (
        {"api_account": {"throttleSettings": {"rateLimit": 100}}},
        "quota, requests a second of all APIs of the account", State.WRONG,
    ),
    "a secret is missing": (
        {"profiles": {"prices": {"secrets": {"the secret 'key'": "it cannot be read"}, "hosts": {}}}},
        "profile prices, the secret 'key'", State.WRONG,
    ),
    "an upstream is not reached": (
        {"profiles": {"prices": {"secrets": {}, "hosts": {"https://x:443": "nothing listens at the address"}}}},
        "profile prices, https://x:443", State.WRONG,
    ),
    "the function cannot look": (
        {"profiles": NoAnswer("manager:stable has a version that cannot examine a profile")},
        "secrets and upstreams, as the functions reach them", State.UNKNOWN,
    ),
    "a sink is deleted": ({"sinks": {"sqs:a.fifo": {"there": GONE}}}, "sink sqs:a.fifo", State.WRONG),
    "a sink is refused": (
        {"sinks": {"sqs:a.fifo": {"allowed": {"EvaluationResults": [
            {"EvalActionName": "sqs:SendMessage", "EvalDecision": "implicitDeny"}
        ]}}}}, "sink sqs:a.fifo, permission of the delivery", State.WRONG,
    ),
}  # fmt: skip


def test_each_problem_is_one_finding() -> None:
    """The finding names the problem, the right value if it is known, and what to do."""
    for case, (other, what, state) in ONE.items():
        findings = find_bad(**other)
        assert {name: one.state for name, one in findings.items()} == {what: state}, case
        one = findings[what]
        assert state is State.UNKNOWN or (one.wanted and one.fix), case
        assert one.line().startswith(f"{state.value:<6} {what}: {one.found}"), case


def test_a_changed_alarm_gets_back_the_templates_values() -> None:
    """Each changed property is named; actions that a person has added stay, and a deleted alarm is created again."""
    (changed,) = find_bad(alarms=[ALARM | {"Threshold": 5.0, "AlarmActions": ["a pager"], "Dimensions": []}]).values()
    assert (changed.what, changed.found, changed.wanted) == (
        "alarm Stuck, settings",
        "Threshold 5, Dimensions none, AlarmActions a pager",
        "Threshold 0, Dimensions letters, AlarmActions topic",
    )
    template = {"AlarmName": "stuck", **STUCK, "ActionsEnabled": True}
    added = {"AlarmActions": ["topic", "a pager"], "OKActions": [], "InsufficientDataActions": []}
    put = ("cloudwatch", "put_metric_alarm")
    assert changed.mend == Mend(*put, template | added)
    (deleted,) = find_bad(alarms=[]).values()
    assert deleted.mend == Mend(*put, template)


def table_with(**changes: Any) -> dict[str, Any]:
    whole = answers()["tables"]["EventsTable"]
    return {"EventsTable": {**whole, "table": {"Table": {**whole["table"]["Table"], **changes}}}}


def test_a_table_gets_back_the_key_of_the_template() -> None:
    """A table with another key gets back the template's. A restored table has AWS's key, which doctor took for right.

    A key's ARN in the template is of the stack's own region, account and partition. The stack is the one that has the
    control table, nested or of any name; doctor found only one that was named after the stage.
    """
    sub = {"Fn::Sub": "arn:${AWS::Partition}:kms:${AWS::Region}:${AWS::AccountId}:key/k-1"}
    sse = {"SSEEnabled": True, "SSEType": "KMS", "KMSMasterKeyId": sub}
    table = {"Type": "AWS::DynamoDB::Table", "Properties": {"SSESpecification": sse}}
    names = [{"LogicalResourceId": "EventsTable", "PhysicalResourceId": "events", "ResourceType": table["Type"]}]
    told = {"LastUpdatedTimestamp": datetime.now(UTC), "ResourceStatus": "CREATE_COMPLETE"}
    stack = {"StackName": "s", "StackId": STACK, "CreationTime": datetime.now(UTC), "StackStatus": "CREATE_COMPLETE"}
    cloudformation = boto3.client("cloudformation", "cn-north-1", aws_access_key_id="a", aws_secret_access_key="b")
    control: dict[str, Any] = {"LogicalResourceId": "ControlTable", "PhysicalResourceId": "streamkeeper-prod-control"}
    control |= {"ResourceType": table["Type"], "Timestamp": datetime.now(UTC), "ResourceStatus": "CREATE_COMPLETE"}
    stacks = control | {"StackId": "deleted", "ResourceStatus": "DELETE_SKIPPED"}, control | {"StackId": STACK}
    with Stubber(cloudformation) as service:
        service.add_response("describe_stack_resources", {"StackResources": [*stacks]})
        service.add_response("describe_stacks", {"Stacks": [stack]}, {"StackName": STACK})
        service.add_response("get_template", {"TemplateBody": json.dumps({"Resources": {"EventsTable": table}})})
        service.add_response("list_stack_resources", {"StackResourceSummaries": [one | told for one in names]})
        deployed = read_deployed_stage(cloudformation, "prod")
    key = "arn:aws-cn:kms:cn-north-1:123456789012:key/k-1"
    back = Mend("dynamodb", "update_table", {
        "TableName": "events", "SSESpecification": {"Enabled": True, "SSEType": "KMS", "KMSMasterKeyId": key},
    })  # fmt: skip
    for has, mend in ((key, None), (f"{key}-of-aws", back), ("", back)):
        on = {"SSEType": "KMS", "Status": "ENABLED", "KMSMasterKeyArn": has} if has else {}
        every = stage_checks.check_stage(deployed, answers(tables=table_with(SSEDescription=on), machines={}, rules={}))
        (one,) = (each for each in every if each.what == "EventsTable, encryption")
        assert (one.state is State.WRONG, one.mend if one.state is State.WRONG else None) == (mend is not None, mend)


def test_time_to_live_of_another_attribute_is_left_to_a_person() -> None:
    """AWS refuses the change until time to live was off for an hour, so --repair was refused in each round."""
    wanted = {**TABLE.properties, "TimeToLiveSpecification": {"AttributeName": "expires_at"}}
    stage, facts = replace(STAGE, resources=(replace(TABLE, properties=wanted), *RESOURCES[1:])), answers()
    for told, can in (
        ({"TimeToLiveStatus": "ENABLED", "AttributeName": "old"}, False),
        ({"TimeToLiveStatus": ""}, True),
    ):
        facts["tables"]["EventsTable"]["ttl"] = {"TimeToLiveDescription": told}
        (one,) = (each for each in stage_checks.check_stage(stage, facts) if not each.is_well)
        assert (one.what, one.mend is not None) == ("EventsTable, time to live", can)
        assert ("switch that off, and an hour later `streamkeeper doctor" in one.fix) is not can


def test_a_mapping_of_an_old_stream_gets_a_new_one_beside_it() -> None:
    """The new mapping reads the table's present stream, with the template's settings; the old one is not changed."""
    (finding,) = find_bad(mappings=[{"UUID": "uuid", "EventSourceArn": OLD, "State": "Enabled"}]).values()
    assert finding.found == "the function is called for a stream that the table no longer has"
    assert finding.mend is not None
    asked = dict(finding.mend.parameters)
    assert (finding.mend.operation, asked["EventSourceArn"], asked["FunctionName"]) == (
        "create_event_source_mapping", NEW, "delivery",
    )  # fmt: skip
    assert asked["DestinationConfig"] == {"OnFailure": {"Destination": "arn:queue"}}
    assert {name: asked[name] for name in ("StartingPosition", "BatchSize", "MaximumRetryAttempts")} == {
        name: MAPPING[name] for name in ("StartingPosition", "BatchSize", "MaximumRetryAttempts")
    }


def test_the_local_run_needs_no_event_source_mapping() -> None:
    """The local run reads its tables itself and calls the delivery, so no mapping is missing; on AWS it would be."""
    mappings = Account(lambda _: None, LOCAL_SERVICES).request_all(
        "lambda", "list_event_source_mappings", "", has=MAPPINGS
    )
    assert (list(find_bad(mappings=mappings)), list(find_bad(mappings=[]))) == (
        [],
        ["delivery from EventsTable's stream"],
    )


def test_the_stream_is_switched_on_before_it_is_read() -> None:
    """Without a stream, the table has no ARN that a mapping could name."""
    off = find_bad(tables=table_with(StreamSpecification={}))
    assert {what: one.mend for what, one in off.items()} == {
        "EventsTable, stream": Mend("dynamodb", "update_table", {
            "TableName": "events", "StreamSpecification": {"StreamEnabled": True, "StreamViewType": "NEW_IMAGE"},
        }),
        "delivery from EventsTable's stream": None,
    }  # fmt: skip


def test_problems_of_unused_profiles_are_one_note() -> None:
    """A stage ships profiles without streams, whose secrets may be missing; each profile in use has its own line."""
    broken = {"secrets": {"the secret 'x'": "it cannot be read"}, "hosts": {"h:443": "it does not answer"}}
    unused = dict.fromkeys(("kraken", "alpaca"), broken)
    assert find_bad(profiles=unused) == {}
    facts = answers(profiles=unused)
    (noted,) = [one for one in fleet_checks.check_fleet(STAGE, facts, prices.read()) if one.what.startswith("profile")]
    assert (noted.state, noted.found) == (State.NOTE, "2 with a problem: alpaca, kraken")


def test_the_price_of_encryption_counts_requests_and_own_keys() -> None:
    """Each table and function makes 12 requests an hour, at 3 $ a million; the watch and the API add a function each.

    A key that the template names is the account's own, which costs a dollar; a table without KMS costs nothing.
    """

    def price(held: Mapping[str, str], key: str = "") -> str:
        facts = answers(held=held)
        events = replace(TABLE, properties={"SSESpecification": {"KMSMasterKeyId": key}})
        free = replace(TABLE, key="FreeTable", properties={})
        facts["tables"]["FreeTable"] = {"table": {"Table": {}}}
        stage = replace(STAGE, resources=(events, free))
        every = {one.what: one.found for one in fleet_checks.check_fleet(stage, facts, prices.read())}
        return every["price of the tables' encryption"]

    assert price({}) == f"up to {2 * 12 * 730 * 3 / 1e6:.2f} $ a month for requests to KMS"
    fleet = {f"prices:{number}": f"arn:{number}" for number in range(1000)}
    assert price(fleet, "arn:key") == (
        f"up to {1102 * 12 * 730 * 3 / 1e6:.2f} $ a month for requests to KMS, and 1.00 $ for 1 key of yours"
    )


def status_of(word: str, generation: int, holder: dict[str, Any] | None = None) -> Any:
    """Returns the API's answer for a stream with this status."""
    said = {"reason": "refused", "verdict": "Refused.", "holder": holder}
    return api_server.answers({"stream": "demo", "status": word, "generation": generation} | said)


def test_a_start_is_awaited_until_the_execution_has_claimed_the_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    """Until the execution has claimed the stream, the API answers as before the start, which is no failure. A started
    stream is stopped, even after a Ctrl-C before the answer to its start, or if that answer is an error.
    """
    monkeypatch.setattr("time.sleep", lambda _: None)
    started, connected = api_server.answers({"executionArn": "arn"}), status_of("running", 4, {"fence": 9})
    for before in (api_server.answers(api_server.problem("never-started"), 404), status_of("rejected", 3)):
        with serving(before, started, before, connected, api_server.answers({"stream": "demo"})) as server:
            findings = run_demo(
                Api(server.address), Account(lambda _: None, LOCAL_SERVICES), DeployedStage("local", ()), "demo"
            )
            assert next(findings).state is State.OK
            findings.close()
            assert api_server.asked(server)[-1] == "DELETE /connections/demo"

    def interrupt(_: Peer) -> None:
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    unanswered = api_server.answers(api_server.problem("unavailable"), 503)
    for answer in (interrupt, unanswered):
        with serving(status_of("rejected", 3), answer, api_server.answers({"stream": "demo"})) as server:
            with pytest.raises(KeyboardInterrupt) if answer is interrupt else contextlib.nullcontext():
                (found,) = run_demo(
                    Api(server.address), Account(lambda _: None, LOCAL_SERVICES), DeployedStage("local", ()), "demo"
                )
                assert (found.state, found.what) == (State.WRONG, "demonstration demo, start")
            assert api_server.asked(server)[1:] == ["POST /connections/demo", "DELETE /connections/demo"]
