"""Reads and checks a request: against AWS's own model of the API, then its ARNs, names, JSON texts and pages.

Invariants: a request that AWS would refuse raises Refusal with the name of AWS's error; a request that passes has every
required member, and each member has an allowed type, length, range and value; a page continues after the last element
that was shown, whatever was added or removed since. Example: `require_arn(parameters, "executionArn", "execution")`
returns the member's value, or raises InvalidArn if it names a state machine.
"""

import base64
import bisect
import functools
import json
import re
import sys
from collections.abc import Awaitable, Callable, Sequence
from itertools import accumulate
from typing import Any, TypeVar

from botocore import xform_name
from botocore.exceptions import UnknownRegionError
from botocore.loaders import create_loader
from botocore.model import ListShape, MapShape, ServiceModel, Shape, StructureShape
from botocore.regions import EndpointResolver

from states_language.scheduling.lanes import take_turn_for_json
from states_language.scheduling.writing import text_in_turns
from states_language.server.json_messages import bytes_outside_texts, message
from states_language.values import Document, parse_as_spelled, parse_external_json

Parameters = dict[str, Any]
Answer = dict[str, Any]
Action = Callable[[Parameters], Answer | Awaitable[Answer]]

ACCOUNT, REGION = "000000000000", "us-east-1"
PREFIX = f"arn:aws:states:{REGION}:{ACCOUNT}"
REGION_MEMBER = "(region)"
"""The member in which an action finds the region of its request; no member of the API has this name."""
INPUT_LIMIT_BYTES = 262_144
_ARN = re.compile(r"arn:aws[a-z-]*:states:[a-z0-9-]*:\d{12}:([A-Za-z]+):(.+)")
# "A name must not contain: white space, brackets < > { } [ ], wildcard characters ? *, special characters
# " # % \ ^ | ~ ` $ & , ; : /, control characters". Source: StartExecution in the AWS Step Functions API reference.
_BAD_NAME = re.compile(r"[\s<>{}\[\]?*\"#%\\^|~`$&,;:/\x00-\x1f\x7f-\x9f\ud800-\udfff]")


class Refusal(Exception):
    """A request that Step Functions would refuse; `code` is the name of AWS's error."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class Actions:
    """Answers actions of the API: a subclass's method `_start_execution` answers StartExecution."""

    def actions(self) -> dict[str, Action]:
        """Returns the actions by name."""
        named = ((name, getattr(self, f"_{xform_name(name)}", None)) for name in api_model().operation_names)
        return {name: method for name, method in named if method is not None}


def require_arn(parameters: Parameters, name: str, *kinds: str) -> str:
    """Returns the ARN in this member; raises Refusal InvalidArn unless it names one of these kinds of resource."""
    value = str(parameters.get(name, ""))
    match = _ARN.fullmatch(value)
    if match is None:
        reason = value if value.startswith("arn:") else f"Invalid ARN prefix: {value}"
        raise Refusal("InvalidArn", f"Invalid Arn: '{reason}'")
    if match[1] not in kinds:
        raise Refusal("InvalidArn", f"Invalid Arn: 'Resource type not valid in this context: {match[1]}'")
    return value


def arn_prefix(parameters: Parameters) -> str:
    """Returns the beginning of the ARNs that the request creates, in the region for which it was signed."""
    region = parameters.get(REGION_MEMBER, REGION)
    return f"arn:{_partition(region)}:states:{region}:{ACCOUNT}"


@functools.lru_cache(maxsize=64)
def _partition(region: str) -> str:
    try:
        return str(EndpointResolver(create_loader().load_data("endpoints")).get_partition_for_region(region))
    except UnknownRegionError:
        return "aws"


def is_name(name: str) -> bool:
    """Returns whether an execution or a machine may have this name."""
    return 1 <= len(name) <= 80 and _BAD_NAME.search(name) is None


def check_name(name: str) -> str:
    """Returns the name of a machine or an execution; raises Refusal InvalidName."""
    if not is_name(name):
        raise Refusal("InvalidName", f"Invalid Name: '{name}'")
    return name


def read_input(text: str) -> Document | Refusal:
    """Returns the input that a text holds, or the refusal of one that holds none; others have turns meanwhile."""
    try:
        take_turn_for_json(text)
        value = read_data(text)
        return Document(value, text_in_turns(value, sys.maxsize))
    except RecursionError:
        problem = ValueError("it is nested too deeply")
    except ValueError as found:
        problem = found
    reason = message(text, problem) if text.strip() else "Invalid execution input."
    return Refusal("InvalidExecutionInput", f"Invalid State Machine Execution Input: '{reason}'")


def read_data(text: str) -> Any:
    """Returns the JSON value in a member of a request; raises ValueError, also for a text that is too long."""
    # Half of a surrogate pair in the request itself is refused.
    if len(text.encode()) > INPUT_LIMIT_BYTES:
        raise ValueError(f"it is longer than {INPUT_LIMIT_BYTES} bytes of UTF-8")
    return parse_external_json(text)


MOST_OUTSIDE = 262_144
"""The bytes of a request outside its texts. 15 MB of brackets would take seconds, in which nobody else is answered."""


def parse_request(body: bytes) -> Any:
    """Returns the value of a request's body; surrogate halves stay, so that a name with one is refused."""
    if len(body) > MOST_OUTSIDE and bytes_outside_texts(body, MOST_OUTSIDE) > MOST_OUTSIDE:
        raise Refusal("SerializationException", f"The request has more than {MOST_OUTSIDE} bytes outside its texts.")
    try:
        return parse_as_spelled(body.decode())
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


_DATA = {"DescribeExecution": ("input", "output", "cause", "error"), "StartSyncExecution": ("input", "output")}
"""What includedData leaves out of an execution's answer; in a machine's answer it empties the definition."""


def complete_answer(action: str, parameters: Parameters, answer: Answer) -> Answer:
    """Returns an answer with those members of AWS's model that have a value; instants in seconds.

    An action answers with instants in milliseconds. The events of a history are passed on unchanged.
    """
    shape = api_model().operation_model(action).output_shape
    if shape is None or "events" in answer:
        return answer
    whole = _model_members(shape, answer)
    with_data = parameters.get("includedData") != "METADATA_ONLY"
    for name in ("input", "output"):
        if name in whole and f"{name}Details" in shape.members:
            whole[f"{name}Details"] = {"included": with_data}
    if with_data:
        return whole
    if "definition" in whole:
        return whole | {"definition": "{}"}
    return {name: value for name, value in whole.items() if name not in _DATA[action]}


def _model_members(shape: StructureShape, value: dict[str, Any]) -> Answer:
    found = {}
    for name, member in value.items():
        kind = shape.members.get(name)
        if kind is None or member is None:
            continue
        if kind.type_name == "timestamp":
            member = member / 1000
        elif isinstance(kind, ListShape) and isinstance(kind.member, StructureShape):
            member = [_model_members(kind.member, item) for item in member]
        found[name] = member
    return found


T = TypeVar("T")

_DEFAULT_SIZE = 100
MOST_BYTES = 1_000_000
"""After how many bytes a page ends. maxResults "is only an upper limit" (API reference)."""


def page(
    parameters: Parameters, name: str, elements: Sequence[T], place: Callable[[T], int | str], *,
    descending: bool = False, size: Callable[[T], int] = lambda _: 0,
) -> tuple[list[T], Answer]:  # fmt: skip
    """Returns the elements of one page and the rest of the answer: `nextToken` unless it is the last page.

    `name` says what is listed, and by which filter: a token of another list is refused. `place` returns an element's
    key; the elements are in ascending order of it, and `descending` shows the last first. It reads only the page's
    elements, and a few to find them. maxResults is 0 (the usual 100) to 1000; `size` returns the bytes of an element.
    """
    most = parameters.get("maxResults") or _DEFAULT_SIZE
    token = parameters.get("nextToken")
    after = _token_place(name, token, elements, place) if token else None
    if descending:
        end = len(elements) if after is None else bisect.bisect_left(elements, after, key=place)
        shown, is_last = list(elements[max(0, end - most) : end])[::-1], end <= most
    else:
        begin = 0 if after is None else bisect.bisect_right(elements, after, key=place)
        shown, is_last = list(elements[begin : begin + most]), begin + most >= len(elements)
    before = accumulate(map(size, shown), initial=0)
    fitting = [element for element, above in zip(shown, before, strict=False) if above < MOST_BYTES]
    is_last = is_last and len(fitting) == len(shown)
    shown = fitting
    if is_last:
        return shown, {}
    text = json.dumps([name, place(shown[-1])])
    return shown, {"nextToken": base64.b64encode(text.encode()).decode()}


def _token_place(name: str, token: str, elements: Sequence[T], place: Callable[[T], int | str]) -> Any:
    try:
        of, after = json.loads(base64.b64decode(token, validate=True))
    except (ValueError, TypeError):
        of, after = None, None
    if not isinstance(of, str) or (elements and type(after) is not type(place(elements[0]))):
        raise Refusal("InvalidToken", "Invalid Token: 'Invalid token'")
    if of != name:
        raise Refusal("InvalidToken", "Invalid Token: 'Input inconsistent with page token'")
    return after


_KINDS: dict[str, tuple[Any, str]] = {
    **dict.fromkeys(("integer", "long"), ((int,), "a whole number")),
    **dict.fromkeys(("map", "structure"), ((dict,), "an object")),
    "string": ((str,), "a string"),
    "float": ((int, float), "a number"),
    "boolean": ((bool,), "true or false"),
    "list": ((list,), "a list"),
}
# A wrong value of these has an error of its own that says more: InvalidName, InvalidDefinition, InvalidExecutionInput …
# A name or definition that is too long has none.
_OWN_ERROR = {"Name", "Definition", "SensitiveData", "Arn", "LongArn", "TaskToken"}
_PATTERNS = {
    "CharacterRestrictedName": r"(?=.*[a-zA-Z_.-])[a-zA-Z0-9_.-]{0,80}",
    "ClientToken": r"[!-~]+",
    "TraceHeader": r"[\x00-\x7f]*",
}
"""What the model's patterns mean; a text that is too long is refused for its length alone."""


@functools.cache
def api_model() -> ServiceModel:
    """Returns AWS's model of the Step Functions API."""
    return ServiceModel(create_loader().load_service_model("stepfunctions", "service-2"), "stepfunctions")


def check_request(action: str, parameters: dict[str, Any]) -> None:
    """Raises Refusal with every constraint that the request breaks."""
    problems: list[str] = []
    shape = api_model().operation_model(action).input_shape
    if shape is not None:
        _check_value(shape, parameters, "", problems)
    if problems:
        count = f"{len(problems)} validation error{'s' if len(problems) > 1 else ''} detected"
        raise Refusal("ValidationException", f"{count}: {'; '.join(problems)}")


def _check_value(shape: Shape, value: Any, place: str, problems: list[str]) -> None:
    allowed, described = _KINDS.get(shape.type_name, ((object,), ""))
    # A bool is an int to Python, and not to JSON.
    if not isinstance(value, allowed) or (isinstance(value, bool) and bool not in allowed):
        problems.append(f"Value at '{place}' failed to satisfy constraint: it must be {described}")
        return
    _check_constraints(shape, value, place, problems)
    if isinstance(shape, StructureShape):
        for name, member in shape.members.items():
            if value.get(name) is not None:
                _check_value(member, value[name], f"{place}.{name}" if place else name, problems)
            elif name in shape.required_members:
                problems.append(f"Value null at '{name}' failed to satisfy constraint: Member must not be null")
    elif isinstance(shape, ListShape):
        for index, item in enumerate(value, 1):
            _check_value(shape.member, item, f"{place}.{index}.member", problems)
    elif isinstance(shape, MapShape):
        for key, item in value.items():
            _check_value(shape.value, item, f"{place}.{key}", problems)


def _check_constraints(shape: Shape, value: Any, place: str, problems: list[str]) -> None:
    def fail(constraint: str) -> None:
        # What the model calls sensitive, such as a definition or an input, is not repeated.
        shown = "" if shape.metadata.get("sensitive") else f" '{value}'"
        problems.append(f"Value{shown} at '{place}' failed to satisfy constraint: Member must {constraint}")

    if shape.name in _PATTERNS and not re.fullmatch(_PATTERNS[shape.name], value):
        fail(f"satisfy regular expression pattern: {shape.metadata['pattern']}")
    enum = shape.metadata.get("enum")
    if enum and value not in enum:
        fail(f"satisfy enum value set: [{', '.join(enum)}]")
    if (shape.name in _OWN_ERROR - {"Definition", "Name"}) or isinstance(shape, StructureShape | MapShape):
        return
    least, most = shape.metadata.get("min"), shape.metadata.get("max")
    least = None if shape.name in _OWN_ERROR else least
    size = value if isinstance(value, int | float) else len(value)
    what = "value" if isinstance(value, int | float) else "length"
    if least is not None and size < least:
        fail(f"have {what} greater than or equal to {least}")
    if most is not None and size > most:
        fail(f"have {what} less than or equal to {most}")
