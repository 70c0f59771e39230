"""Corrects the library jsonata-python where it differs from JSONata: in operators, calls and null.

The differences are the overridden methods of `Jsonata`. Functions are in `functions`, bounds in `bounds`.
Invariant: a value that an expression binds to a variable does not change.
"""

import math
import threading
from typing import Any

from states_language.jsonata import library
from states_language.jsonata.bounds import on_new_stack
from states_language.jsonata.library import Functions, JException, Utils
from states_language.jsonata.numbers import calculate, to_text
from states_language.jsonata.signatures import check_arguments
from states_language.jsonata.syntax import UNDECIDED, direct, has_more
from states_language.values import parts, units

_SMALL = 2**31
"""Sums of whole numbers below are whole, and need no check."""
LARGEST_COUNTED = 2**53
"""Where JavaScript's numbers stop counting: 2**53 + 1 is 2**53."""

_running = threading.local()

_METHODS = {
    "binary": "evaluate_binary",
    "block": "evaluate_block",
    "condition": "evaluate_condition",
    "function": "evaluate_call",
    "unary": "evaluate_unary",
}
"""The method that evaluates a node which has no more than its kind."""


_boolize = library.Jsonata.boolize


def _truth(value: Any) -> bool:
    """Return whether a value counts as true; a function does, for it is an object with members, but to $boolean."""
    if value is True or value is False:
        return bool(value)
    if isinstance(value, float) and not Utils.is_numeric(value):  # raises D1001 for Infinity
        return False
    return Functions.is_lambda(value) or Utils.is_function(value) or bool(_boolize(value))


def _applied(function: Any, arguments: Any) -> Any:
    """Return what a function makes of arguments that another passes on; the library checks those of lambdas alone."""
    running = library.Jsonata.CURRENT.jsonata
    return running.apply(function, arguments, None, running.environment)


def _is_function(value: Any) -> bool:
    """Return what the library's own function does, which imports a module each time."""
    return isinstance(value, library.Jsonata.JFunctionCallable)


def _arity(function: Any) -> Any:
    """Return how many arguments a function takes that another calls; a regular expression takes a text and a place."""
    return 2 if Functions.is_regex(function) else _arity_of(function)


def _search(matches: Any) -> Any:
    """Return the next match as the function that a regular expression is returns it; undefined where there is none."""
    match = next(matches, None)
    if match is None:
        return None
    found = {"match": match.group(), "start": match.start(), "end": match.end(), "groups": list(match.groups())}
    return found | {"next": library.Jsonata.JLambda(lambda: _search(matches))}


_arity_of = Functions.get_function_arity
Functions.get_function_arity = staticmethod(_arity)
Utils.is_function = staticmethod(_is_function)
library.Jsonata.boolize = staticmethod(_truth)
Functions.func_apply = staticmethod(_applied)


def bounds() -> Any:
    """Return the bounds of the evaluation that runs in this thread; several may evaluate one expression."""
    return _running.bounds


class Frame(library.Jsonata.Frame):  # type: ignore[misc]  # the library has no types
    """A frame of variables; two names are bound to None because the library looks them up at every step."""

    def __init__(self, enclosing: Any) -> None:
        super().__init__(enclosing)
        self.bindings["__evaluate_entry"] = self.bindings["__evaluate_exit"] = None

    def bind(self, name: str, val: Any) -> None:
        """Bind a variable; the library's own method would also rename a function to the variable's name."""
        self.bindings[name] = val


class Jsonata(library.Jsonata):  # type: ignore[misc]  # the library has no types
    """The library's evaluator, with its differences from JSONata corrected."""

    @property
    def bounds(self) -> Any:
        """Return what `bounds` does."""
        return _running.bounds

    @bounds.setter
    def bounds(self, bounds: Any) -> None:
        _running.bounds = bounds

    def eval(self, expr: Any, input: Any, environment: Any) -> Any:
        """Return the value of a node of the syntax tree; each node costs a step."""
        bounds = _running.bounds
        bounds.enter()
        if bounds.depth + bounds.nested > bounds.reach and not bounds.reaches():
            return self._on_new_stack(self._entered, bounds, expr, input, environment)
        return self._entered(bounds, expr, input, environment)

    def _on_new_stack(self, function: Any, *arguments: Any) -> Any:
        """Return what a function does, in a thread: it nests there as deeply as the host's recursion limit allows."""
        bounds, current, reach = _running.bounds, library.Jsonata.CURRENT.jsonata, _running.bounds.reach
        bounds.may_wait()

        def evaluate() -> Any:
            _running.bounds, library.Jsonata.CURRENT.jsonata = bounds, current
            if not bounds.reaches():
                raise RecursionError
            return function(*arguments)

        try:
            return on_new_stack(evaluate)
        finally:
            bounds.reach = reach

    def _entered(self, bounds: Any, expr: Any, input: Any, environment: Any) -> Any:
        read = expr.direct if hasattr(expr, "direct") else self._plan(expr)
        result = UNDECIDED
        if read is not None:
            self.input, self.environment = input, environment
            result = read(input, environment)
        if result is UNDECIDED:
            result = self._eval(expr, input, environment)
        elif expr.type == "path":
            bounds.spend(len(expr.steps))
        bounds.leave(expr, result)
        return result

    @staticmethod
    def _plan(expr: Any) -> Any:
        """Return how a node is read directly, and note it there, with the one method that else evaluates it."""
        expr.direct = direct(expr)
        expr.only = None if has_more(expr) else _METHODS.get(expr.type)
        if expr.type == "function":
            callee = expr.procedure
            is_named = callee.type == "variable" and bool(callee.value) and not has_more(callee)
            expr.callee = str(callee.value) if is_named else None
        return expr.direct

    def _eval(self, expr: Any, input: Any, environment: Any) -> Any:
        """Return what the library's own method does, which asks a node of every kind what else it may have."""
        if expr.only is None:
            return super()._eval(expr, input, environment)
        self.input, self.environment = input, environment
        result = getattr(self, expr.only)(expr, input, environment)
        if isinstance(result, Utils.JList) and result.sequence and not result.tuple_stream:
            # A sequence of one value is that value.
            return None if not result else result if len(result) > 1 or result.keep_singleton else result[0]
        return result

    def evaluate_binary(self, expr: Any, input: Any, environment: Any) -> Any:
        """Return the result of an operator; the library's own method compares it with one after the other."""
        op = expr.value
        if op in ("and", "or"):
            left = _truth(self.eval(expr.lhs, input, environment))
            if left is (op == "or"):
                return left
            try:
                return _truth(self.eval(expr.rhs, input, environment))
            except JException:
                raise
            except Exception:
                raise JException("Unexpected", expr.position) from None
        method = _OPERATORS.get(op)
        if method is None:
            return super().evaluate_binary(expr, input, environment)
        left = self.eval(expr.lhs, input, environment)
        return method(self, left, self.eval(expr.rhs, input, environment), op)

    def evaluate_call(self, expr: Any, input: Any, environment: Any) -> Any:
        """Return the result of a call."""
        function = None if expr.callee is None else environment.lookup(expr.callee)
        if not isinstance(function, library.Jsonata.JFunction):
            return self.evaluate_function(expr, input, environment, Utils.NONE)
        # As the library does with every callee, without asking again and again which kind of callee it is.
        _running.bounds.enter()
        _running.bounds.depth -= 1
        arguments = [self.eval(argument, input, environment) for argument in expr.arguments or ()]
        try:
            return self.apply(function, arguments, input, environment)
        except JException as problem:
            if problem.location < 0:
                problem.location = expr.position
            if problem.current is None:
                problem.current = expr.token
            raise

    def create_frame(self, enclosing: Any = None) -> Any:
        """Return a frame of variables."""
        return Frame(enclosing)

    def evaluate_numeric_expression(self, lhs: Any, rhs: Any, op: str | None) -> Any:
        """Return the result of + - * / or %, which may be Infinity or NaN; raises JException T2001 or T2002."""
        if type(lhs) is int and type(rhs) is int and -_SMALL < lhs < _SMALL and -_SMALL < rhs < _SMALL:
            if op == "+":
                return lhs + rhs
            if op == "-" and lhs != rhs:
                return lhs - rhs
        for side, code in ((lhs, "T2001"), (rhs, "T2002")):
            if side is not None and not Utils.is_numeric(side):
                raise JException(code, -1, op, side)
        return None if lhs is None or rhs is None else calculate(lhs, rhs, str(op))

    def evaluate_step(self, expr: Any, input: Any, environment: Any, last_step: bool) -> Any:
        """Return the value of a step of a path; undefined for an element that an index picked from an array literal."""
        return super().evaluate_step(expr, input, environment, last_step) if isinstance(input, list) else None

    def evaluate_filter(self, predicate: Any, input: Any, environment: Any) -> Any:
        """Return the elements that a predicate picks, by truth or by places; those are rounded down, not cut off."""
        results = Utils.create_sequence()
        streams = isinstance(input, Utils.JList) and input.tuple_stream
        results.tuple_stream = streams
        elements = input if isinstance(input, list) else [] if input is None else [input]
        if predicate.type == "number":
            place = math.floor(predicate.value)
            if -len(elements) <= place < len(elements):
                item = Utils.NULL_VALUE if elements[place] is None else elements[place]
                return item if isinstance(item, list) else Utils.create_sequence(item)
            return results
        for place, item in enumerate(elements):
            context, env = item, environment
            if streams:
                context, env = item["@"], self.create_frame_from_tuple(environment, item)
            picked = self.eval(predicate, context, env)
            picked = [picked] if Utils.is_numeric(picked) else picked
            if Utils.is_array_of_numbers(picked):
                floors = (math.floor(number) for number in picked if math.isfinite(number))
                chosen = [floor for floor in floors if place in (floor, floor + len(elements))]
                results.extend([item] * len(chosen))
            elif _truth(picked):
                results.append(item)
        return results

    def partial_apply_native_function(self, native: Any, args: Any) -> Any:
        """Return the function of the arguments that are left open; the library finds a native one by its name alone."""
        names = ", ".join(f"$a{place}" for place in range(len(args)))
        procedure = self.parser.parse(f"function({names}){{$native({names})}}")
        procedure.environment = self.create_frame(self.environment)
        procedure.environment.bind("native", native)
        return self.partial_apply_procedure(procedure, args)

    def evaluate_partial_application(self, expr: Any, input: Any, environment: Any) -> Any:
        """Return the function of the arguments that are left open; T1007 where only the $ of its name is missing."""
        try:
            return super().evaluate_partial_application(expr, input, environment)
        except JException as problem:
            nameless = problem.error == "T1008" and expr.procedure.type == "path"
            if nameless and environment.lookup(str(expr.procedure.steps[0].value)) is not None:
                raise JException("T1007", expr.position, expr.procedure.steps[0].value) from None
            raise

    def evaluate_apply_expression(self, expr: Any, input: Any, environment: Any) -> Any:
        """Return what the function to the right of ~> makes of the left side; raises JException T2006."""
        left = self.eval(expr.lhs, input, environment)
        if expr.rhs.type == "function":
            return self.evaluate_function(expr.rhs, input, environment, left)
        function = self.eval(expr.rhs, input, environment)
        if not self.is_function_like(function):
            raise JException("T2006", expr.position, function)
        if self.is_function_like(left):
            return self.apply(self.eval(self.chain_ast(), None, environment), [left, function], None, environment)
        return self.apply(function, [left], None, environment)

    def evaluate_string_concat(self, lhs: Any, rhs: Any) -> str:
        """Return both sides joined as texts."""
        for side in (lhs, rhs):
            self.bounds.check(side)
        return "".join("" if side is None else to_text(side) for side in (lhs, rhs))

    def evaluate_includes_expression(self, lhs: Any, rhs: Any) -> Any:
        """Return whether the right side contains the left one; each element costs, as in `apply_inner`."""
        self.bounds.charge((rhs,))
        if lhs is None or rhs is None:
            return False
        elements = rhs if isinstance(rhs, list) else [rhs]
        if isinstance(lhs, dict | list):  # an object or an array is in none but by identity
            return any(element is lhs for element in elements)
        truth = isinstance(lhs, bool)
        return any(element == lhs and isinstance(element, bool) is truth for element in elements)

    def evaluate_comparison_expression(self, lhs: Any, rhs: Any, op: str | None) -> Any:
        """Return the outcome of < <= > or >=; texts are ordered by their UTF-16 units."""
        if isinstance(lhs, str) and isinstance(rhs, str):
            lhs, rhs = units(lhs), units(rhs)
        return super().evaluate_comparison_expression(lhs, rhs, op)

    def evaluate_range_expression(self, lhs: Any, rhs: Any) -> Any:
        """Return the whole numbers of a range; one that counts to where a number has no next one never ends."""
        numbers = super().evaluate_range_expression(lhs, rhs)
        if numbers is not None and (rhs >= LARGEST_COUNTED or float(lhs) + 1 == float(lhs)):
            self.bounds.fit(math.inf)
        return numbers

    def evaluate_equality_expression(self, lhs: Any, rhs: Any, op: str | None) -> Any:
        """Return the outcome of = or !=; each part of the left side costs."""
        if isinstance(lhs, dict | list) and isinstance(rhs, dict | list):
            self.bounds.spend(parts(lhs, {}) >> 3)
        return super().evaluate_equality_expression(lhs, rhs, op)

    def validate_arguments(self, signature: Any, args: Any, context: Any) -> Any:
        """Return the arguments as the function gets them; raises JException."""
        known = getattr(signature, "signature", None)
        return args if known is None else check_arguments(known, args, context)

    def apply_inner(self, proc: Any, args: Any, input: Any, environment: Any) -> Any:
        """Return a function's result; its arguments cost steps, for the library may loop over them in Python."""
        self.bounds.charge(args)
        if isinstance(proc, library.Jsonata.JFunction):
            bounds, checked = self.bounds, self.validate_arguments(proc, args, input)
            bounds.enter_function()
            if bounds.depth + bounds.nested > bounds.reach and not bounds.reaches():
                result = self._on_new_stack(proc.call, input, checked)
            else:
                result = proc.call(input, checked)
            bounds.nested -= 1
            return result
        if not (Functions.is_lambda(proc) or Utils.is_function(proc) or Functions.is_regex(proc)):
            raise JException("T1006", -1)
        if Functions.is_regex(proc):
            text, begin = [*args, None, None][:2]
            begins = isinstance(begin, int) and not isinstance(begin, bool) and begin > 0
            written = to_text(text) if isinstance(text, str | int | float) else None
            return None if written is None else _search(proc.finditer(written, begin if begins else 0))
        return super().apply_inner(proc, args, input, environment)


_OPERATORS: dict[str, Any] = {
    **dict.fromkeys(("+", "-", "*", "/", "%"), Jsonata.evaluate_numeric_expression),
    **dict.fromkeys(("=", "!="), Jsonata.evaluate_equality_expression),
    **dict.fromkeys(("<", "<=", ">", ">="), Jsonata.evaluate_comparison_expression),
    "&": lambda running, lhs, rhs, _op: running.evaluate_string_concat(lhs, rhs),
    "..": lambda running, lhs, rhs, _op: running.evaluate_range_expression(lhs, rhs),
    "in": lambda running, lhs, rhs, _op: running.evaluate_includes_expression(lhs, rhs),
}
"""The method of each operator that evaluates both sides."""
