"""Performs http:invoke: a request to the address that a Task names, with what its EventBridge connection adds.

Source: AWS Step Functions Developer Guide, "Call HTTPS APIs in Step Functions". Chosen without a source: redirections
are not followed, http:// addresses are allowed, and the answer's body is the cause if its status is no success.
Invariants: no request is sent without its connection, and no error and no result holds a connection's credential.
"""

import json
import operator
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from http import HTTPStatus
from typing import Any
from urllib.parse import quote, urlencode

import urllib3
from urllib3.exceptions import HTTPError

from states_language.failures import TaskFailure
from states_language.history import PAYLOAD_LIMIT_BYTES
from states_language.tasks.calls import TaskCall
from states_language.values import compact, parse_json, too_large_cause

Connection = Mapping[str, Any]
"""What EventBridge's CreateConnection takes: AuthorizationType and AuthParameters."""
Connections = Callable[[str], Connection | None]
"""A function that returns a connection by its ARN; None for one that does not exist."""
Merge = Callable[[dict[str, Any], dict[str, Any]], dict[str, Any]]
"""What becomes of a Task's own fields and those that its connection adds: `|` for what is sent."""

TIMEOUT_S = 60
METHODS = ("GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "HEAD")
_FORBIDDEN = frozenset({
    "a-im", "accept-charset", "accept-datetime", "accept-encoding", "authorization", "cache-control", "connection",
    "content-encoding", "content-md5", "date", "expect", "forwarded", "from", "host", "http2-settings", "if-match",
    "if-modified-since", "if-none-match", "if-range", "if-unmodified-since", "max-forwards", "origin", "pragma",
    "proxy-authorization", "referer", "server", "te", "trailer", "transfer-encoding", "upgrade", "via", "warning",
})  # fmt: skip
_FORBIDDEN_PREFIXES = ("x-forwarded-", "x-amz-", "x-amzn-")
_BINARY = ("application/octet-stream", "image/", "video/", "audio/")
_ARRAYS: dict[str, Callable[[str, int], str]] = {
    "INDICES": lambda key, index: f"{key}[{index}]",
    "REPEAT": lambda key, _: key,
    "BRACKETS": lambda key, _: f"{key}[]",
}
_NOT_FOUND = "Events.ConnectionResource.ResourceNotFound"
_NOT_AUTHORIZED = "Events.ConnectionResource.InvalidConnectionState"
_MARGIN_S = 30
"""How long before its end an OAuth token is renewed."""


def by_name(connections: Mapping[str, Connection]) -> Connections:
    """Return the connections of a mapping, whose keys are ARNs or names."""
    return lambda arn: connections.get(arn, connections.get(arn.partition(":connection/")[2].partition("/")[0]))


class HttpTask:
    """Performs the calls of http:invoke; any thread may use it."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._pool = urllib3.PoolManager(retries=False, timeout=urllib3.Timeout(total=TIMEOUT_S))
        self._tokens: dict[str, tuple[Connection, str, float]] = {}
        self._lock = threading.Lock()

    def perform(self, call: TaskCall) -> dict[str, Any]:
        """Return the address's answer; raises TaskFailure."""
        given = call.parameters or {}
        method, address = _required_text(given, "Method"), _required_text(given, "ApiEndpoint")
        if method not in METHODS:
            raise _invalid_field(f"The field 'Method' must be one of {', '.join(METHODS)}")
        if not address.lower().startswith(("http://", "https://")):
            raise _invalid_field("The field 'ApiEndpoint' must be the URL of an HTTPS API")
        arn = _required_text(invocation(given), "ConnectionArn")
        connection = self._connections(arn)
        if connection is None:
            raise TaskFailure(_NOT_FOUND, f"Connection not found: {arn}")
        credentials, added = self._authorize(arn, connection)
        region = call.execution_arn.split(":")[3]
        sent = _build_request(address, given, region, credentials, added, operator.or_)
        exchange = call.exchange
        if exchange is not None:
            seen = sent if exchange.reveal else _build_request(address, given, region, credentials, added, _omit_added)
            exchange.shown["request"] = {"method": method, "url": seen[0], **_trace(seen[0], seen[1].items(), seen[2])}
        response, body = self._send(method, *sent)
        if exchange is not None:
            status = {"statusCode": str(response.status), "statusMessage": response.reason or ""}
            text = body[:PAYLOAD_LIMIT_BYTES].decode(errors="replace")
            exchange.shown["response"] = {**status, **_trace(address, response.headers.items(), text)}
        return _read_response(response, body)

    def _send(
        self, method: str, address: str, headers: dict[str, str], body: str | None
    ) -> tuple[urllib3.BaseHTTPResponse, bytes]:
        try:
            response = self._pool.request(
                method, address, headers=headers, body=None if body is None else body.encode(),
                redirect=False, preload_content=False,
            )  # fmt: skip
            with response:
                return response, response.read(PAYLOAD_LIMIT_BYTES + 1)
        except (HTTPError, ValueError) as problem:
            # urllib3's message is left out: it names the address, whose query may hold a secret of the connection.
            raise TaskFailure("States.Http.Socket", f"{type(problem).__name__}: no answer of the endpoint") from None

    # ---- the connection ----

    def _authorize(self, arn: str, connection: Connection) -> tuple[dict[str, str], dict[str, dict[str, str]]]:
        """Return the headers with a connection's credentials, and what else it adds to a request."""
        kind, parameters = connection.get("AuthorizationType"), connection.get("AuthParameters", {})
        try:
            added = _connection_parameters(parameters.get("InvocationHttpParameters") or {})
            if kind == "API_KEY":
                given = parameters["ApiKeyAuthParameters"]
                return {given["ApiKeyName"]: given["ApiKeyValue"]}, added
            if kind == "BASIC":
                given = parameters["BasicAuthParameters"]
                return urllib3.make_headers(basic_auth=f"{given['Username']}:{given['Password']}"), added
            if kind == "OAUTH_CLIENT_CREDENTIALS":
                return {"Authorization": f"Bearer {self._token(arn, connection)}"}, added
        except (AttributeError, KeyError, TypeError):
            pass
        raise TaskFailure(_NOT_AUTHORIZED, f"The connection {arn} needs the AuthParameters that its type, {kind}, has")

    def _token(self, arn: str, connection: Connection) -> str:
        """Return a token of the authorization endpoint, and keep it for as long as the endpoint allows."""
        with self._lock:
            made_for, token, until_s = self._tokens.get(arn, ({}, "", 0.0))
            if made_for == connection and time.monotonic() < until_s:
                return token
        given = connection["AuthParameters"]["OAuthParameters"]
        client, added = given["ClientParameters"], _connection_parameters(given.get("OAuthHttpParameters", {}))
        form = {"grant_type": "client_credentials", "client_id": client["ClientID"]}
        form["client_secret"] = client["ClientSecret"]
        method, address = given.get("HttpMethod", "POST"), given["AuthorizationEndpoint"]
        query, content = added["QueryStringParameters"], urlencode(form | added["BodyParameters"])
        if method == "GET":
            query, content = form | query, ""
        address = _add_query(address, urlencode(query))
        headers = {"content-type": ("content-type", "application/x-www-form-urlencoded")}
        headers |= _lower_names(added["HeaderParameters"])
        response, body = self._send(method, address, dict(headers.values()), content)
        try:
            answer = json.loads(body)
            token, lives_s = str(answer["access_token"]), float(answer.get("expires_in", 0))
        except (ValueError, KeyError, TypeError):
            cause = f"The authorization endpoint of {arn} answered {response.status} without an access_token"
            raise TaskFailure(_NOT_AUTHORIZED, cause) from None
        with self._lock:
            now_s = time.monotonic()
            self._tokens = {each: kept for each, kept in self._tokens.items() if now_s < kept[2]}
            self._tokens[arn] = connection, token, now_s + lives_s - _MARGIN_S
        return token


def invocation(given: dict[str, Any]) -> Any:
    """Return the field of a Task that names its connection."""
    return given.get("InvocationConfig") or given.get("Authentication") or {}


def _connection_parameters(parameters: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """Return what a connection adds to headers, query and body."""
    names = ("HeaderParameters", "QueryStringParameters", "BodyParameters")
    return {name: {str(one["Key"]): str(one["Value"]) for one in parameters.get(name, [])} for name in names}


def _object_field(given: Any, name: str) -> dict[str, Any]:
    value = given.get(name) or {}
    if not isinstance(value, dict):
        raise _invalid_field(f"The field '{name}' must be a JSON object")
    return value


def _build_request(
    address: str,
    given: dict[str, Any],
    region: str,
    credentials: dict[str, str],
    added: dict[str, dict[str, str]],
    merge: Merge,
) -> tuple[str, dict[str, str], str | None]:
    """Return the address, the headers and the body of a request."""
    headers = merge(_request_headers(given), _lower_names(added["HeaderParameters"]) | _lower_names(credentials))
    fixed = {"User-Agent": f"Amazon|StepFunctions|HttpInvoke|{region}", "Range": f"bytes=0-{PAYLOAD_LIMIT_BYTES}"}
    headers |= _lower_names(fixed)
    body = _body_text(given, added["BodyParameters"], merge)
    if body is not None:
        headers.setdefault("content-type", ("Content-Type", "application/json; charset=UTF-8"))
    return _add_query(address, _query_text(given, added["QueryStringParameters"], merge)), dict(headers.values()), body


def _add_query(address: str, query: str) -> str:
    return f"{address}{'&' if '?' in address else '?'}{query}" if query else address


def _omit_added(own: dict[str, Any], added: dict[str, Any]) -> dict[str, Any]:
    """Return the Task's own fields, less those that the connection replaces."""
    return {name: value for name, value in own.items() if name not in added}


def _trace(address: str, headers: Iterable[tuple[str, str]], body: str | None) -> dict[str, str]:
    """Return what TestState shows of a request and of an answer, in the form of the Developer Guide's example."""
    written = ", ".join(f"{name}: {value}" for name, value in headers)
    shown = {"protocol": address.partition(":")[0].lower(), "headers": f"[{written}]"}
    return shown if body is None else {**shown, "body": body}


def _request_headers(given: dict[str, Any]) -> dict[str, tuple[str, str]]:
    headers = _lower_names(_object_field(given, "Headers"))
    for name in headers:
        if name in _FORBIDDEN or name.startswith(_FORBIDDEN_PREFIXES):
            raise _invalid_field(f"The header '{name}' must not be specified in an HTTP Task")
    return headers


def _lower_names(headers: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
    """Return names and texts of headers by their names in lower case."""
    return {
        str(name).lower(): (str(name), ", ".join(map(_to_text, value)) if isinstance(value, list) else _to_text(value))
        for name, value in headers.items()
    }


def _query_text(given: dict[str, Any], added: dict[str, str], merge: Merge) -> str:
    query = given.get("QueryParameters")
    if isinstance(query, str | list):  # a finished query such as `a=1&b=2`, or an array of such texts
        written = query if isinstance(query, str) else "&".join(map(str, query))
        return "&".join(part for part in (written, urlencode(merge({}, added))) if part)
    fields = merge(_object_field(given, "QueryParameters"), added)
    pairs = [(key, one) for key, value in fields.items() for one in (value if isinstance(value, list) else [value])]
    return urlencode([(key, _to_text(one)) for key, one in pairs], quote_via=quote)


def _body_text(given: dict[str, Any], added: dict[str, str], merge: Merge) -> str | None:
    body, transform = given.get("RequestBody"), _object_field(given, "Transform")
    if added:
        if body is not None and not isinstance(body, dict):
            raise _invalid_field("The connection has body parameters, so the field 'RequestBody' must be a JSON object")
        body = merge(body or {}, added) or None
    if body is None or isinstance(body, str):
        return body
    if transform.get("RequestBodyEncoding") != "URL_ENCODED":
        return compact(body)
    form = str(_object_field(transform, "RequestEncodingOptions").get("ArrayFormat", "INDICES"))
    return "&".join(f"{quote(key, safe='')}={quote(value, safe=',')}" for key, value in _form_fields("", body, form))


def _form_fields(name: str, value: Any, form: str) -> Iterator[tuple[str, str]]:
    """Yield the fields of a form; an object's member is written as `metadata[order]`."""
    if isinstance(value, dict):
        for key, member in value.items():
            yield from _form_fields(f"{name}[{key}]" if name else key, member, form)
    elif isinstance(value, list) and form == "COMMAS":
        yield name, ",".join(map(_to_text, value))
    elif isinstance(value, list):
        for index, element in enumerate(value):
            yield from _form_fields(_ARRAYS.get(form, _ARRAYS["INDICES"])(name, index), element, form)
    else:
        yield name, _to_text(value)


def _to_text(value: Any) -> str:
    return value if isinstance(value, str) else compact(value)


def _read_response(response: urllib3.BaseHTTPResponse, body: bytes) -> dict[str, Any]:
    if len(body) > PAYLOAD_LIMIT_BYTES:
        raise TaskFailure("States.DataLimitExceeded", too_large_cause("http"), terminal=True)
    kind = response.headers.get("content-type", "").lower()
    try:
        text = body.decode()
    except UnicodeDecodeError:
        kind, text = _BINARY[0], ""
    if kind.startswith(_BINARY):
        raise _invalid_field("The response of the endpoint is not a text")
    if not HTTPStatus(200) <= response.status < HTTPStatus(300):
        raise TaskFailure(f"States.Http.StatusCode.{response.status}", text or response.reason)
    parsed: Any = text
    if "json" in kind and text:
        with suppress(ValueError, RecursionError):
            parsed = parse_json(text)
    return {
        "Headers": {name.lower(): response.headers.getlist(name) for name in response.headers},
        "ResponseBody": parsed,
        "StatusCode": response.status,
        "StatusText": response.reason or "",
    }


def _required_text(given: Any, name: str) -> str:
    value = given.get(name) if isinstance(given, dict) else None
    if not isinstance(value, str) or not value:
        raise _invalid_field(f"The field '{name}' is required but was missing")
    return value


def _invalid_field(rule: str) -> TaskFailure:
    return TaskFailure("States.Runtime", rule)
