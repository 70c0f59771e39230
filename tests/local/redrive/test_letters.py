"""How the dead-letter messages of the functions and of the machine are read."""

import json
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from handlers.framing.events import StreamEvent
from handlers.framing.oversize import Oversize
from handlers.redrive.letters import Letter, LetterReader, Message
from handlers.store import overflow
from tests.examples import examples

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
EVENTS = st.builds(
    StreamEvent,
    key=TEXT.filter(bool),
    data=TEXT | st.binary(),
    id=st.none() | TEXT,
    name=st.none() | TEXT,
    cursor=st.none(),
    received_at_ms=st.integers(0, 10**13),
)
LARGE = StreamEvent("k", "x" * 500_000, None, None, None, 5)


def read_letters(bodies: list[str]) -> list[Letter]:
    """Returns what a reader finds in the messages; incomplete events come last."""
    reader = LetterReader()
    messages = [Message(f"m{number}", f"r{number}", body) for number, body in enumerate(bodies)]
    letters = [letter for message in messages if (letter := reader.read(message)) is not None]
    return letters + list(reader.incomplete())


@settings(max_examples=examples(40))
@given(EVENTS, TEXT.filter(bool), st.integers(1, 10**9), TEXT, st.sampled_from([1, 40_000]))
def test_an_event_is_read_as_it_was_sent(event: StreamEvent, stream: str, fence: int, reason: str, times: int) -> None:
    """An event is read unchanged, whatever it contains, whole or in parts in any order."""
    assert not isinstance(event.data, Oversize)
    large = event._replace(data=event.data[:8] * times)
    bodies = overflow.dead_letter_messages(stream, fence, large, reason)
    (letter,) = read_letters(random.Random(fence).sample(bodies, len(bodies)))
    assert (letter.stream_id, letter.fence, letter.reason, letter.event) == (stream, fence, reason, large)
    assert sorted(message.body for message in letter.messages) == sorted(bodies)


def test_a_duplicate_part_belongs_to_the_same_event() -> None:
    """SQS may deliver a message twice, and a function may send it twice: both copies are deleted."""
    first, *rest = overflow.dead_letter_messages("demo", 1, LARGE, "too large")
    (letter,) = read_letters([first, first, *rest])
    assert letter.event == LARGE
    assert [message.id for message in letter.messages] == ["m0", "m1", "m2", "m3"]


def test_a_message_of_the_machine_names_an_ended_stream() -> None:
    """The reason is the error with its cause; a message without a stream starts nothing."""
    sent = {"stream": "demo:a", "execution": "arn", "error": "StreamRejected", "cause": "HTTP status 403"}
    first, second = read_letters([json.dumps(sent), json.dumps(sent | {"stream": ""})])
    assert (first.stream_id, first.reason) == ("demo:a", "StreamRejected: HTTP status 403")
    assert (first.problem, second.problem, first.event) == ("", "it names no stream", None)


def test_a_message_about_an_open_gap_is_recognized_and_left() -> None:
    """The message is left, because no redrive fetches what the gap missed."""
    (letter,) = read_letters(
        [json.dumps({"stream": "demo", "from_at": "x", "to_at": "y", "repair": "failed", "reason": "no"})]
    )
    assert (letter.stream_id, letter.reason, letter.problem.partition(":")[0]) == ("demo", "no", "its gap stays open")


WHOLE = {"id": None, "name": None, "received_at_ms": 5, "encoding": "text", "data": "a"}
ABOUT = {"stream": "demo", "fence": 1, "reason": "r", "key": "k"}


@pytest.mark.parametrize(
    "body",
    [
        "",
        "null",
        "[]",
        "[" * 100_000,
        '{"event": 1}',
        '{"stream": "demo", "error": "x"}',
        json.dumps(ABOUT | {"event": WHOLE | {"encoding": "rot13"}}),
        json.dumps(ABOUT | {"event": WHOLE | {"encoding": "base64", "data": "?"}}),
        json.dumps(ABOUT | {"event": WHOLE | {"data": 1}}),
        json.dumps(ABOUT | {"event": WHOLE | {"id": 1}}),
        json.dumps(ABOUT | {"event": WHOLE, "key": ""}),
        json.dumps(ABOUT | {"event": WHOLE, "stream": 7}),
        json.dumps(ABOUT | {"part": 9, "parts": 2, "event_base64": ""}),
        json.dumps(ABOUT | {"part": 1, "parts": 10**9, "event_base64": ""}),
        json.dumps(ABOUT | {"part": 1, "parts": 1, "event_base64": "?"}),
        json.dumps(ABOUT | {"part": 1, "parts": 1, "event_base64": "bnVsbA=="}),
        json.dumps({"stream": "demo", "fence": 1, "key": "k", "part": 1, "parts": 2, "event_base64": ""}),
    ],
)
def test_an_unknown_message_is_left(body: str) -> None:
    """No unknown message breaks the command or is deleted."""
    (letter,) = read_letters([body])
    assert letter.problem == "the message was not sent by Streamkeeper"


@given(st.recursive(st.none() | st.booleans() | st.integers() | TEXT, lambda inner: st.lists(inner)))
def test_a_message_with_any_value_is_left_or_read(value: object) -> None:
    """With any value in any field, our messages are read or left, and nothing is raised."""
    ours = [ABOUT | {"event": WHOLE}, ABOUT | {"part": 1, "parts": 1, "event_base64": "e30="}]
    for message in ours:
        for name in message:
            (letter,) = read_letters([json.dumps(message | {name: value})])
            assert letter.problem or letter.event is not None
