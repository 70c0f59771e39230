"""The benchmark of the decoders: its wires, its rules and its arithmetic; it times and installs nothing."""

import json
from pathlib import Path

import pytest

from bench.framing import LOCK, SIZES, cut_like_socket_and_by_event, text, time_readers
from bench.readers import NDJSON, OURS, SSE, WEBSOCKET, Outcome, Reader
from bench.rules import NAMES, verdicts

OURS_SSE = SSE[0]
OURS_NDJSON = {reader.work: reader for reader in NDJSON if reader.name == OURS}


def test_our_decoder_keeps_every_rule() -> None:
    """Our decoder reads each wire as the specification says: whole, byte by byte and cut anywhere."""
    assert verdicts(OURS_SSE) == dict.fromkeys(NAMES, "kept")


def test_an_event_has_the_length_in_the_table() -> None:
    """An event's JSON is as long as the table says, whatever its number."""
    for event_bytes in SIZES:
        for number in (0, 19_999):
            assert len(text(number, event_bytes)) == event_bytes
            assert json.loads(text(number, event_bytes))["number"] == number


def test_our_decoders_read_every_wire() -> None:
    """Both cuts hold the same events, and both of our decoders return them."""
    texts = [text(number, 100) for number in range(400)]
    for chunks in cut_like_socket_and_by_event("sse", texts).values():
        assert [(event.data, event.id) for event in OURS_SSE.read(chunks).events] == [
            (one, str(number)) for number, one in enumerate(texts)
        ]
    for chunks in cut_like_socket_and_by_event("ndjson", texts).values():
        assert list(OURS_NDJSON["text"].read(chunks).events) == texts
        assert [json.dumps(value) for value in OURS_NDJSON["json"].read(chunks).events] == texts
    for chunks in cut_like_socket_and_by_event("websocket", texts).values():
        # The other decoders are dependencies of the tests, too.
        assert [list(reader.read(chunks).events) for reader in WEBSOCKET] == [texts] * len(WEBSOCKET)


def test_a_reader_with_wrong_events_is_not_timed() -> None:
    """The benchmark stops at a reader whose events are not those that were sent."""
    reader = Reader("other", "text", Outcome, lambda chunk: (chunk.decode(), None))
    with pytest.raises(ValueError, match=r"^other does not read what was sent$"):
        time_readers([reader], [b"a"], ["b"], 1)


def test_the_lock_has_a_hash_for_all_and_names_no_host() -> None:
    """Only locked packages are installed, each with a hash, from whichever registry the machine uses."""
    lines = Path(LOCK).read_text().splitlines()
    assert all(line.endswith("\\") for line in lines if "==" in line)
    assert not any("://" in line or line.startswith("-") for line in lines)
