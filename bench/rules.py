"""Tests whether a reader keeps the rules of WHATWG HTML 9.2.6 that streams depend on.

The input of each rule is read whole, byte by byte, and cut in two at every place. Invariant: our decoder keeps every
rule, as a test proves.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, NamedTuple

from bench.readers import Reader

Verdict = Literal["kept", "broken", "only whole", "raises"]


class Rule(NamedTuple):
    """An input, and a test of its events as (data, id) and of the reconnection time that they set."""

    name: str
    wire: bytes
    is_kept: Callable[[list[tuple[Any, Any]], Any], bool]


def _data(*expected: str) -> Callable[[list[tuple[Any, Any]], Any], bool]:
    return lambda events, _: [data for data, _ in events] == list(expected)


RULES = (
    # "One leading U+FEFF BYTE ORDER MARK character must be ignored if any are present."
    Rule("BOM", b"\xef\xbb\xbfdata: a\n\ndata: b\n\n", _data("a", "b")),
    Rule("LF", b"data: a\ndata: b\n\ndata: c\n\n", _data("a\nb", "c")),
    Rule("CRLF", b"data: a\r\ndata: b\r\n\r\ndata: c\r\n\r\n", _data("a\nb", "c")),
    Rule("CR", b"data: a\rdata: b\r\rdata: c\r\r", _data("a\nb", "c")),
    # No other character ends a line: U+2028 and U+0085 are text.
    Rule("other line ends", "data: a\u2028b\x85c\x0bd\n\n".encode(), _data("a\u2028b\x85c\x0bd")),
    # A reader that reports an event's own id may report none; one that reports the last event ID reports 1.
    Rule(
        "id with NUL",
        b"id: 1\ndata: a\n\nid: 2\0x\ndata: b\n\n",
        lambda events, _: (
            [data for data, _ in events] == ["a", "b"] and events[0][1] == "1" and events[1][1] in ("1", "", None)
        ),
    ),
    # "If the field value consists of only ASCII digits": these have more, and the events go on.
    *(
        Rule("retry", b"retry: " + value + b"\ndata: a\n\n", lambda events, retry: _data("a")(events, 0) and not retry)
        for value in (b"+5", b"1_0", b"-7", "\u0663".encode(), b"soon")
    ),
    # "The data buffer is an empty string": nothing is dispatched, and the last event ID is set all the same.
    Rule("id alone", b"id: 7\n\ndata: a\n\n", lambda events, _: events == [("a", "7")]),
    # "Any pending data must be discarded": a block without a blank line after it is not an event.
    Rule("tail", b"data: a\n\ndata: b\n", _data("a")),
)
NAMES = tuple(dict.fromkeys(rule.name for rule in RULES))


def cuts(wire: bytes) -> Iterator[Sequence[bytes]]:
    """Yield the input byte by byte, and cut in two at every place."""
    yield [wire[at : at + 1] for at in range(len(wire))]
    for at in range(1, len(wire)):
        yield [wire[:at], wire[at:]]


def verdicts(reader: Reader) -> dict[str, Verdict]:
    """Return the verdict on a reader by the rule's name; if a rule has several inputs, the worst counts."""
    worst: dict[str, Verdict] = {}
    order: tuple[Verdict, ...] = ("kept", "only whole", "broken", "raises")
    for rule in RULES:
        verdict = _verdict(reader, rule)
        worst[rule.name] = max(worst.get(rule.name, "kept"), verdict, key=order.index)
    return worst


def _verdict(reader: Reader, rule: Rule) -> Verdict:
    try:
        if not _is_kept(reader, rule, [rule.wire]):
            return "broken"
    except Exception:
        return "raises"
    try:
        return "kept" if all(_is_kept(reader, rule, chunks) for chunks in cuts(rule.wire)) else "only whole"
    except Exception:
        return "only whole"


def _is_kept(reader: Reader, rule: Rule, chunks: Sequence[bytes]) -> bool:
    outcome = reader.read(chunks)
    events = list(outcome.events)
    return rule.is_kept([reader.parts(event) for event in events], outcome.retry(events))
