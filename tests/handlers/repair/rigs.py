"""A stream with a gap in tables in memory, its repair address in virtual time, and the function that repairs it."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from handlers.connection.effects import Outcome, Progress
from handlers.connection.gap_record import OPEN, Gap
from handlers.framing.events import StreamEvent
from handlers.profile.behaviour import Profile
from handlers.profile.parse import parse
from handlers.profile.secret_references import Secrets
from handlers.repair.function import dry_run, repair_streams
from handlers.repair.gap_ports import Deps
from handlers.repair.work import RepairWork
from handlers.run.group_ports import perform_needs
from handlers.store.event_items import StoragePolicy
from handlers.store.event_reader import EventReader
from handlers.store.ledger_records import connection_item, connection_key, gap_item
from handlers.store.stream_records import StreamRecords
from handlers.store.typed_values import Item, item_key, number_value
from local.simulation.shared_tasks import store_on
from local.simulation.tables import MemoryDynamoDB
from local.simulation.virtual_rest import RestWays, VirtualRest
from tests.handlers.context import Killed

ORIGIN_MS = 1_800_000_000_000
REPAIR = {
    "address": "https://rest.example/events?after={after}&before={before}",
    "items": "$.events",
    "key": "$.id",
    "next": {"cursor": "$.next", "query": "page"},
    "pace_s": 0.5,
}
STREAM: dict[str, Any] = {"address": "https://s.example", "framing": "ndjson", "key": "$.id"}
TABLES = {"events_table": "events", "control_table": "control"}
MISSED = [10, 11, 12, 13, 14]  # by the gap of a rig


class Rig:
    """A stream with an event a second; the events of `missed` came on no connection, between connection 1 and 2.

    If connection 2 resumed, it had caught up with event `live`.
    """

    def __init__(
        self, ways: RestWays | None = None, *, missed: range = range(10, 15), events: int = 20, store: str = "items",
        before: range | None = None, live: int | None = None, named: Callable[[int], str] = str, **fields: Any,
    ) -> None:  # fmt: skip
        self.now, self.named = ORIGIN_MS + events * 1000, named
        self.emitted_ms = [ORIGIN_MS + one * 1000 for one in range(events)]
        self.profile: Profile = parse("s", STREAM | {"store": store, "repair": REPAIR | fields}, {})
        self.rest = VirtualRest(ways or RestWays(), lambda: self.now, self.emitted_ms, body)
        self.profile_of: Callable[[str], Profile | None] = lambda _stream: self.profile
        self.tables = MemoryDynamoDB("events", "control")
        self.store = store_on(self.tables, TABLES)
        self.records = StreamRecords(self.tables, "control", "events")
        self.reader = EventReader(self.tables, "events", lambda _key: None)
        self.work = RepairWork(self.tables, "control")
        self.gap = Gap(2, self.at(missed.start - 1), self.at(missed.stop), "reset", OPEN)
        self.alerts: list[str] = []
        self.dies_after: int | None = None
        self.pace_ms = 500  # how much longer the turn of a killed function lasts
        self.secrets: Secrets = {}
        partitions = 0 if store == "log" else 1
        self.tables.put_item(
            TableName="control",
            Item=item_key("s", "lease") | {"fence": number_value(2), "partitions": number_value(partitions)},
        )
        self.tables.put_item(TableName="control", Item=gap_item("s", self.gap))
        for fence, numbers in ((1, before or range(missed.start)), (2, range(missed.stop, events))):
            self.connected(fence, numbers, live if fence == 2 else None)

    def at(self, number_: int) -> int:
        """Return when an event happened."""
        return ORIGIN_MS + number_ * 1000

    def connected(self, fence: int, numbers: range, live: int | None = None) -> None:
        """Let a connection store events, each when it happened; if it resumed, it caught up with event `live`."""
        opened_ms = self.at(numbers.start)
        live_ms = opened_ms if live is None else self.at(live)
        progress = Progress(
            fence=fence, claimed_ms=opened_ms, opened_ms=opened_ms, seen_ms=self.at(numbers.stop), live_ms=live_ms,
            resumed=live is not None,
        )  # fmt: skip
        record = connection_item(progress, lane="A", execution="e", request_id=f"r{fence}")
        self.tables.put_item(TableName="control", Item=item_key("s", connection_key(fence)) | record)
        events = [StreamEvent(self.named(n), body(n), None, None, None, self.at(n)) for n in numbers]
        if self.profile.store == "log":
            log = self.store.log_writer("s", fence, lambda: self.at(numbers.stop), window_ms=900_000, keep_days=0)
            log.write(0, events)
        else:
            self.store.write("s", fence, 0, events, StoragePolicy())

    def run(self, *, request: bool = True, left_ms: int = 10**9, is_dry: bool = False) -> Outcome:
        """Run one invocation and return its outcome; raises Killed if it dies at a request."""
        if request:
            self.work.request("s", self.now, self.now)
        deps = Deps(
            self.work, self.records, self.store, self.reader, self.profile_of, lambda _: self.secrets, self.rest.fetch,
            lambda _stream, _gap, repair: self.alerts.append(repair.reason), lambda: self.now, lambda: left_ms,
            f"h{self.now}",
        )  # fmt: skip
        self.done = deps.done
        return perform_needs(
            dry_run(deps, "s", 0, self.now) if is_dry else repair_streams(deps, "s"), self._ask, self._wait
        )

    def _ask(self, request: Callable[[], Any]) -> Any:
        if self.dies_after is not None:
            self.dies_after -= 1
            if self.dies_after < 0:
                raise Killed
        self.now += 7
        return request()

    def _wait(self, for_s: float) -> None:
        self.now += round(for_s * 1000)

    @property
    def repaired(self) -> Any:
        """Return the repair in the gap's record."""
        gap = next(gap for gap in self.records.newest_gaps("s", 10) if gap.fence == self.gap.fence)
        assert gap.repair is not None
        return gap.repair

    def stored(self) -> list[tuple[int, bool]]:
        """Return the events in order, each with whether it came by repair."""
        layout = self.records.layout("s")
        assert layout is not None
        entries = self.reader.entries("s", layout, self.now, "", 10_000)
        events = [entry.event for entry in entries if entry.event is not None]
        return [(json.loads(event.data or "")["id"], event.is_repaired) for event in events]

    def change_ways(self, **ways: Any) -> None:
        """Change how the address behaves."""
        self.rest._ways = replace(self.rest._ways, **ways)


def body(number_: int) -> str:
    """Return the JSON of an event."""
    return f'{{"id":{number_},"at":{ORIGIN_MS + number_ * 1000}}}'


def item(tables: Any, partition: str, sort: str) -> Item:
    found: Item = tables.get_item(TableName="control", Key=item_key(partition, sort)).get("Item", {})
    return found


def repaired_events(rig: Rig) -> list[int]:
    """Check that every event exists once; return in order those that came by repair."""
    stored = rig.stored()
    assert sorted(number for number, _ in stored) == list(range(len(rig.emitted_ms)))
    return [number for number, is_repaired in stored if is_repaired]
