"""A counted group requests what the function does that keeps one on threads and sockets: request by request."""

from typing import Any

import pytest

import handlers.run.group_function
from handlers.aws.clients import dynamodb
from handlers.aws.secret_values import SecretValues
from handlers.connection.effects import Outcome
from handlers.connection.inputs import Chunk
from handlers.connection.steps import Invocation
from handlers.group.fates import Delays
from handlers.profile.behaviour import Profile
from handlers.profile.parse import parse
from handlers.run.group_invocation import run_group
from handlers.run.group_ports import GroupTables, ReadProfiles
from handlers.run.threads import SystemClock
from handlers.settings import PlainAws
from local.costs import model, month
from local.costs.counted_run import Stream, count_group, machine_of
from local.costs.metered import Counts, Meter, MeteredDynamoDb
from local.costs.model import Load
from local.costs.steady_upstream import Link, SteadyUpstream, frame
from local.simulation.groups import GROUP, Group
from local.simulation.virtual_function import Task, VirtualFunction
from local.simulation.virtual_ports import Client
from states_language.clock import VirtualClock
from tests.handlers.servers import UNTIL_CLOSE, Peer, serving
from tests.local.costs.edge import edge
from tests.local.costs.test_counted_run import CONTROL, EVENTS, TABLES

STREAMS = [f"demo:{number}" for number in range(5)]
BODY = b"".join(frame(number, 100) for number in range(1, 9)) + b"event: end\ndata: x\n\n"
NAMES = {"events_table": EVENTS, "control_table": CONTROL}
DELAYS = Delays(1, 1, 1, 1, 1)
SETTINGS = {"ledger_keep_days": 400, **dict.fromkeys(Delays.__slots__, 1)}
LONG_MS = 3_600_000


def profile(address: str, store: str) -> Profile:
    """The profile of the streams, which end when they have sent what they have."""
    table = {"address": address + "/{streamId}", "allow_private": True, "framing": "sse", "end": {"event": "end"}}
    return parse("demo", {**table, "store": store}, {}, keep_days=30)


def invocation(now_ms: int) -> Invocation:
    """Of a function that has nothing to renew before all is over."""
    return Invocation(GROUP, "A", "E1", "request-1", now_ms + 10 * LONG_MS, 20_000, LONG_MS, LONG_MS, 0)


def prepare(client: Any, upstreams: dict[str, SteadyUpstream], store: str) -> Group:
    """The records of a group whose streams have joined."""
    item = {"PK": {"S": GROUP}, "SK": {"S": "lease"}, "execution": {"S": "E1"}}
    client.put_item(TableName=CONTROL, Item=item)
    group = Group(lambda _stream_id: profile("https://upstream.invalid", store), upstreams, SETTINGS, NAMES, client)
    group.joins()
    return group


class EndingUpstream(SteadyUpstream):
    """Sends all it has at once, and its end with it."""

    def open(self, client: Client, cursor: str | None) -> Link:
        """A link that brings everything at once."""
        link = super().open(client, cursor)
        self._clock.call_at(self._clock.now_ms(), lambda: client.arrived(link, Chunk(BODY)))
        return link


def really(store: str) -> Counts:
    """What a function on threads and sockets requests until its last stream has ended."""

    def play(peer: Peer) -> None:
        peer.send(UNTIL_CLOSE + BODY)
        peer.wait_until_gone()

    with edge(TABLES, CONTROL, 1) as counted, serving(play) as server:
        client = dynamodb(PlainAws("us-east-1", counted.url, "key", "secret", ""), tries=1)
        prepare(client, dict.fromkeys(STREAMS), store)  # type: ignore[arg-type]  # nobody opens them
        clock = SystemClock()
        outcome = run_group(
            invocation(clock.now_ms()),
            GroupTables(client, lambda: None, **NAMES, dead_letter_queue_url="", ledger_keep_days=400),
            SecretValues(lambda _: None, "/none/"),
            DELAYS,
            clock,
            ReadProfiles(
                lambda _stream: profile(server.address, store), lambda _stream: profile(server.address, store)
            ),
            lambda *_: None,
            lambda *_: None,
        )
        client.close()
        assert outcome.status == "stopped"
        return counted.counts


def virtually(store: str) -> Counts:
    """What a counted group requests."""
    clock, meter = VirtualClock(), Meter(TABLES)
    outcomes: list[Outcome] = []

    async def run() -> None:
        upstreams: dict[str, SteadyUpstream] = {name: EndingUpstream(clock, 0, 300, 0) for name in STREAMS}
        group = prepare(MeteredDynamoDb(meter), upstreams, store)
        function = VirtualFunction(clock, Task(1, invocation(clock.now_ms())), outcomes.append, is_prompt=True)
        function.start(group.needs(function))
        await clock.sleep_until(clock.now_ms() + 60_000)

    clock.run(run())
    assert [outcome.status for outcome in outcomes] == ["stopped"]
    return meter.counts


@pytest.mark.parametrize("store", ["items", "log"])
def test_model_and_counted_run_are_one(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same requests of each kind with the same units: claims, openings, writes, ends, and the group's own."""
    # How many beats there are follows from the time, which a real run takes some of.
    monkeypatch.setattr(handlers.run.group_function, "BEAT_EVERY_MS", LONG_MS)
    real, virtual = really(store), virtually(store)
    assert {kind: count.requests for kind, count in real.by_kind.items()} == {
        kind: count.requests for kind, count in virtual.by_kind.items()
    }
    assert real.by_kind == virtual.by_kind
    # Nine items with their entries in the index, or a segment and the number that is kept of it.
    assert real.write_units(EVENTS) == len(STREAMS) * (18 if store == "items" else 2)


def test_what_streams_share_is_shared_and_nothing_else() -> None:
    """Of twelve streams a function's beats are those of six; what each stream requests is the same."""
    source = month.scenario("prod")
    machine, load = machine_of(source), Load(6, 0, 200, "log", 5, per_function=6)
    few, many = (count_group(source, machine, Stream(model.profile(source, load), 0, 200), n, 1)[0] for n in (6, 12))
    assert (len(few.reports), len(many.reports)) == (6, 12)
    # A beat every four seconds, and every two in a handover.
    shared = [one.length_ms / 4_000 for one in (few, many)]
    for one, beats, streams in zip((few, many), shared, (6, 12), strict=True):
        own = one.counts.write_units("streamkeeper-cost-control") - beats
        assert 6 * streams <= own <= 6 * streams + 40
