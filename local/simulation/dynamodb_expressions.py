"""Evaluates DynamoDB expressions: conditions, and the SET, REMOVE and ADD clauses of an update.

Any other text raises ValueError with the place: nested paths, lists and the DELETE clause are not used here, and not
implemented. Invariant: an update returns a changed copy, and changes nothing else.

Source: "Condition and filter expressions, operators, and functions" and "Update expressions", DynamoDB Developer Guide.
"""

import operator
import re
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from functools import lru_cache
from typing import Any

Value = dict[str, Any]
Item = dict[str, Value]
Values = Mapping[str, Value]
Condition = Callable[[Item, Values], bool]
Update = Callable[[Item, Values], Item]
Operand = Callable[[Item, Values], Value | None]
# One action of an update. Most are `name = :value` and are kept as a pair, the others as a function.
Action = tuple[str, str] | Callable[[Item, Item, Values], object]

_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_NAME = r"#?[A-Za-z_]\w*"
_OPERAND = r"[#:]?[A-Za-z_]\w*"
# The operands of AND, OR, NOT and brackets, which have the same precedence as in Python.
_TERM = re.compile(
    rf"(?P<exists>attribute_(?:not_)?exists)\s*\(\s*(?P<name>{_NAME})\s*\)"
    rf"|begins_with\s*\(\s*(?P<subject>{_OPERAND})\s*,\s*(?P<prefix>{_OPERAND})\s*\)"
    rf"|(?P<between>{_OPERAND})\s+BETWEEN\s+(?P<low>{_OPERAND})\s+AND\s+(?P<high>{_OPERAND})"
    rf"|(?P<left>{_OPERAND})\s*(?P<compare><>|<=|>=|[=<>])\s*(?P<right>{_OPERAND})"
    r"|(?P<logic>AND\b|OR\b|NOT\b|[()])",
    re.IGNORECASE,
)
_CLAUSE = re.compile(r"(SET|REMOVE|ADD)\s", re.IGNORECASE)
_ACTIONS = {
    "SET": re.compile(
        rf"(?P<name>{_NAME})\s*=\s*(?:if_not_exists\s*\(\s*(?P<known>{_NAME})\s*,\s*(?P<default>{_OPERAND})\s*\)"
        rf"|(?P<value>{_OPERAND}))(?:\s*(?P<sign>[+-])\s*(?P<other>{_OPERAND}))?",
        re.IGNORECASE,
    ),
    "ADD": re.compile(rf"(?P<name>{_NAME})\s+(?P<other>{_OPERAND})"),
    "REMOVE": re.compile(rf"(?P<name>{_NAME})"),
}


def condition(text: str, names: Mapping[str, str] | None = None) -> Condition:
    """Returns the predicate of the expression `text`; raises ValueError if it does not parse."""
    return _compiled_condition(text, *_flat(names))


def update(text: str, names: Mapping[str, str] | None = None) -> Update:
    """Returns a function that returns a changed copy of an item; raises ValueError if the text does not parse."""
    return _compiled_update(text, *_flat(names))


def _flat(names: Mapping[str, str] | None) -> tuple[tuple[str, ...], ...]:
    """Returns the names as a key that is cheap to make and to compare."""
    return (tuple(names), tuple(names.values())) if names else ((), ())


@lru_cache(maxsize=256)
def _compiled_condition(text: str, places: tuple[str, ...], names: tuple[str, ...]) -> Condition:
    named = dict(zip(places, names, strict=True))
    terms: list[Condition] = []
    logic: list[str] = []
    rest = text.strip()
    while rest:
        match = _match(_TERM, rest, text)
        rest = rest[match.end() :].lstrip()
        if match["logic"] is None:
            logic.append(f"terms[{len(terms)}](item, values)")
            terms.append(_term(match, named))
        else:
            logic.append(match["logic"].lower())
    try:
        compiled: Condition = eval(f"lambda item, values: {' '.join(logic)}", {"terms": terms})
    except SyntaxError as error:
        raise ValueError(f"{text!r}: {error.msg}") from None
    return compiled


def _match(pattern: re.Pattern[str], rest: str, text: str) -> re.Match[str]:
    match = pattern.match(rest)
    if match is None:
        raise ValueError(f"{text!r}: cannot read {rest!r}")
    return match


def _term(match: re.Match[str], names: Mapping[str, str]) -> Condition:
    if match["exists"] is not None:
        name, wanted = _resolve_name(match["name"], names), match["exists"].lower() == "attribute_exists"
        return lambda item, _values: (name in item) is wanted
    if match["subject"] is not None:
        subject, prefix = (_operand(match[group], names) for group in ("subject", "prefix"))
        return lambda item, values: _begins_with(subject(item, values), prefix(item, values))
    if match["between"] is not None:
        value, low, high = (_operand(match[group], names) for group in ("between", "low", "high"))
        at_least, at_most = _comparison(value, ">=", low), _comparison(value, "<=", high)
        return lambda item, values: at_least(item, values) and at_most(item, values)
    return _comparison(_operand(match["left"], names), match["compare"], _operand(match["right"], names))


@lru_cache(maxsize=256)
def _compiled_update(text: str, places: tuple[str, ...], names: tuple[str, ...]) -> Update:
    actions = list(_actions(text, dict(zip(places, names, strict=True))))
    assignments = [action for action in actions if isinstance(action, tuple)]
    others = [action for action in actions if not isinstance(action, tuple)]

    def apply(item: Item, values: Values) -> Item:
        changed = dict(item)
        for name, value in assignments:
            changed[name] = values[value]
        for action in others:
            action(item, changed, values)  # operands read the item as it was before the update
        return changed

    return apply


def _actions(text: str, names: Mapping[str, str]) -> Iterator[Action]:
    rest, word = text.strip(), ""
    while rest:
        if clause := _CLAUSE.match(rest):
            word = clause[1].upper()
        elif not word or rest[0] != ",":
            raise ValueError(f"{text!r}: expected SET, REMOVE or ADD, not {rest!r}")
        rest = rest[clause.end() if clause else 1 :].lstrip()
        match = _match(_ACTIONS[word], rest, text)
        yield _action(word, match.groupdict(), names)
        rest = rest[match.end() :].lstrip()


def _action(word: str, said: Mapping[str, str], names: Mapping[str, str]) -> Action:
    name = _resolve_name(said["name"], names)
    if word == "REMOVE":
        return lambda _before, after, _values: after.pop(name, None)
    if word == "ADD":
        known, default, sign = name, "", "+"
    else:
        known, default, sign = said["known"], said["default"] or said["value"], said["sign"]
        if not (known or sign) and default.startswith(":"):
            return name, default
        known = _resolve_name(known, names) if known else ""
    # ADD to an absent attribute starts at 0.
    otherwise: Operand = _operand(default, names) if default else lambda _item, _values: {"N": "0"}
    other = _operand(said["other"], names) if sign else None

    def action(before: Item, after: Item, values: Values) -> None:
        value = before[known] if known in before else _require_value(otherwise(before, values), name)
        if other is not None:
            added = _number(_require_value(other(before, values), name))
            value = {"N": str(_number(value) + (added if sign == "+" else -added))}
        after[name] = value

    return action


def _resolve_name(token: str, names: Mapping[str, str]) -> str:
    if token.startswith("#") and token not in names:
        raise ValueError(f"{token} is not in ExpressionAttributeNames")
    return names.get(token, token)


def _operand(token: str, names: Mapping[str, str]) -> Operand:
    if token.startswith(":"):
        return lambda _item, values: values[token]
    name = _resolve_name(token, names)
    return lambda item, _values: item.get(name)


def _require_value(value: Value | None, name: str) -> Value:
    if value is None:
        raise ValueError(f"the attribute that {name!r} is set from does not exist in the item")
    return value


def _number(value: Value) -> Decimal:
    if "N" not in value:
        raise ValueError("an operand of an arithmetic update is not a number")
    return Decimal(value["N"])


def _comparison(left_of: Operand, word: str, right_of: Operand) -> Condition:
    """Returns a comparison, which is false if an attribute is absent; values of different types are not equal."""
    compare, differs = _COMPARE[word], word == "<>"

    def holds(item: Item, values: Values) -> bool:
        left, right = left_of(item, values), right_of(item, values)
        if left is None or right is None:
            return differs and left is not right
        (kind, content), *_ = left.items()
        if kind not in right:
            return differs
        if kind == "N":
            return bool(compare(Decimal(content), Decimal(right[kind])))
        return bool(compare(content, right[kind]))

    return holds


def _begins_with(value: Value | None, prefix: Value | None) -> bool:
    return bool(value and prefix and "S" in value and "S" in prefix and value["S"].startswith(prefix["S"]))
