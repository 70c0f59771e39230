"""From a state's raw input to its output, in JSONPath: InputPath, Parameters, ResultSelector, ResultPath, OutputPath.

Decides the order of the five, what an absent or null one means, and what Assign looks at; does not know what the state
does in between. Invariant: every flow, in either query language, answers the same four questions.
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
    """What one state does with its data and with variables. assigns: the names that it may assign, and where."""

    assigns: list[tuple[str, str]]

    def narrowed(self, raw: Any, branch: Branch) -> Any:
        """Return the input that the state's own fields look into."""
        ...

    def effective(self, raw: Any, branch: Branch) -> Any:
        """Return what the state works on."""
        ...

    def finish(self, raw: Any, result: Any, branch: Branch) -> Any:
        """Return the output, with the state's Assign staged in the branch."""
        ...


def path_field(fields: Fields, name: str, *, reference: bool = False) -> Path | None:
    """Return a field's compiled path, $ where it is absent, None where it is null; raises DefinitionError."""
    text = fields.get(name, "$")
    return None if text is None else compiled(text, fields.at(name), reference=reference)


def compiled(text: Any, pointer: str, *, reference: bool = False) -> Path:
    """Return the compiled path; raises DefinitionError when it is none, or no Reference Path where one is asked for."""
    if not isinstance(text, str):
        raise DefinitionError(pointer, "must be a JSONPath")
    try:
        path = compile_path(text)
    except PathSyntaxError as problem:
        raise DefinitionError(pointer, f"'{text}' is no JSONPath: {problem}") from None
    if reference and not path.reference:
        raise DefinitionError(pointer, f"'{text}' is no Reference Path: it must name a single node")
    return path


def result_path(fields: Fields) -> Path | None:
    """Return ResultPath, None where it is null; raises DefinitionError when it does not lie in the state's input."""
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
        """Return nothing; the values wait in the branch until the state is left."""
        if self._fill is not None:
            branch.staged = self._fill(data, branch)


class Dataflow:
    """A state's flow in JSONPath. Which of the five fields the state type has, its constructor says."""

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
        """Return the output: the result after ResultSelector, put into the raw input by ResultPath (null drops it),
        after OutputPath. Assign looks at the result as it came, before ResultSelector (recorded for Pass)."""
        self._assign.stage(result, branch)
        return self.output(raw, result, branch)

    def output(self, raw: Any, result: Any, branch: Branch) -> Any:
        """Return what `finish` does, without Assign."""
        selected = result if self._selector is None else self._selector(result, branch)
        combined = raw if self._result is None else self._result.put(raw, selected)
        return _through(self._output, combined, branch)


def _through(path: Path | None, data: Any, branch: Branch) -> Any:
    if path is None:
        return {}
    if not path.steps and path.plain:
        return data
    return path.read(data, branch)
