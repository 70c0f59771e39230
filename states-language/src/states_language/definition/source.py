"""Reads a definition from a YAML or JSON file.

YAML is read with the types of JSON alone, so `2026-01-31`, `on` and `1:30` are texts. A key that appears twice is
refused, for one of the two values would be lost in silence.
Invariant: the data has at most MOST_PARTS values, each alias counted as often as it is used.
"""

import os
import re
from pathlib import Path
from typing import Any

import yaml

from states_language.definition.fields import DefinitionError
from states_language.values import parse_json, parts

MOST_PARTS = 1_000_000
"""Values in one definition, each alias counted as what it stands for; AWS takes definitions of up to 1 MB."""


class _Loader(yaml.SafeLoader):
    """A YAML loader that knows the types of JSON alone."""

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        # YAML 1.2, section 7.1: an anchor may be defined again, and an alias means the last one before it.
        if not self.check_event(yaml.AliasEvent):
            event: Any = super().peek_event()  # type: ignore[no-untyped-call]
            self.anchors.pop(event.anchor, None)
        return super().compose_node(parent, index)


def _int(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> int:
    return int(loader.construct_scalar(node))


def _float(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> float:
    return float(loader.construct_scalar(node))


def _object(loader: yaml.SafeLoader, node: yaml.MappingNode) -> dict[str, Any]:
    seen: set[str] = set()
    for written, _ in node.value:
        key, line = loader.construct_object(written), written.start_mark.line + 1
        if not isinstance(key, str):
            raise DefinitionError("/", f"line {line}: a key must be a string, not {key!r}")
        if key in seen:
            raise DefinitionError("/", f"line {line}: the key '{key}' appears twice")
        seen.add(key)
    return {str(key): value for key, value in loader.construct_mapping(node, deep=True).items()}


_Loader.yaml_implicit_resolvers = {}
_KINDS = ("str", "seq", "map", "null", "bool", "int", "float")
_Loader.yaml_constructors = {
    tag: constructor
    for tag, constructor in yaml.SafeLoader.yaml_constructors.items()
    if tag is None or tag.rpartition(":")[2] in _KINDS
}
for _tag, _pattern, _first in (
    ("bool", r"true|false", "tf"),
    ("null", r"null|~|", ["n", "~", ""]),
    ("int", r"[-+]?[0-9]+", "-+0123456789"),
    ("float", r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?", "-+.0123456789"),
):
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(rf"^(?:{_pattern})$"), list(_first))
_Loader.add_constructor("tag:yaml.org,2002:int", _int)
_Loader.add_constructor("tag:yaml.org,2002:float", _float)
_Loader.add_constructor("tag:yaml.org,2002:map", _object)


def read_definition(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the definition in a file; JSON where its name ends in .json, YAML otherwise. Raises DefinitionError."""
    name = os.fspath(path)
    try:
        text = Path(name).read_text(encoding="utf-8")
    except OSError as problem:
        raise DefinitionError("/", f"{name} cannot be read: {problem.strerror}") from None
    except UnicodeDecodeError as problem:
        raise DefinitionError("/", f"{name} is not valid UTF-8: see its byte {problem.start + 1}") from None
    return parse_definition(text, name)


def parse_definition(text: str, name: str = "the text") -> dict[str, Any]:
    """Return the definition in a text: JSON where `name` ends in .json, YAML (which includes JSON) otherwise.

    `name` begins the text of a DefinitionError.
    """
    value = parse_data(text, name)
    if not isinstance(value, dict):
        raise DefinitionError("/", f"{name} does not hold an object with StartAt and States")
    return value


def parse_data(text: str, name: str = "the text") -> Any:
    """Return the data in a text: JSON where `name` ends in .json, YAML with the types of JSON otherwise.

    Raises DefinitionError, as `parse_definition` does.
    """
    try:
        value = parse_json(text, members=_once) if name.endswith(".json") else yaml.load(text, _Loader)
        size = parts(value, {})
    except RecursionError:
        raise DefinitionError("/", f"{name} is nested too deeply") from None
    except (yaml.YAMLError, ValueError, KeyError) as problem:
        if isinstance(problem, DefinitionError):
            raise
        raise DefinitionError("/", f"{name} is neither YAML nor JSON: {' '.join(str(problem).split())}") from None
    if size > MOST_PARTS:
        raise DefinitionError("/", f"{name} holds more than {MOST_PARTS} values, its aliases written out")
    return value


def _once(members: list[tuple[str, Any]]) -> dict[str, Any]:
    object_: dict[str, Any] = {}
    for key, value in members:
        if key in object_:
            raise DefinitionError("/", f"the key '{key}' appears twice")
        object_[key] = value
    return object_
