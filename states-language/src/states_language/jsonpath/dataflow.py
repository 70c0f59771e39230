"""Takes a state's data from its raw input to its output, in JSONPath.

The five fields apply in this order: InputPath, Parameters, the state's own work, ResultSelector, ResultPath,
OutputPath. For the input {"a": {"n": 1}}, InputPath $.a and ResultPath $.r, a state that returns 2 has the output
{"a": {"n": 1}, "r": 2}.
Invariant: a flow has the same methods in either query language (`Flow`).
"""

from typing import Any, Protocol

from states_language.branch import Branch
from states_language.definition.fields import DefinitionError, Fields
from states_language.jsonpath.grammar import PathSyntaxError, compile_path
from states_language.jsonpath.selection import Path
from states_language.jsonpath.templates import Fill, compile_template
from states_language.variables import check_names

WHOLE = compile_path("$")


class Flow(Protocol):
    """How one state handles its data and variables. `assigns` lists the names that it may assign, each with its
    JSON pointer.
    """

    assigns: list[tuple[str, str]]

    def narrowed(self, raw: Any, branch: Branch) -> Any: ...
    def effective(self, raw: Any, branch: Branch) -> Any: ...
    def finish(self, raw: Any, result: Any, branch: Branch) -> Any: ...


def path_field(fields: Fields, name: str, *, reference: bool = False) -> Path | None:
    """Return a field's compiled path, $ where it is absent, None where it is null; raises DefinitionError."""
    text = fields.get(name, "$")
    return None if text is None else compiled(text, fields.at(name), reference=reference)


def compiled(text: Any, pointer: str, *, reference: bool = False) -> Path:
    """Return the compiled path; raises DefinitionError where it is not valid, or not the `reference` path required."""
    if not isinstance(text, str):
        raise DefinitionError(pointer, "must be a JSONPath")
    try:
        path = compile_path(text)
    except PathSyntaxError as problem:
        raise DefinitionError(pointer, f"'{text}' is not a valid JSONPath: {problem}") from None
    if reference and not path.reference:
        raise DefinitionError(pointer, f"'{text}' is not a Reference Path: it must name a single node")
    return path


def result_path(fields: Fields) -> Path | None:
    """Return ResultPath, None where it is null; raises DefinitionError for a path outside the state's input."""
    path = path_field(fields, "ResultPath", reference=True)
    if path is not None and not path.plain:
        where = "the Context Object" if path.context else "a variable; Assign does"
        raise fields.fail("ResultPath", f"cannot write to {where}")
    return path


class Assignment:
    """An Assign field in JSONPath."""

    def __init__(self, fields: Fields) -> None:
        self.names: list[tuple[str, str]] = []
        self._fill: Fill | None = None
        if "Assign" in fields:
            value, where = fields.get("Assign"), fields.at("Assign")
            self.names = list(check_names(value, where, template=True))
            self._fill = compile_template(value, where)

    def stage(self, data: Any, branch: Branch) -> None:
        """Put the values into `branch.staged`; the variables get them when the state is left."""
        if self._fill is not None:
            branch.staged = self._fill(data, branch)


class Dataflow:
    """A state's flow in JSONPath; the constructor's arguments say which fields the state type has."""

    def __init__(
        self, fields: Fields, *, parameters: bool = False, selector: bool = False, result: bool = False
    ) -> None:
        self._input = path_field(fields, "InputPath")
        self._output = path_field(fields, "OutputPath")
        self._result = result_path(fields) if result else WHOLE
        self._parameters: Fill | None = None
        self._selector: Fill | None = None
        if parameters and "Parameters" in fields:
            self._parameters = compile_template(fields.get("Parameters"), fields.at("Parameters"))
        if selector and "ResultSelector" in fields:
            self._selector = compile_template(fields.get("ResultSelector"), fields.at("ResultSelector"))
        self._assign = Assignment(fields)
        self.assigns = self._assign.names

    def narrowed(self, raw: Any, branch: Branch) -> Any:
        """Return the input after InputPath; null gives {}."""
        return _through(self._input, raw, branch)

    def effective(self, raw: Any, branch: Branch) -> Any:
        """Return the effective input: after InputPath and Parameters."""
        narrowed = _through(self._input, raw, branch)
        return narrowed if self._parameters is None else self._parameters(narrowed, branch)

    def finish(self, raw: Any, result: Any, branch: Branch) -> Any:
        """Return the output, with Assign staged in the branch.

        ResultSelector, ResultPath (null drops the result) and OutputPath apply. Assign reads the result as it is before
        ResultSelector (recorded for Pass).
        """
        self._assign.stage(result, branch)
        return self.output(raw, result, branch)

    def output(self, raw: Any, result: Any, branch: Branch) -> Any:
        """Return the output as `finish` does, without Assign."""
        selected = result if self._selector is None else self._selector(result, branch)
        combined = raw if self._result is None else self._result.put(raw, selected)
        return _through(self._output, combined, branch)


def _through(path: Path | None, data: Any, branch: Branch) -> Any:
    if path is None:
        return {}
    if not path.steps and path.plain:
        return data
    return path.read(data, branch)
