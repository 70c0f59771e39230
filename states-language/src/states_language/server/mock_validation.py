"""Checks a mocked result of TestState against the model of the service's API that botocore has.

STRICT requires the fields that the model requires; PRESENT checks only the fields that are there. Both accept fields
that the model does not know. Invariant: results without a model (functions, activities, jobs, tokens) are not checked.
"""

from typing import Any

from botocore.exceptions import UnknownServiceError
from botocore.model import ListShape, MapShape, OperationNotFoundError, Shape, StringShape, StructureShape

from states_language.server.requests import Refusal
from states_language.server.sdk import client_name, pascal, service_model
from states_language.tasks.resources import Resource

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


def check_result(resource: Resource, result: Any, mode: str) -> None:
    """Raises Refusal for a result that the resource's API cannot give."""
    if mode == NONE or resource.function is not None or resource.pattern or resource.activity:
        return
    try:
        shape = service_model(client_name(resource.service)).operation_model(pascal(resource.action)).output_shape
    except (UnknownServiceError, OperationNotFoundError):
        return
    if not isinstance(result, dict):
        raise Refusal("ValidationException", "Mocked result must be a valid JSON object.")
    if shape is not None:
        _check(result, shape, "", mode == STRICT, resource.invokes)


def _check(value: Any, shape: Shape, name: str, strict: bool, invokes: bool = False) -> None:
    """Raise Refusal for a wrong value. invokes: whether it is lambda:invoke's, whose Payload is any JSON value."""
    if shape.type_name not in _KINDS or getattr(shape, "is_document_type", False) or (invokes and name == "Payload"):
        return
    kind, words = _KINDS[shape.type_name]
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise _refusal(f"Field '{name}' must be {words}")
    if isinstance(shape, StructureShape):
        members = {pascal(member): inner for member, inner in shape.members.items()}
        for required in map(pascal, shape.required_members) if strict else ():
            if required not in value:
                raise _refusal(f"Required field '{required}' is missing")
        for field, member in value.items():
            if field in members:
                _check(member, members[field], field, strict, invokes)
    elif isinstance(shape, ListShape):
        for element in value:
            _check(element, shape.member, name, strict)
    elif isinstance(shape, MapShape):
        for element in value.values():
            _check(element, shape.value, name, strict)
    elif isinstance(shape, StringShape) and shape.enum and value not in shape.enum:
        raise _refusal(f"Field '{name}' is not an expected value")


def _refusal(reason: str) -> Refusal:
    return Refusal("ValidationException", f"Mock result schema validation error: {reason}")
