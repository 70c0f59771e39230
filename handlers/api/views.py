"""Answers what the page shows of one stream beside its status: timeline, machine, cost, dead letters, newest events.

Each is a route below `/connections/{streamId}`, which the page requests repeatedly and a program seldom does.
Invariants: nothing is written; what has no answer yet is null, not an error; a connection that may or may not still run
ends where it was last heard of, and the gaps are those of the status; a state of a machine is lit only if its history
shows it as current; a cost is called an estimate, and names the rates behind it.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from handlers.api import queries, status_words
from handlers.api.answers import to_iso
from handlers.api.connection_records import Connection, Connections, Records
from handlers.api.figures import coverage
from handlers.aws import executions
from handlers.connection.inputs import Layout
from handlers.profile.addresses import tag_of
from handlers.store import event_reader
from handlers.store.control_table import Table
from handlers.store.stream_records import StreamRecords

# AWS clients are made when they are first needed.
Client = Callable[[], Any]
HOUR_MS = 3_600_000
# How much of the past the picture of the lanes shows.
WINDOW_MS = HOUR_MS
# Far more events than both lanes' last cycles have. Older states are over; a Parallel is lit by a state in it.
NEWEST = 500
# How many events the page begins with.
LATEST = 100


def newest_machine(states: Client, stream_id: str, records: Records) -> dict[str, Any]:
    """Returns the machine of the execution that holds the stream, else of the last one that connected it."""
    newest = max(records.connections, key=lambda one: one.fence, default=None)
    arn = records.lease.execution or (newest.execution if newest is not None else "")
    found = executions.read_execution(states, arn, NEWEST) if arn else None
    if found is None:
        return {"stream": stream_id, "execution": None, "execution_status": None, "graph": None, "current": []}
    return machine(stream_id, *found)


def latest_place(store: StreamRecords, events_table: str, stream_id: str, parts: Sequence[str] = ()) -> dict[str, Any]:
    """Returns the position behind which `GET …/events` has the newest events; null for the beginning.

    `parts` are the ids of those in which the stream is read.
    """
    table, each = Table(store.dynamodb, events_table), parts or (stream_id,)
    layouts = {one: store.layout(one) or Layout() for one in each}
    places = {one: event_reader.place_before_newest(table, one, layouts[one], -(-LATEST // len(each))) for one in each}
    place = queries.places_text({tag_of(one): places[one] for one in parts if places[one]})
    return {"stream": stream_id, "after": (place if parts else places[stream_id]) or None}


def timeline(stream_id: str, records: Records, now_ms: int, dead_after_ms: int) -> dict[str, Any]:
    """Returns what each lane had in the last hour, and the gaps.

    `to_at` is the server's clock, by which a page that follows sets its own.
    """
    connections = Connections(records, now_ms, dead_after_ms)
    from_ms = now_ms - WINDOW_MS
    covered = coverage(status_words.status(connections), connections, records)
    shown = [] if covered is None else covered.as_json()["gaps"]
    earliest = to_iso(from_ms) or ""
    return {
        "stream": stream_id,
        "from_at": to_iso(from_ms),
        "to_at": to_iso(now_ms),
        "connections": [
            _connection_json(one, connections) for one in connections.all if _end_ms(one, connections) >= from_ms
        ],
        "gaps": [gap for gap in shown if gap["to_at"] is None or gap["to_at"] >= earliest],
    }


def _connection_json(one: Connection, connections: Connections) -> dict[str, Any]:
    """`opened_at` is null if it was never answered; `until_at` is its end, or now while the connection is open."""
    return {
        "lane": one.lane,
        "fence": one.fence,
        "claimed_at": to_iso(one.claimed_ms or one.opened_ms),
        "opened_at": to_iso(one.opened_ms),
        "until_at": to_iso(_end_ms(one, connections)),
        "is_open": one in connections.open,
        "ended_by": connections.cause(one) or None,
        "stored": one.stored,
        "duplicates": one.duplicates,
        "dead_lettered": one.dead_lettered,
    }


def _end_ms(one: Connection, connections: Connections) -> int:
    if one in connections.open:
        return connections.now_ms
    return one.last_ms if one.closed_ms is not None else max(one.opened_ms or 0, one.seen_ms)


def machine(
    stream_id: str, execution: Mapping[str, Any], definition: Mapping[str, Any], events: Iterable[Any]
) -> dict[str, Any]:
    """Returns the states of the stream's machine, by its execution's definition, and the current ones.

    `execution` is DescribeExecution's, `events` are the newest of its history, newest first.
    """
    return {
        "stream": stream_id,
        "execution": execution["executionArn"],
        "execution_status": execution["status"],
        "graph": graph(definition),
        "current": current_states(events) if execution["status"] == "RUNNING" else [],
    }


def graph(definition: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the states by name, each with its type, the states that may follow it, and the graphs of its branches."""
    states = {}
    for name, state in definition["States"].items():
        inner = [*state.get("Branches", ()), *(state[one] for one in ("ItemProcessor", "Iterator") if one in state)]
        states[name] = {
            "type": state["Type"],
            "comment": state.get("Comment"),
            "next": _next_states(state),
            **({"branches": [graph(one) for one in inner]} if inner else {}),
        }
    return {"start": definition["StartAt"], "states": states}


def _next_states(state: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Returns the states that may follow a state, each once; `caught` if only an error leads there."""
    plain = [state.get("Next"), *(one.get("Next") for one in state.get("Choices", ())), state.get("Default")]
    caught = [one.get("Next") for one in state.get("Catch", ())]
    following = {name: True for name in caught if name} | {name: False for name in plain if name}
    return [{"to": name, "caught": is_caught} for name, is_caught in following.items()]


def current_states(newest_first: Iterable[Mapping[str, Any]]) -> list[str]:
    """Returns the names of the states that were entered and not left, in the order of entry."""
    left: set[str] = set()
    entered: list[str] = []
    for event in newest_first:
        kind = str(event["type"])
        details = event.get("stateExitedEventDetails") or event.get("stateEnteredEventDetails")
        if not details:
            continue
        name = str(details["name"])
        if kind.endswith("StateExited"):
            left.add(name)
        elif kind.endswith("StateEntered") and name not in left:
            left.add(name)
            entered.append(name)
    return entered[::-1]
