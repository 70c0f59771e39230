"""Reads the fields of one JSON object of a definition: which are allowed and required, of what type, in what bounds.

    fields = Fields({"Seconds": 5, "Secnds": 6}, "/States/Pause")
    fields.integer("Seconds", 0)  # 5
    fields.refuse_unread("a Wait state")  # DefinitionError: /States/Pause/Secnds: is not a field of a Wait state

Invariant: every error names the JSON pointer of the place and the rule that it breaks.
"""

import sys
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

T = TypeVar("T")


class DefinitionError(ValueError):
    """A definition breaks a rule of the language or uses what this interpreter does not support.

    fields: the fields that the object may have, if the rule is that it has no such field.
    """

    def __init__(self, pointer: str, rule: str, fields: Iterable[str] = ()) -> None:
        super().__init__(f"{pointer}: {rule}")
        self.pointer = pointer
        self.rule = rule
        self.fields = sorted(fields)


def child_pointer(pointer: str, *parts: str | int) -> str:
    """Return the JSON pointer (RFC 6901) of a member of the value at a pointer; the whole document is "/"."""
    pointer = "" if pointer == "/" else pointer
    for part in parts:
        token = str(part)
        if "~" in token or "/" in token:
            token = token.replace("~", "~0").replace("/", "~1")
        pointer = f"{pointer}/{token}"
    return pointer


CompileLine = Callable[[Any, str, str], Any]
"""Returns the line of states of a value, its JSON pointer and its kind, such as `a branch`; raises DefinitionError."""


class Fields:
    """The fields of one JSON object; `refuse_unread` refuses a field that no call has read."""

    __slots__ = ("compile_line", "known", "language", "pointer", "value")
    compile_line: CompileLine
    """For the fields of a state: the function that compiles a line of states within it."""

    def __init__(self, value: Any, pointer: str) -> None:
        if not isinstance(value, dict):
            raise DefinitionError(pointer, "must be a JSON object")
        self.value: dict[str, Any] = value
        self.pointer = pointer
        self.language = JSONPATH
        self.known: set[str] = set()

    @property
    def is_jsonata(self) -> bool:
        """Return whether the query language here is JSONata."""
        return self.language == JSONATA

    def child_fields(self, value: Any, pointer: str) -> "Fields":
        """Return the fields of an object within this one, in the same query language."""
        inner = Fields(value, pointer)
        inner.language = self.language
        return inner

    def pointer_of(self, name: str) -> str:
        return child_pointer(self.pointer, name)

    def error_for(self, name: str, rule: str) -> DefinitionError:
        """Return the error for a field that breaks a rule."""
        return DefinitionError(self.pointer_of(name), rule)

    def __contains__(self, name: str) -> bool:
        return name in self.value

    def get(self, name: str, default: Any = None) -> Any:
        """Return a field's value unchanged."""
        self.known.add(name)
        return self.value.get(name, default)

    def require(self, *names: str) -> None:
        """Raise DefinitionError if one of the fields is missing."""
        for name in names:
            if name not in self.value:
                missing = [name for name in names if name not in self.value]
                raise DefinitionError(self.pointer, f"these fields are required: {', '.join(missing)}")

    def at_most_one(self, *names: str) -> list[str]:
        """Return a list of the one field that is present, [] if none is; raises DefinitionError if several are."""
        present = [name for name in names if name in self.value]
        if len(present) > 1:
            raise DefinitionError(self.pointer, f"only one of these fields may be present: {', '.join(present)}")
        return present

    def string(self, name: str) -> str | None:
        """Return a field's text; None if it is absent."""
        return self._read_typed(name, str, "must be a string")

    def boolean(self, name: str) -> bool | None:
        """Return a field's truth value; None if it is absent."""
        return self._read_typed(name, bool, "must be true or false")

    def integer(self, name: str, least: int, most: int = 99_999_999) -> int | None:
        """Return a field's whole number, least <= n <= most (99999999 is the language's own bound); None if absent."""
        self.known.add(name)
        if name not in self.value:
            return None
        value = self.value[name]
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool):
            raise self.error_for(name, "must be a whole number")
        if not least <= value <= most:
            raise self.error_for(name, f"must be between {least} and {most}")
        return value

    def number(self, name: str, least: float, most: float = sys.float_info.max) -> float | None:
        """Return a field's number, least <= x <= most; None if it is absent."""
        self.known.add(name)
        if name not in self.value:
            return None
        value = self.value[name]
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise self.error_for(name, "must be a number")
        if not value >= least:
            raise self.error_for(name, f"must be at least {least}")
        if not value <= most:
            raise self.error_for(name, f"must be at most {most}")
        return float(value)

    def array(self, name: str) -> list[Any]:
        """Return a field's list; empty if it is absent."""
        return self._read_typed(name, list, "must be an array") or []

    def object(self, name: str) -> dict[str, Any]:
        """Return a field's object; empty if it is absent."""
        return self._read_typed(name, dict, "must be a JSON object") or {}

    def _read_typed(self, name: str, kind: type[T], rule: str) -> T | None:
        self.known.add(name)
        value = self.value.get(name)
        if isinstance(value, kind) or (value is None and name not in self.value):
            return value
        raise self.error_for(name, rule)

    def refuse_unread(self, kind: str) -> None:
        """Raise DefinitionError for a field that no call has read; `kind` names the object in the error."""
        if not self.value.keys() <= self.known:
            name = next(name for name in self.value if name not in self.known)
            raise DefinitionError(self.pointer_of(name), self._unknown_rule(name, kind), self.known)

    def _unknown_rule(self, name: str, kind: str) -> str:
        for language, names in FIELDS_OF.items():
            if name in names and language != self.language:
                return f"is a field of {language}; the query language here is {self.language}"
        return f"is not a field of {kind}"


JSONPATH = "JSONPath"
JSONATA = "JSONata"

FIELDS_OF = {
    JSONPATH: frozenset(
        {
            *("InputPath", "OutputPath", "ResultPath", "Parameters", "ResultSelector", "Result", "ItemsPath"),
            *("SecondsPath", "TimestampPath", "TimeoutSecondsPath", "HeartbeatSecondsPath", "ErrorPath", "CausePath"),
            *("MaxConcurrencyPath", "ToleratedFailureCountPath", "ToleratedFailurePercentagePath", "Variable"),
            *("MaxItemsPath", "MaxItemsPerBatchPath", "MaxInputBytesPerBatchPath"),
        }
    ),
    JSONATA: frozenset({"Arguments", "Output", "Condition", "Items"}),
}
"""Fields that only one of the query languages has."""


def read_query_language(fields: Fields, default: str) -> str:
    """Return the query language of a machine or state: its own QueryLanguage, or the default around it.

    A state may leave JSONPath for JSONata, but not JSONata for JSONPath (recorded): that raises DefinitionError.
    """
    name = fields.string("QueryLanguage")
    if name not in (None, JSONPATH, JSONATA):
        raise fields.error_for("QueryLanguage", f"must be {JSONPATH} or {JSONATA}")
    if name == JSONPATH and default == JSONATA:
        raise DefinitionError(
            fields.pointer, "'QueryLanguage' can not be 'JSONPath' if set to 'JSONata' for whole state machine"
        )
    fields.language = name or default
    return fields.language
