"""The library that evaluates JSONata, with what it does otherwise than JSONata put right.

Decides how operators and calls go; what a function does, how an evaluation is bounded and what an expression sees,
others decide. Invariant: what an expression binds to a variable stays as it was.
"""

from typing import Any

from jsonata import jsonata as engine
from jsonata.functions import Functions
from jsonata.jexception import JException
from jsonata.utils import Utils

from states_language.jsonata.numbers import calculated, text
from states_language.jsonata.signatures import checked
from states_language.values import parts


class Frame(engine.Jsonata.Frame):  # type: ignore[misc]  # the library has no types
    """Variables; the library looks in vain for two names, through all frames, at each step."""

    def __init__(self, enclosing: Any) -> None:
        super().__init__(enclosing)
        self.bindings["__evaluate_entry"] = self.bindings["__evaluate_exit"] = None

    def bind(self, name: str, val: Any) -> None:
        """Return nothing; the library would call a function by the name of the variable from then on, everywhere."""
        self.bindings[name] = val


class Jsonata(engine.Jsonata):  # type: ignore[misc]  # the library has no types
    """The library's evaluator, with JSON's null apart from undefined and numbers that overflow as in JSONata."""

    def eval(self, expr: Any, input: Any, environment: Any) -> Any:
        """Return what a node of the tree gives; each one costs a step."""
        self.bounds.enter()
        result = self._eval(expr, input, environment)
        self.bounds.leave(expr, result)
        return result

    def create_frame(self, enclosing: Any = None) -> Any:
        """Return a frame of variables."""
        return Frame(enclosing)

    def evaluate_numeric_expression(self, lhs: Any, rhs: Any, op: str | None) -> Any:
        """Return the result of + - * / or %: Infinity or NaN where it is no finite number; raises JException."""
        for side, code in ((lhs, "T2001"), (rhs, "T2002")):
            if side is not None and not Utils.is_numeric(side):
                raise JException(code, -1, op, side)
        return None if lhs is None or rhs is None else calculated(lhs, rhs, str(op))

    def evaluate_step(self, expr: Any, input: Any, environment: Any, last_step: bool) -> Any:
        """Return what a step of a path finds; nothing in what an index has picked from an array that is written out."""
        return super().evaluate_step(expr, input, environment, last_step) if isinstance(input, list) else None

    def evaluate_string_concat(self, lhs: Any, rhs: Any) -> str:
        """Return the two sides as one text."""
        for side in (lhs, rhs):
            self.bounds.check(side)
        return "".join("" if side is None else text(side) for side in (lhs, rhs))

    def evaluate_includes_expression(self, lhs: Any, rhs: Any) -> Any:
        """Return whether the right side holds the left one; each element looked at costs, as in `apply_inner`."""
        self.bounds.charge((rhs,))
        if lhs is None or rhs is None:
            return False
        elements = rhs if isinstance(rhs, list) else [rhs]
        if isinstance(lhs, dict | list):  # an object or an array is in none but by identity
            return any(element is lhs for element in elements)
        truth = isinstance(lhs, bool)
        return any(element == lhs and isinstance(element, bool) is truth for element in elements)

    def evaluate_equality_expression(self, lhs: Any, rhs: Any, op: str | None) -> Any:
        """Return whether the sides are equal, or unequal; each part looked at costs."""
        if isinstance(lhs, dict | list) and isinstance(rhs, dict | list):
            self.bounds.steps += parts(lhs, {}) >> 3
        return super().evaluate_equality_expression(lhs, rhs, op)

    def validate_arguments(self, signature: Any, args: Any, context: Any) -> Any:
        """Return the arguments as the function sees them; raises JException."""
        known = getattr(signature, "signature", None)
        return args if known is None else checked(known, args, context)

    def apply_inner(self, proc: Any, args: Any, input: Any, environment: Any) -> Any:
        """Return what a function gives; what it is given costs steps, for it may loop in the library's own code."""
        self.bounds.charge(args)
        if not (Functions.is_lambda(proc) or Utils.is_function(proc) or Functions.is_regex(proc)):
            raise JException("T1006", -1)
        return super().apply_inner(proc, args, input, environment)
