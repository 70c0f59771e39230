"""The performer with scripted steps: which step comes next, what answers it, and when it gives up."""

from collections.abc import Callable, Generator, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handlers.connection.effects import Open, ReadLease
from handlers.connection.inputs import Chunk, StoreFailed
from handlers.connection.lease import Lease
from handlers.connection.steps import Answer, Await, Invocation, Pause, ReadSecrets, Step, Steps
from handlers.profile.parse import parse
from handlers.run.performer import Performer
from handlers.run.threads import Answered
from handlers.upstream.reader import INBOX_BYTES
from local.simulation.tables import MemoryDynamoDB
from tests.handlers.scripted import Script, World, plain_store

PROFILE = parse("demo", {"address": "https://upstream.invalid", "framing": "sse"}, {})
DEADLINE_MS = 10_000
STOP_MS = DEADLINE_MS - 250


class Streams(World):
    """A performer of one or many streams, with a store in memory."""

    def __init__(self, play: Callable[[str], Script] = lambda _stream: [], *, is_alone: bool = False) -> None:
        super().__init__(plain_store(MemoryDynamoDB("events", "control")), play)
        self.performer: Performer[str] = Performer(self.ports(), None if is_alone else lambda: 4)
        self.values: dict[str, list[Any]] = {}

    def begin(self, stream: str, steps: list[Step]) -> None:
        """Let a stream request these steps, one after the other; `values` keeps the answers."""
        self.begin_with(stream, self._script_steps(stream, steps))

    def begin_with(self, stream: str, steps: Steps[str]) -> None:
        who = Invocation(stream, "A", "", "r1", DEADLINE_MS, 1_000, 1_000, 2_000, 0)
        self.performer.begin(PROFILE, who, steps, self.requests(PROFILE, who))

    def _script_steps(self, stream: str, steps: list[Step]) -> Generator[Step, Answer, str]:
        for step in steps:
            answer = yield step
            self.values.setdefault(stream, []).append(answer.value)
        return stream


class Never:
    """Threads whose requests never end."""

    def ask(self, stream: str, *requests: Callable[[], Any]) -> None:
        """Begin a request."""

    def take_answers(self) -> Iterator[tuple[str, Answered]]:
        """Return no answers."""
        return iter(())

    def stop(self, wait_s: float) -> None:
        """Wait for nothing."""


def test_each_step_is_performed_once_and_gets_its_own_answer() -> None:
    """Each stream gets the answers to its own requests and to no other's."""
    streams = Streams()
    for stream, claims in (("demo:a", 1), ("demo:b", 2)):
        for _ in range(claims):
            streams.store.claim(stream, execution="", holder="A/r1")
        streams.begin(stream, [ReadLease(), ReadLease()])
    while streams.performer.turn(set()):
        pass
    assert list(streams.performer.take_ended()) == [("demo:a", "demo:a"), ("demo:b", "demo:b")]
    found = {stream: [value.lease.fence for value in values] for stream, values in streams.values.items()}
    assert found == {"demo:a": [1, 1], "demo:b": [2, 2]}


def test_an_exception_of_one_stream_reaches_no_other() -> None:
    """A stream ends with its own exception, or with that of its step; the other streams go on."""

    def raises() -> Steps[str]:
        yield Pause(0)
        raise ValueError("a defect")

    def fails(stream: str) -> Script:
        raise RuntimeError(f"{stream} cannot be opened")

    streams = Streams(fails)
    streams.begin_with("demo:a", raises())
    streams.begin("demo:b", [Open(None)])
    streams.begin("demo:c", [Await(100, None)])
    while streams.performer.turn(set()):
        pass
    ended = {stream: str(end) for stream, end in streams.performer.take_ended()}
    assert ended == {"demo:a": "a defect", "demo:b": "demo:b cannot be opened"}
    assert streams.performer.due_ms == 100


def test_many_streams_share_the_unread_bytes_of_one() -> None:
    """Each of many streams has its part of the bytes that a lone stream may have, and is read in smaller pieces."""
    shares = []
    for streams in (Streams(), Streams(is_alone=True)):
        streams.begin("demo:a", [Open(None)])
        while streams.performer.turn(set()):
            pass
        shares.append(streams.shares["demo:a"])
    assert [share.inbox_bytes for share in shares] == [INBOX_BYTES // 4, INBOX_BYTES]
    assert shares[0].chunk_bytes < shares[1].chunk_bytes


def test_pauses_and_waits_name_the_next_instant() -> None:
    """The next instant is the earliest of all streams. A pause ends at its time, or once its stream is woken."""
    streams = Streams()
    streams.now_ms = 10
    streams.begin("demo:a", [Await(None, 70), Pause(500)])
    streams.begin("demo:b", [Pause(30)])
    due: list[int | None] = []
    for now_ms in (39, 40, 70):
        streams.now_ms = now_ms
        due.append(streams.performer.due_ms)
        streams.performer.turn(set())
    assert (due, streams.performer.due_ms) == ([40, 40, 70], 570)
    streams.performer.wake("demo:a")
    assert [stream for stream, _ in streams.performer.take_ended()] == ["demo:b", "demo:a"]


def test_a_stream_is_notified_of_its_lease_once_it_awaits_an_arrival() -> None:
    """The stream gets the lease as known at that instant; an unknown stream gets none."""
    streams = Streams()
    streams.begin("demo:a", [Pause(10), Await(500, None)])
    known = [Lease(execution="old")]
    for stream in ("demo:a", "demo:z"):
        streams.performer.notify(stream, lambda: known[-1])
    streams.performer.turn(set())
    streams.now_ms = 10
    streams.performer.turn(set())
    known.append(Lease(execution="new"))
    streams.performer.turn(set())
    assert [getattr(value, "lease", None) for value in streams.values["demo:a"]] == [None, Lease(execution="new")]


@pytest.mark.parametrize("step", [ReadLease(), ReadSecrets()], ids=["the store", "secrets"])
def test_a_request_is_awaited_until_the_hard_stop(step: Step) -> None:
    """A request fails at the hard stop, and later ones at once: the function must answer before its deadline."""
    streams = Streams(is_alone=True)
    streams.performer._pool = Never()
    streams.begin("demo", [step, step])
    assert (streams.performer.run(), streams.now_ms) == ("demo", STOP_MS)
    assert streams.values["demo"] == [
        StoreFailed("the store did not answer before the function's deadline"),
        StoreFailed("no time is left to ask the store"),
    ]


def test_an_answer_has_when_its_arrival_came_and_since_when_others_wait() -> None:
    """Behind a slow store a connection is known good only until the oldest unread arrival came."""
    came: list[tuple[int | None, int | None]] = []

    def reads() -> Steps[str]:
        for step in (Open(None), Pause(100), Await(500, None), Await(500, None)):
            answer = yield step
            came.append((answer.arrived_ms, answer.unread_ms))
        return ""

    streams = Streams(lambda _stream: [(0, Chunk(b"a")), (20, Chunk(b"b"))], is_alone=True)
    streams.begin_with("demo", reads())
    for streams.now_ms in (0, 100):
        while streams.performer.turn({"demo"}):
            pass
    assert came == [(None, 0), (None, 0), (0, 20), (20, None)]


def test_the_performer_of_one_stream_raises_the_exception_of_its_steps() -> None:
    """The caller of `run` gets the exception that the steps raise."""

    def raises() -> Steps[str]:
        yield ReadLease()
        raise ValueError("a defect")

    streams = Streams(is_alone=True)
    streams.begin_with("demo", raises())
    with pytest.raises(ValueError, match="a defect"):
        streams.performer.run()


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 3)), max_size=40))
def test_every_stream_with_an_arrival_is_served_between_two_servings_of_another(
    arrivals: list[tuple[str, int]],
) -> None:
    """An arrival waits for at most one turn of each other stream."""
    scripts: dict[str, Script] = {name: [] for name in "abcd"}
    for name, at_ms in sorted(arrivals, key=lambda one: one[1]):
        scripts[name].append((at_ms, Chunk(b"")))
    streams = Streams(lambda stream: scripts[stream[-1]])
    for name in "abcd":
        streams.begin(f"demo:{name}", [Open(None), *[Await(100, None)] * 50])
    rung: set[str] = set()
    while streams.now_ms < 50:
        rung = streams.bell.wait(0 if streams.performer.turn(rung) else 0.01)
    served = "".join(stream[-1] for stream in streams.served_streams)
    assert sorted(served) == sorted(name for name, _ in arrivals)
    left = {name: [at_ms for one, at_ms in sorted(arrivals, key=lambda one: one[1]) if one == name] for name in "abcd"}
    waited = dict.fromkeys("abcd", 0)
    for name in served:
        at_ms = left[name].pop(0)
        has = [one for one in "abcd" if one != name and left[one] and left[one][0] <= at_ms]
        waited = {one: waited[one] + 1 if one in has else 0 for one in "abcd"}
        assert max(waited.values()) < len(waited)
