"""A counted run makes the same requests as the function on threads and sockets, for a lone stream and for a group."""

import gc
import json
import threading
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest
from botocore.exceptions import ClientError

import handlers.run.group_function
from handlers.aws.lambda_environment import PlainAws, dynamodb
from handlers.aws.secret_values import SecretValues
from handlers.connection.effects import Outcome
from handlers.connection.inputs import Chunk
from handlers.connection.steps import Invocation
from handlers.dynamodb.sigv4 import Credentials
from handlers.group.next_step import Delays
from handlers.profile.behaviour import Profile
from handlers.profile.parse import parse
from handlers.run.group_invocation import run_group
from handlers.run.group_ports import GroupTables, Needs, ReadProfiles
from handlers.run.stream_invocation import run_invocation
from handlers.run.threads import SystemClock
from local.costs import model, month, repair_costs
from local.costs.counted_run import CountedStream, count, count_group, resolve_machine
from local.costs.model import Load
from local.costs.request_meter import Count, Counts, Kind, Meter, MeteredDynamoDb, control_table, events_table
from local.costs.steady_upstream import SteadyUpstream, event_frame
from local.simulation.groups import GROUP, Group, join
from local.simulation.scripted_upstream import Link
from local.simulation.shared_tasks import store_on
from local.simulation.slots import Slot, stream_needs
from local.simulation.virtual_function import Task, VirtualFunction
from local.simulation.virtual_ports import Client
from states_language.clock import VirtualClock
from tests.handlers.servers import UNTIL_CLOSE, Peer, sends, serving
from tests.http_server import Answer, Request, answering

EVENTS, CONTROL = "events", "control"
NAMES = {"events_table": EVENTS, "control_table": CONTROL}
TABLES = {EVENTS: events_table(), CONTROL: control_table()}
# The body of a lone stream; one event is in it twice.
NUMBER, EVENT_BYTES = 30, 700
BODY = b"".join(event_frame(number, EVENT_BYTES) for number in range(1, NUMBER + 1)) + event_frame(1, EVENT_BYTES)
END = b"event: end\ndata: x\n\n"
# Two of the opening, and then a few heartbeats.
REQUESTS = 6
# The body of each stream of a group, with its end.
STREAMS = [f"demo:{number}" for number in range(5)]
MEMBERS_BODY = b"".join(event_frame(number, 100) for number in range(1, 9)) + END
DELAYS = Delays(1, 1, 1, 1, 1)
SETTINGS = {"ledger_keep_days": 400, **dict.fromkeys(Delays.__slots__, 1)}
LONG_MS = 3_600_000
NO_SECRETS = SecretValues(lambda _: None, "/none/")


def profile(address: str, **fields: str) -> Profile:
    """Returns the profile of the streams, which end once they have sent all their events."""
    table = {"address": address, "allow_private": True, "framing": "sse", "end": {"event": "end"}, **fields}
    return parse("demo", table, {}, keep_days=30)


def invocation(stream_id: str, now_ms: int, lease_every_ms: int, progress_every_ms: int) -> Invocation:
    """Returns the invocation of a function whose life is too long for a renewal."""
    life_ms = now_ms + 10 * LONG_MS
    return Invocation(stream_id, "A", "E1", "request-1", life_ms, 20_000, lease_every_ms, progress_every_ms, 0)


def join_group(client: Any, upstreams: dict[str, SteadyUpstream], profile_: Profile) -> Group:
    """Writes the records of a group whose streams have joined."""
    join(client, CONTROL, upstreams, "E1")
    return Group(lambda _: profile_, upstreams, SETTINGS, NAMES, client)


class EndingUpstream(SteadyUpstream):
    """Sends all its events at once, and its end once `is_over`, which it checks every tenth of a second."""

    def __init__(self, clock: VirtualClock, body: bytes, is_over: Callable[[], bool]) -> None:
        super().__init__(clock, 0, EVENT_BYTES, 0)
        self._body, self._is_over = body, is_over

    def open(self, client: Client, cursor: str | None) -> Link:
        """Returns a link that sends everything at once."""
        link = super().open(client, cursor)
        self._clock.call_at(self._clock.now_ms(), lambda: client.take_arrival(link, Chunk(self._body)))
        self._clock.call_at(self._clock.now_ms() + 100, lambda: self._check(link))
        return link

    def _check(self, link: Link) -> None:
        if self._is_over():
            link.client.take_arrival(link, Chunk(END))
        elif link.is_open:
            self._clock.call_at(self._clock.now_ms() + 100, lambda: self._check(link))


class Edge:
    """Empty tables behind a socket, with a counter; `reached` is set after REQUESTS requests to the control table."""

    def __init__(self) -> None:
        self.meter = Meter(TABLES)
        self.reached = threading.Event()
        self._lock = threading.Lock()

    def answer(self, request: Request) -> Answer:
        """Returns DynamoDB's response."""
        with self._lock:
            try:
                status, body = 200, self.meter.answer(request.headers["x-amz-target"].partition(".")[2], request.body)
            except ClientError as error:
                named = error.response["Error"]
                status, body = 400, {"__type": f"com.amazonaws#{named['Code']}", "message": named["Message"]}
            if self.meter.counts.requests(CONTROL) >= REQUESTS:
                self.reached.set()
        return Answer(status, {"content-type": "application/x-amz-json-1.0"}, json.dumps(body).encode())


def count_real(
    play: Callable[[Edge], Callable[[Peer], None]], run: Callable[[Any, str, SystemClock], Outcome], status: str
) -> Counts:
    """Returns the requests of a function on threads and sockets until its last stream has ended."""
    edge = Edge()
    with answering(edge.answer) as url, serving(play(edge)) as server:
        with closing(dynamodb(PlainAws("us-east-1", url, Credentials("key", "secret")), tries=1)) as client:
            assert run(client, server.address, SystemClock()).status == status
        return edge.meter.counts


def count_virtual(
    who: Callable[[int], Invocation], needs: Callable[[VirtualFunction, VirtualClock, Meter], Needs], status: str
) -> Counts:
    """Returns the requests of a counted function."""
    clock, meter = VirtualClock(), Meter(TABLES)
    outcomes: list[Outcome] = []

    async def run() -> None:
        function = VirtualFunction(clock, Task(1, who(clock.now_ms())), outcomes.append, is_prompt=True)
        function.start(needs(function, clock, meter))
        await clock.sleep_until(clock.now_ms() + 60_000)

    clock.run(run())
    assert [outcome.status for outcome in outcomes] == [status]
    return meter.counts


def assert_alike(real: Counts, virtual: Counts) -> None:
    """Checks that both made the same requests of each kind, with the same write and read units."""
    assert real.by_kind == virtual.by_kind


@pytest.mark.parametrize(
    ("lease_every_ms", "progress_every_ms", "order"),
    [(1_000, 1_000, "index"), (3_000, 1_000, "index"), (1_000, 1_000, "none")],
)
def test_a_counted_run_makes_the_requests_of_a_real_run(
    lease_every_ms: int, progress_every_ms: int, order: str
) -> None:
    """A counted run makes the same requests for a lone stream as a function on threads and sockets."""

    def who(now_ms: int) -> Invocation:
        return invocation("demo", now_ms, lease_every_ms, progress_every_ms)

    def play(edge: Edge) -> Callable[[Peer], None]:
        return sends(UNTIL_CLOSE + BODY, edge.reached, END)

    def run(client: Any, address: str, clock: SystemClock) -> Outcome:
        store, asked = store_on(client, NAMES, ledger_keep_days=400), profile(address, order=order)
        report = run_invocation(asked, store, NO_SECRETS, who(clock.now_ms()), clock, lambda *_report: None)
        assert report.progress.stored == NUMBER + 1
        return report.outcome

    def needs(function: VirtualFunction, clock: VirtualClock, meter: Meter) -> Needs:
        upstream = EndingUpstream(clock, BODY, lambda: meter.counts.requests(CONTROL) >= REQUESTS)
        store = store_on(MeteredDynamoDb(meter), NAMES, ledger_keep_days=400)
        asked = profile("https://upstream.invalid/demo", order=order)
        return stream_needs(function, Slot(function, upstream), asked, store)

    real = count_real(play, run, "ended")
    assert real.requests(CONTROL) >= REQUESTS
    assert_alike(real, count_virtual(who, needs, "ended"))
    # An item for each event, and an entry if there is an index; an event that comes twice in one read is sent once.
    assert real.write_units(EVENTS) == (2 if order == "index" else 1) * (NUMBER + 1)


@pytest.mark.parametrize("store", ["items", "log"])
def test_a_counted_group_makes_the_requests_of_a_real_group(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A counted group makes the same requests as a real one: claims, openings, writes, ends, and the group's own."""
    # The number of heartbeats follows from the time, which passes in a real run only.
    monkeypatch.setattr(handlers.run.group_function, "HEARTBEAT_EVERY_MS", LONG_MS)

    def who(now_ms: int) -> Invocation:
        return invocation(GROUP, now_ms, LONG_MS, LONG_MS)

    def play(_edge: Edge) -> Callable[[Peer], None]:
        return sends(UNTIL_CLOSE, MEMBERS_BODY, then=Peer.wait_until_gone)

    def run(client: Any, address: str, clock: SystemClock) -> Outcome:
        asked = profile(address + "/{streamId}", store=store)
        join_group(client, dict.fromkeys(STREAMS), asked)  # type: ignore[arg-type]  # nobody opens them
        tables = GroupTables(client, lambda: None, **NAMES, dead_letter_queue_url="", ledger_keep_days=400)
        profiles = ReadProfiles(lambda _: asked, lambda _: asked)
        nothing: Any = lambda *_: None  # noqa: E731
        return run_group(who(clock.now_ms()), tables, NO_SECRETS, DELAYS, clock, profiles, nothing, nothing)

    def needs(function: VirtualFunction, clock: VirtualClock, meter: Meter) -> Needs:
        upstreams: dict[str, SteadyUpstream] = {
            name: EndingUpstream(clock, MEMBERS_BODY, lambda: False) for name in STREAMS
        }
        asked = profile("https://upstream.invalid/{streamId}", store=store)
        return join_group(MeteredDynamoDb(meter), upstreams, asked).needs(function)

    real = count_real(play, run, "stopped")
    assert_alike(real, count_virtual(who, needs, "stopped"))
    # Nine items with their entries in the index, or a segment and the number that is kept of it.
    assert real.write_units(EVENTS) == len(STREAMS) * (18 if store == "items" else 2)


def test_only_the_heartbeat_of_a_group_is_shared_by_its_streams() -> None:
    """A function sends as many heartbeats for six streams as for three; each stream makes its own other requests."""
    source = month.read_scenario("prod")
    machine, load = resolve_machine(source), Load(3, 0, 200, "log", 5, per_function=3)
    few, many = (
        count_group(source, machine, CountedStream(model.load_profile(source, load), 0, 200), n, 1)[0] for n in (3, 6)
    )
    assert (len(few.reports), len(many.reports)) == (3, 6)
    for one, streams in zip((few, many), (3, 6), strict=True):
        # A heartbeat every four seconds, and every two in a handover.
        own = one.counts.write_units("streamkeeper-cost-control") - one.length_ms / 4_000
        assert 6 * streams <= own <= 6 * streams + 40


def find_suspended() -> list[Any]:
    """Returns the generators and coroutines that have begun and not ended."""
    return [one for one in gc.get_objects() if getattr(one, "gi_frame", getattr(one, "cr_frame", None))]


def test_a_counted_run_ends_its_generators_and_coroutines() -> None:
    """A counted run leaves none suspended: the garbage collector would end them, and resume some, in any stack."""
    source, load = month.read_scenario("prod"), Load(2, 0, 200, "log", 5, per_function=2)
    stream = CountedStream(model.load_profile(source, load), 0, 200)
    gc.collect()
    gc.disable()
    others = find_suspended()  # of tests before this one
    try:
        count_group(source, resolve_machine(source), stream, 2, 1)
        count(source, resolve_machine(source), stream, 1)
        left = {one.__qualname__ for one in find_suspended() if not any(one is other for other in others)}
    finally:
        gc.enable()
    assert (
        left & {"GroupSandbox._steps", "group_steps", "stream_needs", "Lines._run", "VirtualSandbox._invoke"} == set()
    )


def test_the_meter_bills_each_kind_of_request() -> None:
    """The meter bills a refused condition, a batch with a duplicate, both kinds of reads, and the entry of an index."""
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
    # Each item, and each entry of the index, has these bytes and a hundred besides.
    stored = {place: size for place, size in meter.counts.stored_bytes.items() if place[0] == EVENTS}
    assert stored == dict.fromkeys([(EVENTS, ""), (EVENTS, "by-position")], 2 * (len("PKsSK1position1") + 100))


def test_a_gap_of_more_pages_than_a_walk_reads_costs_proportionally_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """A gap ten times as long costs ten times as much, although the simulated repair ends with its first walk."""
    monkeypatch.setattr(repair_costs, "MOST_EVENTS", 900)
    assert repair_costs.cost_usd(2, 18_000) == pytest.approx(10 * repair_costs.cost_usd(2, 1_800))
    assert repair_costs.cost_usd(0, 0) == 0


def test_a_repair_is_counted_by_its_requests_and_writes() -> None:
    """The repair of a hundred events makes four requests: two pages, a search at the walk's beginning, and a second
    walk for the edges. Each missed event is written once.
    """
    found = repair_costs.count_repair(100)
    assert (found.requests, found.counts.write_units("events")) == (4, 300)
