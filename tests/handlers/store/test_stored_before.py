"""Each later version reads records and segments of this layout as the version that wrote them did (commit 8a452af).

The files hold items that a replay of that version, or its own functions, left, each beside its own reader's result. New
fields may be added; none may be missing or change its meaning.
"""

import base64
import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from handlers.errors import StoreUnavailable
from handlers.framing.events import parse_path, to_event
from handlers.framing.frames import Frame
from handlers.store import event_items, ledger_records, segment_reader
from handlers.store.control_record import LAYOUT, damaged_attributes, to_record
from handlers.store.group_store import group_lease
from handlers.store.typed_values import Item
from handlers.upgrade.upgrade_items import is_asked, lease_of
from tests.handlers.aws import CONTROL, Memory
from tests.handlers.store.events import STREAM

SEGMENTS = json.loads((Path(__file__).parent / "data" / "segments.json").read_text())["segments"]
KEYS = json.loads((Path(__file__).parent / "data" / "keys.json").read_text())
RECORDED = json.loads((Path(__file__).parent / "data" / "records.json").read_text())
READERS: dict[str, Callable[[Item], Any]] = {
    "lease": lambda item: record_of(item),
    "resting": lambda item: record_of(item),
    "connections": lambda item: [asdict(record) for record in ledger_records.records_of(item)],
    "gaps": lambda item: asdict(ledger_records.gap_of(item)),
    "events": lambda item: asdict(event_items.to_stored_event(item, lambda *_: None)),
    "groups": lambda item: asdict(group_lease(item)),
}
RECORDS = [
    (kind, each["item"], each["read"])
    for kind in READERS
    for each in (RECORDED[kind] if isinstance(RECORDED[kind], list) else [RECORDED[kind]])
]


def record_of(item: Item) -> dict[str, Any]:
    """Return the fields of a lease's record; two are under the former version's names too."""
    record = to_record(item)
    former = {"known": asdict(record.ledger_sum), "looked": record.gaps_recorded_by}
    return asdict(record) | record.layout._asdict() | former


def same_of(now: Any, before: Any) -> Any:
    """Return `now` without the fields that `before` lacks."""
    if isinstance(before, dict) and isinstance(now, dict):
        return {name: same_of(now.get(name), value) for name, value in before.items()}
    if isinstance(before, list) and isinstance(now, list):
        return [same_of(*pair) for pair in zip(now, before, strict=True)]
    return now


@pytest.mark.parametrize(("kind", "item", "before"), RECORDS)
def test_a_record_of_the_former_version_is_read_as_that_version_read_it(kind: str, item: Item, before: Any) -> None:
    """Leases, killed and refused connections, gaps, an event and a group are read as by the former version."""
    assert same_of(json.loads(json.dumps(READERS[kind](item))), before) == before


@pytest.mark.parametrize("kind", ["lease", "resting"])
def test_a_lease_of_the_former_version_has_no_damage(kind: str) -> None:
    """A lease of the former version names no version of the function, because its executions call the alias."""
    item = RECORDED[kind]["item"]
    assert (damaged_attributes(item), is_asked(item, ""), lease_of(item).execution) == (
        (),
        False,
        item["execution"]["S"],
    )


def bare(value: Any) -> Any:
    """Return the value with its bytes decoded, which the file holds as {"base64": …}."""
    if isinstance(value, dict):
        return base64.b64decode(value["base64"]) if set(value) == {"base64"} else {k: bare(v) for k, v in value.items()}
    return [bare(one) for one in value] if isinstance(value, list) else value


@pytest.mark.parametrize("case", bare(SEGMENTS), ids=["cursor", "binary", "object"])
def test_a_segment_of_the_former_version_is_read_as_that_version_read_it(case: dict[str, Any]) -> None:
    """A segment's events, in the table or the bucket, and an appender's knowledge of it are the same as before."""
    objects = {key: body.encode() if isinstance(body, str) else body for key, body in case["objects"].items()}
    read = [asdict(event) for event in segment_reader.stored_events(case["item"], objects.get)]
    segment = segment_reader.segment_of(case["item"])
    cursor = segment.cursor and segment.cursor._asdict()
    assert same_of(read, case["read"]) == case["read"]
    assert same_of(segment._asdict() | {"cursor": cursor}, case["segment"]) == case["segment"]


@pytest.mark.parametrize("case", KEYS["keys"], ids=lambda case: case["rule"])
def test_a_key_equals_the_former_versions_key(case: dict[str, Any]) -> None:
    """The dedup key, its partition and a log's key do not change, or a known event would be stored again."""
    rule: Any = case["rule"] if case["rule"] in ("hash", "id") else parse_path(case["rule"])
    frame = Frame(case["data"], case["id"], case["name"], case["id"])
    assert to_event(frame, 1, key=rule, cursor=None).key == case["key"]
    assert {str(n): event_items.partition_key("a:b#c%", case["key"], n) for n in (1, 8, 64)} == case["partitions"]
    assert segment_reader.log_key("a:b#c%") == KEYS["log"]


def test_a_claim_keeps_an_attribute_of_a_later_version(memory: Memory) -> None:
    """A claim leaves an attribute of a later version in place, so that version finds it again."""
    item = RECORDED["lease"]["item"] | {"later": {"S": "what this version does not know"}}
    memory.put_control(STREAM, "lease", **{name: value for name, value in item.items() if name not in ("PK", "SK")})
    assert memory.store().claim(STREAM, execution=item["execution"]["S"], holder="A/1").is_done
    left = memory.items(CONTROL, STREAM)["lease"]
    assert (left["later"], left["fence"]) == ("what this version does not know", int(item["fence"]["N"]) + 1)


def test_a_stream_whose_layout_is_newer_is_refused_by_name(memory: Memory) -> None:
    """A stream with a newer layout is refused: this version would write records that the newer one misreads."""
    item = RECORDED["lease"]["item"] | {"layout": {"N": str(LAYOUT + 1)}}
    attributes = {name: value for name, value in item.items() if name not in ("PK", "SK")}
    memory.put_control(STREAM, "lease", **attributes)
    refusal = f"the control record has layout {LAYOUT + 1}, and this version knows {LAYOUT}"
    with pytest.raises(StoreUnavailable, match=refusal):
        memory.store().claim(STREAM, execution=item["execution"]["S"], holder="A/1")
    assert memory.store().read_lease(STREAM).fence == int(item["fence"]["N"])
