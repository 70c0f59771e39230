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
    all_values,
    check_leaf_members,
    children,
    compare_operands,
    refuse_step,
    select_matching,
    select_members,
    select_slice,
)
from states_language.values import MISSING, join_surrogates


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
"""Operators of Jayway's filters that the language's specification does not have."""
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
    steps = parser.parse_steps()
    parser.skip_spaces()  # Jayway ignores spaces at the end
    parser.expect_end()
    return Path(text, tuple(steps), context, named.group() if named else None)


class Scanner:
    """A text that is read from the left; `position` is that of the next character."""

    space = re.compile(" *")

    def __init__(self, text: str, at: int = 0) -> None:
        self.text = text
        self.position = at

    def error(self) -> PathSyntaxError:
        """Return the error for text that cannot be read here."""
        return PathSyntaxError(f"cannot be read from character {self.position + 1} on: '{self.text[self.position :]}'")

    def expect_end(self) -> None:
        """Raise PathSyntaxError unless the whole text was read."""
        if self.position != len(self.text):
            raise self.error()

    def take(self, token: str) -> bool:
        """Read the token if it comes next; return whether it did."""
        if self.text.startswith(token, self.position):
            self.position += len(token)
            return True
        return False

    def match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        """Read and return the pattern's match at this place; None if there is none."""
        match = pattern.match(self.text, self.position)
        if match:
            self.position = match.end()
        return match

    def skip_spaces(self) -> None:
        self.match(self.space)

    def take_after_spaces(self, token: str) -> bool:
        """Read spaces, and the token if it follows them; return whether it did."""
        self.skip_spaces()
        return self.take(token)


class _Parser(Scanner):
    """Recursive descent over a path."""

    is_whole = True  # not within a filter

    def parse_steps(self) -> list[Step]:
        steps: list[Step] = []
        while self.position < len(self.text):
            if self.take(".."):
                steps.append(Many("..", all_values))
                found = self.parse_bracket() if self.take("[") else self.parse_dotted()
                steps.append(replace(found, needs_all=True) if isinstance(found, Names) else found)
            elif self.take("."):
                # Jayway and AWS also read $.[0] (asl-validator's issue 47, and AWS's own examples).
                steps.append(self.parse_bracket() if self.take("[") else self.parse_dotted())
            elif self.take("["):
                steps.append(self.parse_bracket())
            else:
                break
        return check_leaf_members(steps)

    def parse_dotted(self) -> Step:
        if self.take("*"):
            return Many("*", children)
        name = self.match(_DOT_NAME)
        if name and (call := self.match(_CALL)):
            if not self.is_whole or self.position != len(self.text):
                raise PathSyntaxError(f"the function {name.group()}() within a path is not supported")
            refusal = functools.partial(refuse_step, "a function of a path is not evaluated")
            return Many(f"{name.group()}{call.group()}", refusal)
        if not name:
            raise self.error()
        return Name(name.group())

    def parse_bracket(self) -> Step:
        self.skip_spaces()
        step = self.parse_selector()
        if not self.take_after_spaces("]"):
            raise self.error()
        return step

    def parse_selector(self) -> Step:
        if self.take("*"):
            return Many("*", children)
        if self.take("?("):
            test = self.parse_or()
            if not self.take_after_spaces(")"):
                raise self.error()
            return Many("?", functools.partial(select_matching, test))
        slice_ = self.match(_SLICE)
        if slice_:
            start, stop, step = (int(part) if part else None for part in slice_.groups())
            if step is not None and step < 1:
                raise self.error()
            return Many(slice_.group(), functools.partial(select_slice, slice(start, stop, step)))
        members = [self.parse_member()]
        while self.take_after_spaces(","):
            self.skip_spaces()
            members.append(self.parse_member())
        if len(members) == 1:
            return members[0]
        names = tuple(member.name for member in members if isinstance(member, Name))
        many = Many(",", functools.partial(select_members, tuple(members)))
        return Names(names) if len(names) == len(members) else many

    def parse_member(self) -> Name | Index:
        if match := self.match(_INDEX):
            return Index(int(match.group()))
        if match := self.match(_QUOTED):
            # Only the quote itself is escaped; any other backslash belongs to the name (recorded).
            single, double = match.groups()
            return Name(single.replace("\\'", "'") if single is not None else double.replace('\\"', '"'))
        raise self.error()

    # ---- filters: [?(@.a == 1 && !(@.b) || $.c > 2)] ----

    def parse_or(self) -> Callable[[Any, Any], bool]:
        terms = [self.parse_and()]
        while self.take_after_spaces("||"):
            terms.append(self.parse_and())
        return lambda here, root: any(term(here, root) for term in terms)

    def parse_and(self) -> Callable[[Any, Any], bool]:
        terms = [self.parse_comparison()]
        while self.take_after_spaces("&&"):
            terms.append(self.parse_comparison())
        return lambda here, root: all(term(here, root) for term in terms)

    def parse_comparison(self) -> Callable[[Any, Any], bool]:
        if self.take_after_spaces("!"):
            inner = self.parse_comparison()
            return lambda here, root: not inner(here, root)
        if self.take_after_spaces("("):
            inner = self.parse_or()
            if not self.take_after_spaces(")"):
                raise self.error()
            return inner
        self.skip_spaces()
        is_path = self.text.startswith(("@", "$"), self.position)
        left = self.parse_operand()
        for sign, compare in _OPERATORS.items():
            if self.take_after_spaces(sign):
                return functools.partial(compare_operands, compare, left, self.parse_operand())
        if word := self.match(_WORD_OPERATOR):
            raise PathSyntaxError(f"the operator {word.group()} of a filter is not supported")
        if not is_path:  # a literal alone tests nothing; Jayway refuses it, too
            raise self.error()
        return lambda here, root: left(here, root) is not MISSING

    def parse_operand(self) -> Callable[[Any, Any], Any]:
        self.skip_spaces()
        if (at_node := self.take("@")) or self.take("$"):
            is_whole, self.is_whole = self.is_whole, False
            start, inner = self.position, self.parse_steps()
            self.is_whole = is_whole
            path = Path("$" + self.text[start : self.position], tuple(inner))
            return lambda here, root: path.find_from_root(here if at_node else root)
        if match := self.match(_TEXT):
            # Jayway reads the escapes of Java.
            quoted = match.group(1) if match.group(1) is not None else match.group(2)
            plain = _ESCAPED.sub(lambda one: chr(int(one[1], 16)) if one[1] else _CONTROLS.get(one[2], one[2]), quoted)
            text = join_surrogates(plain)
            return lambda _here, _root: text
        if match := self.match(_LITERAL):
            word = match.group()
            if word[0] in "-0123456789":
                value: Any = float(word) if set(word) & set(".eE") else int(word)
            else:
                value = _WORDS.get(word, word)
            return lambda _here, _root: value
        raise self.error()
