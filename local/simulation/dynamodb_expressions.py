"""Decides what a DynamoDB expression means: conditions, and the SET, REMOVE and ADD clauses of an update.

What is not of the grammar below raises ValueError with the place: nested paths, lists and the DELETE clause are not
used here and not known. Invariant: nothing is changed but the item that an update returns, which is a copy.

Source: "Condition and filter expressions, operators, and functions" and "Update expressions", DynamoDB Developer Guide.
"""

import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from functools import lru_cache
from typing import Any

Value = dict[str, Any]
Item = dict[str, Value]
Values = Mapping[str, Value]
Condition = Callable[[Item, Values], bool]
Update = Callable[[Item, Values], Item]
Operand = Callable[[Item, Values], Value | None]
# One action of an update: most say `name = :value` and are kept as that pair, the others as code.
Action = tuple[str, str] | Callable[[Item, Item, Values], object]

_TOKEN = re.compile(r"\s*(<>|<=|>=|[=<>(),+\-]|[#:]?[A-Za-z_][A-Za-z0-9_]*)")
_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "=": lambda a, b: bool(a == b),
    "<>": lambda a, b: bool(a != b),
    "<": lambda a, b: bool(a < b),
    "<=": lambda a, b: bool(a <= b),
    ">": lambda a, b: bool(a > b),
    ">=": lambda a, b: bool(a >= b),
}


def condition(text: str, names: Mapping[str, str] | None = None) -> Condition:
    """Returns the predicate that `text` says; ValueError where the text is not of the grammar."""
    return _compiled_condition(text, *_flat(names))


def update(text: str, names: Mapping[str, str] | None = None) -> Update:
    """Returns the function that answers a changed copy of an item; ValueError where the text is not of the grammar."""
    return _compiled_update(text, *_flat(names))


def _flat(names: Mapping[str, str] | None) -> tuple[tuple[str, ...], ...]:
    """The names as a key that costs little to make and to compare."""
    return (tuple(names), tuple(names.values())) if names else ((), ())


@lru_cache(maxsize=256)
def _compiled_condition(text: str, places: tuple[str, ...], names: tuple[str, ...]) -> Condition:
    parser = _Parser(text, dict(zip(places, names, strict=True)))
    condition = parser.disjunction()
    parser.end()
    return condition


@lru_cache(maxsize=256)
def _compiled_update(text: str, places: tuple[str, ...], names: tuple[str, ...]) -> Update:
    parser = _Parser(text, dict(zip(places, names, strict=True)))
    actions: list[Action] = []
    while parser.peek() is not None:
        actions += parser.clause()
    assignments = [action for action in actions if isinstance(action, tuple)]
    clauses = [action for action in actions if not isinstance(action, tuple)]

    def apply(item: Item, values: Values) -> Item:
        changed = dict(item)
        for name, value in assignments:
            changed[name] = values[value]
        for clause in clauses:
            clause(item, changed, values)  # every operand reads the item as it was before the update
        return changed

    return apply


class _Parser:
    """Recursive descent over the tokens of one expression."""

    def __init__(self, text: str, names: Mapping[str, str]) -> None:
        self._text = text
        self._names = names
        self._tokens: list[str] = []
        self._at = 0
        position = 0
        while position < len(text.rstrip()):
            match = _TOKEN.match(text, position)
            if match is None:
                raise ValueError(f"{text!r}: cannot read {text[position:].strip()!r}")
            self._tokens.append(match.group(1))
            position = match.end()

    def peek(self) -> str | None:
        return self._tokens[self._at] if self._at < len(self._tokens) else None

    def next(self) -> str:
        token = self.peek()
        if token is None:
            raise ValueError(f"{self._text!r}: ends too early")
        self._at += 1
        return token

    def take(self, *words: str) -> str | None:
        token = self.peek()
        if token is not None and token.upper() in words:
            self._at += 1
            return token.upper()
        return None

    def arguments(self, *reads: Callable[[], Any]) -> list[Any]:
        """Reads what stands in brackets, each by its own method."""
        found: list[Any] = []
        for at, read in enumerate(reads):
            self.expect("," if at else "(")
            found.append(read())
        self.expect(")")
        return found

    def expect(self, word: str) -> None:
        token = self.next()
        if token.upper() != word:
            raise ValueError(f"{self._text!r}: expected {word!r}, not {token!r}")

    def end(self) -> None:
        if self.peek() is not None:
            raise ValueError(f"{self._text!r}: did not expect {self.peek()!r}")

    # --- conditions: OR binds loosest, then AND, then NOT -------------------------------------------------------------

    def disjunction(self) -> Condition:
        left = self.conjunction()
        if not self.take("OR"):
            return left
        right = self.disjunction()
        return lambda item, values: left(item, values) or right(item, values)

    def conjunction(self) -> Condition:
        left = self.negation()
        if not self.take("AND"):
            return left
        right = self.conjunction()
        return lambda item, values: left(item, values) and right(item, values)

    def negation(self) -> Condition:
        if self.take("NOT"):
            inner = self.negation()
            return lambda item, values: not inner(item, values)
        if self.take("("):
            inner = self.disjunction()
            self.expect(")")
            return inner
        return self.primary()

    def primary(self) -> Condition:
        if self.take("BEGINS_WITH"):
            subject, prefix = self.arguments(self.operand, self.operand)
            return lambda item, values: _begins_with(subject(item, values), prefix(item, values))
        if word := self.take("ATTRIBUTE_EXISTS", "ATTRIBUTE_NOT_EXISTS"):
            (name,), wanted = self.arguments(self.name), word == "ATTRIBUTE_EXISTS"
            return lambda item, _values: (name in item) is wanted
        left = self.operand()
        operator = self.next().upper()
        if operator == "BETWEEN":
            low = self.operand()
            self.expect("AND")
            high = self.operand()
            return lambda item, values: _between(left(item, values), low(item, values), high(item, values))
        if operator not in _COMPARE:
            raise ValueError(f"{self._text!r}: {operator!r} is no comparison")
        right = self.operand()
        compare = _COMPARE[operator]
        return lambda item, values: _holds(compare, operator, left(item, values), right(item, values))

    # --- updates ------------------------------------------------------------------------------------------------------

    def clause(self) -> list[Action]:
        clauses = {"SET": self._set, "REMOVE": self._remove, "ADD": self._add}
        word = self.take(*clauses)
        if word is None:
            raise ValueError(f"{self._text!r}: expected SET, REMOVE or ADD, not {self.peek()!r}")
        read = clauses[word]
        actions: list[Action] = [read()]
        while self.take(","):
            actions.append(read())
        return actions

    def _set(self) -> Action:
        name = self.name()
        self.expect("=")
        first = self.peek() or ""
        value = self.operand()
        sign = self.take("+", "-")
        if sign is None and first.startswith(":"):
            return name, first
        other = self.operand() if sign else None

        def action(before: Item, after: Item, values: Values) -> None:
            attribute = _present(value(before, values), name)
            if other is not None:
                added = _number(_present(other(before, values), name))
                attribute = {"N": str(_number(attribute) + (added if sign == "+" else -added))}
            after[name] = attribute

        return action

    def _remove(self) -> Action:
        name = self.name()
        return lambda _before, after, _values: after.pop(name, None)

    def _add(self) -> Action:
        name, value = self.name(), self.operand()

        def action(before: Item, after: Item, values: Values) -> None:
            added = _number(_present(value(before, values), name))
            after[name] = {"N": str(_number(before.get(name, {"N": "0"})) + added)}

        return action

    # --- operands -----------------------------------------------------------------------------------------------------

    def name(self) -> str:
        token = self.next()
        if token.startswith("#"):
            if token not in self._names:
                raise ValueError(f"{self._text!r}: {token} is not in ExpressionAttributeNames")
            return self._names[token]
        if token.startswith(":") or not token[0].isalpha():
            raise ValueError(f"{self._text!r}: {token!r} is no attribute name")
        return token

    def operand(self) -> Operand:
        token = self.peek() or ""
        if token.startswith(":"):
            self.next()
            return lambda _item, values: values[token]
        if self.take("IF_NOT_EXISTS"):
            name, default = self.arguments(self.name, self.operand)
            return lambda item, values: item[name] if name in item else default(item, values)
        name = self.name()
        return lambda item, _values: item.get(name)


def _present(value: Value | None, name: str) -> Value:
    if value is None:
        raise ValueError(f"the attribute that {name!r} is set from does not exist in the item")
    return value


def _number(value: Value) -> Decimal:
    if "N" not in value:
        raise ValueError("an operand of an arithmetic update is not a number")
    return Decimal(value["N"])


def _holds(compare: Callable[[Any, Any], bool], operator: str, left: Value | None, right: Value | None) -> bool:
    """A comparison with an attribute that is absent is false; values of different types are merely not equal."""
    if left is None or right is None:
        return operator == "<>" and left is not right
    (kind, content), *_ = left.items()
    if kind not in right:
        return operator == "<>"
    if kind == "N":
        return compare(Decimal(content), Decimal(right[kind]))
    return compare(content, right[kind])


def _between(value: Value | None, low: Value | None, high: Value | None) -> bool:
    at_least, at_most = _COMPARE[">="], _COMPARE["<="]
    return _holds(at_least, ">=", value, low) and _holds(at_most, "<=", value, high)


def _begins_with(value: Value | None, prefix: Value | None) -> bool:
    return bool(value and prefix and "S" in value and "S" in prefix and value["S"].startswith(prefix["S"]))
