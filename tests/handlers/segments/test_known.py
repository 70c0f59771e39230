"""The keys that a writer remembers within its window."""

from hypothesis import given
from hypothesis import strategies as st

from handlers.framing.events import StreamEvent
from handlers.segments.known_keys import HASH_BYTES, AllKeys, KnownKeys, hashes, key_hash


def keys(*names: object) -> bytes:
    return b"".join(key_hash(str(name)) for name in names)


def known(of: KnownKeys, *names: object) -> list[object]:
    return [name for name in names if key_hash(str(name)) in of]


def test_keys_that_are_read_back_are_forgotten_first() -> None:
    """A writer reads back from the end of the log, and the keys that it read last are forgotten first."""
    of = KnownKeys()
    of.add(30, keys(3, 1))
    of.add_older(20, keys(2))
    of.add_older(10, keys(1))
    assert known(of, 1, 2, 3) == [1, 2, 3]
    of.forget(15)
    assert known(of, 1, 2, 3) == [1, 2, 3]
    of.forget(25)
    assert known(of, 1, 2, 3) == [1, 3]


def test_the_first_of_two_events_under_one_key_is_new() -> None:
    """Of two events under one key the first is new; the second repeats its key."""
    first, second = (StreamEvent("7", data, None, None, None, 0) for data in ("a", "b"))
    assert list(KnownKeys().select_unknown([first, second]).values()) == [first]


def test_memory_is_bounded() -> None:
    """The oldest segments are forgotten first; the last segment stays whole, however large it is."""
    of = KnownKeys(most_keys=3)
    of.add(10, keys(1, 2))
    of.add(11, keys(3))
    assert (of.is_full, known(of, 1, 2, 3)) == (True, [1, 2, 3])
    of.add(12, keys(4))
    assert (of.is_full, known(of, 1, 2, 3, 4)) == (False, [3, 4])
    of.add(13, keys(*range(10, 20)))
    assert known(of, 3, 4, *range(10, 20)) == list(range(10, 20))


@given(st.lists(st.lists(st.integers(0, 30), max_size=5), max_size=20), st.integers(0, 20))
def test_a_key_is_known_for_a_window_after_it_came_last(segments: list[list[int]], before: int) -> None:
    """The known keys are those that a plain list of all added keys has within the window."""
    of = KnownKeys()
    for at_ms, numbers in enumerate(segments):
        of.add(at_ms, keys(*numbers))
    of.forget(before)
    young = {number for at_ms, numbers in enumerate(segments) for number in numbers if at_ms >= before}
    assert set(known(of, *range(31))) == young


@given(st.lists(st.binary(min_size=16, max_size=40)), st.lists(st.binary(min_size=8, max_size=8)))
def test_all_keys_are_known_in_any_order(segments: list[bytes], others: list[bytes]) -> None:
    """A key is not known if its bytes are only the end of one hash and the beginning of the next."""
    of, added = AllKeys(), set[bytes]()
    for number, segment in enumerate(segments):
        packed = segment[: len(segment) // HASH_BYTES * HASH_BYTES]
        (of.add_older if number % 2 else of.add)(number, packed)
        added |= set(hashes(packed))
    amid = {segment[at : at + HASH_BYTES] for segment in segments for at in range(len(segment) - HASH_BYTES)}
    assert {key for key in {*amid, *others, *added} if key in of} == added


def test_eight_bytes_of_a_key_are_remembered() -> None:
    """The first eight bytes of a key's SHA-256 are remembered, so every release computes the same."""
    assert (key_hash("7").hex(), HASH_BYTES) == ("7902699be42c8a8e", 8)
