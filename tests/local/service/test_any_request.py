"""No request and no input breaks the service: it never answers 500, and answers the next good request.

Random requests are sent over sockets to a service that runs as a person starts it. A failure prints the lines that
replay it (`@reproduce_failure`).
"""

import json
import socket
from collections.abc import Iterator
from typing import Any

import pytest
import urllib3
from hypothesis import given, settings
from hypothesis import strategies as st

from endpoint import ROLE, task_definition
from examples import examples
from tests import harness
from tests.local.support import until
from tests.local_run import LocalRun

TEXT = st.text(st.characters(exclude_categories=[]), max_size=20) | st.sampled_from(
    ["\ud800", "\udc00\ud83d", "\x00", "\x1b[2J\x9b", "\u202e", "\U0001f600", "{% $x %}", "𝄞" * 300]
)
NUMBERS = st.integers() | st.floats() | st.sampled_from([10**400, -(2**63), 1e308, 0.1])
JSON = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=12,
)
METHODS = [
    "GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS", "TRACE", "CONNECT", "get", "PRI", "X" * 40, "\x00",
]  # fmt: skip
INVOKE = "2015-03-31/functions/nobody/invocations"
SEGMENTS = [
    INVOKE, "", "connections", "health", "events", "nobody", "%ff", "%00", "%2F", "..", "%d8%00", "a" * 70,
    "{streamId}", "*", "é",
]  # fmt: skip
HEADERS = [
    b"Content-Type: application/json", b"Content-Type: ;;", b"Transfer-Encoding: chunked", b"Transfer-Encoding: x",
    b"Content-Length: 3", b"Content-Length: -1", b"Content-Length: 99999999999999999999", b"Content-Length: 3, 4",
    b"Expect: 100-continue", b"Upgrade: websocket", b"Connection: upgrade", b"Host: \xff\xfe", b"X-Amz-Target: \xff",
    b"X-Amz-Target: DynamoDB_20120810.ListTables", b"Authorization: AWS4-HMAC-SHA256 Credential=a/b/c/d/e", b"no colon",
    b"X-Amz-Invocation-Type: Nonsense", b": empty", b"Cookie: " + b"c" * 9000,
]  # fmt: skip
BODIES = [
    b"", b"{}", b"\xff\xfe", b"3\r\nabc\r\n0\r\n\r\n", b"zz\r\nabc", b"ffffffffffffffffff\r\n", b"[" * 100_000,
    b"a=b",
]  # fmt: skip


@pytest.fixture(scope="module")
def service(local_run: LocalRun) -> Iterator[LocalRun]:
    """The run of the service; its output goes to a file whose encoding is ASCII."""
    yield local_run
    assert "Traceback" not in local_run.log, local_run.log
    assert "the service goes on without it" not in local_run.log, local_run.log


def call(service: harness.Service, action: str, body: bytes) -> tuple[int, Any]:
    """Returns status and answer of a Step Functions request."""
    headers = {"X-Amz-Target": f"AWSStepFunctions.{action}", "Content-Type": "application/x-amz-json-1.0"}
    with urllib3.PoolManager(retries=False) as http:
        answer = http.request("POST", f"http://127.0.0.1:{service.port + 1}/", body=body, headers=headers, timeout=120)
        return answer.status, answer.json()


def exchange(port: int, request: bytes) -> bytes:
    """Returns the answer to these bytes, until the other side closes."""
    received = b""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        try:
            connection.sendall(request)
            connection.shutdown(socket.SHUT_WR)
            while chunk := connection.recv(65536):
                received += chunk
        except (ConnectionError, OSError):
            pass
    return received


def check_answers(service: harness.Service) -> None:
    """Checks that both ports answer a good request."""
    assert service.process is not None
    assert service.process.poll() is None, service.log
    with urllib3.PoolManager(retries=False) as http:
        assert http.request("GET", f"http://127.0.0.1:{service.port}/health", timeout=120).json()["status"] == "ok"
    status, answer = call(service, "ListStateMachines", b"{}")
    assert (status, "stateMachines" in answer) == (200, True)


def requests() -> st.SearchStrategy[bytes]:
    """Draws bytes: mostly a request that is valid in most places."""
    path = st.lists(st.sampled_from(SEGMENTS) | TEXT, max_size=4).map(lambda parts: "/" + "/".join(parts))
    query = st.just("") | st.sampled_from(["?", "?limit=1&after=%ff", "?limit=x", "?" + "a=b&" * 300, "?%"])
    target = st.builds(lambda path, query: (path + query).replace(" ", "%20"), path, query)
    method = st.sampled_from(METHODS[:7]) | st.sampled_from(METHODS)
    head = st.tuples(
        method, target, st.lists(st.sampled_from(HEADERS), max_size=3), st.sampled_from(BODIES), st.booleans()
    )

    def written(parts: tuple[str, str, list[bytes], bytes, bool]) -> bytes:
        method, target, headers, body, honest = parts
        lines = [f"{method} {target} HTTP/1.1".encode("utf-8", "surrogatepass"), b"Host: localhost", *headers]
        if honest and body:
            lines.append(b"Content-Length: %d" % len(body))
        return b"\r\n".join([*lines, b"Connection: close", b"", body])

    return head.map(written) | st.binary(max_size=200)


@settings(max_examples=examples(150))
@given(requests())
def test_any_bytes_are_answered_or_refused(service: harness.Service, request: bytes) -> None:
    """Neither port answers 500 to any method, path, header, false length or broken chunk."""
    for port in (service.port, service.port + 1):
        answer = exchange(port, request.replace(b"Host: localhost", b"Host: localhost:%d" % port))
        assert not answer.startswith(b"HTTP/1.1 500"), answer
    check_answers(service)


@pytest.mark.parametrize("action", ["StartSyncExecution", "StartExecution", "Nonsense", ""])
def test_json_that_is_nested_too_deeply_is_refused(service: harness.Service, action: str) -> None:
    """JSON that is nested 60,000 deep is refused with 400, also where the service itself parses it;
    states-language/tests/server/test_actions_fuzz.py has other JSON.
    """
    status, answer = call(service, action, b"[" * 60_000 + b"]" * 60_000)
    assert (status, sorted(answer)) == (400, ["__type", "message"])
    check_answers(service)


CONTROL, TABLE = f"streamkeeper-{harness.STAGE}-connection-control", f"streamkeeper-{harness.STAGE}-control"
ITEM = {"PK": {"S": "any"}, "SK": {"S.$": "States.JsonToString($)"}}
STATES: dict[str, dict[str, Any]] = {
    "Pass": {"Type": "Pass"},
    "JSONata": {"Type": "Pass", "QueryLanguage": "JSONata", "Output": "{% [$states.input, $string($states.input)] %}"},
    "Fail": {"Type": "Fail", "ErrorPath": "States.JsonToString($)", "CausePath": "States.JsonToString($)"},
    "Invoke": task_definition("arn:aws:states:::lambda:invoke", {"FunctionName": CONTROL, "Payload.$": "$"})["States"][
        "S"
    ],
    "Put": task_definition("arn:aws:states:::dynamodb:putItem", {"TableName": TABLE, "Item": ITEM})["States"]["S"],
}


@pytest.fixture(scope="module")
def machines(service: harness.Service) -> dict[str, str]:
    """The ARNs of the machines, one for each state, by the state's name."""
    arns = {}
    for name, state in STATES.items():
        ended = state if state["Type"] == "Fail" else {**state, "End": True}
        definition = json.dumps({"StartAt": "S", "States": {"S": ended}})
        request = {"name": name, "definition": definition, "roleArn": ROLE}
        status, answer = call(service, "CreateStateMachine", json.dumps(request).encode())
        assert status == 200, answer
        arns[name] = answer["stateMachineArn"]
    return arns


@settings(max_examples=examples(40))
@given(st.sampled_from(sorted(STATES)), JSON)
def test_any_input_runs_to_an_end(service: harness.Service, machines: dict[str, str], name: str, data: Any) -> None:
    """With any input (half characters, controls, huge numbers) the execution ends, and its history can be read."""
    request = json.dumps({"stateMachineArn": machines[name], "input": json.dumps(data)}).encode()
    status, answer = call(service, "StartExecution", request)
    if status == 400:
        assert answer["__type"].endswith("#InvalidExecutionInput")
        return
    named = json.dumps({"executionArn": answer["executionArn"]}).encode()
    assert until(lambda: call(service, "DescribeExecution", named)[1]["status"] in ("SUCCEEDED", "FAILED"))
    status, history = call(service, "GetExecutionHistory", named)
    assert (status, history["events"][0]["type"]) == (200, "ExecutionStarted")
    check_answers(service)


@pytest.mark.parametrize(
    ("text", "shown"),
    [('{"a":"\\ud800"}', '{"a":"\\ufffd"}'), ('"\\u001b[2J"', '"\\u001b[2J"'), ('"\\u009b\\u202e"', '"\\x9b\\u202e"')],
)
def test_control_characters_of_an_input_are_escaped_in_the_printed_line(
    service: harness.Service, machines: dict[str, str], text: str, shown: str
) -> None:
    """The service prints the end of an execution as one line, with each control character of its output escaped."""
    request = json.dumps({"stateMachineArn": machines["Pass"], "input": text}).encode()
    status, answer = call(service, "StartExecution", request)
    assert status == 200, answer
    name = answer["executionArn"].rpartition(":")[2]
    assert until(lambda: f"execution {name} ended: SUCCEEDED" in service.log)
    (line,) = [line for line in service.log.splitlines() if f"{name} ended" in line]
    assert line.endswith(f"ended: SUCCEEDED {shown}")
