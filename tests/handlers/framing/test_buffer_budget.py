"""Streams of one function share their decoders' memory: never more in all, and each has a guaranteed part."""

from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handlers.connection.effects import Write
from handlers.connection.inputs import Written
from handlers.connection.intake import Intake
from handlers.connection.record import Record
from handlers.framing.decoders import FRAMINGS, Framing
from handlers.framing.oversize import BufferBudget, Oversize
from handlers.profile.behaviour import Profile
from handlers.profile.parse import parse
from tests.handlers.framing.test_oversize import framed, remains_of

TOTAL = 64_000
# Which stream, and how many bytes it wants to hold from then on.
WANTS = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 2 * TOTAL)), max_size=60)


@given(st.integers(1, 10), WANTS)
def test_streams_never_hold_more_than_the_budget_and_each_is_sure_of_its_part(
    count: int, wants: list[tuple[int, int]]
) -> None:
    """In any order of taking and freeing, a stream is offered no more than is free and no less than its sure part."""
    shared = BufferBudget(TOTAL, lambda: count)
    for number, wanted in wants:
        stream = f"{number % count}"
        offered = shared.most_bytes(stream)
        assert offered >= TOTAL // 2 // count
        shared.set_held(stream, min(wanted, offered))
        assert shared.held_bytes <= TOTAL


@given(st.lists(st.tuples(st.integers(1, 10), st.integers(0, 9), st.integers(0, 2 * TOTAL)), max_size=60))
def test_streams_never_hold_more_than_the_budget_while_their_number_changes(
    changes: list[tuple[int, int, int]],
) -> None:
    """Memory that a stream took while there were few still counts, and no more is offered than is free."""
    now = [1]
    shared = BufferBudget(TOTAL, lambda: now[0])
    for now[0], stream, wanted in changes:
        shared.set_held(f"{stream}", min(wanted, shared.most_bytes(f"{stream}")))
        assert shared.held_bytes <= TOTAL


def test_the_bound_shrinks_with_the_number_of_streams_and_with_their_bytes() -> None:
    """The first of a hundred may hold a quarter, the second half as much; a repeated request gives no more."""
    shared = BufferBudget(16_000_000, lambda: 100)
    assert (shared.assured_bytes, shared.most_bytes("a")) == (80_000, 4_080_000)
    shared.set_held("a", 4_080_000)
    assert (shared.most_bytes("a"), shared.most_bytes("b")) == (4_080_000, 2_080_000)
    shared.set_held("b", 2_080_000)
    assert (shared.most_bytes("a"), shared.most_bytes("c")) == (4_080_000, 1_080_000)
    shared.set_held("a", 0)
    assert (shared.most_bytes("a"), shared.most_bytes("b")) == (3_080_000, 4_080_000)
    alone = [BufferBudget(16_000_000, partial(int, count)).most_bytes("a") for count in (1, 2, 500)]
    assert alone == [12_000_000, 8_000_000, 4_016_000]


def profile(framing: Framing, oversize: str = "dead-letter") -> Profile:
    """Return a profile whose own bound is far above the budget."""
    bound = {"max_frame_bytes": 10 * TOTAL, "oversize": oversize}
    return parse("a", {"address": "https://example.org/x", "framing": framing, **bound}, {})


class Stream:
    """One stream of a function: its results; `answer_writes` answers its writes."""

    def __init__(self, shared: BufferBudget, name: str, framing: Framing, oversize: str = "dead-letter") -> None:
        self.intake = Intake(profile(framing, oversize), shared, name)
        self.record = Record(10**9)
        self.record.record_opened(0)
        self.bodies: list[object] = []
        self.ended = ""
        self._unanswered: list[Write] = []

    def feed(self, data: bytes) -> None:
        """Take a chunk; `bodies` and `ended` have its results."""
        effects, end = self.intake.take_chunk(1, data, self.record)
        self._unanswered += [effect for effect in effects if isinstance(effect, Write)]
        self.bodies += [event.data for effect in effects if isinstance(effect, Write) for event in effect.events]
        self.ended = self.ended or (end.outcome.message if end else "")

    @property
    def held_bytes(self) -> int:
        """Return how much it really holds: of unfinished frames, and of unstored events."""
        bodies = [event.data for write in self._unanswered for event in write.events]
        unstored = sum(len(body.head if isinstance(body, Oversize) else body) for body in bodies)
        return unstored + self.intake._decoder.held_bytes

    def answer_writes(self) -> None:
        """Let the store answer all unanswered writes."""
        for write in self._unanswered:
            self.record.record_stored(Written(len(write.events), 0, 0))
            self.intake.replies_to_stored(self.record)
        self._unanswered.clear()


@given(st.lists(st.integers(1, 900), max_size=60), st.integers(2, 20))
def test_events_that_wait_to_be_stored_make_no_short_frame_too_long(sizes: list[int], count: int) -> None:
    """A stream in a log, beside others that hold all they may, has half of its guaranteed part for each frame."""
    shared = BufferBudget(2_000 * count, lambda: count)
    for number in range(count - 1):
        shared.set_held(f"other {number}", shared.most_bytes(f"other {number}"))
    stream = Stream(shared, "a", "ndjson")
    stream.intake.gather_events()
    for size in sizes:
        body = b"7" * min(size, shared.assured_bytes // 2 - 2)
        stream.feed(body + b"\n")
        stream.answer_writes()
    assert not any(isinstance(body, Oversize) for body in stream.bodies)


FRAMED: list[Framing] = [framing for framing in FRAMINGS if framing != "raw"]
STEPS = st.lists(st.tuples(st.integers(0, 3), st.integers(1, 4_000), st.booleans(), st.booleans()), max_size=50)


@given(st.tuples(*[st.sampled_from(FRAMED)] * 4), STEPS)
def test_decoders_hold_no_more_than_the_budget_and_explain_skipped_frames(
    framings: tuple[Framing, ...], steps: list[tuple[int, int, bool, bool]]
) -> None:
    """Streams of all framings share the budget; their bytes come in pieces, and the store answers late.

    A frame that fits into the guaranteed part beside its stream's unstored bytes always comes whole. A longer one is
    skipped with its size, its hash and the reason that other streams left no room; the next ones come.
    """
    shared = BufferBudget(TOTAL // 4, lambda: 4)
    streams = [Stream(shared, f"{at}", framing) for at, framing in enumerate(framings)]
    wires = [b""] * 4
    expected: list[list[bytes]] = [[], [], [], []]
    unstored: list[list[int]] = [[], [], [], []]
    for at, size, is_long, is_answered in steps:
        if not wires[at]:
            # The other bytes of a block of server-sent events, and the line of a length, count as well.
            body = b"%d" % (size % 10) * (5 * size if is_long else min(size, shared.assured_bytes // 2 - 16))
            wires[at] = framed(framings[at], body) + (b"\x1e" if framings[at] == "json-seq" else b"")
            expected[at].append(body)
            unstored[at].append(0)
        unstored[at][-1] = max(unstored[at][-1], streams[at].intake._unstored_bytes)
        streams[at].feed(wires[at][:1_000])
        wires[at] = wires[at][1_000:]
        assert shared.held_bytes <= TOTAL // 4
        # A chunk is decoded whole.
        assert sum(stream.held_bytes for stream in streams) <= TOTAL // 4 + 4 * 1_000
        if is_answered:
            streams[at].answer_writes()
    for stream in streams:
        stream.answer_writes()
    for at, stream in enumerate(streams):
        whole = expected[at][: len(expected[at]) - bool(wires[at])]
        assert len(stream.bodies) == len(whole)
        for body, unstored_bytes, stored in zip(whole, unstored[at][: len(whole)], stream.bodies, strict=True):
            if isinstance(stored, Oversize):
                left = remains_of(body)
                assert len(body) + 16 + unstored_bytes > shared.assured_bytes
                assert (stored.size_bytes, stored.sha256) == (left.size_bytes, left.sha256)
                assert stored.head
                assert body.startswith(stored.head)
                assert stored.reason.startswith("longer than its function's other streams left room for: ")
            else:
                assert stored == body.decode()


@pytest.mark.parametrize("framing", FRAMED)
def test_a_profile_that_rejects_long_frames_ends_its_stream_with_the_bound(framing: Framing) -> None:
    """With `oversize = "reject"` the stream ends, and its message names the bound; the other streams stay."""
    shared = BufferBudget(TOTAL, lambda: 2)
    others = Stream(shared, "others", framing)
    one = Stream(shared, "one", framing, "reject")
    wire = framed(framing, b"1" * TOTAL)
    for at in range(0, len(wire), 1_000):
        one.feed(wire[at : at + 1_000])
    assert one.ended == "a frame is longer than its function's other streams leave room for (32000)"
    one.intake.tail_bytes()
    others.feed(framed(framing, b"2" * 20_000) + (b"\x1e" if framing == "json-seq" else b""))
    assert others.bodies == ["2" * 20_000]
