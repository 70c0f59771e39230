"""The order of an invocation's steps: due effects come first, and the effects of an answer come at once."""

import json
from types import SimpleNamespace
from typing import Any

from handlers.connection.effects import Heartbeat, Release, Write
from handlers.connection.inputs import Arrival, Chunk, Closed, Opened
from handlers.connection.steps import Await, Step
from tests.handlers.scripted import Functions, Script, numbered, plain_store

OPENED: tuple[int, Arrival] = (90, Opened(200))
# The longest frame of these wires.
MOST_BYTES = 60


MANY = Chunk(numbered(0, 599))


def perform_scripts(*scripts: Script, letters: list[Any] | None = None, **fields: Any) -> list[Step]:
    """Return the steps of a function whose upstream plays these scripts; its dead letters go into `letters`."""
    left, taken = list(scripts), [] if letters is None else letters
    functions = Functions(lambda: left.pop(0))
    queue = SimpleNamespace(send_message=lambda **said: taken.append(json.loads(said["MessageBody"])["event"]))
    functions.store = plain_store(functions.tables, lambda: queue)
    functions.start_function(resume={"header": "Last-Event-ID"}, max_frame_bytes=MOST_BYTES, **fields)
    return functions.steps


def test_the_effects_of_an_answer_come_before_the_waiting_effects() -> None:
    """The cursor is saved between two writes of one chunk."""
    steps = perform_scripts([OPENED, (2_500, MANY), (9_000, Closed("reset"))])
    counts = [
        len(step.events) if isinstance(step, Write) else step.cursor
        for step in steps
        if isinstance(step, Write | Heartbeat)
    ]
    assert counts[counts.index(250) :][:4] == [250, "249", 250, 100]


def test_a_due_heartbeat_comes_before_a_write() -> None:
    """A heartbeat that is due comes before the writes of a chunk, however many events came at once."""
    steps = perform_scripts([OPENED, (1_090, MANY), (9_000, Closed("reset"))])
    first = next(at for at, step in enumerate(steps) if isinstance(step, Write))
    assert [type(step) for step in steps[first - 2 : first]] == [Await, Heartbeat]


def test_an_event_that_is_too_long_is_sent_before_the_cursor_passes_it() -> None:
    """An oversize event goes to the dead-letter queue, the next event is stored, then the cursor moves."""
    sent: list[Any] = []
    too_long = b"id: 2\ndata: %b\n\n" % (b"x" * MOST_BYTES)
    pieces = [(300, Chunk(numbered(1) + too_long[:20])), (900, Chunk(too_long[20:] + numbered(3)))]
    steps = perform_scripts([OPENED, *pieces, (2_000, Closed("reset"))], letters=sent)
    writes = [step.events for step in steps if isinstance(step, Write)]
    assert [[event.id for event in events] for events in writes] == [["1"], ["2", "3"]]
    assert [(letter["id"], letter["size_bytes"], letter["is_whole"]) for letter in sent] == [("2", 60, True)]
    cursors = [step.cursor for step in steps if isinstance(step, Heartbeat | Release) and step.cursor is not None]
    assert cursors == ["1", "3"]
