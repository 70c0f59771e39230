"""Takes a state's data from its raw input to its output, in JSONPath, and fills Payload Templates.

The five fields apply in this order: InputPath, Parameters, the state's own work, ResultSelector, ResultPath,
OutputPath. For the input {"a": {"n": 1}}, InputPath $.a and ResultPath $.r, a state that returns 2 has the output
{"a": {"n": 1}, "r": 2}. In a template the value of a key that ends in .$ is a path or an intrinsic call:

    {"name.$": "$.user", "n": 1}  # {"name": "Ada", "n": 1} for {"user": "Ada"}

Invariants: a flow has the same methods in either query language (`Flow`); the parts of a template without a path are
shared with the definition, and nobody writes to them.
"""

from collections.abc import Callable
from typing import Any, Protocol

from states_language.branch import Branch
from states_language.context import Environment, check_variable_names
from states_language.definition.fields import DefinitionError, Fields, child_pointer
from states_language.failures import EvaluationError, Oversized
from states_language.jsonpath.expressions import Expression, compile_expression, count_paths, evaluate
from states_language.jsonpath.grammar import PathSyntaxError, compile_path
from states_language.jsonpath.selection import Path
from states_language.jsonpath.steps import Index
from states_language.values import FEW_VALUES, LARGEST_BETWEEN, MISSING, compact, estimate_json_length

Fill = Callable[[Any, Environment], Any]
_NESTED = (dict, list)


def compile_template(value: Any, pointer: str) -> Fill:
    """Return the function that fills a template; raises DefinitionError for a bad path or call in it."""
    read: list[int] = []
    fill = _compile_part(value, pointer, read)
    if fill is None:
        return lambda _data, _env: value
    return fill if sum(read) <= FEW_VALUES else _limit_size(fill)


def _limit_size(fill: Fill) -> Fill:
    """Return a function that also limits the size of the value; many paths may make it too large for JSON."""

    def filled(data: Any, env: Environment) -> Any:
        value = fill(data, env)
        if estimate_json_length(value, {}) > LARGEST_BETWEEN:
            raise Oversized
        return value

    return filled


def compile_field_expression(text: Any, pointer: str, name: str) -> Expression:
    """Return the compiled path or intrinsic call of a field; raises DefinitionError naming the field."""
    if not isinstance(text, str):
        raise DefinitionError(child_pointer(pointer, name), "must be a string with a JSONPath or an intrinsic function")
    try:
        return compile_expression(text)
    except PathSyntaxError as problem:
        rule = f"'{text}' is not a valid JSONPath or intrinsic function: {problem}"
        raise DefinitionError(child_pointer(pointer, name), rule) from None


def look_up(source: Expression, field: str, data: Any, env: Environment) -> Any:
    """Return the expression's value; for a path that leads nowhere, raises AWS's EvaluationError (recorded)."""
    if not isinstance(source, Path):
        return evaluate(source, data, env)
    root = source.root(data, env)
    value = source.find_from_root(root)
    if value is MISSING:
        root = data if root is MISSING else root
        raise EvaluationError(
            f"The JSONPath '{source.text}' specified for the field '{field}' could not be found in the input "
            f"'{compact(root)}'"
        )
    return value


def _compile_part(value: Any, pointer: str, read: list[int]) -> Fill | None:
    """Return the part's function, None for a part without paths; `read` collects each expression's number of paths."""
    if isinstance(value, dict):
        return _compile_object(value, pointer, read)
    if isinstance(value, list):
        fills = [
            _compile_part(element, child_pointer(pointer, index), read) if isinstance(element, _NESTED) else None
            for index, element in enumerate(value)
        ]
        if not any(fills):
            return None
        return lambda data, env: [
            fill(data, env) if fill else element for fill, element in zip(fills, value, strict=True)
        ]
    return None


def _compile_object(value: dict[str, Any], pointer: str, read: list[int]) -> Fill | None:
    members: list[tuple[str, Fill | None, Any]] = []
    for key, member in value.items():
        fill: Fill | None = None
        name = key
        if key.endswith(".$"):
            name, source = key[:-2], compile_field_expression(member, pointer, key)
            read.append(count_paths(source))
            fill = _compile_member(key, source)
        elif isinstance(member, _NESTED):
            fill = _compile_part(member, child_pointer(pointer, key), read)
        members.append((name, fill, member))
    if not any(fill for _, fill, _ in members):
        return None
    if len({name for name, _, _ in members}) < len(members):
        raise DefinitionError(pointer, "gives the same name with .$ and without")
    return lambda data, env: {name: fill(data, env) if fill else member for name, fill, member in members}


def _compile_member(key: str, source: Expression) -> Fill:
    if isinstance(source, Path) and source.text.endswith("]"):
        return lambda data, env: _find_element(source, key, data, env)
    return lambda data, env: look_up(source, key, data, env)


def _find_element(source: Path, key: str, data: Any, env: Environment) -> Any:
    """Return a path's value; only in a template, an element past an array's end is null (measured by others)."""
    value = source.find_value(data, env)
    if value is not MISSING:
        return value
    if isinstance(source.steps[-1], Index):
        array = Path(source.text, source.steps[:-1], source.is_into_context, source.variable).find_value(data, env)
        if isinstance(array, list):
            return None
    return look_up(source, key, data, env)


WHOLE_INPUT = compile_path("$")


class Flow(Protocol):
    """How one state handles its data and variables.

    assigned_variables: the names that it may assign, each with its JSON pointer.
    """

    assigned_variables: list[tuple[str, str]]

    def narrow_input(self, raw: Any, branch: Branch) -> Any: ...
    def effective_input(self, raw: Any, branch: Branch) -> Any: ...
    def finish(self, raw: Any, result: Any, branch: Branch) -> Any: ...


def path_field(fields: Fields, name: str, *, reference: bool = False) -> Path | None:
    """Return a field's compiled path: $ if it is absent, None if it is null; raises DefinitionError."""
    if name not in fields.value:
        fields.known.add(name)
        return WHOLE_INPUT
    return None if fields.get(name) is None else compile_path_field(fields, name, reference=reference)


def compile_path_field(fields: Fields, name: str, *, reference: bool = False, absent: str | None = None) -> Path:
    """Return a field's compiled path; raises DefinitionError if it is invalid, or no Reference Path if `reference`."""
    text = fields.get(name, absent)
    if not isinstance(text, str):
        raise fields.error_for(name, "must be a JSONPath")
    try:
        path = compile_path(text)
    except PathSyntaxError as problem:
        raise fields.error_for(name, f"'{text}' is not a valid JSONPath: {problem}") from None
    if reference and not path.is_reference_path:
        raise fields.error_for(name, f"'{text}' is not a Reference Path: it must name a single node")
    return path


def result_path(fields: Fields) -> Path | None:
    """Return ResultPath, None if it is null; raises DefinitionError for a path outside the state's input."""
    path = path_field(fields, "ResultPath", reference=True)
    if path is not None and not path.is_into_data:
        where = "the Context Object" if path.is_into_context else "a variable; Assign does"
        raise fields.error_for("ResultPath", f"cannot write to {where}")
    return path


class Assignment:
    """An Assign field in JSONPath."""

    def __init__(self, fields: Fields) -> None:
        self.names: list[tuple[str, str]] = []
        self._fill: Fill | None = None
        if "Assign" in fields:
            value, where = fields.get("Assign"), fields.pointer_of("Assign")
            self.names = list(check_variable_names(value, where, template=True))
            self._fill = compile_template(value, where)

    def stage(self, data: Any, branch: Branch) -> None:
        """Put the values into `branch.staged`; the variables get them when the state is left."""
        if self._fill is not None:
            branch.staged = self._fill(data, branch)


_NO_ASSIGNMENT = Assignment(Fields({}, "/"))


def read_assignment(fields: Fields) -> Assignment:
    """Return the Assign field, which may be absent."""
    return Assignment(fields) if "Assign" in fields else _NO_ASSIGNMENT


class Dataflow:
    """A state's flow in JSONPath; the constructor's arguments say which fields the state type has."""

    def __init__(
        self, fields: Fields, *, parameters: bool = False, selector: bool = False, result: bool = False
    ) -> None:
        self._parameters: Fill | None = None
        self._selector: Fill | None = None
        self._input = path_field(fields, "InputPath")
        self._output = path_field(fields, "OutputPath")
        self._result = result_path(fields) if result else WHOLE_INPUT
        if parameters and "Parameters" in fields:
            self._parameters = compile_template(fields.get("Parameters"), fields.pointer_of("Parameters"))
        if selector and "ResultSelector" in fields:
            self._selector = compile_template(fields.get("ResultSelector"), fields.pointer_of("ResultSelector"))
        self._assign = read_assignment(fields)
        self.assigned_variables = self._assign.names

    def narrow_input(self, raw: Any, branch: Branch) -> Any:
        """Return the input after InputPath; null gives {}."""
        return _apply_path(self._input, raw, branch)

    def effective_input(self, raw: Any, branch: Branch) -> Any:
        """Return the effective input: after InputPath and Parameters."""
        narrowed = _apply_path(self._input, raw, branch)
        return narrowed if self._parameters is None else self._parameters(narrowed, branch)

    def finish(self, raw: Any, result: Any, branch: Branch) -> Any:
        """Stage Assign in the branch and return the output.

        ResultSelector, ResultPath (null drops the result) and OutputPath apply. Assign reads the result before
        ResultSelector applies (recorded for Pass).
        """
        self._assign.stage(result, branch)
        return self.output(raw, result, branch)

    def output(self, raw: Any, result: Any, branch: Branch) -> Any:
        """Return the output as `finish` does, without Assign."""
        selected = result if self._selector is None else self._selector(result, branch)
        combined = raw if self._result is None else self._result.put(raw, selected)
        return _apply_path(self._output, combined, branch)


def _apply_path(path: Path | None, data: Any, branch: Branch) -> Any:
    if path is None:
        return {}
    if not path.steps and path.is_into_data:
        return data
    return path.read(data, branch)
