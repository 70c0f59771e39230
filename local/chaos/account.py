"""Holds what the streams of a run share: clock, tables, Lambda, Step Functions, and the faults that affect all of them.

It knows streams by their ids only. Invariants: a change of an item reaches the stream that the item belongs to and no
other; a request that one stream makes about another is recorded in `crossed`, each sentence once.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from handlers.store.connection_store import Store
from handlers.store.event_items import stream_of
from local.chaos.delivery_run import Delivery
from local.chaos.deployments import QUEUE_URL, Version
from local.simulation.dynamodb_expressions import Item
from local.simulation.shared_tasks import no_sleep
from local.simulation.table_stream import TableStream
from local.simulation.tables import Key, MemoryDynamoDB
from local.simulation.unreliable_clients import UnreliableDynamoDB, UnreliableQueue
from states_language import Execution, Machine
from states_language.clock import VirtualClock

Changed = Callable[[str, Key, Item], None]
Machines = Callable[[Version], Machine]
MACHINE_ARN = "arn:aws:states:us-east-1:111111111111:stateMachine:connections"


def input_of(stream: str) -> dict[str, Any]:
    """Returns the input that a POST of the stream gives to an execution."""
    return {"pathParameters": {"streamId": stream}}


class Account:
    """The AWS account of one run.

    `names` are the names of a stage's resources; `machine_of` loads the definition of a version.
    """

    def __init__(self, seed: int, names: Mapping[str, str], machine_of: Machines) -> None:
        self.machine_of = machine_of
        self.clock = VirtualClock(seed=seed)
        self.origin_ms = self.clock.now_ms()
        self.events_table, self.control_table = names["events_table"], names["control_table"]
        # The arguments of a function's store; its back-off takes no time.
        self.store_settings: dict[str, Any] = {
            "events_table": self.events_table,
            "control_table": self.control_table,
            "dead_letter_queue_url": QUEUE_URL,
            "sleep": no_sleep,
        }
        self.tables = MemoryDynamoDB(self.events_table, self.control_table, on_change=self._changed)
        self.dynamodb = UnreliableDynamoDB(self.clock, self.tables)
        self.queue = UnreliableQueue(self.clock, self.dynamodb, QUEUE_URL)
        self.stream = TableStream(self.clock)  # the stream of the events table
        self.delivery: Delivery | None = None  # the result of the delivery, once the run is over
        self.starts_late: tuple[int, int] = (0, 0)  # until when functions start late, and by how much
        self.until_ms: Counter[str] = Counter()  # by kind, when a fault of Lambda or Step Functions ends
        self.executions: dict[str, Execution] = {}  # by ARN
        self.crossed: dict[str, None] = {}
        self.log: list[str] = []
        self._watches: dict[str, Changed] = {}
        # Finds the watch of a group that has none in `_watches` yet.
        self.watch_group: Callable[[str], Changed | None] = lambda _group: None

    def is_lasting(self, fault: str) -> bool:
        """Returns whether requests meet the fault now."""
        return self.clock.now_ms() < self.until_ms[fault]

    def watch(self, stream: str, changed: Changed) -> None:
        """Calls `changed` after each later change of an item of the stream."""
        self._watches[stream] = changed

    def store_of(self, stream: str, start_repair: Callable[[str], None] = lambda _stream: None) -> Store:
        """Returns the store of the stream's functions; `start_repair` starts the repair of its gaps."""
        # A stream that runs alone cannot touch another.
        client = self.dynamodb if len(self._watches) == 1 else OwnItems(self.dynamodb, stream, self.record_crossing)
        return Store(client, lambda: self.queue, start_repair=start_repair, **self.store_settings)

    def record_crossing(self, text: str) -> None:
        """Records that one stream touched another."""
        self.crossed[text] = None

    def say(self, text: str) -> None:
        """Adds a line to the trace."""
        self.log.append(f"{(self.clock.now_ms() - self.origin_ms) / 1000:>8.3f} s  {text}")

    def _changed(self, table: str, key: Key, item: Item) -> None:
        if table == self.events_table:
            self.stream.add_write(key, item)
        about = stream_of(item) if table == self.events_table else key[0]
        watch = self._watches.get(about) or self.watch_group(about)
        if watch is None:
            self.record_crossing(f"an item of no stream was written: {key}")
        else:
            watch(table, key, item)


class OwnItems(UnreliableDynamoDB):
    """The client of one stream's functions; it records each request that names an item of another stream."""

    def __init__(self, dynamodb: UnreliableDynamoDB, stream: str, cross: Callable[[str], None]) -> None:
        self._dynamodb = dynamodb
        self._stream = stream
        self._cross = cross

    def send(self, operation: str, request: dict[str, Any]) -> dict[str, Any]:
        """Checks the keys of a request and returns the answer."""
        for name in _partitions(request):
            # In the control table the partition key is the id itself.
            if self._stream not in (name, stream_of({"PK": {"S": name}})):
                self._cross(f"{operation} in the name of {self._stream} is about an item of {name}")
        return self._dynamodb.send(operation, request)


def _partitions(request: Mapping[str, Any]) -> list[str]:
    """Returns the partition keys that a request names."""
    items = [request[name] for name in ("Key", "Item") if name in request]
    values = request.get("ExpressionAttributeValues", {}) if "KeyConditionExpression" in request else {}
    named = [values[name]["S"] for name in (":stream", ":partition") if name in values]
    wanted = [key for table in request.get("RequestItems", {}).values() for key in table["Keys"]]
    # PK is the first attribute of every INSERT.
    inserted = [statement["Parameters"][0]["S"] for statement in request.get("Statements", ())]
    return [*(item["PK"]["S"] for item in [*items, *wanted]), *named, *inserted]
