"""Corrects the library jsonata-python where it differs from JSONata: in operators, calls and null.

The differences are the overridden methods of `Jsonata`. Functions are in `functions`, bounds in `bounds`;
`node_functions` makes a function of each node that is evaluated.
Invariant: a value that an expression binds to a variable does not change.
"""

import math
import threading
from typing import Any

from states_language.jsonata import library
from states_language.jsonata.bounds import DEEPEST_FUNCTIONS, SHORT, TOO_DEEP, Bounds, Exceeded, Limits, on_new_stack
from states_language.jsonata.leaf_nodes import PLAIN
from states_language.jsonata.library import Functions, JException, Utils, check_arguments
from states_language.jsonata.node_functions import UNCHANGED_ERRORS, node_function, truth
from states_language.jsonata.numbers import calculate, to_text
from states_language.jsonata.patterns import call_pattern
from states_language.values import count_values, to_utf16_units

_SMALL = 2**31
"""The sum of two whole numbers below this one is whole and needs no check."""
_MOST = 1e300
"""Numbers below are neither infinite nor too large for a double, and NaN is not below."""
_NUMBERS = frozenset({int, float})
LARGEST_COUNTED = 2**53
"""Where JavaScript's numbers stop counting: 2**53 + 1 is 2**53."""

_UNCHANGED_TYPES = frozenset({str, bool, type(None)})

_current = threading.local()


def _apply_function(function: Any, arguments: Any) -> Any:
    """Return a function's result for another function's arguments; the library only checks those of lambdas."""
    running = library.Jsonata.CURRENT.jsonata
    return running.apply(function, arguments, None, running.environment)


def _is_function(value: Any) -> bool:
    """Return whether a value is a function; the library's own test imports a module each time."""
    return isinstance(value, library.Jsonata.JFunctionCallable)


def _arity(function: Any) -> Any:
    """Return how many arguments a function takes from another; a regular expression takes a text and a place."""
    return 2 if Functions.is_regex(function) else _library_arity(function)


def _call(function: Any, _input: Any, arguments: Any) -> Any:
    """Return the result of a library function; arguments that are left out are undefined."""
    missing = function.nargs - len(arguments)
    result = function.method(*arguments, *[None] * missing) if missing > 0 else function.method(*arguments)
    if type(result) in _UNCHANGED_TYPES or (type(result) is int and -_SMALL < result < _SMALL):
        return result
    if type(result) is float and math.isinf(result):
        return result  # the library refuses it
    return Utils.convert_number(result) if Utils.is_numeric(result) else result


for _flag in ("sequence", "outer_wrapper", "tuple_stream", "keep_singleton", "cons"):
    setattr(Utils.JList, _flag, False)  # each new array would set all of them
del Utils.JList.__init__
_library_arity = Functions.get_function_arity
Functions.get_function_arity = staticmethod(_arity)
library.Jsonata.JNativeFunction.call = _call
Utils.is_function = staticmethod(_is_function)
Functions.func_apply = staticmethod(_apply_function)


def current_bounds() -> Any:
    """Return the bounds of this thread's evaluation; several threads may evaluate one expression."""
    return _current.bounds


def begin_evaluation(machine: "Jsonata", limits: Limits, states: dict[str, Any]) -> Bounds:
    """Begin an evaluation of an expression in this thread, and return its bounds."""
    begun = _current.bounds = Bounds(limits, states)
    library.Jsonata.CURRENT.jsonata = machine  # else the last one made in this thread would evaluate
    return begun


class Frame(library.Jsonata.Frame):  # type: ignore[misc]  # the library has no types
    """A frame of variables; it binds two names to None because the library looks them up at every step."""

    is_parallel_call = False

    def __init__(self, enclosing: Any) -> None:
        self.parent = enclosing
        self.bindings: dict[str, Any] = {"__evaluate_entry": None, "__evaluate_exit": None}

    def bind(self, name: str, val: Any) -> None:
        """Bind a variable; the library's own method would also rename a function to the variable's name."""
        self.bindings[name] = val

    def lookup(self, name: str) -> Any:
        """Return a variable, None where it has no value."""
        if name in self.bindings:
            return self.bindings[name]
        return None if self.parent is None else self.parent.lookup(name)


class Jsonata(library.Jsonata):  # type: ignore[misc]  # the library has no types
    """The library's evaluator, with its differences from JSONata corrected."""

    @property
    def bounds(self) -> Any:
        """Return the bounds of this thread's evaluation."""
        return _current.bounds

    rebinds_states = True
    """Whether $states may be another variable somewhere in the expression."""

    general = library.Jsonata._eval
    """Returns the value of a node as the library evaluates it, which asks each node what else it may have."""

    def eval(self, expr: Any, input: Any, environment: Any) -> Any:
        """Return the value of a node of the syntax tree."""
        return (expr.run or node_function(self, expr))(_current.bounds, input, environment)

    def on_new_stack(self, function: Any, *arguments: Any) -> Any:
        """Return the function's result from a new thread, where it can nest as deeply as the recursion limit allows."""
        bounds, current, reach = _current.bounds, library.Jsonata.CURRENT.jsonata, _current.bounds.reach
        bounds.check_thread_allowed()

        def evaluate() -> Any:
            _current.bounds, library.Jsonata.CURRENT.jsonata = bounds, current
            if not bounds.has_stack_room():
                raise RecursionError
            return function(*arguments)

        try:
            return on_new_stack(evaluate)
        finally:
            bounds.reach = reach

    def create_frame(self, enclosing: Any = None) -> Any:
        return Frame(enclosing)

    def evaluate_binary(self, expr: Any, input: Any, environment: Any) -> Any:
        """Return the result of an operator. `and` and `or` do not absorb an error that ends the evaluation."""
        if expr.value not in ("and", "or"):
            return super().evaluate_binary(expr, input, environment)
        left = truth(self.eval(expr.lhs, input, environment))
        try:
            return left if left is (expr.value == "or") else truth(self.eval(expr.rhs, input, environment))
        except UNCHANGED_ERRORS:
            raise
        except Exception:
            raise JException("Unexpected", expr.position) from None

    def evaluate_numeric_expression(self, lhs: Any, rhs: Any, op: str | None) -> Any:
        """Return the result of + - * / or %, which may be Infinity or NaN; raises JException T2001 or T2002."""
        if type(lhs) in _NUMBERS and type(rhs) in _NUMBERS and -_MOST < lhs < _MOST and -_MOST < rhs < _MOST:
            return calculate(lhs, rhs, str(op))
        for side, code in ((lhs, "T2001"), (rhs, "T2002")):
            if side is not None and not Utils.is_numeric(side):
                raise JException(code, -1, op, side)
        return None if lhs is None or rhs is None else calculate(lhs, rhs, str(op))

    def evaluate_step(self, expr: Any, input: Any, environment: Any, last_step: bool) -> Any:
        """Return the value of a step of a path; undefined for an element that an index picked from an array literal."""
        return super().evaluate_step(expr, input, environment, last_step) if isinstance(input, list) else None

    def evaluate_filter(self, predicate: Any, input: Any, environment: Any) -> Any:
        """Return the elements that a predicate picks, by truth or by place; places are rounded down, not cut off."""
        results = Utils.create_sequence()
        streams = isinstance(input, Utils.JList) and input.tuple_stream
        results.tuple_stream = streams
        elements = input if isinstance(input, list) else [input]  # of nothing one undefined element, as in 2.0.6
        if predicate.type == "number":
            place = math.floor(predicate.value)
            if -len(elements) <= place < len(elements) and (item := elements[place]) is not None:
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
            elif truth(picked):
                results.append(item)
        return results

    def partial_apply_native_function(self, native: Any, args: Any) -> Any:
        """Return the function of the open arguments; the library would find a native function by its name alone."""
        names = ", ".join(f"$a{place}" for place in range(len(args)))
        procedure = self.parser.parse(f"function({names}){{$native({names})}}")
        procedure.environment = self.create_frame()
        procedure.environment.bind("native", native)
        return self.partial_apply_procedure(procedure, args)

    def evaluate_partial_application(self, expr: Any, input: Any, environment: Any) -> Any:
        """Return the function of the open arguments; raises T1007 if only the $ of the function's name is missing."""
        try:
            return super().evaluate_partial_application(expr, input, environment)
        except JException as problem:
            nameless = problem.error == "T1008" and expr.procedure.type == "path"
            if nameless and environment.lookup(str(expr.procedure.steps[0].value)) is not None:
                raise JException("T1007", expr.position, expr.procedure.steps[0].value) from None
            raise

    def evaluate_apply_expression(self, expr: Any, input: Any, environment: Any) -> Any:
        """Return the result of the function to the right of ~> for the left side; raises JException T2006."""
        left = self.eval(expr.lhs, input, environment)
        if expr.rhs.type == "function":
            return self.evaluate_function(expr.rhs, input, environment, left)
        function = self.eval(expr.rhs, input, environment)
        if not self.is_function_like(function):
            raise JException("T2006", expr.position, function)
        if self.is_function_like(left):
            return self.apply(self.eval(self.chain_ast(), None, environment), [left, function], None, environment)
        return self.apply(function, [left], None, environment)

    def evaluate_string_concat(self, lhs: Any, rhs: Any, _op: str = "&") -> str:
        """Return both sides joined as texts."""
        for side in (lhs, rhs):
            self.bounds.check_value(side)
        return "".join("" if side is None else to_text(side) for side in (lhs, rhs))

    def evaluate_includes_expression(self, lhs: Any, rhs: Any, _op: str = "in") -> Any:
        """Return whether the right side contains the left one; each element costs a step, as in `apply_inner`."""
        self.bounds.charge_arguments((rhs,))
        if lhs is None or rhs is None:
            return False
        elements = rhs if isinstance(rhs, list) else [rhs]
        if isinstance(lhs, dict | list):  # an object or an array is an element only if it is the same object
            return any(element is lhs for element in elements)
        truth = isinstance(lhs, bool)
        return any(element == lhs and isinstance(element, bool) is truth for element in elements)

    def evaluate_comparison_expression(self, lhs: Any, rhs: Any, op: str | None) -> Any:
        """Return the outcome of < <= > or >=; texts are ordered by their UTF-16 units."""
        if isinstance(lhs, str) and isinstance(rhs, str):
            lhs, rhs = to_utf16_units(lhs), to_utf16_units(rhs)
        return super().evaluate_comparison_expression(lhs, rhs, op)

    def evaluate_range_expression(self, lhs: Any, rhs: Any, _op: str = "..") -> Any:
        """Return the whole numbers of a range; a range up to 2**53 and more would never end, and is refused."""
        numbers = super().evaluate_range_expression(lhs, rhs)
        if numbers is not None and (rhs >= LARGEST_COUNTED or float(lhs) + 1 == float(lhs)):
            self.bounds.check_bytes(math.inf)
        return numbers

    def evaluate_equality_expression(self, lhs: Any, rhs: Any, op: str | None) -> Any:
        """Return the outcome of = or !=; each part of the left side costs a step."""
        is_short = type(lhs) is int and type(rhs) is int and -_SMALL < lhs < _SMALL and -_SMALL < rhs < _SMALL
        if is_short or (type(lhs) is str and type(rhs) is str):
            return (lhs == rhs) is (op == "=")
        if isinstance(lhs, dict | list) and isinstance(rhs, dict | list):
            self.bounds.spend(count_values(lhs, {}) >> 3)
        return super().evaluate_equality_expression(lhs, rhs, op)

    def validate_arguments(self, signature: Any, args: Any, context: Any) -> Any:
        """Return the arguments as the function gets them; raises JException."""
        known = getattr(signature, "signature", None)
        return args if known is None else check_arguments(known, args, context)

    def call(self, bounds: Bounds, function: Any, arguments: Any, input: Any) -> Any:
        """Return the result of a function that is not written in JSONata."""
        for argument in arguments:
            kind = type(argument)
            if len(argument) >= SHORT if kind is str else kind not in PLAIN:
                bounds.charge_arguments((argument,))
        signature = function.signature
        checked = arguments if signature is None else check_arguments(signature, arguments, input)
        bounds.nested += 1
        if bounds.nested > DEEPEST_FUNCTIONS:
            raise Exceeded(TOO_DEEP)
        if bounds.depth + bounds.nested > bounds.reach and not bounds.has_stack_room():
            result = self.on_new_stack(function.call, input, checked)
        else:
            result = function.call(input, checked)
        bounds.nested -= 1
        return result

    def apply_inner(self, proc: Any, args: Any, input: Any, environment: Any) -> Any:
        """Return a function's result; its arguments cost steps, for the library may loop over them in Python."""
        if isinstance(proc, library.Jsonata.JFunction):
            return self.call(_current.bounds, proc, args, input)
        _current.bounds.charge_arguments(args)
        if not (Functions.is_lambda(proc) or Utils.is_function(proc) or Functions.is_regex(proc)):
            raise JException("T1006", -1)
        if Functions.is_regex(proc):
            return call_pattern(proc, *args)
        return super().apply_inner(proc, args, input, environment)
