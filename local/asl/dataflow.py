"""From a state's raw input to its output: InputPath, Parameters, ResultSelector, ResultPath, OutputPath.

Decides the order of the five and what an absent or null one means; does not know what the state does in between.
"""

from typing import Any

from local.asl.check import DefinitionError, Fields
from local.asl.intrinsics import Env
from local.asl.jsonpath import Path
from local.asl.pathtext import PathSyntaxError, compile_path
from local.asl.template import Fill, compile_template

WHOLE = compile_path("$")


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


class Dataflow:
    """What one state does with its data. Which of the five fields the state type has, its constructor says."""

    def __init__(
        self, fields: Fields, *, parameters: bool = False, selector: bool = False, result: bool = False
    ) -> None:
        self._input = path_field(fields, "InputPath")
        self._output = path_field(fields, "OutputPath")
        self._result = WHOLE if not result else path_field(fields, "ResultPath", reference=True)
        if self._result is not None and self._result.context:
            raise fields.fail("ResultPath", "cannot write to the Context Object")
        self._parameters: Fill | None = None
        self._selector: Fill | None = None
        if parameters and "Parameters" in fields:
            self._parameters = compile_template(fields.get("Parameters"), fields.at("Parameters"))
        if selector and "ResultSelector" in fields:
            self._selector = compile_template(fields.get("ResultSelector"), fields.at("ResultSelector"))

    def narrowed(self, raw: Any, env: Env) -> Any:
        """Return the input after InputPath; null gives {}."""
        return _through(self._input, raw, env)

    def effective(self, raw: Any, env: Env) -> Any:
        """Return the effective input: after InputPath and Parameters."""
        narrowed = _through(self._input, raw, env)
        return narrowed if self._parameters is None else self._parameters(narrowed, env)

    def selected(self, result: Any, env: Env) -> Any:
        """Return the result after ResultSelector."""
        return result if self._selector is None else self._selector(result, env)

    def output(self, raw: Any, result: Any, env: Env) -> Any:
        """Return the output: the result put into the raw input by ResultPath (null drops it), then OutputPath."""
        combined = raw if self._result is None else self._result.put(raw, result)
        return _through(self._output, combined, env)


def _through(path: Path | None, data: Any, env: Env) -> Any:
    if path is None:
        return {}
    if not path.steps and not path.context:
        return data
    return path.get(env.context() if path.context else data)
