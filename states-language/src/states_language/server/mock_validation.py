"""Checks a mocked result of TestState against the model of the service's API that botocore has.

STRICT requires the fields that the model requires; PRESENT checks only the fields that are there. Both accept fields
that the model does not know. The mock of a job (.sync) is checked against the action that Step Functions polls: that of
startExecution.sync:2 against DescribeExecution, whose Output is a text (Developer Guide, "Testing Activity, .sync, and
.waitForTaskToken states"; boto3's issue 4683). Not checked, for no model says what comes back: results of functions,
of activities, of whoever sends a token back, and of http:invoke, apigateway:invoke, eks:call and eks:runJob.
"""

import re
from typing import Any

from botocore.exceptions import UnknownServiceError
from botocore.model import ListShape, MapShape, Shape, StringShape, StructureShape

from states_language.server.requests import Refusal
from states_language.server.sdk import client_name, pascal, service_model
from states_language.tasks.resources import TOKEN, Resource

STRICT, NONE = "STRICT", "NONE"
_KINDS: dict[str, tuple[Any, str]] = {
    **dict.fromkeys(("string", "timestamp", "blob"), (str, "a string")),
    **dict.fromkeys(("integer", "long"), (int, "a number")),
    **dict.fromkeys(("float", "double"), ((int, float), "a number")),
    "boolean": (bool, "a boolean"),
    "list": (list, "an array"),
    "map": (dict, "an object"),
    "structure": (dict, "an object"),
}
_VERB = re.compile("^[A-Z][a-z]+")


def check_result(resource: Resource, result: Any, mode: str) -> None:
    """Raises Refusal for a result that the resource's API cannot give."""
    if mode == NONE or resource.function is not None or resource.pattern == TOKEN or resource.is_activity:
        return
    try:
        model = service_model(client_name(resource.service))
    except UnknownServiceError:
        return
    known = [name for name in _result_operations(resource) if name in model.operation_names]
    if not known:
        return
    shape = model.operation_model(known[0]).output_shape
    if not isinstance(result, dict):
        raise Refusal("ValidationException", "Mocked result must be a valid JSON object.")
    if shape is not None:
        _check_value(result, shape, "", mode == STRICT, resource.is_lambda_invoke)


def _result_operations(resource: Resource) -> list[str]:
    """Return the names that the operation may have whose answer is the result: of a job, those that describe it."""
    name = pascal(resource.action)
    if not resource.pattern:
        return [name]
    job = _VERB.sub("", name)  # StartJobRun starts a JobRun, which GetJobRun describes; SubmitJob has DescribeJobs
    return [f"Describe{job}", f"Get{job}", f"Describe{job}s", f"BatchGet{job}s", f"BatchGet{job}es"]


def _check_value(value: Any, shape: Shape, name: str, strict: bool, invokes: bool = False) -> None:
    """Raise Refusal for a wrong value. invokes: whether it is lambda:invoke's, whose Payload is any JSON value."""
    if shape.type_name not in _KINDS or getattr(shape, "is_document_type", False) or (invokes and name == "Payload"):
        return
    kind, words = _KINDS[shape.type_name]
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise _refusal(f"Field '{name}' must be {words}")
    least, most = shape.metadata.get("min"), shape.metadata.get("max")
    if words == "a number" and least is not None and value < least:
        raise _refusal(f"Field '{name}' is less than the minimum value")
    if words == "a number" and most is not None and value > most:
        raise _refusal(f"Field '{name}' exceeds the maximum value")
    if shape.type_name == "blob" and least is not None and len(value) < least:
        raise _refusal(f"Field '{name}' is smaller than the minimum length")
    if isinstance(shape, StructureShape):
        members = {pascal(member): inner for member, inner in shape.members.items()}
        for required in map(pascal, shape.required_members) if strict else ():
            if required not in value:
                raise _refusal(f"Required field '{required}' is missing")
        for field, member in value.items():
            if field in members:
                _check_value(member, members[field], field, strict, invokes)
    elif isinstance(shape, ListShape):
        for element in value:
            _check_value(element, shape.member, name, strict)
    elif isinstance(shape, MapShape):
        for element in value.values():
            _check_value(element, shape.value, name, strict)
    elif isinstance(shape, StringShape) and shape.enum and value not in shape.enum:
        raise _refusal(f"Field '{name}' is not an expected value")


def _refusal(reason: str) -> Refusal:
    return Refusal("ValidationException", f"Mock result schema validation error: {reason}")
