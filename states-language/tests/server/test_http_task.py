"""http:invoke against a real server: the request, the answer, and what a connection adds."""

import functools
import json
import threading
import weakref
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from endpoint import ROLE, await_end, create_machine, task_definition
from states_language import TaskCall, TaskFailure
from states_language.server.__main__ import _read_connections
from states_language.server.http_task import HttpTask, by_name
from states_language.server.threaded import Server
from states_language.workbench import Mistake

ARN = "arn:aws:events:us-east-1:123456789012:connection/Shop/81210c42"
ADDED = {
    "HeaderParameters": [{"Key": "Header-Param", "Value": "theirs"}],
    "QueryStringParameters": [{"Key": "q", "Value": "theirs"}],
    "BodyParameters": [{"Key": "mode", "Value": "theirs"}],
}


class ReceivedRequest(NamedTuple):
    """A request as the endpoint received it."""

    line: str
    headers: dict[str, str]
    body: str


class Endpoint(BaseHTTPRequestHandler):
    """An endpoint that counts its calls. /token issues tokens, /token?brief ended ones, /binary is an image, /large a
    megabyte, and /NNN has this status.
    """

    seen: list[ReceivedRequest]

    def do(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0))).decode()
        self.seen.append(
            ReceivedRequest(self.requestline, {name.lower(): value for name, value in self.headers.items()}, body)
        )
        path = self.path.partition("?")[0].strip("/")
        kind, answer = "application/json", json.dumps({"calls": len(self.seen)}).encode()
        if path == "token":
            answer = json.dumps({"access_token": "t-1", "expires_in": 0 if "brief" in self.path else 3600}).encode()
        elif path == "binary":
            kind = "image/png"
        elif path == "large":
            answer = b"[" + b"1," * 500_000 + b"1]"
        self.send_response(int(path) if path.isdigit() else 200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    do_GET = do_POST = do_PUT = do

    def log_message(self, *_: Any) -> None:
        """Print nothing."""


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Endpoint)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def seen() -> list[ReceivedRequest]:
    Endpoint.seen = []
    return Endpoint.seen


def perform_request(
    connection: dict[str, Any] | None, task: HttpTask | None = None, **parameters: Any
) -> dict[str, Any]:
    """Return the result of a Task with these parameters and this connection, or with the connections of `task`."""
    given = {"Method": "GET", "InvocationConfig": {"ConnectionArn": ARN}, **parameters}
    arn = "arn:aws:states:eu-west-1:111111111111:execution:m:e"
    call = TaskCall("arn:aws:states:::http:invoke", "http", "invoke", False, None, given, None, arn, "S", 0, None)
    task = task or HttpTask(by_name({} if connection is None else {"Shop": connection}))
    return task.perform(call)


def request_failure(connection: dict[str, Any] | None, **parameters: Any) -> tuple[str | None, str | None]:
    """Return error and cause of a Task with these parameters and this connection."""
    with pytest.raises(TaskFailure) as failure:
        perform_request(connection, **parameters)
    return failure.value.error, failure.value.cause


def api_key_connection(**added: Any) -> dict[str, Any]:
    key = {"ApiKeyAuthParameters": {"ApiKeyName": "Api-Key", "ApiKeyValue": "secret"}}
    return {"AuthorizationType": "API_KEY", "AuthParameters": {**key, "InvocationHttpParameters": added}}


def oauth_connection(address: str, method: str = "POST") -> dict[str, Any]:
    oauth = {
        "ClientParameters": {"ClientID": "id", "ClientSecret": "s"},
        "AuthorizationEndpoint": address,
        "HttpMethod": method,
        "OAuthHttpParameters": {"BodyParameters": [{"Key": "scope", "Value": "all"}]},
    }
    return {"AuthorizationType": "OAUTH_CLIENT_CREDENTIALS", "AuthParameters": {"OAuthParameters": oauth}}


class Held(dict[str, Any]):
    """A connection that a weak reference can follow."""


def test_the_connections_values_precede_those_of_the_task(endpoint: str, seen: list[ReceivedRequest]) -> None:
    """Headers, query and body of both are merged; the connection's win, as in the Developer Guide's example."""
    answer = perform_request(
        api_key_connection(**ADDED),
        ApiEndpoint=f"{endpoint}/path?a=1",
        Method="POST",
        Headers={"Request-Id": "r", "Header-Param": "ours", "Also": [False, 1]},
        QueryParameters={"q": "ours", "list": ["x", "y z"], "on": True},
        RequestBody={"Job": "Engineer", "mode": "ours"},
    )
    (request,) = seen
    assert request.line == "POST /path?a=1&q=theirs&list=x&list=y%20z&on=true HTTP/1.1"
    assert request.body == '{"Job":"Engineer","mode":"theirs"}'
    wanted = {"api-key": "secret", "header-param": "theirs", "request-id": "r", "also": "false, 1",
              "content-type": "application/json; charset=UTF-8", "range": "bytes=0-262144",
              "user-agent": "Amazon|StepFunctions|HttpInvoke|eu-west-1"}  # fmt: skip
    assert wanted.items() <= request.headers.items()
    assert (answer["StatusCode"], answer["StatusText"], answer["ResponseBody"]) == (200, "OK", {"calls": 1})
    assert answer["Headers"]["content-type"] == ["application/json"]


@pytest.mark.parametrize(
    ("form", "body"),
    [("INDICES", "a[0]=x&a[1]=y"), ("REPEAT", "a=x&a=y"), ("COMMAS", "a=x,y"), ("BRACKETS", "a[]=x&a[]=y")],
)
def test_a_form_writes_arrays_in_four_ways(endpoint: str, seen: list[ReceivedRequest], form: str, body: str) -> None:
    """A form writes an array in the chosen format. Keys are encoded, and an object's member is in brackets."""
    transform = {"RequestBodyEncoding": "URL_ENCODED", "RequestEncodingOptions": {"ArrayFormat": form}}
    content = {"a": ["x", "y"], "metadata": {"order details": "b c", "n": 1}}
    perform_request(api_key_connection(), ApiEndpoint=endpoint, Method="POST", RequestBody=content, Transform=transform)
    encoded = body.replace("[", "%5B").replace("]", "%5D")
    assert seen[0].body == f"{encoded}&metadata%5Border%20details%5D=b%20c&metadata%5Bn%5D=1"


def test_a_basic_or_oauth_connection_authorizes_the_request(endpoint: str, seen: list[ReceivedRequest]) -> None:
    """The OAuth token is requested at the connection's endpoint with the client's credentials."""
    basic = {"BasicAuthParameters": {"Username": "u", "Password": "p"}}
    perform_request({"AuthorizationType": "BASIC", "AuthParameters": basic}, ApiEndpoint=endpoint)
    perform_request(oauth_connection(f"{endpoint}/token"), ApiEndpoint=endpoint)
    assert [one.headers.get("authorization") for one in seen] == ["Basic dTpw", None, "Bearer t-1"]
    assert seen[1].body == "grant_type=client_credentials&client_id=id&client_secret=s&scope=all"


def test_an_expired_token_is_dropped_at_the_next_token(endpoint: str, seen: list[ReceivedRequest]) -> None:
    """The expired token and its connection are then freed. A token request keeps the endpoint's own query."""
    connections = {ARN[:-1] + end: Held(oauth_connection(f"{endpoint}/token?brief", "GET")) for end in "ab"}
    held = [weakref.ref(connection) for connection in connections.values()]
    task = HttpTask(connections.pop)
    for arn in tuple(connections):
        perform_request(None, task, ApiEndpoint=endpoint, InvocationConfig={"ConnectionArn": arn})
    assert [each() is None for each in held] == [True, False]
    assert seen[0].line.startswith("GET /token?brief&grant_type=client_credentials&")


@pytest.mark.usefixtures("seen")
def test_each_failed_answer_has_its_error_name_and_no_secret(endpoint: str) -> None:
    """A status, an answer that is no text or too large, and an absent server have error names and no secret."""
    assert request_failure(api_key_connection(), ApiEndpoint=f"{endpoint}/404") == (
        "States.Http.StatusCode.404",
        '{"calls": 1}',
    )
    assert request_failure(api_key_connection(), ApiEndpoint=f"{endpoint}/302")[0] == "States.Http.StatusCode.302"
    assert request_failure(api_key_connection(), ApiEndpoint=f"{endpoint}/binary")[0] == "States.Runtime"
    assert request_failure(api_key_connection(), ApiEndpoint=f"{endpoint}/large")[0] == "States.DataLimitExceeded"
    nobody = request_failure(
        api_key_connection(QueryStringParameters=[{"Key": "k", "Value": "secret"}]), ApiEndpoint="http://127.0.0.1:9"
    )
    assert nobody[0] == "States.Http.Socket"
    assert "secret" not in str(nobody)


def test_a_wrong_connection_or_request_fails_before_it_is_sent(endpoint: str, seen: list[ReceivedRequest]) -> None:
    """An unknown connection, one without credentials, a forbidden header or a wrong body fails without a request."""
    assert request_failure(None, ApiEndpoint=endpoint)[0] == "Events.ConnectionResource.ResourceNotFound"
    odd = api_key_connection(HeaderParameters=[{"Name": "x"}])
    for bare in ({"AuthorizationType": "BASIC", "AuthParameters": {}}, {"AuthParameters": None}, odd):
        assert request_failure(bare, ApiEndpoint=endpoint)[0] == "Events.ConnectionResource.InvalidConnectionState"
    wrongs: list[dict[str, Any]] = [
        {"Headers": {"Authorization": "x"}},
        {"Headers": {"X-Amz-Date": "x"}},
        {"Method": "TRACE"},
        {"InvocationConfig": {}},
        {"RequestBody": "text"},
        {"QueryParameters": 5},
        {"Transform": "URL_ENCODED"},
    ]
    for wrong in wrongs:
        connection = api_key_connection(**ADDED) if "RequestBody" in wrong else api_key_connection()
        assert request_failure(connection, **{"ApiEndpoint": endpoint, **wrong})[0] == "States.Runtime"
    assert seen == []


@pytest.mark.usefixtures("seen")
def test_a_machine_calls_the_endpoint_through_the_server(endpoint: str) -> None:
    """A Task uses a connection by its name. The history has no credential."""
    parameters = {"ApiEndpoint": endpoint, "Method": "GET", "Authentication": {"ConnectionArn": ARN}}
    with Server() as server:
        server.connections["Shop"] = api_key_connection()
        states = server.client()
        machine = create_machine(states, "m", task_definition("arn:aws:states:::http:invoke", parameters, End=True))
        execution = states.start_execution(stateMachineArn=machine)["executionArn"]
        assert json.loads(await_end(states, execution)["output"])["ResponseBody"] == {"calls": 1}
        assert "secret" not in str(states.get_execution_history(executionArn=execution))


@pytest.mark.usefixtures("seen")
def test_a_trace_shows_request_and_response(endpoint: str) -> None:
    """A trace has the form of the Developer Guide's example. The connection's values are shown only on request."""
    state = {"Type": "Task", "Resource": "arn:aws:states:::http:invoke", "End": True, "Parameters": {
        "ApiEndpoint": f"{endpoint}/201", "Method": "POST", "Headers": {"Own": "h", "header-param": "ours"},
        "QueryParameters": {"q": "ours", "n": 1}, "RequestBody": {"mode": "ours", "job": "j"},
        "Authentication": {"ConnectionArn": ARN},
    }}  # fmt: skip
    with Server() as server:
        server.connections["Shop"] = api_key_connection(**ADDED)
        tested = functools.partial(server.client().test_state, definition=json.dumps(state), roleArn=ROLE)
        levels = [("TRACE", False), ("TRACE", True), ("DEBUG", False)]
        hidden, shown, less = (
            tested(inspectionLevel=level, revealSecrets=reveal)["inspectionData"] for level, reveal in levels
        )
    assert not {"request", "response"} & less.keys()
    rest = "User-Agent: Amazon|StepFunctions|HttpInvoke|us-east-1, Range: bytes=0-262144, "
    rest += "Content-Type: application/json; charset=UTF-8]"
    sent = {"protocol": "http", "method": "POST"}
    own = {"url": f"{endpoint}/201?n=1", "headers": f"[Own: h, {rest}", "body": '{"job":"j"}'}
    assert hidden["request"] == sent | own
    added = {
        "headers": f"[Own: h, Header-Param: theirs, Api-Key: secret, {rest}",
        "url": f"{endpoint}/201?q=theirs&n=1",
    }
    assert shown["request"] == sent | added | {"body": '{"mode":"theirs","job":"j"}'}
    headers = hidden["response"].pop("headers")
    assert headers.endswith(", content-type: application/json, content-length: 12]")
    answered = {"protocol": "http", "statusCode": "201", "statusMessage": "Created", "body": '{"calls": 1}'}
    assert hidden["response"] == answered


@pytest.mark.parametrize("text", ["[1]", "Shop: API_KEY", "Shop: {AuthParameters: {}}"])
def test_a_wrong_file_of_connections_is_refused(tmp_path: Path, text: str) -> None:
    """The message names the file and says what each connection needs."""
    file = tmp_path / "connections.yml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(Mistake, match=r"connections\.yml: each name needs what CreateConnection takes"):
        _read_connections(file)
    assert _read_connections(None) == {}
