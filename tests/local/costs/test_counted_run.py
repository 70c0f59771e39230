"""A counted run requests what the real connection manager does, on threads and sockets: request by request."""

from pathlib import Path
from typing import Any

import pytest

from handlers.aws.clients import dynamodb
from handlers.aws.secret_values import SecretValues
from handlers.connection.effects import Outcome
from handlers.connection.inputs import Chunk
from handlers.connection.steps import Invocation
from handlers.profile.behaviour import Profile
from handlers.profile.parse import parse
from handlers.run.stream_invocation import Request, run_invocation, to_invocation
from handlers.run.threads import SystemClock
from handlers.settings import PlainAws, Settings
from handlers.store.connection_store import Store
from local.costs.deployed_tables import control_table, events_table
from local.costs.metered import Count, Counts, Kind, Meter, MeteredDynamoDb
from local.costs.steady_upstream import Link, SteadyUpstream, frame
from local.simulation.slots import Slot, stream_needs
from local.simulation.virtual_function import Task, VirtualFunction
from local.simulation.virtual_ports import Client, PromptPool
from states_language.clock import VirtualClock
from tests.handlers.servers import UNTIL_CLOSE, Peer, serving
from tests.local.costs.edge import edge

EVENTS, CONTROL = "events", "control"
TABLES = {EVENTS: events_table(), CONTROL: control_table()}
NUMBER, EVENT_BYTES = 30, 700
BODY = b"".join(frame(number, EVENT_BYTES) for number in range(1, NUMBER + 1)) + frame(1, EVENT_BYTES)
END = b"event: end\ndata: x\n\n"
# Of the opening two, and then a few heartbeats.
REQUESTS = 6


def settings(tmp_path: Path, lease_every_ms: int, progress_every_ms: int) -> Settings:
    """A function's settings, with these intervals."""
    return Settings(
        events_table=EVENTS,
        control_table=CONTROL,
        dead_letter_queue_url="http://127.0.0.1:1/queue",
        streams_dir=tmp_path,
        margin_ms=20_000,
        lease_every_ms=lease_every_ms,
        progress_every_ms=progress_every_ms,
        wait_ms=840_000,
        events_bucket="",
        ledger_keep_days=400,
        keep_days=30,
        metrics_by="stage",
        metrics_namespace="sk",
        secrets_prefix="/none/",
        upstreams={},
    )


def profile(address: str, order: str) -> Profile:
    """The profile of the stream; some events are in it twice."""
    table = {"address": address, "allow_private": True, "framing": "sse", "end": {"event": "end"}, "order": order}
    return parse("demo", table, {}, keep_days=30)


def invocation(chosen: Settings, now_ms: int) -> Invocation:
    """An invocation that has just started."""
    request = Request("demo", "A", "", 0, 0)
    return to_invocation(request, chosen, "request-1", now_ms=now_ms, remaining_ms=900_000)


def store(client: Any) -> Store:
    """The store on a client; nothing here needs a queue."""
    return Store(
        client,
        lambda: None,
        events_table=EVENTS,
        control_table=CONTROL,
        dead_letter_queue_url="",
        ledger_keep_days=400,
    )


def really(chosen: Settings, order: str) -> Counts:
    """What a run on threads and sockets requests."""
    with edge(TABLES, CONTROL, REQUESTS) as counted:

        def play(peer: Peer) -> None:
            peer.send(UNTIL_CLOSE + BODY)
            assert counted.reached.wait(60)
            peer.send(END)

        with serving(play) as server:
            clock = SystemClock()
            plain = PlainAws("us-east-1", counted.url, "key", "secret", "")
            client = dynamodb(plain, tries=1)
            report = run_invocation(
                profile(server.address, order),
                store(client),
                SecretValues(lambda _: None, "/none/"),
                invocation(chosen, clock.now_ms()),
                clock,
                lambda _report, _blocked_ms: None,
            )
            client.close()
        assert (report.outcome.status, report.progress.stored) == ("ended", NUMBER + 1)
        return counted.counts


class EndingUpstream(SteadyUpstream):
    """Sends all at once, and its end when REQUESTS were made, looking every tenth of a second."""

    def __init__(self, clock: VirtualClock, meter: Meter) -> None:
        super().__init__(clock, 0, EVENT_BYTES, 0)
        self._meter = meter
        self._virtual = clock

    def open(self, client: Client, cursor: str | None) -> Link:
        """A link that brings everything at once."""
        link = super().open(client, cursor)
        self._virtual.call_at(self._virtual.now_ms(), lambda: client.arrived(link, Chunk(BODY)))
        self._virtual.call_at(self._virtual.now_ms() + 100, lambda: self._look(link))
        return link

    def _look(self, link: Link) -> None:
        if self._meter.counts.requests(CONTROL) >= REQUESTS:
            link.client.arrived(link, Chunk(END))
        elif link.is_open:
            self._virtual.call_at(self._virtual.now_ms() + 100, lambda: self._look(link))


def virtually(chosen: Settings, order: str) -> Counts:
    """What a counted run requests."""
    clock, meter = VirtualClock(), Meter(TABLES)
    outcomes: list[Outcome] = []

    async def run() -> None:
        task = Task(1, invocation(chosen, clock.now_ms()))
        function = VirtualFunction(clock, task, outcomes.append, is_prompt=True)
        slot = Slot(function, EndingUpstream(clock, meter))
        requests = store(MeteredDynamoDb(meter))
        pool = PromptPool(function.bell, "the store")
        function.start(stream_needs(function, slot, profile("https://upstream.invalid/demo", order), requests, pool))
        await clock.sleep_until(clock.now_ms() + 60_000)

    clock.run(run())
    assert [outcome.status for outcome in outcomes] == ["ended"]
    return meter.counts


@pytest.mark.parametrize(
    ("lease_every_ms", "progress_every_ms", "order"),
    [(1_000, 1_000, "index"), (3_000, 1_000, "index"), (1_000, 1_000, "none")],
)
def test_model_and_counted_run_are_one(tmp_path: Path, lease_every_ms: int, progress_every_ms: int, order: str) -> None:
    """The same requests of each kind, and of each the same units of writing and of reading."""
    chosen = settings(tmp_path, lease_every_ms, progress_every_ms)
    real, virtual = really(chosen, order), virtually(chosen, order)
    assert real.requests(CONTROL) >= REQUESTS
    assert real.by_kind.keys() == virtual.by_kind.keys()
    assert {kind: count.requests for kind, count in real.by_kind.items()} == {
        kind: count.requests for kind, count in virtual.by_kind.items()
    }
    assert real.by_kind == virtual.by_kind
    # An item for each event, and an entry where an index has it; what came twice in one read is not sent twice.
    assert real.write_units(EVENTS) == (2 if order == "index" else 1) * (NUMBER + 1)


def test_what_a_request_was_billed_follows_from_the_wire() -> None:
    """A refused condition, a batch with a duplicate, reads of both kinds, the entry of an index."""
    meter = Meter(TABLES)
    client = MeteredDynamoDb(meter)
    key = {"PK": {"S": "s"}, "SK": {"S": "lease"}}
    client.put_item(TableName=CONTROL, Item=key | {"data": {"S": "x" * 2000}})
    with pytest.raises(Exception, match="ConditionalCheckFailed"):
        client.put_item(TableName=CONTROL, Item=key, ConditionExpression="attribute_not_exists(PK)")
    client.get_item(TableName=CONTROL, Key=key, ConsistentRead=True)
    client.get_item(TableName=CONTROL, Key=key)
    events = [{"PK": {"S": "s"}, "SK": {"S": name}, "position": {"S": name}} for name in ("1", "2")]
    places = "'PK': ?, 'SK': ?, 'position': ?"
    statements = [
        {"Statement": f'INSERT INTO "{EVENTS}" VALUE {{{places}}}', "Parameters": list(event.values())}
        for event in events
    ]
    client.batch_execute_statement(Statements=statements)
    client.batch_execute_statement(Statements=statements[:1])
    assert meter.counts.by_kind == {
        Kind(CONTROL, "PutItem", "lease"): Count(2, 5, 0.0),
        Kind(CONTROL, "GetItem", "lease"): Count(2, 0, 1.5),
        Kind(EVENTS, "BatchExecuteStatement", "event"): Count(2, 2 * 2 + 1, 0.0),
    }
