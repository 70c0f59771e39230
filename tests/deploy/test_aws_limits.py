"""Packaging refuses in one sentence what AWS would refuse during a deployment; thousands of profiles fit."""

from typing import Any

import pytest

from handlers.run.group_function import AT_ONCE, YOUNG_MS
from local import stages
from local.costs import month
from tests.deploy import node

LIMITS = "require('./packaging/aws-limits.cjs')"
DELIVERY = "require('./packaging/delivery.cjs')"
PLAIN: dict[str, Any] = {"Resources": {"A": {"Type": "AWS::SQS::Queue"}}}


def asked(expression: str, given: Any = None) -> Any:
    return node.run(f"return {expression}", given)


def of(kind: str, **properties: object) -> dict[str, Any]:
    """Return a template with one resource."""
    return {"Resources": {"One": {"Type": kind, "Properties": properties}}}


def role(*texts: str) -> dict[str, Any]:
    """Return a role whose policies have these resources, and ten more characters each."""
    return of("AWS::IAM::Role", Policies=[{"PolicyDocument": {"Some": [{"Fn::Sub": text}]}} for text in texts])


def mapping(*patterns: str) -> dict[str, Any]:
    """Return an event source mapping with these filters."""
    return of("AWS::Lambda::EventSourceMapping", FilterCriteria={"Filters": [{"Pattern": one} for one in patterns]})


def variables(length: int) -> dict[str, Any]:
    """Return a function whose variables have so many bytes."""
    return of("AWS::Lambda::Function", Environment={"Variables": {"A": "x" * (length - len('{"A":""}'))}})


def method(length: int) -> dict[str, Any]:
    """Return a method whose mapping template has so many bytes."""
    return of("AWS::ApiGateway::Method", Integration={"RequestTemplates": {"application/json": "x" * (length - 2)}})


CASES = (
    (PLAIN, None),
    ({**PLAIN, "Outputs": {str(one): {} for one in range(200)}}, None),
    (
        {**PLAIN, "Outputs": {str(one): {} for one in range(201)}},
        "The template has 201 outputs, and AWS allows 200: remove some of your own.",
    ),
    ({"Resources": {str(one): {"Type": "AWS::SQS::Queue"} for one in range(500)}}, None),
    (
        {"Resources": {str(one): {"Type": "AWS::SQS::Queue"} for one in range(501)}},
        "The template has 501 resources, and AWS allows 500: remove some of your own.",
    ),
    (
        of("AWS::SQS::Queue", Text="x" * 1024 * 1024),
        "The template has 1,048,649 bytes, and AWS allows 1,048,576: ship fewer profiles in this stage.",
    ),
    (variables(4096), None),
    (variables(4097), "The variables of One have 4,097 bytes, and AWS allows 4,096: shorten those that you added."),
    (role("x" * 5000, "x" * 5214), None),
    # Both are allowed together, and a reference is as long as what it becomes.
    (
        role("x" * 5000, "x" * 5203 + "${AWS::AccountId}"),
        "The policies of One have 10,241 characters, and AWS allows 10,240: have profiles share sinks, or begin the "
        "names of sinks alike.",
    ),
    (mapping(*["x" * 4096] * 5), None),
    (mapping(*["x"] * 6), "One has 6 filters, and AWS allows 5: have fewer profiles deliver."),
    (mapping("x" * 4097), "A filter of One has 4,097 characters, and AWS allows 4,096: have fewer profiles deliver."),
    (method(307_200), None),
    (
        method(307_201),
        "A mapping template of One has 307,201 bytes, and AWS allows 307,200: ship fewer profiles in this stage.",
    ),
)


def test_each_limit_is_refused_in_one_sentence() -> None:
    """A template at a limit is packaged; a template beyond it is refused."""
    said = asked(f"given.map({LIMITS}.problem)", [template for template, _ in CASES])
    assert dict(enumerate(said)) == dict(enumerate(words for _, words in CASES))


@pytest.mark.parametrize("stage", ["local", "prod"])
def test_the_limits_are_checked_after_all_other_plugins(stage: str) -> None:
    """Other plugins put requirements and compiled files into the zip at the same moment, in their order."""
    plugins = node.run("return require('./packaging/plugins.cjs')({ resolveVariable: async () => given })", stage)
    assert plugins[-1] == "./packaging/aws-limits.cjs"


@pytest.mark.parametrize("count", [1, 60, 3000])
def test_thousands_of_profiles_may_deliver(count: int) -> None:
    """Their filters fit into a mapping, or the filter is only "an event was written". Their sinks fit into a role."""
    names = f"[...Array({count}).keys()].map((one) => 'exchange-market-' + one)"
    sinks = "[{sqs: `events-${one}.fifo`}, {s3: 'lake', prefix: `raw/${one}/`}, {lambda: `consumer-${one}`}]"
    script = f"[{DELIVERY}.filters({names}), {DELIVERY}.statements({names}.flatMap((one) => {sinks}), '/s/')]"
    filters, statements = asked(script)
    keys = [key for one in filters for key in one.get("dynamodb", {"Keys": {"PK": {"S": []}}})["Keys"]["PK"]["S"]]
    assert len(filters) == {1: 1, 60: 2, 3000: 1}[count]
    assert len(keys) == (0 if count == 3000 else 3 * count)
    resources = [one["Fn::Sub"].rsplit(":", 1)[1] for statement in statements for one in statement["Resource"]]
    assert len(statements) == 3
    assert sum(map(len, (one["Fn::Sub"] for statement in statements for one in statement["Resource"]))) <= 8000
    if ends := {1: ("0", "0/*", "0.fifo"), 3000: ("*", "*", "*")}.get(count):
        begins = [f"{one}exchange-market-" for one in ("consumer-", "lake/raw/", "events-")]
        assert resources == [one + end for one, end in zip(begins, ends, strict=True)]


def test_a_sink_that_no_role_could_allow_is_refused() -> None:
    """The sentence names profile and field. It does not quote an address, which may hold a secret."""
    kinds = "eventbridge, firehose, kinesis, lambda, s3, sqs, webhook"
    queue = "must be the name of a FIFO queue, such as orders.fifo, not"
    cases: list[tuple[Any, str | None]] = [
        ({"sqs": "orders.fifo"}, None),
        ({"sqs": "arn:aws:sqs:eu-west-1:1:a.fifo"}, f'deliver.sqs {queue} "arn:aws:sqs:eu-west-1:1:a.fifo"'),
        ([{"s3": "lake"}, {"sqs": "https://sqs/1/a"}], f'deliver.sqs {queue} "https://sqs/1/a"'),
        ({"sqss": "orders.fifo"}, f"deliver must be tables with one of {kinds} each"),
        ("orders.fifo", f"deliver must be tables with one of {kinds} each"),
        ({"s3": "lake", "form": "start"}, "deliver.form is no field of a sink of the kind s3"),
        ({"webhook": "ftp://x/secret"}, "deliver.webhook must be an address that begins with https://"),
    ]
    said = asked(f"given.map((deliver) => {DELIVERY}.wrongSink('mine', {{deliver}}))", [one for one, _ in cases])
    assert said == [words and f"env/streams/mine.toml: {words}." for _, words in cases]
    none = "profile_sinks is for the profiles of a bucket: name it in profiles_bucket, or set profile_sinks to ''."
    assert asked(f"{DELIVERY}.wrongBucket({{profile_sinks: 'http', profiles_bucket: ''}})") == none


def test_a_role_joins_only_names_with_a_common_beginning() -> None:
    """Names without one stay as they are, however long the list, also among a stage's secrets or the ARNs of a kind."""
    kinds = {
        "sqs": [*("a" * 70, "b" * 70), "orders-1", "orders-2"],
        "kinesis": ["a-1-2-3", "b-1-2-3"],
        "secret": [f"${{ssm:{name}}}" for name in ("hook-1", "hook-2", "/streamkeeper/dev/token-1", "token-2", "ab")],
    }
    sinks = [{kind: name} for kind, names in kinds.items() for name in names]
    statements = asked(f"{DELIVERY}.statements(given, '/streamkeeper/dev/', 100)", sinks)
    assert {one["Fn::Sub"].rsplit(":", 1)[1] for statement in statements for one in statement["Resource"]} == {
        *("a" * 70, "b" * 70), "orders-*", "stream/a-1-2-3", "stream/b-1-2-3",
        *(f"parameter/streamkeeper/dev/{name}" for name in ("hook-*", "token-*", "ab")),
    }  # fmt: skip


def test_a_group_that_cannot_hand_over_in_time_is_refused() -> None:
    """At 900/840 with a margin of 20 s a function has 40 s to open its streams. Each shipped stage has enough time."""
    base = stages.load("prod")
    groups = [(352, 900, 840, 20), (360, 900, 840, 20), (500, 900, 840, 20), (100, 45, 35, 5), (1, 45, 37, 5)]
    names = ("streams_per_function", "function_timeout_s", "wait_s", "margin_s")
    settings = [_checked(base | dict(zip(names, one, strict=True))) for one in groups]
    said = asked(f"given.map({LIMITS}.lateHandover)", settings)
    assert said[1] == (
        "streams_per_function must be at most 352, not 360: between wait_s 840 and function_timeout_s 900 less "
        "margin_s 20 a function has time to open no more, and a shorter wait_s gives it more."
    )
    assert said[2].startswith("streams_per_function must be at most 352, not 500: ")
    assert said[3].startswith("streams_per_function must be at most 40, not 100: ")
    assert (said[0], said[4]) == (None, None)
    for stage in ("dev", "prod"):
        assert asked(f"{LIMITS}.lateHandover(given)", stages.load(stage)) is None


def _checked(table: dict[str, Any]) -> dict[str, Any]:
    return stages.complete({name: value for name, value in table.items() if name not in stages.DERIVED}, "here")


def test_packaging_and_the_function_have_one_rule_for_handovers() -> None:
    """Its numbers are those of a group's function, and of the month that is priced."""
    connect_ms = month.read_scenario("prod").latencies_ms["connect"][0]
    expected = {"at_once": AT_ONCE, "young_ms": YOUNG_MS, "connect_ms": connect_ms}
    rule = {name: value for name, value in stages.read_schema()["handover"].items() if name != "$comment"}
    assert rule == expected
    # One that answers at once, and one so slow that its openings no longer hold up others.
    prod = stages.load("prod")
    assert [stages.most_per_handover(prod, connect_ms) for connect_ms in (100, 900, 2_500)] == [3200, 352, 304]
