"""Compiles the text of a JSONPath to its steps: those of "$.a[0]" are (Name("a"), Index(0)).

Invariant: a text either compiles as a whole, or the error names the character from which it cannot be read.
"""

import functools
import operator
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from states_language.jsonpath.selection import Path
from states_language.jsonpath.steps import (
    Index,
    Many,
    Name,
    Names,
    Step,
    children,
    compared,
    everything,
    filtered,
    leaf_only,
    refused,
    sliced,
    union,
)
from states_language.values import MISSING, joined


class PathSyntaxError(ValueError):
    """The text is not a valid path; the message names the character from which it cannot be read."""


_DOT_NAME = re.compile(r"[^\s.\[\](),'\"*?@$!&|<>=+/~^;:{}\\-][^\s.\[\](),'\"*?@!&|<>=+/~^;:{}\\]*")
_CALL = re.compile(r"\([^()]*\)")
_QUOTED = re.compile(r"'((?:\\'|[^'])*)'|\"((?:\\\"|[^\"])*)\"")
_TEXT = re.compile(r"'((?:\\.|[^'\\])*)'|\"((?:\\.|[^\"\\])*)\"", re.DOTALL)
_ESCAPED = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))", re.DOTALL)
_CONTROLS = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_VARIABLE = re.compile(r"[^\W\d]\w*")
_INDEX = re.compile(r"-?\d{1,4000}")
_SLICE = re.compile(r"(-?\d{1,4000})?\s*:\s*(-?\d{1,4000})?(?:\s*:\s*(-?\d{1,4000}))?")
_LITERAL = re.compile(r"-?\d{1,4000}(?:\.\d+)?(?:[eE][+-]?\d+)?|[^\W\d][\w-]*")
"""A number or a word. Without quotes a word is a text, as in AWS's examples and in Jayway 2.0."""
_WORDS = {"true": True, "false": False, "null": None}
_WORD_OPERATOR = re.compile(r"=~|(?:in|nin|subsetof|anyof|noneof|size|sizeof|contains|empty|type|matches)\b", re.I)
"""Operators that Jayway's filters have and the language's specification has not."""
_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<=": operator.le,
    ">=": operator.ge,
    "<": operator.lt,
    ">": operator.gt,
}


@functools.lru_cache(maxsize=4096)
def compile_path(text: str) -> Path:
    """Return the compiled path; raises PathSyntaxError."""
    if not text.startswith("$"):
        raise PathSyntaxError("a path begins with $")
    context = text.startswith("$$")
    named = _VARIABLE.match(text, 1)
    parser = _Parser(text, named.end() if named else 2 if context else 1)
    steps = parser.steps()
    parser.spaces()  # Jayway cuts them off
    parser.end()
    return Path(text, tuple(steps), context, named.group() if named else None)


class Scanner:
    """A text that is read from the left; `at` is the next character."""

    space = re.compile(" *")

    def __init__(self, text: str, at: int = 0) -> None:
        self.text = text
        self.at = at

    def fail(self) -> PathSyntaxError:
        """Return the error for text that cannot be read here."""
        return PathSyntaxError(f"cannot be read from character {self.at + 1} on: '{self.text[self.at :]}'")

    def end(self) -> None:
        """Raise PathSyntaxError unless the whole text was read."""
        if self.at != len(self.text):
            raise self.fail()

    def take(self, token: str) -> bool:
        """Read the token if it comes next; return whether it did."""
        if self.text.startswith(token, self.at):
            self.at += len(token)
            return True
        return False

    def match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        """Read and return the pattern's match at this place; None if there is none."""
        match = pattern.match(self.text, self.at)
        if match:
            self.at = match.end()
        return match

    def spaces(self) -> None:
        """Read spaces."""
        self.match(self.space)

    def skip(self, token: str) -> bool:
        """Read spaces, and the token if it follows them; return whether it did."""
        self.spaces()
        return self.take(token)


class _Parser(Scanner):
    """Recursive descent over a path."""

    is_whole = True  # not within a filter

    def steps(self) -> list[Step]:
        steps: list[Step] = []
        while self.at < len(self.text):
            if self.take(".."):
                steps.append(Many("..", everything))
                found = self.bracket() if self.take("[") else self.dotted()
                steps.append(replace(found, whole=True) if isinstance(found, Names) else found)
            elif self.take("."):
                # Jayway and AWS also read $.[0] (asl-validator's issue 47, and AWS's own examples).
                steps.append(self.bracket() if self.take("[") else self.dotted())
            elif self.take("["):
                steps.append(self.bracket())
            else:
                break
        return leaf_only(steps)

    def dotted(self) -> Step:
        if self.take("*"):
            return Many("*", children)
        name = self.match(_DOT_NAME)
        if name and (call := self.match(_CALL)):
            if not self.is_whole or self.at != len(self.text):
                raise PathSyntaxError(f"the function {name.group()}() within a path is not supported")
            refusal = functools.partial(refused, "a function of a path is not evaluated")
            return Many(f"{name.group()}{call.group()}", refusal)
        if not name:
            raise self.fail()
        return Name(name.group())

    def bracket(self) -> Step:
        self.spaces()
        step = self.selector()
        if not self.skip("]"):
            raise self.fail()
        return step

    def selector(self) -> Step:
        if self.take("*"):
            return Many("*", children)
        if self.take("?("):
            test = self.either()
            if not self.skip(")"):
                raise self.fail()
            return Many("?", functools.partial(filtered, test))
        slice_ = self.match(_SLICE)
        if slice_:
            start, stop, step = (int(part) if part else None for part in slice_.groups())
            if step is not None and step < 1:
                raise self.fail()
            return Many(slice_.group(), functools.partial(sliced, slice(start, stop, step)))
        members = [self.member()]
        while self.skip(","):
            self.spaces()
            members.append(self.member())
        if len(members) == 1:
            return members[0]
        names = tuple(member.name for member in members if isinstance(member, Name))
        many = Many(",", functools.partial(union, tuple(members)))
        return Names(names) if len(names) == len(members) else many

    def member(self) -> Name | Index:
        if match := self.match(_INDEX):
            return Index(int(match.group()))
        if match := self.match(_QUOTED):
            # Only the quote itself is escaped; any other backslash belongs to the name (recorded).
            single, double = match.groups()
            return Name(single.replace("\\'", "'") if single is not None else double.replace('\\"', '"'))
        raise self.fail()

    # ---- filters: [?(@.a == 1 && !(@.b) || $.c > 2)] ----

    def either(self) -> Callable[[Any, Any], bool]:
        terms = [self.both()]
        while self.skip("||"):
            terms.append(self.both())
        return lambda here, root: any(term(here, root) for term in terms)

    def both(self) -> Callable[[Any, Any], bool]:
        terms = [self.comparison()]
        while self.skip("&&"):
            terms.append(self.comparison())
        return lambda here, root: all(term(here, root) for term in terms)

    def comparison(self) -> Callable[[Any, Any], bool]:
        if self.skip("!"):
            inner = self.comparison()
            return lambda here, root: not inner(here, root)
        if self.skip("("):
            inner = self.either()
            if not self.skip(")"):
                raise self.fail()
            return inner
        self.spaces()
        is_path = self.text.startswith(("@", "$"), self.at)
        left = self.operand()
        for sign, compare in _OPERATORS.items():
            if self.skip(sign):
                return functools.partial(compared, compare, left, self.operand())
        if word := self.match(_WORD_OPERATOR):
            raise PathSyntaxError(f"the operator {word.group()} of a filter is not supported")
        if not is_path:  # a literal alone tests nothing; Jayway refuses it, too
            raise self.fail()
        return lambda here, root: left(here, root) is not MISSING

    def operand(self) -> Callable[[Any, Any], Any]:
        self.spaces()
        if (at_node := self.take("@")) or self.take("$"):
            is_whole, self.is_whole = self.is_whole, False
            start, inner = self.at, self.steps()
            self.is_whole = is_whole
            path = Path("$" + self.text[start : self.at], tuple(inner))
            return lambda here, root: path.find(here if at_node else root)
        if match := self.match(_TEXT):
            # Jayway reads the escapes of Java.
            quoted = match.group(1) if match.group(1) is not None else match.group(2)
            plain = _ESCAPED.sub(lambda one: chr(int(one[1], 16)) if one[1] else _CONTROLS.get(one[2], one[2]), quoted)
            text = joined(plain)
            return lambda _here, _root: text
        if match := self.match(_LITERAL):
            word = match.group()
            if word[0] in "-0123456789":
                value: Any = float(word) if set(word) & set(".eE") else int(word)
            else:
                value = _WORDS.get(word, word)
            return lambda _here, _root: value
        raise self.fail()
