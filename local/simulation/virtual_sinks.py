"""Simulates the sinks of a run: the AWS services that handlers/deliver/sinks calls, a webhook, and their faults.

A fault affects one sink only. Invariants: without a fault, a request is accepted whole except its poison, and no fault
lets poison pass; `arrived` has what was accepted, in order, and nothing that was refused.
"""

import base64
import gzip
import hmac
import io
import json
import random
import zlib
from collections.abc import Sequence
from typing import Any

from botocore.exceptions import ClientError, ReadTimeoutError
from urllib3 import exceptions

from handlers.profile.upstream_requests import UpstreamRequest
from handlers.upstream.opening import RedirectRefused
from local.simulation.virtual_function import Killed

# How long an answer takes, how long it takes at a slow sink, and how long the function waits for a missing answer.
QUICK_MS, SLOW_MS, HUNG_MS = 20, 7_000, 8_000
# SQS: "the deduplication interval".
DEDUPLICATED_MS = 5 * 60_000
POISON_OF = 23
SECRET = "whsec_c3RyZWFta2VlcGVyLWNoYW9z"  # made up, valid at no server
LABEL = "webhook:hook.invalid"
# "the sender's timestamp … within an allowable tolerance"
TOLERANCE_S = 300
FINAL, PASSING, REDIRECT = (400, 413, 422), (401, 404, 429, 500, 503), 307
Entries = list[dict[str, Any]]


class VirtualSinks:
    """All sinks of a run. Each request advances `now_ms`; `until_ms` has the end of each fault of a sink.

    Faults that concern no single sink have the label "".
    """

    def __init__(self, seed: int, *, has_poison: bool) -> None:
        self._draws = random.Random(seed)
        self._has_poison = has_poison
        self.now_ms = 0
        self.until_ms: dict[tuple[str, str], int] = {}
        self.dies_in: int | None = None  # after so many steps, two for each request, the function dies
        self.arrived: list[tuple[str, dict[str, Any], int]] = []  # the sink, the event and the instant
        self.poison: set[tuple[str, str]] = set()  # stream and key of the events that were refused for good
        self.misused: list[str] = []
        self._deduplicated: dict[tuple[str, str, str], int] = {}

    def client(self, _service: str) -> Any:
        """Returns the client of a service: this object has the methods of all."""
        return self

    def step(self) -> None:
        """Counts half a request, after which the function may be killed."""
        if self.dies_in is not None:
            self.dies_in -= 1
            if self.dies_in < 0:
                self.dies_in = None
                raise Killed

    def is_affected(self, fault: str, label: str = "", of_ten: int = 10) -> bool:
        """Returns whether the fault affects this request; while it lasts, it affects `of_ten` of ten."""
        return self.now_ms < self.until_ms.get((fault, label), 0) and self._draws.randrange(10) < of_ten

    def record_arrival(self, label: str, event: dict[str, Any]) -> None:
        """Records that an event has arrived."""
        self.arrived.append((label, event, self.now_ms))

    def draw_one(self, several: Sequence[int]) -> int:
        """Returns one of the numbers at random."""
        return self._draws.choice(several)

    def is_poison(self, text: str | bytes) -> bool:
        """Returns whether no sink will ever accept the event."""
        if not self._has_poison:
            return False
        content = text if isinstance(text, bytes) else text.encode()
        if zlib.crc32(content.rstrip(b"\n")) % POISON_OF:
            return False
        event = json.loads(text)
        self.poison.add((event["stream"], event["key"]))
        return True

    # --- the services ---------------------------------------------------------------------------------------------

    def get_queue_url(self, *, QueueName: str) -> dict[str, Any]:
        """As boto3's; the name is the address."""
        return {"QueueUrl": QueueName}

    def get_queue_attributes(self, *, QueueUrl: str, AttributeNames: list[str]) -> dict[str, Any]:
        """As boto3's."""
        scope = "messageGroup" if QueueUrl.startswith("groups") else "queue"
        attributes = {"DeduplicationScope": scope, "MaximumMessageSize": str(1024 * 1024)}
        return {"Attributes": {name: attributes[name] for name in AttributeNames}}

    def send_message_batch(self, *, QueueUrl: str, Entries: Entries) -> dict[str, Any]:
        """As boto3's."""
        codes = self._each("SendMessageBatch", f"sqs:{QueueUrl}", Entries, "MessageBody", "InvalidMessageContents")
        answer: dict[str, list[dict[str, Any]]] = {"Successful": [], "Failed": []}
        for entry, code in zip(Entries, codes, strict=True):
            answer["Failed" if code else "Successful"].append({"Id": entry["Id"], "Code": code})
        return answer

    def put_events(self, *, Entries: Entries) -> dict[str, Any]:
        """As boto3's."""
        bus = Entries[0]["EventBusName"]
        codes = self._each("PutEvents", f"eventbridge:{bus}", Entries, "Detail", "MalformedDetail")
        return {"Entries": [{"ErrorCode": code} for code in codes]}

    def put_records(self, *, StreamName: str, Records: Entries) -> dict[str, Any]:
        """As boto3's."""
        codes = self._each("PutRecords", f"kinesis:{StreamName}", Records, "Data")
        return {"Records": [{"ErrorCode": code} for code in codes]}

    def put_record_batch(self, *, DeliveryStreamName: str, Records: Entries) -> dict[str, Any]:
        """As boto3's."""
        codes = self._each("PutRecordBatch", f"firehose:{DeliveryStreamName}", Records, "Data")
        return {"RequestResponses": [{"ErrorCode": code} for code in codes]}

    def put_object(self, *, Bucket: str, Key: str, Body: bytes, **_rest: Any) -> dict[str, Any]:
        """As boto3's."""
        lines = gzip.decompress(Body).splitlines()
        self._whole("PutObject", f"s3:{Bucket}", lines, "EntityTooLarge")
        if any(f"raw/{json.loads(line)['stream'].replace('#', '%23')}/" not in Key for line in lines):
            self.misused.append(f"an object is called {Key} and holds another stream's events")
        return {"ETag": "e"}

    def invoke(self, *, FunctionName: str, Payload: bytes) -> dict[str, Any]:
        """As boto3's; a function that fails in part names one event, and has processed those before it."""
        events = json.loads(Payload)["events"]
        label = f"lambda:{FunctionName}"
        named = self._draws.randrange(len(events)) if self.is_affected("part", label, 4) else len(events)
        texts = [json.dumps(event) for event in events]
        self._whole("Invoke", label, texts, "InvalidRequestContentException", named)
        failures = [{"itemIdentifier": event["key"]} for event in events[named : named + 1]]
        return {"Payload": io.BytesIO(json.dumps({"batchItemFailures": failures}).encode())}

    # --- faults of a request ------------------------------------------------------------------------------------------

    def begin(self, label: str) -> None:
        """Begins a request to a sink, which may be slow, or hang."""
        is_hung = self.is_affected("hang", label)
        self.now_ms += HUNG_MS if is_hung else SLOW_MS if self.is_affected("slow sink", label) else QUICK_MS
        self.step()
        if is_hung:
            raise ReadTimeoutError(endpoint_url="https://sink.invalid")

    def _begin(self, operation: str, label: str) -> None:
        self.begin(label)
        if self.is_affected("away", label):
            raise _error(operation, "ServiceUnavailable")

    def _end(self, label: str) -> None:
        self.step()
        if self.is_affected("no answers", label, 4):
            raise ReadTimeoutError(endpoint_url="https://sink.invalid")

    def _whole(
        self, operation: str, label: str, texts: Sequence[str | bytes], final: str, count: int | None = None
    ) -> None:
        """Performs a request that is accepted whole, in its first `count` entries, or not at all."""
        self._begin(operation, label)
        if any(map(self.is_poison, texts)):
            raise _error(operation, final)
        if count is None and self.is_affected("part", label, 4):
            raise _error(operation, "SlowDown")
        for text in texts[:count]:
            self.record_arrival(label, json.loads(text))
        self._end(label)

    def _each(self, operation: str, label: str, entries: Entries, body: str, final: str = "") -> list[str | None]:
        """Returns the code of each refused entry; without a `final` code, poison fails the whole request."""
        self._begin(operation, label)
        poison = [self.is_poison(entry[body]) for entry in entries]
        if any(poison) and not final:
            raise _error(operation, "InvalidArgumentException")
        codes: list[str | None] = []
        for entry, is_poison in zip(entries, poison, strict=True):
            is_refused = not is_poison and self.is_affected("part", label, 3)
            codes.append(final if is_poison else "InternalFailure" if is_refused else None)
            event = json.loads(entry[body])
            if codes[-1] is None and not (label.startswith("sqs:") and self._is_repeated(label, entry, event)):
                self.record_arrival(label, event)
        self._end(label)
        return codes

    def _is_repeated(self, label: str, entry: dict[str, Any], event: dict[str, Any]) -> bool:
        """Returns whether a queue drops the message as a duplicate: the same id, in its scope, within five minutes."""
        group, has_groups = entry["MessageGroupId"], label.startswith("sqs:groups")
        about = label, group if has_groups else "", entry["MessageDeduplicationId"]
        if self.now_ms - self._deduplicated.get(about, -DEDUPLICATED_MS) < DEDUPLICATED_MS:
            return True
        self._deduplicated[about] = self.now_ms
        if has_groups and (group, about[2]) != (event["stream"], event["key"]):
            self.misused.append(f"the event {event['key']} came as {about[2]} of the group {group}")
        return False


def _error(operation: str, code: str) -> ClientError:
    return ClientError({"Error": {"Code": code, "Message": "no"}}, operation)


class VirtualWebhook:
    """The webhook; it checks signatures by the text of Standard Webhooks, not with the code that signs."""

    def __init__(self, sinks: VirtualSinks) -> None:
        self._sinks = sinks
        self._names: dict[str, tuple[tuple[str, str], ...]] = {}  # the events of each message id

    def post(self, request: UpstreamRequest) -> int:
        """Returns the status of the answer; raises the errors of a real server's client."""
        sinks, text = self._sinks, request.body or b""
        try:
            sinks.begin(LABEL)
        except ReadTimeoutError:
            raise exceptions.TimeoutError("nobody answers") from None
        if sinks.is_affected("away", LABEL):
            raise exceptions.ConnectTimeoutError("nobody answers")
        if problem := self._problem(request, text):
            sinks.misused.append(f"{LABEL}: {problem}")
            return 401
        events = _events(text)
        poison = [sinks.is_poison(json.dumps(one, ensure_ascii=False, separators=(",", ":"))) for one in events]
        if any(poison):
            return sinks.draw_one(FINAL)
        if sinks.is_affected("part", LABEL, 4):
            status = sinks.draw_one((*PASSING, REDIRECT))
            if status == REDIRECT:
                raise RedirectRefused("the upstream redirected, and this request follows no redirect")
            return status
        for event in events:
            sinks.record_arrival(LABEL, event)
        sinks.step()
        if sinks.is_affected("no answers", LABEL, 4):
            raise exceptions.TimeoutError("the answer is lost")
        return 204

    def _problem(self, request: UpstreamRequest, text: bytes) -> str:
        """Returns why a receiver would not trust the request, or ""."""
        headers = {name: value.decode() for name, value in request.headers.items()}
        id_, at_s = headers["webhook-id"], headers["webhook-timestamp"]
        # "msg_id.timestamp.payload", with the secret behind its prefix in Base64.
        key = base64.b64decode(SECRET.removeprefix("whsec_"))
        expected = base64.b64encode(hmac.digest(key, b".".join((id_.encode(), at_s.encode(), text)), "sha256"))
        if not hmac.compare_digest(headers["webhook-signature"], f"v1,{expected.decode()}"):
            return "a signature is wrong"
        if abs(self._sinks.now_ms // 1000 - int(at_s)) > TOLERANCE_S:
            return "a timestamp is too old"
        names = tuple((event["stream"], event["key"]) for event in _events(text))
        if self._names.setdefault(id_, names) != names:
            return f"the events {names} came under the id of {self._names[id_]}"
        return ""


def _events(text: bytes) -> list[dict[str, Any]]:
    """Returns the events of a POST: one, or a batch."""
    said = json.loads(text)
    return list(said["events"]) if "events" in said else [said]
