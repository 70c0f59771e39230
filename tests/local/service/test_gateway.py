"""The HTTP API over sockets, with the deployed templates: its routes, and the machine that answers a POST."""

import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import urllib3

from handlers.api.answers import Problem
from local.functions.sandbox import Answer
from local.listener import Listener, bind
from local.profiles import profile_files
from local.service import osls
from local.service.capacity import Capacity, Room
from local.service.gateway import CallStates, Gateway
from local.service.lambda_proxy import Invoke
from local.service.signature_check import SignatureCheck
from local.stack import read_stack
from states_language import TaskFailure
from states_language.clock import RealClock
from states_language.server import Refusal, StepFunctions, loaded_stack
from tests import problems
from tests.local.support import PROJECT, in_thread

MOST = 3
ARN = "arn:aws:states:us-east-1:000000000000:execution:streamkeeper-test-connections:a"
STARTED_BY = "AWS_STEP_FUNCTIONS_STARTED_BY_EXECUTION_ID"
VARIABLES = {"UPSTREAM_DEMO": "http://127.0.0.1:3002"}


async def no_function(name: str, _payload: bytes) -> Answer:
    """Fails: no request of these tests reaches a function."""
    raise AssertionError(name)


KEYS = SignatureCheck("local", "secret")


@contextlib.asynccontextmanager
async def service(
    folder: Path,
    invoke: Invoke = no_function,
    template: Any = None,
    streams: Sequence[str] = (),
    call: CallStates | None = None,
    perform: Callable[[Any], Awaitable[Any]] | None = None,
) -> AsyncIterator[tuple[str, list[Any]]]:
    """Yields the gateway of a template, by default the deployed one, and the inputs of the executions started.

    `invoke` replaces the sandboxes, `call` Step Functions, `perform` the Tasks of machines: by default no stream has a
    lease, and each start succeeds. The machine holds MOST streams, and `streams` run.
    """
    started: list[Any] = []

    async def start(task: Any) -> Any:
        if task.action != "startExecution":
            return {}
        started.append(task.parameters["Input"])
        return {"ExecutionArn": ARN, "StartDate": 5000}

    stack = read_stack(template or osls.template("test"), {})
    states = StepFunctions(folder, RealClock(), loaded_stack(stack.machines))
    executions = states.executions
    executions.perform = perform or start
    room = Room(Capacity(MOST, "a test"), lambda: streams)

    def check(name: str) -> Problem | None:
        return profile_files.find_problem(name, PROJECT / "env" / "streams", VARIABLES)

    gateway = Gateway(stack.routes, stack.gateway_responses, executions, check, call or states.call, invoke, room, KEYS)
    listener = Listener(gateway.app, bind(0, "a test"))
    await listener.start()
    try:
        yield f"http://127.0.0.1:{listener.port}", started
    finally:
        executions.close()
        await listener.close()


@pytest.fixture
def api(tmp_path: Path) -> Iterator[tuple[str, list[Any]]]:
    """The address, and the inputs of the executions started."""
    with in_thread(lambda: service(tmp_path)) as running:
        yield running


def post(address: str, **options: Any) -> tuple[int, Any]:
    """Returns status and JSON of a POST."""
    with urllib3.PoolManager(retries=False) as http:
        answer = http.request("POST", address, **options)
        return answer.status, answer.json()


def without_id(response: Any) -> dict[str, Any]:
    """Returns the words of a response that is a problem, without its request's id."""
    assert response.headers["Content-Type"] == "application/problem+json"
    return problem_of(response.status, response.json())


def problem_of(status: int, body: dict[str, Any]) -> dict[str, Any]:
    """Returns the words of a problem without its request's id, which it must have."""
    answer = problems.read(status, body)
    assert len(answer.pop("request_id")) == 16
    return answer


NO_MORE = "Step Functions starts no more executions now. Try again in 5 s."
COULD_NOT = "Step Functions could not start the execution."


def start_failing(folder: Path, **options: Any) -> tuple[int, str | None, dict[str, Any]]:
    """Returns status, Retry-After and words of the answer to a POST whose start fails."""
    with in_thread(lambda: service(folder, **options)) as (origin, _), urllib3.PoolManager(retries=False) as http:
        answer = http.request("POST", f"{origin}/connections/demo")
    return answer.status, answer.headers.get("Retry-After"), without_id(answer)


@pytest.mark.parametrize("code", ["ThrottlingException", "StateMachineDeleting"])
@pytest.mark.parametrize("is_in_the_machine", [False, True])
def test_a_start_that_fails_is_429_or_503(tmp_path: Path, code: str, is_in_the_machine: bool) -> None:
    """A POST whose start is throttled gets 429 with Retry-After; another failure gets 503. It makes no difference
    whether the request to Step Functions fails, or the machine that the template starts.

    tests/deploy/test_mapping_templates.py has all kinds of failures.
    """

    async def refuse(_action: str, _parameters: dict[str, Any]) -> dict[str, Any]:
        raise Refusal(code, f"No: {ARN}")

    async def perform(call: Any) -> Any:
        if call.action == "startExecution":
            raise TaskFailure(f"StepFunctions.{code.removesuffix('Exception')}Exception", f"No: {ARN}")
        return {}

    way = {"perform": perform} if is_in_the_machine else {"call": refuse}
    expected = (429, "5", {"detail": NO_MORE}) if "Throttling" in code else (503, None, {"detail": COULD_NOT})
    assert start_failing(tmp_path, **way) == expected


def test_a_post_starts_an_execution(api: tuple[str, list[Any]]) -> None:
    """A POST returns the machine's answer and the number of streams. The input has only the stream id, decoded once."""
    origin, started = api
    headers = {"Authorization": "Bearer secret", "X-Api-Key": "any", "Cookie": "secret"}
    answer = post(f"{origin}/connections/demo%3Aone?X-Amz-Date=0", headers=headers)
    streams = {"running": 0, "most": MOST}
    assert answer == (200, {"executionArn": ARN, "startDate": 5, "already_running": False, "streams": streams})
    (opened,) = started
    assert {**opened, STARTED_BY: ""} == {"pathParameters": {"streamId": "demo:one"}, STARTED_BY: ""}


def test_a_form_is_accepted(api: tuple[str, list[Any]]) -> None:
    """A POST with a form, which curl -d sends, is accepted, its body ignored. Other media types are refused."""
    origin, _ = api
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    assert post(f"{origin}/connections/demo", body=b"a=b", headers=form)[0] == 200
    plain = {"Content-Type": "text/plain"}
    status, answer = post(f"{origin}/connections/demo", body=b"x", headers=plain)
    assert (status, problem_of(status, answer)) == (415, {"detail": "Unsupported Media Type"})


@pytest.mark.parametrize(
    ("target", "status", "words"),
    [
        ("/connections/a%20b", 400, "A stream id is a profile's name"),
        ("/connections/demo:%FF", 400, "any text in UTF-8"),
        ("/connections/demo?dry_run=true", 400, "A POST that starts a stream has no parameters."),
        ("/connections/nobody", 404, "There is no such stream: its id must begin"),
        # Another method of a path goes to a function, which says what is allowed.
        ("/connections/demo/more", 403, "Missing Authentication Token"),
    ],
)
def test_a_refused_request_starts_no_execution(
    api: tuple[str, list[Any]], target: str, status: int, words: str
) -> None:
    """Malformed ids, unknown profiles and queries get a clear sentence, unknown routes AWS's answer."""
    origin, started = api
    code, answer = post(f"{origin}{target}")
    assert (code, words in problem_of(code, answer)["detail"]) == (status, True)
    assert started == []


def test_a_machine_that_is_full_starts_nothing_new(tmp_path: Path) -> None:
    """A full machine answers 503 with Retry-After. A running stream is still admitted, and an unknown id still 404."""
    streams = ["demo:a", "demo:b", "demo:c", "demo:c"]
    with (
        in_thread(lambda: service(tmp_path, streams=streams)) as (origin, started),
        urllib3.PoolManager(retries=False) as http,
    ):
        refusal = http.request("POST", f"{origin}/connections/demo%3Ad")
        assert (refusal.status, refusal.headers["Retry-After"]) == (503, "60")
        assert without_id(refusal) == {
            "detail": "This machine holds 3 streams, or groups of them (a test), and runs 3 streams; stop one, or set"
            " STREAMKEEPER_STREAMS to a higher number and restart the service."
        }
        assert post(f"{origin}/connections/nobody")[0] == 404
        assert started == []
        status, answer = post(f"{origin}/connections/demo%3Ab")
        assert (status, answer["streams"]) == (200, {"running": 3, "most": 3})
        streams.remove("demo:a")
        assert post(f"{origin}/connections/demo%3Ad")[0] == 200


def call_function(folder: Path, method: str, path: str, answer: Answer, **options: Any) -> tuple[Any, list[Any]]:
    """Returns the HTTP response if every function returns `answer`, and the invocations by name and event."""
    invocations: list[Any] = []

    async def invoke(name: str, payload: bytes) -> Answer:
        invocations.append((name, json.loads(payload)))
        return answer

    with in_thread(lambda: service(folder, invoke)) as (origin, started):
        with urllib3.PoolManager(retries=False) as http:
            response = http.request(method, f"{origin}{path}", **options)
        assert started == []
    return response, invocations


def function_answer(**fields: Any) -> Answer:
    """Returns the answer of a function that returned these fields."""
    return Answer(json.dumps(fields).encode(), None, "request")


@pytest.mark.parametrize("method", ["GET", "DELETE"])
def test_a_function_answers_through_lambdas_proxy(tmp_path: Path, method: str) -> None:
    """A function gets a REST API's event without headers, with the raw path; it chooses the answer's parts."""
    answer = function_answer(statusCode=202, headers={"X-Kind": "a", "Cache-Control": "no-store"}, body='{"ä": 1}')
    path = "/connections/demo%253Aone?a=1&a=2&b="
    response, invocations = call_function(tmp_path, method, path, answer, headers={"X-Api-Key": "secret"})
    assert (response.status, response.headers["X-Kind"], response.headers["Cache-Control"]) == (202, "a", "no-store")
    assert (response.headers["Content-Type"], response.json()) == ("application/json", {"ä": 1})
    ((name, event),) = invocations
    assert name == "streamkeeper-test-connection-control"
    context = event.pop("requestContext")
    assert (context["httpMethod"], context["resourcePath"]) == (method, "/connections/{streamId}")
    assert event == {
        "resource": "/connections/{streamId}",
        "path": "/connections/demo%253Aone",
        "httpMethod": method,
        "headers": {},
        "multiValueHeaders": {},
        "queryStringParameters": {"a": "2", "b": ""},
        "multiValueQueryStringParameters": {"a": ["1", "2"], "b": [""]},
        "pathParameters": {"streamId": "demo%253Aone"},
        "stageVariables": None,
        "body": None,
        "isBase64Encoded": False,
    }


def test_a_function_can_answer_with_bytes_and_lists(tmp_path: Path) -> None:
    """A body in Base64 is sent as bytes, and a header with several values several times."""
    answer = function_answer(statusCode=200, multiValueHeaders={"X-A": ["1", "2"]}, body="AP8=", isBase64Encoded=True)
    response, _ = call_function(tmp_path, "GET", "/connections/demo", answer)
    assert (response.data, response.headers.getlist("X-A")) == (b"\x00\xff", ["1", "2"])


@pytest.mark.parametrize(
    "answer",
    [
        Answer(b'{"errorType": "Sandbox.Timedout"}', "Unhandled", "request"),
        Answer(b"no JSON", None, "request"),
        Answer(b'"a text"', None, "request"),
        function_answer(body="no status"),
        function_answer(statusCode="two hundred"),
        function_answer(statusCode=200, body={"not": "text"}),
        function_answer(statusCode=200, body="no base 64", isBase64Encoded=True),
        function_answer(statusCode=200, headers=["not", "a", "table"]),
    ],
)
def test_a_function_that_fails_is_502(tmp_path: Path, answer: Answer) -> None:
    """A failed invocation and a malformed answer get the gateway response's words, not the function's."""
    response, _ = call_function(tmp_path, "GET", "/connections/demo", answer)
    assert (response.status, without_id(response)) == (502, {"detail": "The API could not answer the request."})
