"""Many streams kept by one function: each has its own next step, whatever becomes of the others."""

import itertools

import pytest

from handlers.connection.inputs import Chunk, Closed, Opened
from handlers.connection.steps import Invocation
from handlers.group.keeping import Kept
from handlers.group.next_step import BROKEN, NextStep
from handlers.profile.behaviour import Profile
from handlers.profile.parse import parse
from handlers.store.connection_store import Store
from handlers.store.event_items import partition_keys
from local.simulation.tables import MemoryDynamoDB
from tests.handlers import scripted
from tests.handlers.scripted import Script

EVENTS, CONTROL = "events", "control"
LIFE_MS = 60_000
STAYS: Script = [(10, Opened(200))]
DROPS: Script = [(10, Opened(200)), (1_900, Chunk(b": lives\n")), (2_000, Closed("reset"))]
REJECTS: Script = [(10, Opened(410))]


def event(number: int) -> Chunk:
    """An event with an id."""
    return Chunk(b"id: %d\ndata: %d\n\n" % (number, number))


def profile(**fields: object) -> Profile:
    """One whose streams are resumed by id."""
    table = {"address": "https://upstream.invalid/{streamId}", "framing": "sse", "resume": {"header": "Last-Event-ID"}}
    return parse("demo", {**table, **fields}, {})


class Group:
    """A function whose streams' upstreams play scripts, and the tables."""

    def __init__(self, **openings: list[Script]) -> None:
        self.tables = MemoryDynamoDB(EVENTS, CONTROL)
        store = Store(self.tables, lambda: None, events_table=EVENTS, control_table=CONTROL, dead_letter_queue_url="")
        self.performer = scripted.Group(store, {f"demo:{name}": scripts for name, scripts in openings.items()})
        for name in openings:
            self.begin(f"demo:{name}")

    def begin(self, stream: str, **fields: object) -> None:
        """Begins to keep a stream of the group."""
        who = Invocation(
            stream, "A", "", "r1", LIFE_MS, 2_000, lease_every_ms=1_000, progress_every_ms=2_000, overlap_max_ms=0
        )
        self.performer.begin(profile(**fields), who)

    def run(self, until_ms: int = LIFE_MS) -> dict[str, Kept | Exception]:
        """What each of them came to by then."""
        self.performer.keep(until_ms)
        return {stream.removeprefix("demo:"): end for stream, end in self.performer.ended.items()}

    def opened(self, name: str) -> list[int]:
        """When a stream was opened."""
        return [at_ms for stream, at_ms in self.performer.opened if stream == f"demo:{name}"]

    def stored(self, name: str) -> list[str]:
        """The keys of its events in the table."""
        key = partition_keys(f"demo:{name}", 1)[0]
        answer = self.tables.query(
            TableName=EVENTS, KeyConditionExpression="PK = :key", ExpressionAttributeValues={":key": {"S": key}}
        )
        return [item["SK"]["S"] for item in answer["Items"]]


def next_step_of(end: Kept | Exception) -> tuple[NextStep, str]:
    """What followed, and the error."""
    assert isinstance(end, Kept)
    return end.next_step, end.report.outcome.error


def test_one_that_is_rejected_ends_alone() -> None:
    """The others stay to the deadline, and what they were sent is stored."""
    calm: Script = [(10, Opened(200)), *((1_000 * number, event(number)) for number in range(1, 6))]
    group = Group(a=[REJECTS], b=[calm], c=[calm])
    ends = group.run()
    assert next_step_of(ends["a"]) == (NextStep.OVER, "StreamRejected")
    assert next_step_of(ends["b"]) == next_step_of(ends["c"]) == (NextStep.EXPIRED, "ConnectionExpired")
    assert group.stored("b") == group.stored("c") == ["1", "2", "3", "4", "5"]


def test_one_that_drops_is_connected_again_after_a_rest() -> None:
    """As the machine would: by half of a second here, for half of each rest is drawn."""
    group = Group(a=[DROPS, DROPS, STAYS], b=[STAYS])
    group.run()
    assert group.opened("b") == [0]
    first, second, third = group.opened("a")
    assert (second - first, third - second) == (2_500, 2_500)


def test_failures_in_a_row_rest_ever_longer() -> None:
    """Half of 1, 2, 4 and 5 s, then a rest of the lane, and from the first again."""
    refused: Script = [(0, Closed("refused"))]
    group = Group(a=[refused] * 20)
    group.run(30_000)
    times = group.opened("a")
    rests = [after - before for before, after in itertools.pairwise(times)]
    assert rests[:6] == [500, 1_000, 2_000, 2_500, 5_500, 500]


def test_a_defect_ends_one_connection() -> None:
    """What a stream's steps raise reaches no other; the stream rests and is connected again."""
    group = Group(a=[DROPS], b=[STAYS])
    ends = group.run(20_000)
    assert ends == {}
    assert group.opened("a") == [0]
    assert group.performer.count == 2
    group.performer.kept_until["demo:a"] = 20_000
    kept = group.run()["a"]
    assert next_step_of(kept) == (NextStep.AGAIN, BROKEN)
    assert isinstance(kept, Kept)
    assert kept.report.outcome.message == "a defect: RuntimeError"


def test_a_stream_that_is_not_to_be_kept_rests_no_longer_than_a_look() -> None:
    """A long rest holds up no end of its function."""
    throttled: Script = [(0, Opened(429))]
    group = Group(a=[throttled])
    group.performer.kept_until["demo:a"] = 1_500
    group.performer.keep(2_500)
    assert next_step_of(group.performer.ended["demo:a"]) == (NextStep.AGAIN, "StreamThrottled")


@pytest.mark.parametrize("count", [2, 20])
def test_one_that_floods_holds_up_nobody(count: int) -> None:
    """Between two chunks of one stream every other that has one is served."""
    flood: Script = [(10, Opened(200)), *((10, event(number)) for number in range(200))]
    calm: Script = [(10, Opened(200)), *((10, event(number)) for number in range(3))]
    names = [f"n{number}" for number in range(count)]
    group = Group(flood=[flood], **{name: [calm] for name in names})
    group.run()
    served = [stream.removeprefix("demo:") for stream in group.performer.served]
    # Each of the others has an answer and three events.
    done = next(at for at in range(len(served)) if all(served[:at].count(name) == 4 for name in names))
    assert served[:done].count("flood") <= 5
    assert len(group.stored("flood")) == 200
    assert all(group.stored(name) == ["0", "1", "2"] for name in names)
