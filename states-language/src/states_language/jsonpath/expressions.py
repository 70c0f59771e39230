"""Compiles and evaluates the eighteen intrinsic functions of Payload Templates, such as States.Format.

Invariant: a call and its paths are compiled when the definition is loaded; the same data, Context Object and clock give
the same result.
"""

import functools
import json
import re
from dataclasses import dataclass
from typing import Any

from states_language.context import Environment
from states_language.failures import EvaluationError, IntrinsicFailure, Oversized
from states_language.jsonpath.grammar import PathSyntaxError, Scanner, compile_path
from states_language.jsonpath.intrinsic_functions import FUNCTIONS
from states_language.jsonpath.selection import Path
from states_language.scheduling.lanes import current_lane
from states_language.values import FEW_VALUES, LARGEST_BETWEEN, MISSING, NESTED, estimate_json_length, has_more_values

DEEPEST = 10
"""How many calls are within one another at most (Developer Guide, intrinsic functions)."""
PARTS_HERE = 2_000
"""The largest arguments of a function that is evaluated while others wait, as `has_more_values` counts."""
_QUICK = frozenset({"States.Array", "States.ArrayLength", "States.ArrayGetItem"})
"""The functions that do not read every part of their arguments."""


@dataclass(frozen=True)
class Literal:
    """A text, a number, true, false or null; `raw` is the text with its escapes, which States.Format needs."""

    value: Any
    raw: str | None = None


@dataclass(frozen=True)
class Call:
    text: str
    name: str
    arguments: tuple["Expression", ...]

    @functools.cached_property
    def path_count(self) -> int:
        return sum(map(count_paths, self.arguments))


Expression = Literal | Call | Path


def count_paths(expression: Expression) -> int:
    return expression.path_count if isinstance(expression, Call) else int(isinstance(expression, Path))


def compile_expression(text: str) -> Expression:
    """Return the compiled path or call; raises PathSyntaxError if the text is neither."""
    return compile_path(text) if text.startswith("$") else _compile_call(text)


@functools.lru_cache(maxsize=4096)
def _compile_call(text: str) -> Call:
    parser = _Parser(text)
    call = parser.parse_call()
    parser.expect_end()
    return call


def evaluate(expression: Expression, data: Any, env: Environment, outermost_text: str | None = None) -> Any:
    """Return the expression's value; raises IntrinsicFailure for a function, EvaluationError for a path.

    outermost_text: the text of the outermost call around this one; the cause names that call (measured by others).
    """
    if isinstance(expression, Path):
        return expression.read(data, env)
    if isinstance(expression, Literal):
        return expression.value
    outermost_text = outermost_text or expression.text
    try:
        arguments = [
            _evaluate_argument(expression, argument, data, env, outermost_text) for argument in expression.arguments
        ]
        if expression.path_count > FEW_VALUES and estimate_json_length(arguments, {}) > LARGEST_BETWEEN:
            raise Oversized
        result = _apply(expression.name, arguments, env)
    except (ValueError, OverflowError) as refusal:
        if isinstance(refusal, EvaluationError):
            raise
        raise IntrinsicFailure(f"The function '{outermost_text}' had the following error: {refusal}") from None
    if isinstance(result, str) and len(result) > LARGEST_BETWEEN:
        raise Oversized
    return result


def _apply(name: str, arguments: list[Any], env: Environment) -> Any:
    """Return the function's result; raises ValueError. While others wait, a process evaluates large arguments."""
    host = current_lane()
    if host is None or name in _QUICK or not has_more_values(arguments, PARTS_HERE):
        return FUNCTIONS[name].apply(arguments, env.random)
    host.wait_for_turn()
    answer = host.evaluate({"function": name, "arguments": arguments})
    if "ended" in answer:
        raise Oversized
    if "nested" in answer:
        raise EvaluationError(NESTED)
    if "failure" in answer:
        raise ValueError(answer["failure"])
    return answer["value"]


def _evaluate_argument(call: Call, argument: Expression, data: Any, env: Environment, outermost_text: str) -> Any:
    if isinstance(argument, Path):
        value = argument.find_value(data, env)
        if value is MISSING:
            shown = json.dumps(data, separators=(",", ":"), ensure_ascii=False)
            raise EvaluationError(
                f"The function '{outermost_text}' had the following error: The JsonPath argument for the field "
                f"'{argument.text.replace('$$', '$', 1)}' could not be found in the input '{shown}'"
            )
        return value
    if isinstance(argument, Literal) and argument.raw is not None and call.name == "States.Format":
        return argument.raw
    return evaluate(argument, data, env, outermost_text)


_NAME = re.compile(r"States\.[A-Za-z0-9]+")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_WORD = re.compile(r"true|false|null")
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)


class _Parser(Scanner):
    """Recursive descent over `States.Name(argument, ...)`."""

    space = re.compile(r"\s*")
    depth = 0

    def parse_call(self) -> Call:
        start = self.position
        self.depth += 1
        if self.depth > DEEPEST:
            raise PathSyntaxError(f"more than {DEEPEST} intrinsic functions are nested")
        name = self.match(_NAME)
        if name is None or not self.take_after_spaces("("):
            self.position = start
            raise self.error()
        if name[0] not in FUNCTIONS:
            raise PathSyntaxError(f"{name[0]} is not an intrinsic function")
        arguments: list[Expression] = []
        if not self.take_after_spaces(")"):
            arguments.append(self.parse_argument())
            while self.take_after_spaces(","):
                arguments.append(self.parse_argument())
            if not self.take_after_spaces(")"):
                raise self.error()
        _check_arity(name[0], len(arguments))
        self.depth -= 1
        return Call(self.text[start : self.position], name[0], tuple(arguments))

    def parse_argument(self) -> Expression:
        self.skip_spaces()
        head = self.text[self.position : self.position + 1]
        if head == "$":
            return self.parse_path()
        if head == "'":
            return self.parse_quoted()
        if self.text.startswith("States.", self.position):
            return self.parse_call()
        if literal := self.match(_WORD) or self.match(_NUMBER):
            return Literal(json.loads(literal[0]))
        raise self.error()

    def parse_quoted(self) -> Literal:
        start = self.position + 1
        at = start
        while at < len(self.text) and self.text[at] != "'":
            at += 2 if self.text[at] == "\\" else 1
        if at >= len(self.text):
            raise PathSyntaxError("a text is not closed by '")
        raw = self.text[start:at]
        for escape in _ESCAPE.finditer(raw):
            if escape.group(1) not in "'{}\\":
                raise PathSyntaxError(
                    f"'{escape.group()}' is not a valid escape; a backslash stands before ' {{ }} or \\"
                )
        self.position = at + 1
        return Literal(_ESCAPE.sub(r"\1", raw), raw)

    def parse_path(self) -> Path:
        """Read up to the comma or bracket that ends the argument, past the path's own brackets and texts."""
        start, depth = self.position, 0
        while self.position < len(self.text):
            character = self.text[self.position]
            if character in "'\"":
                end = self.text.find(character, self.position + 1)
                if end < 0:
                    raise self.error()
                self.position = end
            elif character in "[(":
                depth += 1
            elif depth and character in "])":
                depth -= 1
            elif character in ",)":
                break
            self.position += 1
        return compile_path(self.text[start : self.position].rstrip())


def _check_arity(name: str, count: int) -> None:
    least, most = FUNCTIONS[name].arity
    if count < least or (most is not None and count > most):
        bound = f"{least}" if least == most else f"at least {least}" if most is None else f"{least} to {most}"
        raise PathSyntaxError(f"{name} takes {bound} arguments, not {count}")
