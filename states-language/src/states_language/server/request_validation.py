"""Checks requests against AWS's own model of the Step Functions API, which botocore carries.

Invariant: a request that passes has every required member, each of its type, length, range and choice.
"""

import functools
from typing import Any

from botocore.loaders import create_loader
from botocore.model import ListShape, MapShape, ServiceModel, Shape, StructureShape

from states_language.server.parameters import Refusal

_KINDS: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "long": (int,),
    "float": (int, float),
    "boolean": (bool,),
    "list": (list,),
    "map": (dict,),
    "structure": (dict,),
}
_DESCRIBED = {"string": "a string", "integer": "a whole number", "long": "a whole number", "float": "a number"} | {
    "boolean": "true or false",
    "list": "a list",
    "map": "an object",
    "structure": "an object",
}
# Each of these has an error of its own that says more: InvalidName, InvalidDefinition, InvalidExecutionInput …
# Too long a name or definition has none.
_OWN_ERROR = {"Name", "Definition", "SensitiveData", "Arn", "LongArn", "TaskToken"}


@functools.cache
def model() -> ServiceModel:
    """Returns AWS's model of the Step Functions API."""
    return ServiceModel(create_loader().load_service_model("stepfunctions", "service-2"), "stepfunctions")


def check(action: str, parameters: dict[str, Any]) -> None:
    """Raises Refusal with every constraint that the request breaks."""
    problems: list[str] = []
    shape = model().operation_model(action).input_shape
    if shape is not None:
        _check(shape, parameters, "", problems)
    if problems:
        count = f"{len(problems)} validation error{'s' if len(problems) > 1 else ''} detected"
        raise Refusal("ValidationException", f"{count}: {'; '.join(problems)}")


def _check(shape: Shape, value: Any, place: str, problems: list[str]) -> None:
    if not _is_a(shape.type_name, value):
        problems.append(f"Value at '{place}' failed to satisfy constraint: it must be {_DESCRIBED[shape.type_name]}")
        return
    _constraints(shape, value, place, problems)
    if isinstance(shape, StructureShape):
        for name, member in shape.members.items():
            if value.get(name) is not None:
                _check(member, value[name], f"{place}.{name}" if place else name, problems)
            elif name in shape.required_members:
                problems.append(f"Value null at '{name}' failed to satisfy constraint: Member must not be null")
    elif isinstance(shape, ListShape):
        for index, item in enumerate(value, 1):
            _check(shape.member, item, f"{place}.{index}.member", problems)
    elif isinstance(shape, MapShape):
        for key, item in value.items():
            _check(shape.value, item, f"{place}.{key}", problems)


def _is_a(kind: str, value: object) -> bool:
    allowed = _KINDS.get(kind, (object,))
    # A bool is an int to Python, and not to JSON.
    return isinstance(value, allowed) and (bool in allowed or not isinstance(value, bool))


def _constraints(shape: Shape, value: Any, place: str, problems: list[str]) -> None:
    # What the model calls sensitive, such as a definition or an input, is not repeated.
    shown = "" if shape.metadata.get("sensitive") else f" '{value}'"
    failed = f"Value{shown} at '{place}' failed to satisfy constraint: Member must"
    enum = shape.metadata.get("enum")
    if enum and value not in enum:
        problems.append(f"{failed} satisfy enum value set: [{', '.join(enum)}]")
    if (shape.name in _OWN_ERROR - {"Definition", "Name"}) or isinstance(shape, StructureShape | MapShape):
        return
    least, most = shape.metadata.get("min"), shape.metadata.get("max")
    least = None if shape.name in _OWN_ERROR else least
    size = value if isinstance(value, int | float) else len(value)
    what = "value" if isinstance(value, int | float) else "length"
    if least is not None and size < least:
        problems.append(f"{failed} have {what} greater than or equal to {least}")
    if most is not None and size > most:
        problems.append(f"{failed} have {what} less than or equal to {most}")
