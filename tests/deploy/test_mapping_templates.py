"""The API's mapping templates with hostile input, in Apache Velocity and in the engine of the local run.

Each claim is checked on the text that Apache Velocity renders; the other engine renders the same bytes.
"""

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import boto3
import pytest
from botocore.stub import Stubber
from hypothesis import given, settings
from hypothesis import strategies as st

from handlers.fleet.request_pacing import Outcome, start_stream
from handlers.profile.addresses import ProfileError, check_stream_id, part_ids
from local.service import lambda_proxy, osls
from local.service.deployed_code import insert_profile_names
from local.stack import Route, read_stack
from local.stages import ROOT
from tests import problems, shipped
from tests.deploy import node
from tests.deploy.apache_velocity import Apache, Rendered, apache_velocity
from tests.examples import examples

REQUEST_ID = "Kz9fTFtbIAMEWkQ="
COULD_NOT = "Step Functions could not start the execution."
NO_MORE = "Step Functions starts no more executions now. Try again in 5 s."
MALFORMED = (
    "A stream id is a profile's name, optionally with a colon and any text in UTF-8: 256 characters at most, none of "
    "them a control character, and no part between colons '.' or '..'."
)
NO_PARAMETERS = "A POST that starts a stream has no parameters."
UNKNOWN = "There is no such stream: its id must begin with the name of a profile."
USUAL = "Use the name of a profile that GET / lists. A GET of the stream suggests a similar one."
PROBLEM = {"Content-Type": "application/problem+json"}
ARN = "arn:aws:states:eu-central-1:123456789012:stateMachine:other"

# What JSON, Velocity, a regular expression, JavaScript, JSONata, a path or an encoding could take for its own.
HOSTILE = st.sampled_from(
    [
        *('"', "'", "\\", "\\'", '\\"', "\\\\", "\\u0022", "/", "</script>", "\n", "\r\n", "\t", "\0", "\x7f", "\x85"),
        *("$", "#", "${", "}", "$id", "${id}", "$!{name}", "$context.requestId", "$util", "$input.body", "$foreach"),
        *("#set($name = 'x')", '#set($id="demo")', "#end", "#if(true)", "#else", "#foreach($x in [1..9])", "#stop"),
        *("##", "#*", "*#", "#[[", "]]#", "#parse('x')", "#include('/etc/passwd')", "#define($start)", "#{end}"),
        *('","name":"mine', f'","stateMachineArn":"{ARN}', '"}', "}}", "{{", "{% $x %}", "$.", "*", "malformed*"),
        *("%", "%2", "%25", "%zz", "%C0%AF", "%ED%A0%80", "%00", "%", "+", "&", "=", "..", ".", ":", " ", "?"),
        *("é", "ß", "\u2028", "\ufeff", "\u202e", "\ufffd", "\uffff", "😀", "e\u0301", "\ud800", "\udfff", "x" * 300),
    ]
)
TEXTS = st.lists(HOSTILE | st.characters(), max_size=6).map("".join)
QUERIES = st.dictionaries(TEXTS | TEXTS.map("X-Amz-{}".format), TEXTS, max_size=3)
# As API Gateway hands a segment over: what is not ASCII was encoded, the rest as the client likes.
ASCII = TEXTS.map(lambda text: re.sub(r"[^!-~]", "", text))
ENCODED = st.builds(
    lambda text, safe: quote(text.encode("utf-8", "replace"), safe=safe), TEXTS, st.sampled_from(["", "/$'+&=:#{}"])
)
SEGMENTS = st.builds(
    lambda profile, colon, rest: profile + colon + rest,
    st.sampled_from(["demo", "etcd", "demo", "nobody", ""]),
    st.sampled_from([":", ":", "%3A", ""]),
    ASCII | ENCODED,
)


@pytest.fixture(scope="module")
def apache() -> Iterator[Apache]:
    with apache_velocity() as engine:
        yield engine


@pytest.fixture(scope="module")
def route() -> Route:
    """Return the route that starts a stream, as it is deployed."""
    return next(route for route in read_stack(osls.template("test"), {}).routes if isinstance(route, Route))


def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object, which must have no key twice."""
    assert len({key for key, _ in pairs}) == len(pairs), pairs
    return dict(pairs)


def strict(text: str) -> Any:
    """Return the value of a JSON text that has no key twice and nothing after it."""
    return json.loads(text, object_pairs_hook=unique)


def profile_of(stream_id: str) -> str | None:
    """Return the name of the profile; None if the function refuses the id."""
    try:
        return check_stream_id(stream_id)
    except ProfileError:
        return None


def decoded(segment: str) -> str | None:
    """Return the stream id of a path's segment; None if it is not percent-encoded UTF-8."""
    if re.search(r"%(?![0-9A-Fa-f]{2})", segment):
        return None
    try:
        return unquote(segment, errors="strict")
    except UnicodeDecodeError:
        return None


@settings(max_examples=examples(500))
@given(SEGMENTS, QUERIES, TEXTS, TEXTS)
def test_a_request_starts_exactly_its_stream(
    apache: Apache, route: Route, segment: str, query: dict[str, str], body: str, header: str
) -> None:
    """Any request starts one machine, whatever its headers and body. A query is refused by name and starts none."""
    template = route.request_templates["application/json"]
    headers = {"Authorization": f"Bearer secret {header}", "x-amzn-requestid": header}
    params = {"path": {"streamId": segment}, "querystring": query, "header": headers}
    context = {"requestId": header, "extendedRequestId": REQUEST_ID}
    rendered = apache.render(template, body={"body": body}, params=params, context=context)
    call = lambda_proxy.Call(body, {"streamId": segment}, query, headers, context)
    assert rendered == {"text": lambda_proxy.render(template, call), "override": {"header": {}}}

    start = strict(rendered["text"])
    if start.get("name", "").startswith("unknown*"):
        start["name"] = start["name"][: len("unknown*")]  # the profile that was meant is another test's claim
    stream_id = decoded(segment)
    profile = profile_of(stream_id) if stream_id is not None else None
    is_bare = all(parameter.startswith("X-Amz-") for parameter in query)
    name = {"name": "malformed*"} if profile is None else {} if is_bare else {"name": "query*"}
    if profile is not None and profile not in [path.stem for path in shipped.files()]:
        name = {"name": "unknown*"}
    machine = "arn:aws:states:us-east-1:000000000000:stateMachine:streamkeeper-test-start"
    assert start == {"input": start["input"], **name, "stateMachineArn": machine}
    assert strict(start["input"]) == {"pathParameters": {"streamId": "" if profile is None else stream_id}}
    assert start["input"].isascii()


def name_of(route: Route, segment: str) -> str | None:
    """Return the execution's name for a segment of the path, by the engine of the local run."""
    text = lambda_proxy.render(
        route.request_templates["application/json"], lambda_proxy.Call("", {"streamId": segment})
    )
    name: str | None = strict(text).get("name")
    return name


@pytest.mark.parametrize("character", ["a", "é", "😀"])
def test_an_id_has_at_most_256_characters(route: Route, character: str) -> None:
    """The template counts characters as the function does, whatever their bytes."""
    for length, name in ((256, None), (257, "malformed*")):
        stream_id = "demo:" + (length - 5) * character
        assert (name_of(route, quote(stream_id)), profile_of(stream_id) is not None) == (name, name is None)


def test_every_profile_can_be_started(route: Route) -> None:
    """Its name alone works, and so does any text after a colon. Similar names are unknown."""
    for path in shipped.files():
        names = {name_of(route, stream_id) for stream_id in (path.stem, f"{path.stem}:a", f"{path.stem}:a:b")}
        assert (path.stem, names) == (path.stem, {None})


@pytest.mark.parametrize(
    ("stream_id", "meant"),
    [
        *[(one, "demo") for one in ("demo-", "xdemo", "emo", "Demo", "demmo:x", "dmeo", "edmo:demo-socket")],
        *[("demo-sockte", "demo-socket"), ("a.c", "a.b"), ("nobody:demo", ""), ("wikimedia.toml:x", "")],
    ],
)
def test_an_unknown_profile_is_answered_with_a_similar_name(
    apache: Apache, route: Route, stream_id: str, meant: str
) -> None:
    """A character is missing, added or changed, or two are swapped. The first such profile is named."""
    template = insert_profile_names(route.request_templates["application/json"], ["a.b", "demo", "demo-socket", "dema"])
    params = {"path": {"streamId": stream_id}, "querystring": {}, "header": {}}
    rendered = apache.render(template, body={"body": ""}, params=params, context={})["text"]
    assert rendered == lambda_proxy.render(template, lambda_proxy.Call("", {"streamId": stream_id}))
    assert strict(rendered)["name"] == f"unknown*{meant}"
    body = {"__type": "InvalidName", "message": f"Invalid Name: 'unknown*{meant}'"}
    code, _, text = answered(apache, route, 400, body)
    said_fix = f"Did you mean '{meant}'? GET / lists all profiles." if meant else USUAL
    assert (code, strict(text)["fix"]) == (404, said_fix)


def test_both_content_types_have_one_template(route: Route) -> None:
    """A form starts what JSON starts, and nothing else starts anything."""
    (template,) = set(route.request_templates.values())
    assert sorted(route.request_templates) == ["application/json", "application/x-www-form-urlencoded"]
    # There are templates, so a request with another content type is 415.
    assert (route.passthrough, bool(template)) == ("WHEN_NO_TEMPLATES", True)


def said(status: int, text: str) -> str:
    """Return the sentence of a problem without duplicate members, and the id of the request."""
    body = strict(text)
    assert problems.read(status, body) == {"detail": body["detail"], "request_id": REQUEST_ID}
    return str(body["detail"])


def chosen(route: Route, status: int) -> tuple[int, str]:
    """Return status and template of the one integration response for a status of Step Functions."""
    matching = [one for one in route.responses if re.fullmatch(one["SelectionPattern"] or "[^45].*", str(status))]
    ((code, template),) = [(one["StatusCode"], one["ResponseTemplates"]["application/json"]) for one in matching]
    return int(code), template


def answered(apache: Apache, route: Route, status: int, body: dict[str, Any]) -> tuple[int, dict[str, str], str]:
    """Return status, headers and text of the API's answer for an answer of Step Functions."""
    code, template = chosen(route, status)
    context = {"requestId": "a client's \"own", "extendedRequestId": REQUEST_ID}
    rendered = apache.render(template, body=body, context=context)
    override: Rendered = {"header": {}}
    call = lambda_proxy.Call(json.dumps(body), context={**context, "responseOverride": override})
    # White space around an answer is no part of it; the local run takes it away.
    assert lambda_proxy.render(template, call).strip() == rendered["text"].strip()
    assert override == rendered["override"]
    return override.get("status", code), override["header"], rendered["text"].strip()


LEAKING = st.builds(lambda a, b, arn: a + arn + b, TEXTS, TEXTS, st.sampled_from(["", ARN, f"'{ARN}'", "123456789012"]))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | LEAKING,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(TEXTS, inner, max_size=2),
    max_leaves=4,
)
TYPES = st.sampled_from(
    [
        *("ThrottlingException", "KmsThrottlingException", "ExecutionLimitExceeded", "ServiceQuotaExceededException"),
        *("TooManyRequestsException", "RequestLimitExceeded", "StateMachineDoesNotExist", "StateMachineDeleting"),
        *("AccessDeniedException", "InvalidArn", "InvalidName", "ValidationException", "ExpiredTokenException"),
        *("UnrecognizedClientException", "InternalServerError", "StateMachineTypeNotSupported"),
    ]
)
KINDS = st.builds(lambda prefix, kind: prefix + kind, st.sampled_from(["", "com.amazonaws.swf.v2.model#"]), TYPES)
THROTTLES = ("Throttl", "TooManyRequests", "LimitExceeded", "QuotaExceeded")


@settings(max_examples=examples(400))
@given(
    st.sampled_from([400, 401, 402, 403, 404, 413, 429, 500, 502, 503, 504]),
    st.fixed_dictionaries({}, optional={"__type": KINDS | JSON, "message": LEAKING | JSON, "Message": JSON}),
)
def test_a_refusal_is_429_or_503_in_our_words(apache: Apache, route: Route, status: int, body: dict[str, Any]) -> None:
    """The answer repeats no word of Step Functions. After a throttle it says when to try again."""
    code, headers, text = answered(apache, route, status, body)
    kind = body.get("__type", "")
    throttled = status == 429 or (status < 500 and isinstance(kind, str) and any(one in kind for one in THROTTLES))
    if isinstance(kind, str):
        assert code == (429 if throttled else 503)
    assert said(code, text) == (NO_MORE if code == 429 else COULD_NOT)
    assert headers == PROBLEM | ({"Retry-After": "5"} if code == 429 else {})


@settings(max_examples=examples(300))
@given(
    st.sampled_from(["FAILED", "TIMED_OUT", "ABORTED", None, "$status"]),
    st.sampled_from(["Throttled", "NotStarted", "States.Runtime", "States.Timeout", None]) | JSON,
    LEAKING,
)
def test_a_start_that_failed_is_429_or_503_in_our_words(
    apache: Apache, route: Route, status: str | None, error: Any, cause: str
) -> None:
    """The execution's error decides. Its cause has AWS's words, which the answer does not repeat."""
    body = {"executionArn": ARN, "input": cause, "cause": cause, "status": status, "error": error}
    code, headers, text = answered(apache, route, 200, body)
    assert (code, headers) == ((429, PROBLEM | {"Retry-After": "5"}) if error == "Throttled" else (503, PROBLEM))
    assert said(code, text) == (NO_MORE if code == 429 else COULD_NOT)


@settings(max_examples=examples(300))
@given(
    st.fixed_dictionaries({"executionArn": TEXTS, "startDate": st.floats(0, 1e10), "already_running": st.booleans()})
)
def test_the_output_of_a_start_is_the_answer(apache: Apache, route: Route, output: dict[str, Any]) -> None:
    """It is unchanged, byte for byte."""
    text = json.dumps(output)
    assert answered(apache, route, 200, {"status": "SUCCEEDED", "output": text}) == (200, {}, text)


def test_a_start_without_a_profile_in_the_bucket_is_no_failure(
    apache: Apache, route: Route, prod: dict[str, Any]
) -> None:
    """The caller gets a 404, and a fleet goes on with the next stream. No alarm about failed starts is raised."""
    start = json.loads(prod["Resources"]["Start"]["Properties"]["DefinitionString"])
    state = start["States"]["No such profile"]
    assert state["Type"] == "Succeed"
    output = re.sub(r"^\{% '(\w+)' %\}$", r'"\1"', state["Output"])
    code, headers, text = answered(apache, route, 200, {"status": "SUCCEEDED", "output": output})
    assert (code, headers, said(code, text)) == (404, PROBLEM, UNKNOWN)
    states, arn = (
        boto3.client("stepfunctions", region_name="us-east-1"),
        ARN.replace("other", "streamkeeper-test-start"),
    )
    with Stubber(states) as service:
        answer = {"executionArn": arn, "status": "SUCCEEDED", "output": output, "startDate": 0, "stopDate": 0}
        service.add_response("start_sync_execution", answer)
        assert start_stream(states, arn, "nobody:x") == (Outcome.FAILED, "no profile has its name")


@pytest.mark.parametrize(
    ("name", "status", "sentence"),
    [("malformed", 400, MALFORMED), ("unknown", 404, UNKNOWN), ("query", 400, NO_PARAMETERS)],
)
def test_a_name_that_is_refused_is_the_callers_mistake(
    apache: Apache, route: Route, name: str, status: int, sentence: str
) -> None:
    """Step Functions refuses the three names that the request template gives to wrong requests."""
    body = {"__type": "com.amazonaws.swf.service.v2.model#InvalidName", "message": f"Invalid Name: '{name}*'"}
    code, headers, text = answered(apache, route, 400, body)
    assert (code, headers, said(code, text)) == (status, PROBLEM, sentence)


PACKAGED = """
const stage = { 'sls:stage': 'test', 'self:custom.upstreams': {} };
return require('./packaging/parts.cjs')({ resolveVariable: async (name) => stage[name] });
"""
PARTS = ["btc", "config/a..m", "~x,y*@+:2"]


def packaged(folder: Path, parts: list[str]) -> str:
    """Return what packaging puts into the template for one profile with these parts, and one without parts."""
    shutil.copytree(ROOT / "packaging", folder / "packaging")
    (folder / "node_modules").symlink_to(ROOT / "node_modules")
    (folder / "env" / "streams").mkdir(parents=True)
    for name, more in (("prices", f"parts = {json.dumps(parts)}"), ("demo", "")):
        text = f'address = "https://x/{{name}}"\nframing = "sse"\n{more}\n'
        (folder / "env" / "streams" / f"{name}.toml").write_text(text)
    said: str = node.run(PACKAGED, folder=folder)
    return said


def test_a_start_of_the_whole_names_its_parts(apache: Apache, route: Route, tmp_path: Path) -> None:
    """A start of a part, or of another stream, names none. The local run writes the same as packaging."""
    parts = list(part_ids("prices", PARTS))
    template = insert_profile_names(route.request_templates["application/json"], ["demo", "prices"], {"prices": parts})
    assert json.loads(packaged(tmp_path, PARTS).split("'")[1]) == parts
    assert json.loads(template.partition("#set($parts = ")[2].split("'")[1]) == parts
    for stream_id, expected in (("prices", parts), ("prices:btc", None), ("demo", None)):
        params = {"path": {"streamId": stream_id}, "querystring": {}, "header": {}}
        text = lambda_proxy.render(template, lambda_proxy.Call("", {"streamId": stream_id}))
        assert apache.render(template, body={"body": ""}, params=params, context={})["text"] == text
        assert json.loads(json.loads(text)["input"]).get("parts") == expected


@pytest.mark.parametrize("part", ["it's", "$x", "#end", "a b", ""])
def test_a_profile_name_that_would_change_the_template_is_refused(tmp_path: Path, part: str) -> None:
    """Packaging refuses it before it makes anything."""
    with pytest.raises(node.Failed, match=r"prices\.toml has wrong parts"):
        packaged(tmp_path, ["a", part])
