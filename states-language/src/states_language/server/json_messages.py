"""Returns the reason why a text is not valid JSON, in AWS's words, and how much of it is outside its strings.

Python's decoder finds the problem. AWS's parser is Jackson: it names the unexpected token or character, and the place
after it. The message for an unrecognized token is recorded; the others are Jackson's.
"""

import json
import re

from states_language.values import Duplicate

_SHOWN = 500
_LONGEST_TOKEN = 256
"""How much of a text, and of an unrecognized token, Jackson shows."""
_TOKEN = re.compile(r"[A-Za-z_$][\w$]*")
_VALUES = "(JSON String, Number, Array, Object or token 'null', 'true' or 'false')"
_SKIPPED = re.compile(r'"(?:[^"\\]|\\.)*"?|[^"\[\]{}]+', re.DOTALL)
_TEXT = re.compile(rb'"[^"]*+"?')
"""A text without escapes."""
_EXPECTED = {
    "Expecting property name": "was expecting double-quote to start field name",
    "Illegal trailing comma": "was expecting double-quote to start field name",
    "Expecting ':'": "was expecting a colon to separate field name and value",
    "Expecting ','": "was expecting comma to separate {kind} entries",
}


def source_location(text: str, at: int) -> str:
    """Returns the place of a character, counted from 1, in Jackson's form; a long text is cut off."""
    shown = f'"{text}"' if len(text) <= _SHOWN else f'"{text[:_SHOWN]}"[truncated {len(text) - _SHOWN} chars]'
    line, column = text.count("\n", 0, at) + 1, at - text.rfind("\n", 0, at)
    return f"[Source: (String){shown}; line: {line}, column: {column}]"


def message_and_place(text: str, problem: ValueError) -> tuple[str, str]:
    """Returns the message and the place that it names: `('Duplicate field ...', '[Source: ...; column: 8]')`."""
    words, at = _message(text, problem)
    place = source_location(text, at)
    return f"{words}\n at {place}", place


def message(text: str, problem: ValueError) -> str:
    """Returns the message without a place."""
    return _message(text, problem)[0]


def _message(text: str, problem: ValueError) -> tuple[str, int]:
    if isinstance(problem, Duplicate):
        quoted = json.dumps(problem.name, ensure_ascii=False)
        return f"Duplicate field '{problem.name}'", max(0, text.rfind(quoted)) + len(quoted)
    if isinstance(problem, UnicodeError):
        return "Incomplete surrogate pair", len(text)
    if not isinstance(problem, json.JSONDecodeError):
        word, is_number, _ = str(problem).partition(" is not a valid JSON number")
        if not is_number:
            return word, len(text)
        at = text.find(word) + len(word) if word in text else len(text)
        return f"Non-standard token '{word}': enable JsonParser.Feature.ALLOW_NON_NUMERIC_NUMBERS to allow", at
    at, reason = problem.pos, problem.msg
    if reason.startswith("Unterminated string"):
        return "Unexpected end-of-input: was expecting closing quote for a string value", len(text)
    if not text[at:].strip():
        return f"Unexpected end-of-input{_unclosed_bracket(text)}", len(text)
    if reason.startswith("Invalid control"):
        code = ord(text[at])
        must = "has to be escaped using backslash to be included in string value"
        return f"Illegal unquoted character ((CTRL-CHAR, code {code})): {must}", at + 1
    if reason.startswith("Invalid \\escape"):
        sign = text[at + 1]
        return f"Unrecognized character escape '{sign}' (code {ord(sign)})", at + 2
    token = _TOKEN.match(text, at)
    if token is not None and reason.startswith("Expecting value"):
        word = token[0] if len(token[0]) <= _LONGEST_TOKEN else f"{token[0][:_LONGEST_TOKEN]}..."
        return f"Unrecognized token '{word}': was expecting {_VALUES}", token.end()
    brackets = _unclosed_brackets(text[:at])
    kind = "Array" if brackets and brackets[-1][0] == "[" else "Object"
    expected = next(
        (words for begin, words in _EXPECTED.items() if reason.startswith(begin)), f"expected a valid value {_VALUES}"
    )
    return f"Unexpected character ('{text[at]}' (code {ord(text[at])})): {expected.format(kind=kind)}", at + 1


def _unclosed_bracket(text: str) -> str:
    """Returns what Jackson adds for the innermost bracket that is not closed."""
    brackets = _unclosed_brackets(text)
    if not brackets:
        return ""
    sign, at = brackets[-1]
    kind = "Array" if sign == "[" else "Object"
    return f": expected close marker for {kind} (start marker at {source_location(text, at)})"


def _unclosed_brackets(text: str) -> list[tuple[str, int]]:
    unclosed: list[tuple[str, int]] = []
    at = 0
    while at < len(text):
        skipped = _SKIPPED.match(text, at)
        if skipped is not None:
            at = skipped.end()
            continue
        if text[at] in "[{":
            unclosed.append((text[at], at))
        elif unclosed:
            unclosed.pop()
        at += 1
    return unclosed


def bytes_outside_texts(body: bytes, most: int) -> int:
    """Returns how many bytes of a JSON text are outside its strings; it stops counting above `most`."""
    plain = body.replace(rb"\\", b"").replace(rb"\"", b"")  # which is quicker than to skip each escape
    outside, at = 0, 0
    for text in _TEXT.finditer(plain):
        outside, at = outside + 1 + text.start() - at, text.end()
        if outside > most:
            return outside
    return outside + len(plain) - at
