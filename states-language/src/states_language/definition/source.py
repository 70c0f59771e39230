"""Reads a definition from data, a text or a file: JSON or YAML, by itself or in a template.

A text that is valid JSON is read as JSON, any other as YAML, with the types of JSON alone: `2026-01-31`, `on` and
`1:30` are texts, `True` is true (YAML 1.2, core schema). A key that appears twice is refused, for one of its two values
would be lost in silence; only where a template of YAML describes no state machine, the last one counts, as for SAM.
Invariant: the data has at most MOST_PARTS values, each alias counted as often as it is used.
"""

import codecs
import json
import math
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from states_language.definition import templates
from states_language.definition.fields import DefinitionError
from states_language.values import Duplicate, compact, count_values, parse_json, unique_members_hook

Source = Mapping[str, Any] | str | os.PathLike[str]
"""Data, a text or a path."""
Definition = dict[str, Any]

MOST_PARTS = 1_000_000
"""Values in one definition, each alias counted as what it stands for; AWS takes definitions of up to 1 MB."""


class _Loader(yaml.SafeLoader):
    """A YAML loader that knows the types of JSON alone, and the functions of CloudFormation, which it notes."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.functions: list[str] = []
        self.duplicate_problems: list[DefinitionError] = []

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        # YAML 1.2, section 7.1: an anchor may be defined again, and an alias means the last one before it.
        if not self.check_event(yaml.AliasEvent):
            event: Any = super().peek_event()  # type: ignore[no-untyped-call]
            self.anchors.pop(event.anchor, None)
        return super().compose_node(parent, index)


def _construct_int(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> int:
    return int(loader.construct_scalar(node))


def _construct_float(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> float:
    number = float(loader.construct_scalar(node))
    if not math.isfinite(number):
        raise DefinitionError("/", f"line {node.start_mark.line + 1}: {node.value} is too large for a number")
    return number


def _construct_function(loader: "_Loader", name: str, node: yaml.Node) -> dict[str, Any]:
    """Return CloudFormation's long form of a function: {"Fn::GetAtt": ["Charge", "Arn"]} for !GetAtt Charge.Arn."""
    loader.functions.append(f"line {node.start_mark.line + 1}: !{name}")
    argument: Any = ""
    if isinstance(node, yaml.ScalarNode):
        argument = str(loader.construct_scalar(node))
        argument = argument.split(".", 1) if name == "GetAtt" else argument
    elif isinstance(node, yaml.SequenceNode):
        argument = loader.construct_sequence(node, deep=True)
    return {name if name in ("Ref", "Condition") else f"Fn::{name}": argument}


def _construct_mapping(loader: "_Loader", node: yaml.MappingNode) -> dict[str, Any]:
    made, merged, problem = dict[str, Any](), dict[str, Any](), None
    for written, node_of_value in node.value:
        value, line = loader.construct_object(node_of_value, deep=True), written.start_mark.line + 1
        if written.tag.endswith(":merge"):
            objects = value if isinstance(value, list) else [value]
            if not all(isinstance(each, dict) for each in objects):
                raise DefinitionError("/", f"line {line}: << must have an object or a list of objects")
            merged |= {key: member for each in reversed(objects) for key, member in each.items()}
            continue
        key = loader.construct_object(written)
        if not isinstance(key, str):
            raise DefinitionError("/", f"line {line}: a key must be a string, not {key!r}")
        if key in made:
            problem = problem or DefinitionError("/", f"line {line}: the key '{key}' appears twice")
        made[key] = value
    if problem is None:
        return merged | made
    loader.duplicate_problems.append(problem)
    return templates.ObjectWithDuplicate(merged | made, problem)


_Loader.yaml_implicit_resolvers = {}
_KINDS = ("str", "seq", "map", "null", "bool", "int", "float")
_Loader.yaml_constructors = {
    tag: constructor
    for tag, constructor in yaml.SafeLoader.yaml_constructors.items()
    if tag is None or tag.rpartition(":")[2] in _KINDS
}
for _tag, _pattern, _first in (
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("null", r"null|Null|NULL|~|", ["n", "N", "~", ""]),
    ("int", r"[-+]?[0-9]+", "-+0123456789"),
    ("merge", r"<<", "<"),
    ("float", r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?", "-+.0123456789"),
):
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(rf"^(?:{_pattern})$"), list(_first))
_Loader.add_constructor("tag:yaml.org,2002:int", _construct_int)
_Loader.add_constructor("tag:yaml.org,2002:float", _construct_float)
_Loader.add_constructor("tag:yaml.org,2002:map", _construct_mapping)
_Loader.add_multi_constructor("!", _construct_function)


def read_definition(
    source: Source, substitutions: templates.Substitutions | None = None, machine: str | None = None
) -> Definition:
    """Return a copy of the definition that a source holds; a template's has its names filled in.

    source: data, a path, or a text, which has several lines or begins with {. Each may be a template of SAM or
    CloudFormation, beside which the files lie that it names; `machine` then chooses a state machine by its logical id.
    Raises DefinitionError.
    """
    text, name = source, "the text"
    try:
        if not isinstance(source, str | os.PathLike):
            data = copy_as_json(source)
            if substitutions is not None and not templates.is_template(data):
                data = _parse_filled(compact(data), "the definition", substitutions)
            return _extract_definition(data, "the definition", substitutions, machine)
        if not (isinstance(source, str) and ("\n" in source or source.lstrip(" \t\r\ufeff").startswith("{"))):
            name = os.fspath(source)
            text = _read_text(name)
        return _extract_definition(_parse_filled(str(text), name, substitutions), name, substitutions, machine)
    except RecursionError:
        raise DefinitionError("/", "is nested too deeply") from None


def copy_as_json(source: Any) -> Definition:
    """Return a copy of the data as JSON has it, so that a later change of the data does not change the machine."""
    if not isinstance(source, Mapping):
        raise DefinitionError("/", "must be a JSON object")
    try:
        copy: Definition = parse_json(compact(dict(source)))
    except (TypeError, ValueError) as problem:
        raise DefinitionError("/", f"is not valid JSON: {problem}") from None
    return copy


def _read_text(name: str) -> str:
    try:
        content = Path(name).read_bytes()
    except OSError as problem:
        raise DefinitionError("/", f"{name} cannot be read: {problem.strerror}") from None
    wide = content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    try:
        return content.decode("utf-16" if wide else "utf-8-sig")
    except UnicodeDecodeError as problem:
        encoding = "UTF-16" if wide else "UTF-8"
        raise DefinitionError("/", f"{name} is not valid {encoding} at byte {problem.start + 1}") from None


def read_data(path: str | os.PathLike[str]) -> Any:
    """Return the data in a file, as `parse_data` does."""
    name = os.fspath(path)
    return parse_data(_read_text(name), name)


def _extract_definition(
    data: Any, name: str, substitutions: templates.Substitutions | None, machine: str | None
) -> Definition:
    """`name` begins the text of a DefinitionError; files that a template names lie beside it."""
    if templates.is_template(data):
        template = templates.Template(data, substitutions or {})
        chosen = template.choose_machine(machine)
        values = {**template.substitutions(chosen), **(substitutions or {})}

        def parse(text: str, name: str) -> Any:
            return _parse_filled(text, name, values, in_template=True)

        data = template.definition(chosen, lambda path: parse(_read_text(str(Path(name).parent / path)), path), parse)
    elif machine is not None:
        raise DefinitionError("/", f"{name} is not a template, so machine={machine!r} must be left out")
    if not isinstance(data, dict):
        raise DefinitionError("/", f"{name} must contain an object with StartAt and States")
    if "stepFunctions" in data and "States" not in data:
        raise DefinitionError("/stepFunctions", "must have stateMachines; check the file of a ${file(...)} by itself")
    return data


def _parse_filled(
    text: str, name: str, substitutions: templates.Substitutions | None, *, in_template: bool = False
) -> Any:
    """Return the data in a text with its names filled in, or the template that it is."""
    if name.endswith(".tftpl"):
        text, substitutions = templates.check_templatefile(text, name), substitutions or {}
    is_json = text.lstrip("\ufeff \t\r\n").startswith("{")
    try:
        data = parse_data(text, name)
        if "${" not in text or substitutions is None or templates.is_template(data):
            return data
    except DefinitionError:
        if "${" not in text or (substitutions is None and not is_json):
            raise
    text = templates.fill_in(text, substitutions or {}, in_template=in_template)
    try:
        return parse_data(text, name)
    except DefinitionError as problem:
        rule = f"{problem.rule}, once its names are filled in"
        for missing in templates.names_left(text)[:1] if is_json else ():
            rule = f"{name}: ${{{missing}}} needs a value: load(..., substitutions={{'{missing}': ...}})"
        raise DefinitionError("/", rule) from None


def parse_data(text: str, name: str = "the text") -> Any:
    """Return the data in a text: JSON, or YAML with the types of JSON unless `name` ends in .json.

    `name` begins the text of a DefinitionError.
    """
    text = text.removeprefix("\ufeff")
    try:
        try:
            value = parse_json(text, members=unique_members_hook())
            size = count_values(value, {}) if len(text) > MOST_PARTS else 0
        except json.JSONDecodeError:
            if name.removesuffix(".tftpl").endswith(".json"):
                raise
            loader = _Loader(text)
            value = loader.get_single_data()
            size = count_values(value, {})
            if loader.duplicate_problems and not templates.is_template(value):
                raise loader.duplicate_problems[0] from None
            if loader.functions and not templates.is_template(value):
                raise DefinitionError(
                    "/", f"{name}, {loader.functions[0]} is only for templates of SAM and CloudFormation"
                ) from None
    except RecursionError:
        raise DefinitionError("/", f"{name} is nested too deeply") from None
    except Duplicate as problem:
        raise DefinitionError("/", str(problem)) from None
    except (yaml.YAMLError, ValueError, KeyError) as problem:
        if isinstance(problem, DefinitionError):
            raise
        raise DefinitionError("/", f"{name} is neither YAML nor JSON: {' '.join(str(problem).split())}") from None
    if size > MOST_PARTS:
        raise DefinitionError("/", f"{name} has more than {MOST_PARTS} values once its aliases are expanded")
    return value
