"""The in-memory DynamoDB of virtual time answers as the embedded engine does, expression by expression."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError
from hypothesis import given, settings
from hypothesis import strategies as st

from local.simulation.tables import MemoryDynamoDB
from tests.examples import examples
from tests.handlers.engine import running

TABLE = "contract"
Call = tuple[str, dict[str, Any]]


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A client of a running engine that has the table."""
    folder: Path = tmp_path_factory.mktemp("engine")
    with running(folder) as url:
        client = boto3.client(
            "dynamodb",
            endpoint_url=url,
            region_name="us-east-1",
            aws_access_key_id="local",
            aws_secret_access_key="local",
        )
        key = {"PK": "HASH", "SK": "RANGE"}
        client.create_table(
            TableName=TABLE,
            KeySchema=[{"AttributeName": name, "KeyType": kind} for name, kind in key.items()],
            AttributeDefinitions=[{"AttributeName": name, "AttributeType": "S"} for name in key],
            BillingMode="PAY_PER_REQUEST",
        )
        yield client
        client.close()


numbers = st.integers(-3, 3).map(lambda value: {"N": str(value)})
texts = st.sampled_from(["", "a", "ab", "b"]).map(lambda value: {"S": value})
flags = st.booleans().map(lambda value: {"BOOL": value})
attributes = st.sampled_from(["p", "q", "r"])
operands = st.sampled_from(["p", "q", "r", "#n", ":v", ":w"])
comparisons = st.builds(
    "{} {} {}".format, operands, st.sampled_from(["=", "<>", "<", "<=", ">", ">="]), st.sampled_from([":v", ":w"])
)
simple = st.one_of(
    comparisons, attributes.map("attribute_exists({})".format), attributes.map("attribute_not_exists({})".format)
)
conditions = st.recursive(
    simple,
    lambda inner: st.one_of(
        st.builds("({} AND {})".format, inner, inner),
        st.builds("({} OR {})".format, inner, inner),
        inner.map("NOT {}".format),
    ),
    max_leaves=4,
)
updates = st.sampled_from(
    [
        "SET p = :v",
        "SET p = :v, r = :w",
        "SET p = if_not_exists(p, :n) + :n",
        "SET q = if_not_exists(q, :n) - :n REMOVE r",
        "SET r = p",
        "SET #n = :v REMOVE q, r",
        "ADD q :n",
        "REMOVE p",
    ]
)


@st.composite
def calls(draw: st.DrawFn) -> Call:
    """One write or read of one of two items, with a condition as often as not."""
    key = {"PK": {"S": "s"}, "SK": {"S": draw(st.sampled_from(["x", "y"]))}}
    kind = draw(st.sampled_from(["put_item", "update_item", "update_item", "get_item"]))
    if kind == "get_item":
        return kind, {"Key": key, "ConsistentRead": True}
    call: dict[str, Any] = {}
    if kind == "put_item":
        # p and q hold numbers alone: for arithmetic on anything else the engine is laxer than AWS.
        call["Item"] = key | draw(st.dictionaries(st.sampled_from(["p", "q"]), numbers))
        call["Item"] |= draw(st.dictionaries(st.just("r"), st.one_of(numbers, texts, flags)))
    else:
        call |= {
            "Key": key,
            "UpdateExpression": draw(updates),
            "ReturnValues": draw(st.sampled_from(["NONE", "ALL_NEW"])),
        }
    if draw(st.booleans()):
        call["ConditionExpression"] = draw(conditions)
    said = call.get("UpdateExpression", "") + " " + call.get("ConditionExpression", "")
    values = {":v": draw(numbers), ":w": draw(texts), ":n": {"N": "2"}}
    used = {name: value for name, value in values.items() if name in said}
    if used:
        call["ExpressionAttributeValues"] = used
    if "#n" in said:
        call["ExpressionAttributeNames"] = {"#n": "p"}
    return kind, call


def answer(client: Any, call: Call) -> Any:
    """What the client answers: the item or the attributes, or the error's code."""
    kind, arguments = call
    try:
        response = getattr(client, kind)(TableName=TABLE, **arguments)
    except ClientError as error:
        return error.response["Error"]["Code"]
    return {name: response[name] for name in ("Item", "Attributes") if name in response}


@settings(max_examples=examples(150))
@given(st.lists(calls(), min_size=1, max_size=8))
def test_the_table_answers_as_the_engine(engine: Any, sequence: list[Call]) -> None:
    """Any sequence of puts, updates and reads has the same answers, refusals included, from both."""
    for sort_key in ("x", "y"):
        engine.delete_item(TableName=TABLE, Key={"PK": {"S": "s"}, "SK": {"S": sort_key}})
    ours = MemoryDynamoDB(TABLE)
    for call in sequence:
        assert (call, answer(ours, call)) == (call, answer(engine, call))


def test_a_query_answers_as_the_engine(engine: Any) -> None:
    """Items of one partition come in the order of SK, forwards and backwards, cut by a prefix, a range and a limit."""
    ours = MemoryDynamoDB(TABLE)
    for sort_key in ("connection#2", "connection#1", "cursor", "lease"):
        for client in (ours, engine):
            client.put_item(TableName=TABLE, Item={"PK": {"S": "query"}, "SK": {"S": sort_key}})
    for expression, low, high in (
        ("PK = :p AND begins_with(SK, :a)", "connection#", None),
        ("PK = :p AND SK BETWEEN :a AND :b", "connection#2", "cursor"),
        ("PK = :p AND SK > :a", "connection#1", None),
    ):
        values = {":p": {"S": "query"}, ":a": {"S": low}} | ({":b": {"S": high}} if high else {})
        for more in ({}, {"ScanIndexForward": False}, {"Limit": 1}):
            call: dict[str, Any] = {
                "TableName": TABLE,
                "KeyConditionExpression": expression,
                "ExpressionAttributeValues": values,
                **more,
            }
            answers = [client.query(**call) for client in (ours, engine)]
            pages = [(one["Items"], one.get("LastEvaluatedKey")) for one in answers]
            assert pages[0] == pages[1]


@given(st.lists(st.sampled_from("abcd"), min_size=1, max_size=6, unique=True), st.data())
@settings(max_examples=examples(40))
def test_a_batch_of_inserts_answers_as_the_engine(engine: Any, keys: list[str], data: st.DataObject) -> None:
    """Each statement answers for itself: nothing where the key was free, DuplicateItem where it was not."""
    ours = MemoryDynamoDB(TABLE)
    taken = data.draw(st.sets(st.sampled_from("abcd")))
    items: list[dict[str, Any]] = [
        {"PK": {"S": "batch"}, "SK": {"S": key}, "data": {"B": key.encode()}} for key in "abcd"
    ]
    for item in items:
        engine.delete_item(TableName=TABLE, Key={"PK": item["PK"], "SK": item["SK"]})
        if item["SK"]["S"] in taken:
            for client in (ours, engine):
                client.put_item(TableName=TABLE, Item=item)
    statement = f"INSERT INTO \"{TABLE}\" VALUE {{'PK': ?, 'SK': ?, 'n': ?}}"
    statements = [
        {"Statement": statement, "Parameters": [{"S": "batch"}, {"S": key}, {"N": str(number)}]}
        for number, key in enumerate(keys)
    ]
    answers = [client.batch_execute_statement(Statements=statements)["Responses"] for client in (ours, engine)]
    codes = [[answer.get("Error", {}).get("Code") for answer in of] for of in answers]
    assert codes[0] == codes[1] == ["DuplicateItem" if key in taken else None for key in keys]
    for item in items:
        call: dict[str, Any] = {"TableName": TABLE, "Key": {"PK": item["PK"], "SK": item["SK"]}}
        assert ours.get_item(**call).get("Item") == engine.get_item(**call).get("Item")
