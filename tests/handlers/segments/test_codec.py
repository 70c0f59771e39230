"""The bytes of a segment: packed events are unpacked unchanged, in as few segments as hold them."""

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handlers.framing.events import StreamEvent
from handlers.framing.oversize import Oversize
from handlers.segments.codec import LEVEL, SEGMENT_BYTES, PackedEvent, event_bytes, pack, split_into_parts, unpack

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
EVENTS = st.builds(
    StreamEvent,
    key=st.one_of(st.just("k"), TEXTS),
    data=st.one_of(TEXTS, st.binary(max_size=40)),
    id=st.one_of(st.none(), st.just("k"), TEXTS),
    name=st.one_of(st.none(), TEXTS),
    cursor=st.none(),
    received_at_ms=st.integers(0, 2**45),
)


def event(number: int, data: str | bytes = "a") -> StreamEvent:
    return StreamEvent(str(number), data, str(number), None, str(number), 1_000 + number)


def packed(one: StreamEvent) -> PackedEvent:
    """Return the event as unpacking returns it."""
    assert not isinstance(one.data, Oversize)
    return PackedEvent(one.key, one.id, one.name, one.received_at_ms, one.data)


@given(st.lists(EVENTS, min_size=1, max_size=20))
def test_unpacking_returns_the_events(events: list[StreamEvent]) -> None:
    """Texts and bytes, empty or not, with and without ids and names, are unpacked byte for byte."""
    assert unpack(pack(events)) == [packed(one) for one in events]


def test_bodies_that_are_too_large_are_not_unpacked() -> None:
    """If the bodies exceed the limit, only the head is read, which has everything but the bodies."""
    large = StreamEvent("k", "a" * 1_000_000, "i" * 100_000, "n", None, 5)
    assert unpack(pack([large]), 1_000_000)[0].data == large.data
    assert unpack(pack([large]), 999_999) == [PackedEvent("k", "i" * 100_000, "n", 5, None)]


def test_an_event_whose_body_is_elsewhere_is_unpacked_without_it() -> None:
    """An event whose body is stored elsewhere, or was too long to be read, is unpacked without a body."""
    for data in ("x", Oversize(10, "a", b"head")):
        assert unpack(pack([event(1)._replace(data=data)], bodies=False)) == [PackedEvent("1", "1", None, 1_001, None)]


def test_ids_that_are_keys_are_packed_once() -> None:
    """A column that repeats another one is left out."""
    plain = zlib.decompress(pack([event(1), event(2)]))
    assert plain == b'{"since":1001,"at":[0,1],"id":["1","2"],"size":[1,1]}\naa'


def test_a_segment_without_a_head_is_refused() -> None:
    """A segment whose head has no end raises ValueError instead of being read for ever."""
    with pytest.raises(ValueError, match="has no end"):
        unpack(zlib.compress(b"no line", LEVEL))


@given(
    st.lists(
        st.one_of(st.integers(0, 90_000), st.integers(SEGMENT_BYTES - 100, SEGMENT_BYTES + 100)),
        min_size=1,
        max_size=12,
    )
)
def test_parts_are_whole_and_small_enough(sizes: list[int]) -> None:
    """The parts are the events in order, none is empty, and only a single event is larger than a segment."""
    events = [event(number, "a" * size) for number, size in enumerate(sizes)]
    divided = list(split_into_parts(events))
    assert [one for part in divided for one in part] == events
    assert all(part and (len(part) == 1 or sum(map(event_bytes, part)) <= SEGMENT_BYTES) for part in divided)


def test_no_part_is_smaller_than_it_must_be() -> None:
    """Two adjacent parts never fit one segment, except that a body to be stored elsewhere is always alone."""
    assert [len(part) for part in split_into_parts([event(n, "a" * 100_000) for n in range(5)])] == [2, 2, 1]
    wide = [event(n, "ä" * 50_000) for n in range(3)]
    assert [len(part) for part in split_into_parts(wide)] == [1, 1, 1]
