"""POST …/redrive through the deployed function, on the embedded AWS."""

import json
from types import ModuleType
from typing import Any

from handlers.connection.effects import Progress
from handlers.framing.events import StreamEvent
from handlers.store.overflow import dead_letter_messages
from handlers.store.stream_records import StreamRecords
from tests.handlers.api_requests import MINE, events_of, send_request, write_connected_stream
from tests.handlers.aws import CONTROL, Aws, save_connection

RESOURCE = "/connections/{streamId}/redrive"


def redrive(function: ModuleType, stream_id: str = "demo") -> tuple[int, Any]:
    """Return the status and the JSON of a redrive."""
    return send_request(function, "POST", stream_id, resource=RESOURCE)


def test_a_streams_events_are_put_back_and_others_stay(aws: Aws, function: ModuleType) -> None:
    """A redrive stores whole events of the stream once, also those in several messages; others stay with their reason.

    The stream's status counts the dead letters still in the queue, even if a redrive is killed or repeated.
    """
    write_connected_stream(aws)
    progress = Progress(fence=1, claimed_ms=1_000, opened_ms=2_000, seen_ms=4_000, dead_lettered=3)
    save_connection(aws.store(), "demo", progress, lane="B", execution=MINE, request_id="request-1")
    large = StreamEvent("k2", "x" * 300_000, None, None, None, 2)
    for stream_id, event in (("demo", StreamEvent("k1", "a", "7", "tick", None, 1)), ("demo", large), ("other", large)):
        for body in dead_letter_messages(stream_id, 1, event, "refused"):
            aws.sqs.send_message(QueueUrl=aws.queue_url, MessageBody=body)
    ended = {"stream": "demo", "error": "StreamRejected", "cause": json.dumps({"errorMessage": "401"})}
    aws.sqs.send_message(QueueUrl=aws.queue_url, MessageBody=json.dumps(ended))
    StreamRecords(aws.dynamodb, CONTROL).record_put_back("demo", 1, "k1")
    code, body = redrive(function)
    assert (code, body["counts"], body["is_all"]) == (200, {"stored": 2, "left": 1}, True), body
    outcomes = sorted((one["key"] or "", one["outcome"], one["reason"]) for one in body["dead_letters"])
    assert outcomes == [("", "left", "StreamRejected: 401"), ("k1", "stored", "refused"), ("k2", "stored", "refused")]
    assert [event["key"] for event in events_of(function)[1]["events"]] == ["k1", "k2"]
    # The events that were put back are gone from the queue.
    assert redrive(function)[1]["counts"] == {"left": 1}
    assert send_request(function, "GET")[1]["counts"]["dead_lettered"] == 1


def test_a_redrive_of_a_missing_stream_gives_404(function: ModuleType) -> None:
    """A redrive of a stream that was never started gives 404; a GET of the route gives 405."""
    assert redrive(function) == (404, {"detail": "The stream 'demo' was never started."})
    assert redrive(function, "nobody")[0] == 404
    assert send_request(function, "GET", resource=RESOURCE)[0] == 405
