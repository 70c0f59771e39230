"""A damaged lease, whatever it holds, breaks neither the status nor the list nor the watch."""

import json
from types import ModuleType
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from handlers.store.control_record import ATTRIBUTES, damaged_attributes, layout_problem, partitions_of
from handlers.store.leases import Leases
from handlers.watching.lease_rounds import Rounds, Turn
from tests.examples import examples
from tests.handlers.aws import CONTROL, Memory
from tests.handlers.context import Context

NOW_MS = 1_800_000_000_000
TEXT = st.sampled_from(
    ["", "x", "yesterday", "0001-01-01T00:00:00", "9999-12-31T23:59:59Z", "2026-01-01T00:00:00.000Z"]
)
VALUES = st.one_of(
    TEXT.map(lambda text: {"S": text}),
    st.sampled_from(["0", "-1", "7", "1.5", "1" * 37, "-" + "9" * 37]).map(lambda number: {"N": number}),
    st.booleans().map(lambda value: {"BOOL": value}),
    st.sampled_from([{"NULL": True}, {"M": {"S": {"S": "x"}}}, {"L": [{"N": "1"}]}, {"SS": ["a"]}, {"B": b"a"}]),
)
# An index refuses any other generation.
NAMES = [name for name in ATTRIBUTES if name != "generation"]
OTHERS = ["cursor", "cursor_fence", "saved_at_ms", "known", "live", "layout", "looked", "rest_kind", "rest_until_ms"]
ITEMS = st.dictionaries(st.sampled_from(NAMES + OTHERS), VALUES)


def sound(stream_id: str) -> dict[str, Any]:
    """Return a lease as the machine writes it."""
    item = {"PK": {"S": stream_id}, "SK": {"S": "lease"}, "generation": {"N": "1"}, "execution": {"S": "arn:1"}}
    return item | {"started_at": {"S": "2026-01-01T00:00:00.000Z"}}


def send_request(function: ModuleType, resource: str, stream_id: str | None, method: str = "GET") -> tuple[int, Any]:
    """Return the status and the JSON of an answer."""
    event: dict[str, Any] = {"httpMethod": method, "resource": resource, "queryStringParameters": None}
    event["pathParameters"] = None if stream_id is None else {"streamId": stream_id}
    answer = function.handler(event, Context())
    return answer["statusCode"], json.loads(answer["body"])


@example(attributes={"marked": {"S": "None/x"}})
@example(attributes={"live": {"M": {}}, "known": {"L": [{"S": "x"}]}})
@example(attributes={"live": {"M": {"fence": {"S": "x"}}}, "known": {"L": [{"N": "1"}] * 5}})
@settings(max_examples=examples(15), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(ITEMS)
def test_any_lease_breaks_no_answer(memory: Memory, control: ModuleType, attributes: dict[str, Any]) -> None:
    """Status, list and watch answer for any lease; other streams are unaffected; GET names unreadable attributes."""
    bad = {"PK": {"S": "demo:b"}, "SK": {"S": "lease"}, "generation": {"N": "3"}} | attributes
    for item in (sound("demo:a"), bad, sound("demo:c")):
        memory.dynamodb.put_item(TableName=CONTROL, Item=item)
    names = damaged_attributes(
        memory.dynamodb.get_item(TableName=CONTROL, Key={"PK": bad["PK"], "SK": bad["SK"]})["Item"]
    )
    code, listed = send_request(control, "/connections", None)
    assert (code, [one["stream"] for one in listed["streams"]]) == (200, ["demo:a", "demo:b", "demo:c"])
    code, status = send_request(control, "/connections/{streamId}", "demo:b")
    assert code == 200
    assert (status["reason"] == f"its lease cannot be read whole: {', '.join(names)}") is bool(names)
    assert listed["streams"][1]["reason"] == status["reason"]
    is_newer = bool(layout_problem(bad))
    assert send_request(control, "/connections/{streamId}/events", "demo:b")[0] == (503 if is_newer else 200)
    seen = Rounds(Leases(memory.dynamodb, CONTROL), 1, Turn(9)).check(NOW_MS, lambda: False)
    assert [one for one in seen.away_ms if one != "demo:b"] == ["demo:a", "demo:c"]
    watched = tuple(name for name in names if name in ATTRIBUTES)
    assert seen.damage == ({"demo:b": watched} if watched and "execution" in attributes else {})


@pytest.mark.parametrize(
    ("attributes", "names"),
    [
        ({"started_at": {"S": "yesterday"}}, ("started_at",)),
        (
            {"expires_at_ms": {"S": "7"}, "fence": {"N": "1.5"}, "stop": {"S": "yes"}},
            ("fence", "expires_at_ms", "stop"),
        ),
        ({"execution": {"N": "7"}}, ("execution",)),
        ({"layout": {"S": "2"}, "marked": {"N": "7"}}, ("layout", "marked")),
        ({"rest_until_ms": {"S": "soon"}, "rest_final_ms": {"S": ""}}, ("rest_until_ms", "rest_final_ms")),
        ({"live": {"M": {"fence": {"N": "1"}}}}, ("live",)),
        ({"live": {"M": {"fence": {"N": "7"}, "seen_ms": {"N": "7"}}}, "marked": {"S": "7/x"}}, ()),
        ({"known": {"L": [{"N": "7"}] * 7}}, ()),
        ({"known": {"L": [{"N": "7"}] * 6}, "live": {"S": "x"}, "cursor": {"N": "7"}}, ("cursor", "known", "live")),
        ({"partitions": {"N": "65"}}, ("partitions",)),
        ({"partitions": {"N": "-1"}}, ("partitions",)),
        ({"partitions": {"N": "64"}}, ()),
        ({"partitions": {"N": "0"}}, ()),
        ({"order": {"S": "index"}}, ("order",)),
        ({"order": {"N": "1"}}, ("order",)),
        ({"order": {"S": "none"}}, ()),
        ({}, ()),
    ],
)
def test_unreadable_attributes_of_a_lease_are_named(attributes: dict[str, Any], names: tuple[str, ...]) -> None:
    """Each unreadable attribute of a lease is named. A valid lease and a released one have none."""
    assert damaged_attributes(sound("demo") | attributes) == names
    assert "partitions" not in names or partitions_of(attributes) == 1
    released = {name: value for name, value in sound("demo").items() if name not in ("execution", "started_at")}
    assert damaged_attributes(released) == ()
    assert damaged_attributes(released | {"execution": {"S": "arn:1"}}) == ("started_at",)
