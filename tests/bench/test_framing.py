"""The benchmark of the decoders: its wires, its rules and its arithmetic; nothing is timed and nothing installed."""

import json
from pathlib import Path

import pytest

from bench.framing import LOCK, OURS, SIZES, Row, Task, behind, table, text, timed, wires
from bench.peers_ndjson import ours as ours_ndjson
from bench.peers_sse import ours as ours_sse
from bench.rules import NAMES, verdicts


def test_our_decoder_keeps_every_rule() -> None:
    """Whole, byte by byte and cut anywhere, each wire is read as the specification says."""
    assert verdicts(ours_sse()) == dict.fromkeys(NAMES, "kept")


def test_an_event_has_the_length_in_the_table() -> None:
    """An event's JSON is as long as the table says, whatever its number."""
    for event_bytes in SIZES:
        for number in (0, 19_999):
            assert len(text(number, event_bytes)) == event_bytes
            assert json.loads(text(number, event_bytes))["number"] == number


def test_ours_reads_every_wire() -> None:
    """Both cuts hold the same events, and both of our decoders return them."""
    texts = [text(number, 100) for number in range(400)]
    for chunks in wires("sse", texts).values():
        assert [(event.data, event.id) for event in ours_sse().read(chunks).events] == [
            (one, str(number)) for number, one in enumerate(texts)
        ]
    for chunks in wires("ndjson", texts).values():
        assert list(ours_ndjson("text").read(chunks)) == texts
        assert [json.dumps(value) for value in ours_ndjson("json").read(chunks)] == texts


def test_a_reader_that_reads_something_else_is_not_timed() -> None:
    """The benchmark stops at a reader whose events are not those that were sent."""
    task = Task("other", "text", lambda chunks: chunks, lambda chunk: chunk.decode())
    with pytest.raises(ValueError, match=r"^other reads something else than was sent$"):
        timed([task], [b"a"], ["b"], 1)


def test_the_ratio_is_the_readers_time_by_ours() -> None:
    """Above 1 ours is ahead; below 1 the reader is listed as ahead."""
    slow, fast = (Row("sse", name, "events", 100, "event", cpu_us, 2.0) for name, cpu_us in (("a", 3.0), ("b", 1.0)))
    assert slow.ratio == 1.5
    assert behind([slow, fast]) == [fast]
    lines = list(table([slow, fast], {OURS: dict.fromkeys(NAMES, "kept")}))
    assert lines[2:4] == ["| a | events | 3.00 (1.5) |", "| b | events | 1.00 (0.5) |"]


def test_the_lock_has_a_hash_for_all_and_names_no_host() -> None:
    """What is installed is what was locked, from wherever the machine installs from."""
    lines = Path(LOCK).read_text().splitlines()
    assert all(line.endswith("\\") for line in lines if "==" in line)
    assert not any("://" in line or line.startswith("-") for line in lines)
