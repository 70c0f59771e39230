"""A proxy before an AWS endpoint, or a webhook, that fails as a network and a service do.

Invariant: a refused request did not reach the service; a request with the service's answer did.
"""

import contextlib
import http.client
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import urlsplit

from tests.http_server import Answer, Request, answering

Fault = Literal["unanswered", "part"]


@dataclass(frozen=True)
class Batch:
    """The form of requests that a service may refuse in part, and of their answers."""

    entries: str
    refused: Callable[[dict[str, Any], int, dict[str, Any]], None]


def _sqs(answer: dict[str, Any], _at: int, entry: dict[str, Any]) -> None:
    failure = {"Id": entry["Id"], "Code": "InternalError", "SenderFault": False}
    answer.setdefault("Failed", []).append(failure)


def _listed(entries: str, count: str) -> Callable[[dict[str, Any], int, dict[str, Any]], None]:
    def refuse(answer: dict[str, Any], at: int, _entry: dict[str, Any]) -> None:
        answer.setdefault(entries, []).insert(at, {"ErrorCode": "InternalFailure", "ErrorMessage": "…"})
        answer[count] = answer.get(count, 0) + 1

    return refuse


BATCHES: Mapping[str, Batch] = {
    "SendMessageBatch": Batch("Entries", _sqs),
    "PutEvents": Batch("Entries", _listed("Entries", "FailedEntryCount")),
    "PutRecords": Batch("Records", _listed("Records", "FailedRecordCount")),
    "PutRecordBatch": Batch("Records", _listed("RequestResponses", "FailedPutCount")),
}


@dataclass
class Proxy:
    """The proxy's address, and the faults of the next requests; requests without a fault pass.

    `unanswered` forwards and closes without an answer, `part` refuses the middle entry of a batch, and a request
    without entries as a whole. A proxy that is away answers 503 and forwards nothing.
    """

    url: str
    faults: list[Fault] = field(default_factory=list)
    is_away: bool = False
    # The requests that send events and may fail; others, such as GetQueueUrl, pass.
    sends: Callable[[str, str], bool] = lambda _method, _operation: True


@contextlib.contextmanager
def running(upstream: str) -> Iterator[Proxy]:
    """Run a proxy before the address `upstream`."""
    to, proxy = urlsplit(upstream), Proxy("")

    def forwarded(request: Request, body: bytes) -> Answer:
        connection = http.client.HTTPConnection(to.hostname or "", to.port, timeout=60)
        with contextlib.closing(connection):
            headers = {name: value for name, value in request.headers.items() if name != "content-length"}
            connection.request(request.method, request.path, body=body, headers=headers)
            answer = connection.getresponse()
            return Answer(answer.status, dict(answer.getheaders()), answer.read())

    def refused_in_part(request: Request, batch: Batch) -> Answer:
        asked = json.loads(request.body)
        at = len(asked[batch.entries]) // 2
        entry = asked[batch.entries].pop(at)
        answer: dict[str, Any] = {}
        if asked[batch.entries]:
            answer = json.loads(forwarded(request, json.dumps(asked).encode()).body)
        batch.refused(answer, at, entry)
        return Answer(200, {"content-type": "application/x-amz-json-1.1"}, json.dumps(answer).encode())

    def answer(request: Request) -> Answer | None:
        operation = request.headers.get("x-amz-target", "").rpartition(".")[2]
        fault = proxy.faults.pop(0) if proxy.faults and proxy.sends(request.method, operation) else None
        if proxy.is_away or (fault == "part" and operation not in BATCHES):
            return Answer(503)
        if fault == "part":
            return refused_in_part(request, BATCHES[operation])
        taken = forwarded(request, request.body)
        return None if fault == "unanswered" else taken

    with answering(answer) as proxy.url:
        yield proxy
