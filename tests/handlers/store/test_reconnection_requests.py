"""What a reconnection in place requests, counted at the client that each request is sent by.

Counted is all that is requested of the control table, from the loss of a connection until the first event of the next
one is stored. The events themselves are in the other table: of a log, what was written last is read first.
"""

from typing import Any

import pytest

from handlers.connection.inputs import Chunk, Closed, Opened
from handlers.connection.steps import Invocation
from handlers.profile.parse import parse
from local.replay.shared_tasks import store_on
from local.replay.table import MemoryDynamoDB
from tests.handlers.connection.managers import event
from tests.handlers.connection.performer import PlainPerformer, Script

NAMES = {"events_table": "events", "control_table": "control", "dead_letter_queue": "queue"}
LOST_MS = 60_500
# The record of the connection, its release with the cursor, the claim, the mark.
IN_PLACE = ["connection#000000000001", "lease", "lease", "lease"]
POLICIES: dict[str, dict[str, Any]] = {
    "evicts": {"overlap": "evicts"},
    "tolerates": {"overlap": "tolerates"},
    "forbids": {"overlap": "forbids"},
    "hot": {"overlap": "tolerates", "standby": "hot"},
}


class Client:
    """The tables in memory behind a client that notes which record each request is about, and when it was sent."""

    def __init__(self) -> None:
        self.sent: list[tuple[int, str, str]] = []
        self.performer: PlainPerformer | None = None
        self._tables = MemoryDynamoDB("events", "control")

    def __getattr__(self, name: str) -> Any:
        def request(**asked: Any) -> Any:
            now_ms = 0 if self.performer is None else self.performer.now_ms
            self.sent.append(
                (now_ms, asked.get("TableName", "events"), asked.get("Key", {}).get("SK", {}).get("S", ""))
            )
            return getattr(self._tables, name)(**asked)

        return request


def requested(retry: bytes = b"", **fields: Any) -> list[str]:
    """The records of the control table that a reconnection in place asked for, in order."""
    scripts: list[Script] = [
        [(0, Opened(200)), (10, Chunk(retry + event(1))), (LOST_MS - 20, Closed("reset"))],
        [(0, Opened(200)), (0, Chunk(event(2))), (20, Chunk(b"event: end\ndata: x\n\n"))],
    ]
    client = Client()
    performer = client.performer = PlainPerformer(store_on(client, NAMES), lambda: scripts.pop(0))
    profile = parse(
        "demo",
        {"address": "https://upstream.invalid", "framing": "sse", "end": {"event": "end"}, "reconnect_tries": 5}
        | fields,
        {},
    )
    performer.run(profile, Invocation("demo", "A", "", "r1", 900_000, 20_000, 2_000, 5_000, 28_000))
    after = [(table, record) for at_ms, table, record in client.sent if at_ms >= LOST_MS - 20]
    tables = [table for table, _ in after]
    opened = [at for at, (_, record) in enumerate(after) if record == "lease"][2]
    stored = tables.index("events", opened)
    return [record for table, record in after[:stored] if table == "control"]


@pytest.mark.parametrize("store", [{"store": "items"}, {"store": "log", "flush_s": 0}], ids=["items", "log"])
@pytest.mark.parametrize("policy", POLICIES)
def test_a_reconnection_in_place_is_four_requests(policy: str, store: dict[str, Any]) -> None:
    """Whatever the upstream allows, and wherever the events lie."""
    assert requested(**POLICIES[policy], **store) == IN_PLACE


@pytest.mark.parametrize("policy", POLICIES)
def test_a_rest_is_five_requests_more(policy: str) -> None:
    """It is written down and waited for, lease and rest are read, the try is taken, and ended by the answer."""
    assert requested(b"retry: 2000\n\n", **POLICIES[policy]) == [*IN_PLACE, *["lease"] * 5]
