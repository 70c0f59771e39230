"""A function keeps many streams, and each has its own next step, as the machine decides for a single stream."""

import itertools
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import yaml

from handlers.connection import ends
from handlers.connection.effects import Outcome
from handlers.connection.inputs import Chunk, Closed, Opened
from handlers.connection.steps import Invocation
from handlers.group.next_step import BROKEN, Delays, NextStep, StreamEnd, backoff_bounds_s, keep_connected, next_step
from handlers.profile.parse import parse
from handlers.run.performer import Performer
from handlers.store.event_items import partition_keys
from local import stages
from local.checkout import ROOT
from local.simulation.tables import MemoryDynamoDB
from tests.handlers.scripted import DELAYS, Script, World, numbered, plain_store

LIFE_MS = 60_000
STAYS: Script = [(10, Opened(200))]
DROPS: Script = [(10, Opened(200)), (1_900, Chunk(b": lives\n")), (2_000, Closed("reset"))]
REJECTS: Script = [(10, Opened(410))]
REFUSED: Script = [(0, Closed("refused"))]


def event(number: int) -> Chunk:
    """Return an event with an id."""
    return Chunk(b"id: %d\ndata: %d\n\n" % (number, number))


PROFILE = parse(
    "demo",
    {
        "address": "https://upstream.invalid/{streamId}",
        "framing": "sse",
        "resume": {"header": "Last-Event-ID"},
        "reject_after": 3,
    },
    {},
)


class Group(World):
    """A function whose streams' upstreams play scripts; `kept_until` is the instant until which it keeps a stream."""

    random_share = 0.5
    profile = PROFILE

    def __init__(self, **openings: list[Script]) -> None:
        self.tables = MemoryDynamoDB("events", "control")
        super().__init__(plain_store(self.tables), self._script_steps)
        self.openings = {name: iter(scripts) for name, scripts in openings.items()}
        self.ended: dict[str, StreamEnd | Exception] = {}
        self.kept_until: dict[str, int] = {}
        self.performer: Performer[StreamEnd] = Performer(self.ports(), openings.__len__)
        for name in openings:
            who = Invocation(f"demo:{name}", "A", "", "r1", LIFE_MS, 2_000, 1_000, 2_000, overlap_max_ms=0)
            steps = keep_connected(self.profile, who, 0, DELAYS, partial(self._is_kept, name), self.draw_number)
            self.performer.begin(self.profile, who, steps, self.requests(self.profile, who))

    def _is_kept(self, name: str, now_ms: int) -> bool:
        return now_ms < self.kept_until.get(name, 10**12)

    def _script_steps(self, stream: str) -> Script:
        script = next(self.openings[stream.removeprefix("demo:")], None)
        if script is None:
            raise RuntimeError("a defect of the performer")
        return script

    def results_until(self, until_ms: int = LIFE_MS) -> dict[str, StreamEnd | Exception]:
        """Return the results of the streams that have ended by then."""
        rung: set[str] = set()
        while len(self.ended) < len(self.openings):
            is_busy = self.performer.turn(rung)
            self.ended |= {stream.removeprefix("demo:"): end for stream, end in self.performer.take_ended()}
            due_ms = self.performer.due_ms
            rung = self.bell.wait(0 if is_busy or due_ms is None else (min(due_ms, until_ms) - self.now_ms) / 1000)
            if not is_busy and not rung and self.now_ms >= until_ms and (due_ms or 0) > until_ms:
                break
        return self.ended

    def opened_ms(self, name: str) -> list[int]:
        """Return when a stream was opened."""
        return [at_ms for stream, at_ms in self.opened if stream == f"demo:{name}"]

    def stored(self, name: str) -> list[str]:
        key = partition_keys(f"demo:{name}", 1)[0]
        answer = self.tables.query(
            TableName="events", KeyConditionExpression="PK = :key", ExpressionAttributeValues={":key": {"S": key}}
        )
        return [item["SK"]["S"] for item in answer["Items"]]


def next_step_of(end: StreamEnd | Exception) -> tuple[NextStep, str]:
    """Return the next step and the error."""
    assert isinstance(end, StreamEnd)
    return end.next_step, end.report.outcome.error


PAGE: Script = [(10, Opened(200, {"content-type": "text/html"}))]


@pytest.mark.parametrize("refuses", [REJECTS, PAGE])
def test_a_rejected_stream_ends_alone(refuses: Script) -> None:
    """A rejected stream ends after its profile's `reject_after`; the others stay, and their events are stored."""
    calm: Script = [(10, Opened(200)), *((1_000 * number, Chunk(numbered(number))) for number in range(1, 6))]
    group = Group(a=[refuses] * 9, b=[calm], c=[calm], d=[refuses, STAYS])
    ends = group.results_until()
    assert next_step_of(ends["a"]) == (NextStep.OVER, "StreamRejected")
    first_ms, *_, last_ms = group.opened_ms("a")
    assert 3_000 <= last_ms - first_ms < 6_000
    assert next_step_of(ends["d"]) == (NextStep.EXPIRED, "ConnectionExpired")
    assert next_step_of(ends["b"]) == next_step_of(ends["c"]) == (NextStep.EXPIRED, "ConnectionExpired")
    assert group.stored("b") == group.stored("c") == ["1", "2", "3", "4", "5"]


def test_a_dropped_stream_is_connected_again_after_a_back_off() -> None:
    """A dropped stream is connected again after the machine's back-off, half a second with the draw of 0.5."""
    group = Group(a=[DROPS, DROPS, STAYS], b=[STAYS])
    group.results_until()
    assert group.opened_ms("b") == [0]
    first, second, third = group.opened_ms("a")
    assert (second - first, third - second) == (2_500, 2_500)


def test_failures_in_a_row_have_ever_longer_back_offs() -> None:
    """The back-offs are half of 1, 2, 4 and 5 s, then the lane's long back-off, and then the first again."""
    group = Group(a=[REFUSED] * 20)
    group.results_until(30_000)
    times = group.opened_ms("a")
    rests = [after - before for before, after in itertools.pairwise(times)]
    assert rests[:6] == [500, 1_000, 2_000, 2_500, 5_500, 500]


def test_no_stream_is_opened_again_shortly_before_the_deadline() -> None:
    """Shortly before the deadline no stream is opened again: the newer function has more time for it."""
    group = Group(a=[REFUSED] * 40)
    assert next_step_of(group.results_until()["a"]) == (NextStep.AGAIN, "StreamDropped")
    assert LIFE_MS - 12_000 < max(group.opened_ms("a")) < group.now_ms < LIFE_MS - 4_000


def test_a_back_off_delays_the_end_of_a_function_by_at_most_a_second() -> None:
    """A back-off from 6 s to 11.5 s delays the end of the function after 7 s by at most a second."""
    group = Group(a=[REFUSED] * 9)
    group.kept_until["a"] = 7_000
    assert next_step_of(group.results_until()["a"]) == (NextStep.AGAIN, "StreamDropped")
    assert 7_000 <= group.now_ms <= 8_000


def test_another_error_begins_with_its_own_first_back_off() -> None:
    """Another error begins with half of its first back-off, a 429 with the stage's delay, whatever failed before."""
    group = Group(a=[REFUSED, REFUSED, [(0, Opened(429))], REFUSED, STAYS])
    group.results_until(30_000)
    rests = [after - before for before, after in itertools.pairwise(group.opened_ms("a"))]
    assert rests == [500, 1_000, 500 * DELAYS.throttle_delay_s, 500]


def test_a_defect_closes_the_open_upstream() -> None:
    """If the manager raises at an invalid chunk, the upstream is closed, or it would count the connection for ever."""
    broken: Script = [(10, Opened(200)), (20, "no chunk")]  # type: ignore[list-item]
    group = Group(a=[broken, STAYS])
    group.results_until(25)
    assert group.readers["demo:a"].is_closed


def test_a_stream_with_a_hot_standby_is_needed_again_at_its_deadline() -> None:
    """At the deadline a stream with a hot standby needs its lane again; any other stream has expired."""

    class Hot(Group):
        profile = replace(PROFILE, standby="hot")

    ends = [group(a=[STAYS]).results_until()["a"] for group in (Hot, Group)]
    assert [next_step_of(end)[0] for end in ends] == [NextStep.STANDBY, NextStep.EXPIRED]


def test_a_defect_ends_one_connection() -> None:
    """An exception in a stream's steps ends only its own connection; the stream is connected again after a back-off."""
    group = Group(a=[DROPS], b=[STAYS])
    assert group.results_until(20_000) == {}
    assert group.opened_ms("a") == [0]
    group.kept_until["a"] = 20_000
    kept = group.results_until()["a"]
    assert next_step_of(kept) == (NextStep.AGAIN, BROKEN)
    assert isinstance(kept, StreamEnd)
    assert kept.report.outcome.message == "a defect: RuntimeError"


@pytest.mark.parametrize("count", [2, 20])
def test_a_stream_that_floods_delays_no_other(count: int) -> None:
    """Between two chunks of a stream that floods, every other stream with a chunk is served."""
    flood: Script = [(10, Opened(200)), *((10, Chunk(numbered(number))) for number in range(200))]
    calm: Script = [(10, Opened(200)), *((10, Chunk(numbered(number))) for number in range(3))]
    names = [f"n{number}" for number in range(count)]
    group = Group(flood=[flood], **{name: [calm] for name in names})
    group.results_until()
    served = [stream.removeprefix("demo:") for stream in group.served_streams]
    # Each of the other streams has an answer and three events.
    done = next(at for at in range(len(served)) if all(served[:at].count(name) == 4 for name in names))
    assert served[:done].count("flood") <= 5
    assert len(group.stored("flood")) == 200
    assert all(group.stored(name) == ["0", "1", "2"] for name in names)


SETTINGS: dict[str, Any] = stages.load("prod")
PROD_DELAYS = Delays(
    **{
        name: float(SETTINGS[name])
        for name in ("retry_max_delay_s", "throttle_delay_s", "throttle_max_delay_s", "cool_down_s", "jitter_s")
    }
)


def retriers() -> dict[str, dict[str, Any]]:
    """Return the Retriers of the Task that keeps a stream connected, by error name, with the settings filled in."""
    text = (ROOT / "statemachines" / "connections.asl.yml").read_text(encoding="utf-8")
    machine = stages.resolve(yaml.safe_load(text), SETTINGS, stages.names("prod"))
    lane = machine["States"]["Lanes"]["Branches"][0]["States"]["Connect A"]
    return {name: one for one in lane["Retry"] for name in one["ErrorEquals"]}


@pytest.mark.parametrize("error", ["StreamDropped", "StoreUnavailable", "StreamThrottled"])
def test_a_groups_back_offs_equal_the_machines(error: str) -> None:
    """A group's back-offs are as long and as many as the machine's; then the lane's long one, and the first again."""
    retrier = retriers()[error]
    tries, factor = retrier["MaxAttempts"], retrier.get("BackoffRate", 2.0)
    longest = [min(retrier.get("IntervalSeconds", 1) * factor**n, retrier["MaxDelaySeconds"]) for n in range(tries)]
    assert [backoff_bounds_s(error, n + 1, PROD_DELAYS) for n in range(tries)] == [(0.0, most) for most in longest]
    least, most = backoff_bounds_s(error, tries + 1, PROD_DELAYS)
    assert most - least == SETTINGS["jitter_s"]
    assert least == SETTINGS["throttle_max_delay_s" if error == "StreamThrottled" else "cool_down_s"]
    assert backoff_bounds_s(error, tries + 2, PROD_DELAYS) == backoff_bounds_s(error, 1, PROD_DELAYS)


def test_a_defect_has_the_back_off_of_a_lane() -> None:
    """After a defect the back-off is the lane's, because the machine does not retry an error that it does not know."""
    assert backoff_bounds_s(BROKEN, 1, PROD_DELAYS) == backoff_bounds_s(BROKEN, 2, PROD_DELAYS) == (20.0, 30.0)


@pytest.mark.parametrize(
    ("outcome", "expected"),
    [
        (ends.STOPPED, NextStep.OVER),
        (ends.ENDED, NextStep.OVER),
        (Outcome("StreamRejected", "", ""), NextStep.OVER),
        (Outcome("InvalidRequest", "", ""), NextStep.OVER),
        (ends.SUPERSEDED, NextStep.RELIEVED),
        (Outcome("StreamTakenOver", "", ""), NextStep.RELIEVED),
        (ends.EXPIRED, NextStep.EXPIRED),
        (ends.LET_GO, NextStep.AGAIN),
        (ends.NOT_DRAINED, NextStep.AGAIN),
        (Outcome("StreamThrottled", "", ""), NextStep.AGAIN),
        (Outcome(BROKEN, "", ""), NextStep.AGAIN),
    ],
)
def test_each_end_has_its_next_step(outcome: Outcome, expected: NextStep) -> None:
    """Each outcome of a stream's connection has its next step, and none ends the function."""
    assert next_step(outcome, is_hot=False) is expected
