"""Answers how far a stream's sinks have come, and reads commands to a sink.

    POST /connections/orders/sinks?do=replay&sink=sqs:orders.fifo&from=2026-11-21T06:25:19Z

The delivery carries them out (handlers/deliver/sink_commands.py). Invariants: a row says what the sink has not taken,
whatever the reason; nothing is written here.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from handlers.api.answers import Problem, to_iso
from handlers.api.queries import BadQuery, instant_ms, parameters_of
from handlers.aws.error_translation import translate_errors
from handlers.deliver.arrivals import Arrivals
from handlers.deliver.delivery_records import SinkRecord, SinkRecords
from handlers.deliver.sink_commands import COMMANDS, Lag, current_record, lag
from handlers.store.control_table import Table

FIELDS = {
    "do": "What to do with a sink: pause it, resume it, replay from an instant, or skip the oldest event that waits.",
    "sink": "Its name, as GET shows it; optional if the stream has one sink.",
    "from": 'For a replay: "start", or the instant from which events are sent again.',
    "all": "For a skip: true skips all waiting events.",
}

# How far the caller's clock may be ahead.
APART_MS = 60_000


class Sinks:
    """The sinks of all streams, as the delivery table has them."""

    def __init__(self, dynamodb: Any, delivery_table: str, events_table: str) -> None:
        table, self._events = Table(dynamodb, delivery_table), Table(dynamodb, events_table)
        self._records, self._arrivals = SinkRecords(table), Arrivals(table)

    def read_all(self, stream_id: str, labels: Iterable[str]) -> list[tuple[SinkRecord, Lag]]:
        """Returns the record of each sink that the profile names, and how far it is behind; raises StoreUnavailable."""
        known = {
            record.sink: current_record(self._arrivals, stream_id, record)
            for record in self._records.read_all(stream_id)
        }
        records = [known.get(label, SinkRecord(label)) for label in sorted(labels)]
        # A sink without a record begins with the next event.
        behind = (lag(self._arrivals, stream_id, one, self._events) if one.turn else Lag(0, 0) for one in records)
        return list(zip(records, behind, strict=True))


def row(record: SinkRecord, behind: Lag, now_ms: int) -> dict[str, Any]:
    """Returns what is known of one sink."""
    return {
        "sink": record.sink,
        "delivered": record.delivered,
        "failed": record.failed,
        "dead_lettered": record.dead_lettered,
        "skipped": record.skipped,
        "waiting": behind.events,
        "lag_ms": max(0, now_ms - behind.oldest_ms) if behind.oldest_ms else 0,
        "paused": record.is_paused,
        "replaying": record.is_replaying,
        "waits": "paused" if record.is_paused else record.waits or None,
        "seen_at": to_iso(record.at_ms or None),
        "newest_received_at": to_iso(record.newest_ms or None),
    }


def parse_command(query: object, labels: Iterable[str], now_ms: int) -> dict[str, Any]:
    """Returns the command for the delivery; raises BadQuery, and a Problem if the stream has no sinks."""
    parameters, known = parameters_of(query, tuple(FIELDS)), sorted(labels)
    sink, is_all = parameters.get("sink", known[0] if len(known) == 1 else ""), parameters.get("all", "false")
    if parameters.get("do") not in COMMANDS:
        raise BadQuery("do", f"the parameter do must be one of {', '.join(COMMANDS)}")
    if not known:
        raise Problem("no-sinks", "the stream's profile names no sink", "streamId")
    if sink not in known:
        raise BadQuery("sink", f"the parameter sink must be one of {', '.join(known)}", "Name one of them.")
    from_ms = 0 if parameters.get("from") == "start" else instant_ms("from", parameters.get("from"))
    if parameters["do"] == "replay" and from_ms is None:
        raise BadQuery("from", "the parameter from must say where the replay begins", "Give start, or an instant.")
    if parameters["do"] != "replay" and from_ms is not None:
        raise BadQuery("from", "the parameter from is for a replay only", "Leave it out.")
    if from_ms is not None and from_ms > now_ms + APART_MS:
        raise BadQuery("from", "the parameter from must not lie in the future")
    if is_all not in ("true", "false"):
        raise BadQuery("all", "the parameter all must be true or false")
    if is_all == "true" and parameters["do"] != "skip":
        raise BadQuery("all", "the parameter all is for a skip only", "Leave it out.")
    return {"command": parameters["do"], "sink": sink, "from_ms": max(0, from_ms or 0), "all": is_all == "true"}


def send_command(functions: Any, function: str, streams: Sequence[str], command: Mapping[str, Any]) -> None:
    """Has the delivery carry out the command for each stream; raises Problem if it cannot, and StoreUnavailable."""
    with translate_errors("Invoke"):
        answer = functions.invoke(FunctionName=function, Payload=json.dumps({"streams": streams, **command}).encode())
    body = json.loads(answer["Payload"].read())
    if "FunctionError" in answer:
        raise Problem("bad-answer", "the delivery function did not carry out the command")
    if "problem" in body:
        raise Problem("unavailable", body["problem"])
