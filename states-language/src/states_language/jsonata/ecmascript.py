r"""Translates a regular expression of JavaScript into one of the library `regex`: "[^]+$" is r"(?s:.)+\Z".

It takes what JavaScript takes without the flag u, and refuses the rest: atomic groups, possessive quantifiers, flags
within. An unknown escape is the character itself. Source: ECMA-262, 22.2 and B.1.2. One difference from JavaScript
stays: a group in a loop keeps its match when the loop goes on without the group; JavaScript forgets the match.
"""

import re

from states_language.values import join_surrogates

_SPACES = "\t-\r \xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff"
_LINE_ENDS = "\n\r\u2028\u2029"
_SETS = {"d": "0-9", "w": "A-Za-z0-9_", "s": _SPACES}
_WORD = f"[{_SETS['w']}]"
_BOUNDS = {
    "b": f"(?-i:(?<={_WORD})(?!{_WORD})|(?<!{_WORD})(?={_WORD}))",
    "B": f"(?-i:(?<={_WORD})(?={_WORD})|(?<!{_WORD})(?!{_WORD}))",
}
_CONTROLS = {"n": "\n", "r": "\r", "t": "\t", "v": "\v", "f": "\f"}

_GROUP = re.compile(r"\((?:\?(?::|=|!|<=|<!|<([A-Za-z_$][\w$]*)>)|(?!\?))")
_OPENING = re.compile(r"\\.|\[(?:\\.|[^\]\\])*\]?|" + _GROUP.pattern, re.DOTALL)
_QUANTIFIER = re.compile(r"(?:[*+?]|\{([0-9]+)(?:(,)([0-9]*))?\})\??")
_OCTAL = re.compile(r"[0-3][0-7]{0,2}|[4-7][0-7]?")
_CODE = re.compile(r"x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})")
_NAME = re.compile(r"<([^>]*)>")
_NUMBER = re.compile(r"[1-9][0-9]*")

Members = str | list[tuple[str, str]]
"""One character, or the ranges of a set."""


def translate(text: str, *, multiline: bool) -> str:
    """Return the expression for `regex`, for a text of UTF-16 units; raises ValueError if JavaScript refuses it."""
    return _Translation(text, multiline).run()


def _refusal(text: str, why: str) -> ValueError:
    return ValueError(f"Invalid regular expression: /{join_surrogates(text)}/: {why}")


def _complement(ranges: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the ranges of all other UTF-16 units."""
    others, begin = [], 0
    for first, last in sorted(ranges):
        if ord(first) > begin:
            others.append((chr(begin), chr(ord(first) - 1)))
        begin = ord(last) + 1
    return [*others, (chr(begin), "\uffff")]


class _Translation:
    """The translation of one expression; `position` is that of the next character to read."""

    def __init__(self, text: str, multiline: bool) -> None:
        self.text = text
        self.position = 0
        self.multiline = multiline
        groups = [found for found in _OPENING.finditer(text) if found[0] == "(" or found[1]]
        self.groups = len(groups)
        self.names = {found[1]: number for number, found in enumerate(groups, 1) if found[1]}
        if len(self.names) < sum(bool(found[1]) for found in groups):
            raise _refusal(text, "Duplicate capture group name")
        self.opened_groups = 0
        self.open_groups: list[tuple[int | None, bool]] = []
        self.closed_groups: set[int] = set()

    def run(self) -> str:
        pieces = []
        while self.position < len(self.text):
            piece, repeatable = self._term()
            pieces += [piece, self._quantifier(repeatable)]
        if self.open_groups:
            raise _refusal(self.text, "Unterminated group")
        return "".join(pieces)

    def _term(self) -> tuple[str, bool]:
        """Return the next term, and whether a quantifier may follow."""
        sign = self.text[self.position]
        if sign == "\\":
            return self._escape()
        if sign == "[":
            return self._class(), True
        if sign == "(":
            return self._group(), False
        if _QUANTIFIER.match(self.text, self.position):
            raise _refusal(self.text, "Nothing to repeat")
        self.position += 1
        if sign == ")":
            if not self.open_groups:
                raise _refusal(self.text, "Unmatched ')'")
            number, repeatable = self.open_groups.pop()
            self.closed_groups.add(number or 0)
            return ")", repeatable
        if sign == "^":
            return (rf"(?:\A|(?<=[{_LINE_ENDS}]))" if self.multiline else r"\A"), False
        if sign == "$":
            return (rf"(?=[{_LINE_ENDS}]|\Z)" if self.multiline else r"\Z"), False
        if sign == ".":
            return f"[^{_LINE_ENDS}]", True
        return (sign, False) if sign == "|" else (re.escape(sign), True)

    def _quantifier(self, repeatable: bool) -> str:
        found = _QUANTIFIER.match(self.text, self.position)
        if found is None:
            return ""
        if not repeatable:
            raise _refusal(self.text, "Nothing to repeat")
        if found[3] and int(found[1]) > int(found[3]):
            raise _refusal(self.text, "numbers out of order in {} quantifier")
        self.position = found.end()
        return found[0]

    def _group(self) -> str:
        found = _GROUP.match(self.text, self.position)
        if found is None:
            raise _refusal(self.text, "Invalid group")
        self.position = found.end()
        captures = found[0] == "(" or bool(found[1])
        self.opened_groups += captures
        # A lookahead may be repeated, a lookbehind may not.
        self.open_groups.append((self.opened_groups if captures else None, not found[0].startswith(("(?<=", "(?<!"))))
        return "(" if captures else found[0]

    def _escape(self) -> tuple[str, bool]:
        sign = self.text[self.position + 1 : self.position + 2]
        if sign and sign in "dDwWsS":
            self.position += 2
            return f"(?-i:[{'^' if sign.isupper() else ''}{_SETS[sign.lower()]}])", True
        if sign in _BOUNDS:
            self.position += 2
            return _BOUNDS[sign], False
        number = _NUMBER.match(self.text, self.position + 1)
        if number and int(number[0]) <= self.groups:
            self.position = number.end()
            return self._reference(int(number[0])), True
        if sign == "k" and self.names:
            name = _NAME.match(self.text, self.position + 2)
            if name is None or name[1] not in self.names:
                raise _refusal(self.text, "Invalid named reference")
            self.position = name.end()
            return self._reference(self.names[name[1]]), True
        return re.escape(self._character()), True

    def _reference(self, number: int) -> str:
        """Return the reference to a group; a group that matched nothing, or is still open, stands for an empty text."""
        return f"(?({number})\\{number}|)" if number in self.closed_groups else "(?:)"

    def _character(self, *, within: bool = False) -> str:
        """Return the character that an escape stands for."""
        begin = self.position + 1
        sign = self.text[begin : begin + 1]
        if not sign:
            raise _refusal(self.text, "\\ at end of pattern")
        octal, code = _OCTAL.match(self.text, begin), _CODE.match(self.text, begin)
        if octal or code:
            found = octal or code
            assert found is not None
            self.position = found.end()
            return chr(int(octal[0], 8) if octal else int(found[1] or found[2], 16))
        if sign == "c":
            letter = self.text[begin + 1 : begin + 2]
            if letter.isascii() and (letter.isalpha() or (within and (letter.isdecimal() or letter == "_"))):
                self.position = begin + 2
                return chr(ord(letter) % 32)
            self.position = begin
            return "\\"
        self.position = begin + 1
        return "\b" if within and sign == "b" else _CONTROLS.get(sign, sign)

    def _class(self) -> str:
        negated = self.text.startswith("[^", self.position)
        self.position += 2 if negated else 1
        ranges: list[tuple[str, str]] = []
        while not self.text.startswith("]", self.position):
            first = self._member()
            if self.text.startswith("-", self.position) and self.text[self.position + 1 : self.position + 2] not in (
                "",
                "]",
            ):
                self.position += 1
                last = self._member()
                if isinstance(first, str) and isinstance(last, str):
                    if first > last:
                        raise _refusal(self.text, "Range out of order in character class")
                    ranges.append((first, last))
                    continue
                ranges += [*_as_ranges(first), ("-", "-"), *_as_ranges(last)]
            else:
                ranges += _as_ranges(first)
        self.position += 1
        if not ranges:
            return "(?s:.)" if negated else "(?!)"
        members = "".join(f"{re.escape(low)}-{re.escape(high)}" for low, high in ranges)
        return f"[{'^' if negated else ''}{members}]"

    def _member(self) -> Members:
        sign = self.text[self.position : self.position + 1]
        if not sign:
            raise _refusal(self.text, "Unterminated character class")
        if sign != "\\":
            self.position += 1
            return sign
        kind = self.text[self.position + 1 : self.position + 2]
        if kind and kind in "dDwWsS":
            self.position += 2
            ranges = [(found[0], found[-1]) for found in re.findall(r".-.|.", _SETS[kind.lower()], re.DOTALL)]
            return _complement(ranges) if kind.isupper() else ranges
        return self._character(within=True)


def _as_ranges(members: Members) -> list[tuple[str, str]]:
    return [(members, members)] if isinstance(members, str) else members
