"""How a profile says where gaps are fetched from: its valid forms, and one sentence for each invalid one."""

from typing import Any

import pytest

from handlers.profile.checked_fields import BadProfile
from handlers.profile.parse import parse
from handlers.profile.repair_field import Repair, unintended_notes

STREAM = {"address": "https://s.example/e", "framing": "ndjson", "key": "$.id"}
GIVEN = {
    "address": "https://rest.example/trades?after={after}&before={before}",
    "items": "$.trades",
    "key": "$.id",
    "next": {"cursor": "$.next", "query": "after"},
}

TICKET = {"address": "https://t.example/", "path": "$.key"}
TOKEN = {"kind": "client_credentials", "address": "https://t.example/", "id": "me", "secret": "${secret:key}"}


def read(stream: dict[str, Any] | None = None, **repair: Any) -> Repair:
    """Return the field of a profile, with these fields over the given ones; None leaves a field out."""
    table = {name: value for name, value in (GIVEN | repair).items() if value is not None}
    parsed = parse("p", STREAM | (stream or {}) | {"repair": table}, {"UPSTREAM_REST": "http://localhost:1"}).repair
    assert parsed is not None
    return parsed


def problems_of(stream: dict[str, Any] | None = None, **repair: Any) -> list[str]:
    """Return the problems of such a field."""
    try:
        read(stream, **repair)
    except BadProfile as bad:
        return [problem.removeprefix("the profile 'p': ") for problem in bad.problems]
    return []


def test_the_edges_go_into_the_address_percent_encoded_and_once() -> None:
    """A key at an edge is percent-encoded and filled in once, even if it looks like a placeholder or a query."""
    repair = read(address="${UPSTREAM_REST}/{name}?after={after}&before={before}")
    edges = {"after": "{before}&x=1", "before": "ü"}
    assert repair.address_for("p:a/b", edges, {}) == (
        "http://localhost:1/a%2Fb?after=%7Bbefore%7D%26x%3D1&before=%C3%BC"
    )
    assert repair.edges == {"after", "before"}


@pytest.mark.parametrize(
    ("unit", "spelled", "value"),
    [
        ("s", "1800000000", 1_800_000_000.123),
        ("ms", "1800000000123", 1_800_000_000_123),
        ("us", "1800000000123000", 1_800_000_000_123_000),
        ("ns", "1800000000123000000", "1800000000123000000"),
        ("iso", "2027-01-15T08:00:00.123Z", "2027-01-15T09:00:00.123+01:00"),
    ],
)
def test_instants_are_spelled_and_read_in_the_unit(unit: str, spelled: str, value: Any) -> None:
    """An address gets whole units; an item's time may also be a text or have a fraction."""
    repair = read(address="https://r.example/?from={from}&to={to}", time_unit=unit)
    assert repair.time.instant_text(1_800_000_000_123) == spelled
    assert repair.time.instant_ms(value) == 1_800_000_000_123
    assert repair.time.instant_ms(None) is None
    assert repair.time.instant_ms("no instant") is None


BATCH = {"split": {"path": "$.b", "name": "$.b[*].e"}, "key": "$.b[*].id"}
NAMELESS = "keep selects events by name, and repair has no name, so items of every name are stored"


@pytest.mark.parametrize(
    ("stream", "repair", "note"),
    [
        ({}, {"key": None}, []),
        ({}, {"key": "$.trade_id"},
         ["an item is named by $.trade_id, an event of the stream by $.id: `profile try --repair` compares"]),
        ({"framing": "sse", "keep": {"name": "trade"}}, {}, [NAMELESS]),
        ({"framing": "sse", "keep": [{"path": "$.id"}, {"name": "trade", "path": "$.id"}]}, {}, [NAMELESS]),
        ({"framing": "sse", "keep": {"name": "trade"}}, {"name": "$.type"}, []),
        (BATCH | {"keep": {"name": "trade", "path": "$.b[*].x"}}, {"key": None}, []),
        (BATCH | {"keep": [{"name": "trade"}, {"path": "$.of"}]}, {"key": None},
         ["keep selects events by a place outside the list of split, which no item of repair has"]),
    ],
)  # fmt: skip
def test_differences_from_the_stream_are_noted(stream: dict[str, Any], repair: dict[str, Any], note: list[str]) -> None:
    """An item's key and name are by default where the stream's are; `profile check` prints differences."""
    table = {name: value for name, value in (GIVEN | repair).items() if value is not None}
    profile = parse("p", STREAM | stream | {"repair": table}, {})
    assert profile.repair is not None
    assert list(unintended_notes(profile.repair, profile.key, profile.split, profile.keep)) == note


@pytest.mark.parametrize(
    ("stream", "repair", "problem"),
    [
        ({}, {"address": "https://r.example/"}, "repair.address must contain {after} or {before}"),
        ({}, {"address": "ftp://r.example/{after}"}, "repair.address must begin with http:// or https://"),
        ({}, {"address": "https://{after}.example/"},
         "repair.address may contain {after}, {before}, {from} and {to} only"),
        ({}, {"address": "https://r.example/?a={after}&api_key=k"}, "repair.address contains 'api_key' in plain text"),
        ({}, {"address": "https://r.example/{token}?a={after}"}, "repair cannot send {token}: give it an address"),
        ({"headers": {"X": "{ticket}"}, "ticket": TICKET}, {}, "repair cannot send {ticket}: give it an address"),
        ({"token": TOKEN}, {"headers": {"X": "{token}"}}, "repair cannot send {token}: give it an address"),
        ({}, {"address": "https://r.example/{aftr}"}, "repair.address may contain only these placeholders"),
        ({}, {"address": None}, "repair.address is missing"),
        ({}, {"items": None}, "repair.items is missing: it must be "),
        ({}, {"items": "$[0]"}, "repair.items must be a JSON path of names"),
        ({}, {"key": ["$.a", "$.b"]}, 'repair.key must be a JSON path such as "$.id"'),
        ({"key": ["$.a", "$.b"]}, {}, "repair.key must be a list of 2 JSON paths"),
        ({"key": "each"}, {}, 'repair cannot be combined with key = "each"'),
        ({"key": "hash"}, {"address": "https://r.example/{from}"}, "repair.key must be left out"),
        ({"key": "hash"}, {"key": None}, "repair.address must contain {from} and {to}"),
        ({}, {"next": {}}, "repair.next must be one of"),
        ({}, {"next": {"link": "next", "number": "page"}}, "repair.next must be one of"),
        ({}, {"after_s": "2h"}, "repair.after_s must be a number of seconds from 0 to 3600"),
        ({}, {"headers": {"authorization": "Bearer x"}},
         "repair.headers.authorization contains 'authorization' in plain"),
        ({}, {"pase_s": 1}, "repair.pase_s is not a field of repair"),
        ({"order": "none"}, {}, 'repair needs order = "index"'),
        ({"on_conflict": "both"}, {}, 'repair works only with on_conflict = "first"'),
    ],
)  # fmt: skip
def test_an_invalid_repair_is_refused_in_one_sentence(
    stream: dict[str, Any], repair: dict[str, Any], problem: str
) -> None:
    """The sentence names the field and a valid value."""
    said = problems_of(stream, **repair)
    assert len(said) == 1, said
    assert said[0].startswith(problem), said
