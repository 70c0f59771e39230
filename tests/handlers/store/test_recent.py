"""The list of streams reads the records for each status in batches, on tables in memory."""

from typing import Any

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from handlers.api import status
from handlers.api.last_error import Retries
from handlers.connection.effects import Progress, RecordLoss
from handlers.store import typed_values
from handlers.store.leases import NEWEST
from handlers.store.stream_records import StreamRecords
from tests.examples import examples
from tests.handlers.aws import CONTROL, CountingClient, Memory, save_connection

RETRIES = Retries(60_000, 90_000)
NOW_MS, DEAD_MS, STEP_MS = 10_000_000, 15_000, 10_000
# The connections in turn: answered and relieved, answered and dropped, never answered, or without a record.
KINDS = ("relieved", "dropped", "refused", "unrecorded")
RUNS = st.lists(st.sampled_from(KINDS), max_size=8)


def made(memory: Memory, stream_id: str, run: list[str]) -> None:
    """Make a stream with these connections, and one that is open now."""
    store = memory.store()
    execution = f"arn:{stream_id}"
    memory.put_control(
        stream_id, "lease", execution={"S": execution}, generation={"N": "1"}, started_at={"S": "1970-01-01T00:00:01Z"}
    )
    for number, kind in enumerate([*run, "open"], 1):
        claimed_ms = NOW_MS - (len(run) + 1 - number) * STEP_MS
        holder = f"{'AB'[number % 2]}/request-{number}"
        store.claim(stream_id, execution=execution, holder=holder)
        opened_ms = None if kind == "refused" else claimed_ms + 1
        if kind == "unrecorded":
            continue
        if opened_ms is not None:
            store.mark_connected(stream_id, number, claimed_ms + STEP_MS)
        ended = {"relieved": "taken_over", "dropped": "reset", "refused": "refused", "open": ""}[kind]
        closed_ms = claimed_ms + 2_000 if ended else None
        progress = Progress(
            fence=number, claimed_ms=claimed_ms, opened_ms=opened_ms, seen_ms=closed_ms or NOW_MS - 100,
            closed_ms=closed_ms, ended_by=ended, error="StreamDropped" if ended in ("reset", "refused") else "",
        )  # fmt: skip
        lane, _, request_id = holder.partition("/")
        save_connection(store, stream_id, progress, lane=lane, execution=execution, request_id=request_id)


def listed(records: StreamRecords, ids: list[str]) -> list[dict[str, Any]]:
    """Return the streams as the list shows them."""
    page = status.page(ids, records.read_for_status(ids), len(ids), NOW_MS, DEAD_MS, RETRIES, lambda: False)
    streams: list[dict[str, Any]] = page["streams"]
    return streams


def test_the_list_shows_the_same_as_the_streams_own_answer(memory: Memory) -> None:
    """The list equals the stream's own answer for any connections, except for an error over before the newest ones."""
    number = 0

    @settings(max_examples=examples(50), suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(st.lists(RUNS, min_size=1, max_size=3))
    @example([["dropped", *["refused"] * 6], ["refused"] * 8, ["dropped", *["relieved"] * 5]])
    def shown(runs: list[list[str]]) -> None:
        nonlocal number
        number += 1
        ids = [f"s{number:04d}:{place}" for place in range(len(runs))]
        for stream_id, run in zip(ids, runs, strict=True):
            made(memory, stream_id, run)
        records = StreamRecords(memory.dynamodb, CONTROL)
        for stream_id, answer in zip(ids, listed(records, ids), strict=True):
            read = records.read(stream_id)
            assert read is not None
            whole = status.answer(stream_id, read, NOW_MS, DEAD_MS, RETRIES)
            # These come from the list's four records alone, or from the sinks.
            own = ("events_per_s", "open_gaps", "open_gaps_at_least", "lag_ms")
            wanted = {name: whole[name] for name in answer if name not in own}
            assert answer["open_gaps_at_least"] or not whole["open_gaps_at_least"]
            assert 0 <= answer["open_gaps"] <= whole["open_gaps"]
            assert answer["open_gaps_at_least"] or answer["open_gaps"] == whole["open_gaps"]
            error = wanted["last_error"]
            if answer["last_error"] is None and error is not None:
                assert error["over_at"] is not None
                assert error["fence"] <= whole["fence"] - NEWEST
                wanted["last_error"] = None
            # The list omits how long and what was lost. It has a start only if its four records show one.
            assert answer["since_at"] in (None, wanted.pop("since_at"))
            assert answer["verdict"].split()[0].rstrip(".:") == wanted.pop("verdict").split()[0].rstrip(".:")
            assert {name: answer[name] for name in wanted} == wanted

    shown()


def test_a_healthy_stream_costs_the_list_no_request_of_its_own(memory: Memory) -> None:
    """For 22 healthy streams the list takes one request for their leases and two for their newest connections."""
    ids = [f"well:{number:02d}" for number in range(22)]
    for stream_id in ids:
        made(memory, stream_id, ["relieved"] * (NEWEST + 1))
    client = CountingClient(memory.dynamodb)
    shown = listed(StreamRecords(client, CONTROL), ids)
    assert [one["status"] for one in shown] == ["running"] * len(ids)
    assert client.requests == ["batch_get_item"] * 3


def test_the_list_reads_losses_if_a_connection_has_counted_some(memory: Memory) -> None:
    """The list reads losses if one of the newest connections counted some; its time is at least that of four records.

    After a hundred losses the reader cannot tell whether it has all since the start.
    """
    made(memory, "lossy", [])
    store, shown = memory.store(), StreamRecords(memory.dynamodb, CONTROL)
    memory.put_control("lossy", "lease", fence=typed_values.number_value(10), connected=typed_values.number_value(10))
    for number in range(1, 101):
        store.ledger.record_loss("lossy", RecordLoss(9, number, number, number + 1, "announced_by_upstream", 2))
    for missing, lost in ((0, ""), (100, " 200 events lost, as the upstream reports.")):
        for fence in range(2, 11):
            at_ms = NOW_MS - (11 - fence) * STEP_MS
            ends = {"closed_ms": at_ms + STEP_MS, "ended_by": "taken_over"} if fence < 10 else {}
            times: dict[str, Any] = {"claimed_ms": at_ms, "opened_ms": at_ms, "seen_ms": NOW_MS + missing} | ends
            one = Progress(fence=fence, missing=missing, **times)
            save_connection(store, "lossy", one, lane="A", execution="arn:lossy", request_id=f"request-{fence}")
        assert [one["verdict"] for one in listed(shown, ["lossy"])] == [f"Connected at least 40 s.{lost}"]
    read = shown.read("lossy")
    assert read is not None
    assert read.losses_since_ms == 2
