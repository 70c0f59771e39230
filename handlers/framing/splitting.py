"""Takes a batch apart: each element of a list within the frame's JSON is an event.

    path $.result.events    {"result": {"events": [{"n": 1}, {"n": 2}]}}    the events {"n": 1} and {"n": 2}

A server batches as it likes: elements that came in two frames may come in one when requested again. So an event is
identified by its element, never by its frame. A rule reads an element as if the frame had only this one: the profile's
`$.result.events[*].n` is `$.result.events[0].n` here.

A cursor may be passed once everything with that cursor is stored. The changes of one transaction share a revision. So
among consecutive elements with the same cursor only the last one has it; if the frame continues in the next one, not
even that.

Invariants: the elements keep their order and the upstream's spelling; a frame without a list at the path, or with more
elements than a small function can hold, is not taken apart; nothing is raised, whatever the upstream sent.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from json.decoder import scanstring  # type: ignore[attr-defined]  # implemented in C, and not in the stubs
from typing import Any, NamedTuple, Union

from handlers.framing.events import (
    LEFT_OUT,
    JsonPath,
    Rule,
    StreamEvent,
    compact_json,
    cursor_after,
    cursor_at_path,
    fit_sort_key,
    has_too_many_values,
    hash_key,
    key_text,
    parse_json,
    parse_path,
    remember,
    text_at_path,
    value_at_path,
)
from handlers.framing.frames import Frame
from handlers.framing.marks import Mark
from handlers.framing.numbers import raw_decode
from handlers.framing.selection import Keep
from handlers.values import dataclass

# Stands for the element in a path of the profile, after the path of the list.
ELEMENT = "[*]"
# An event takes some 300 bytes besides its text, and the smallest function has 128 MB.
MOST_ELEMENTS = 100_000
_blanks = re.compile(r"[ \t\n\r]*").match
# The members of an object to read, by name: LIST has the elements, KEPT is stored with each.
LIST, KEPT = "list", "kept"
_Members = Mapping[str, Union["_Members", str]]


class Batch(NamedTuple):
    """A frame that was taken apart: its JSON value, and the original texts of its elements.

    `kept` are the texts of the members that are stored with each element.
    """

    body: Any
    texts: list[str]
    kept: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Split:
    """Where the elements are, and what each takes from the frame; the paths have names only.

    `keep` are members of the frame that are stored with each element. `name` is the place of an event's name.
    `unfinished` are marks of a frame that continues in the next.
    """

    path: JsonPath
    keep: tuple[JsonPath, ...] = ()
    name: JsonPath | None = None
    unfinished: tuple[Mark, ...] = ()
    _members: _Members | str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        members: Any = {}
        for path, leaf in ((self.path, LIST), *((kept, KEPT) for kept in self.keep)):
            inner = members
            for step in path.steps[:-1]:
                inner = inner.setdefault(step, {})
            if path.steps:
                inner[path.steps[-1]] = leaf
            else:
                members = leaf
        object.__setattr__(self, "_members", members)

    def path_of(self, spelled: str) -> JsonPath | None:
        """Returns the path that a rule of the profile spells, for a frame with one element; None if it is none."""
        if not spelled.startswith(self.path.text + ELEMENT):
            return parse_path(spelled)
        path = parse_path(spelled.replace(ELEMENT, "[0]", 1))
        return None if path is None else JsonPath(spelled, path.steps)

    def is_of_element(self, path: JsonPath) -> bool:
        """Whether `path` leads into an element."""
        length = len(self.path.steps)
        return path.steps[:length] == self.path.steps and path.steps[length : length + 1] in ((0,), (-1,))

    def is_shared_key(self, key: Rule) -> bool:
        """Whether `key` is the same for all elements of a frame, so that they would be one event."""
        return not isinstance(key, str) and not self._leads_into_element(key)

    def key_of_whole(self, key: Rule) -> Rule:
        """Returns the rule for a frame that is stored whole: never one that names only its first element.

        If that element were stored already, the whole frame would count as a duplicate, and its others would be lost.
        """
        return "hash" if not isinstance(key, str) and self._leads_into_element(key) else key

    def _leads_into_element(self, key: JsonPath | tuple[JsonPath, ...]) -> bool:
        return any(self.is_of_element(path) for path in ((key,) if isinstance(key, JsonPath) else key))

    def elements_of(self, frame: Frame) -> Batch | None:
        """Returns the elements of `frame`, None if it has no list of them. `parse_json` need not parse it again."""
        text = frame.data
        if frame.is_comment or not isinstance(text, str) or has_too_many_values(text):
            return None
        reader = _Reader(text)
        try:
            body, end = reader.read(_skip(text, 0), self._members, reader.kept)
        except (ValueError, IndexError, RecursionError):
            return None
        if reader.texts is None or len(reader.texts) > MOST_ELEMENTS or _skip(text, end) != len(text):
            return None
        remember(text, body)
        return Batch(body, reader.texts, reader.kept)

    def has_list(self, frame: Frame) -> bool:
        """Whether a frame that was not taken apart has a list at the path."""
        return isinstance(value_at_path(parse_json(frame.data), self.path)[1], list)

    def single_element_bodies(self, body: Any) -> Iterator[Any]:
        """Yields, for each element of a frame, its body as if it had only this one: use it before the next comes."""
        elements = value_at_path(body, self.path)[1]
        alone: list[Any] = [None]
        shown = _with_list(body, self.path.steps, alone) if isinstance(elements, list) else body
        for alone[0] in elements if isinstance(elements, list) else ():
            yield shown

    def events(
        self,
        frame: Frame,
        batch: Batch,
        received_at_ms: int,
        *,
        key: Rule,
        cursor: Rule | None,
        keep: Sequence[Keep] = (),
    ) -> list[StreamEvent]:
        """Returns the events of the elements, in order; an element that no rule keeps has only its cursor."""
        if not batch.texts:
            return []
        before, after = _around(batch.kept, self.path.steps) if self.keep else ("", "")
        inner = cursor if isinstance(cursor, JsonPath) and self.is_of_element(cursor) else None
        cursors: list[str | None] = []
        events = []
        for place, (body, text) in enumerate(zip(self.single_element_bodies(batch.body), batch.texts, strict=True)):
            name = text_at_path(body, self.name) if self.name is not None else None
            name = frame.name if name is None else name
            if inner is not None:
                cursors.append(cursor_at_path(body, inner))
            if keep and not any(rule.fits(name, body) for rule in keep):
                events.append(StreamEvent(LEFT_OUT, text, None, name, None, received_at_ms))
                continue
            if isinstance(key, str):
                named = compact_json([frame.id, place]) if key == "id" and frame.id is not None else None
            else:
                named = key_text(body, key)
            own_key = fit_sort_key(named) or hash_key(Frame(text, name=name))
            events.append(StreamEvent(own_key, before + text + after, frame.id, name, None, received_at_ms))
        is_unfinished = any(mark.fits(frame, batch.body) for mark in self.unfinished)
        if inner is None:
            passed = None if is_unfinished else cursor_after(frame, cursor)
            events[-1] = events[-1]._replace(cursor=passed)
            return events
        return [
            event if passed is None else event._replace(cursor=passed)
            for event, passed in zip(events, _passable_cursors(cursors, is_unfinished), strict=True)
        ]


def _passable_cursors(cursors: Sequence[str | None], is_unfinished: bool) -> list[str | None]:
    """Returns the cursors that may be passed: only the last of consecutive equal ones."""
    passed: list[str | None] = []
    following = None
    if is_unfinished:
        following = next((cursor for cursor in reversed(cursors) if cursor is not None), None)
    for cursor in reversed(cursors):
        passed.append(None if cursor == following else cursor)
        following = following if cursor is None else cursor
    return passed[::-1]


def _with_list(body: Any, steps: Sequence[str | int], elements: list[Any]) -> Any:
    """`body` with `elements` in place of the list at `steps`; it shares parts with `body`: do not change it."""
    if not steps:
        return elements
    return {**body, steps[0]: _with_list(body[steps[0]], steps[1:], elements)}


def _around(kept: Mapping[str, Any], steps: Sequence[str | int]) -> tuple[str, str]:
    """Returns the texts before and after an element in a frame that has only this one and the kept members."""
    if not steps:
        return "[", "]"
    name, *further = steps
    inner = kept.get(str(name), {})
    before, after = _around(inner, further)
    beside = "".join(f"{json.dumps(other)}:{_to_text(one)}," for other, one in kept.items() if other != name)
    return f"{{{beside}{json.dumps(name)}:{before}", f"{after}}}"


def _to_text(kept: str | Mapping[str, Any]) -> str:
    if isinstance(kept, str):
        return kept
    return "{" + ",".join(f"{json.dumps(name)}:{_to_text(one)}" for name, one in kept.items()) + "}"


def _skip(text: str, at: int) -> int:
    """Returns where the blanks at `at` end, or `at` without any."""
    return at if text[at : at + 1] > " " else _blanks(text, at).end()  # type: ignore[union-attr]  # it always matches


class _Reader:
    """Reads one JSON text, and notes how the elements and the kept members are spelled in it.

    `texts` is None until a list is found where the elements should be. The methods raise ValueError, IndexError or
    RecursionError if the text is not valid JSON.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self.texts: list[str] | None = None
        self.kept: dict[str, Any] = {}

    def read(self, at: int, wanted: _Members | str, kept: dict[str, Any]) -> tuple[Any, int]:
        """Returns the value at `at` and where it ends; adds the texts of the `wanted` members to `kept`."""
        first = self._text[at]
        if first == "[" and wanted == LIST:
            return self._list(at + 1)
        if first == "{" and not isinstance(wanted, str):
            return self._object(at + 1, wanted, kept)
        return raw_decode(self._text, at)

    def _object(self, at: int, wanted: _Members, kept: dict[str, Any]) -> tuple[dict[str, Any], int]:
        text = self._text
        members: dict[str, Any] = {}
        at = _skip(text, at)
        while text[at] != "}" or members:
            if text[at] != '"':
                raise ValueError("a name is missing")
            name, at = scanstring(text, at + 1)
            at = _skip(text, at)
            if text[at] != ":":
                raise ValueError("a colon is missing")
            begin = _skip(text, at + 1)
            if name not in wanted:
                members[name], at = raw_decode(text, begin)
            elif name in members:
                raise ValueError("a name occurs twice, so it is unclear which of the two lists is meant")
            elif wanted[name] == KEPT:
                members[name], at = raw_decode(text, begin)
                if members[name] is not None:
                    kept[name] = text[begin:at]
            else:
                inside: dict[str, Any] = {}
                members[name], at = self.read(begin, wanted[name], inside)
                if inside:
                    kept[name] = inside
            at = _skip(text, at)
            if text[at] == "}":
                break
            if text[at] != ",":
                raise ValueError("a comma is missing")
            at = _skip(text, at + 1)
        return members, at + 1

    def _list(self, at: int) -> tuple[list[Any], int]:
        text, values = self._text, list[Any]()
        self.texts = texts = []
        at = _skip(text, at)
        while text[at] != "]" or values:
            value, end = raw_decode(text, at)
            values.append(value)
            texts.append(text[at:end])
            at = _skip(text, end)
            if text[at] == "]":
                break
            if text[at] != ",":
                raise ValueError("a comma is missing")
            at = _skip(text, at + 1)
        return values, at + 1
