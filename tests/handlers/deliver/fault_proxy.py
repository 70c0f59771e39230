"""A proxy in front of an AWS endpoint, or of a webhook, that fails as a network and a service do.

Invariant: what it says was refused did not reach the service, and what it answers for the service did.
"""

import contextlib
import http.client
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal
from urllib.parse import urlsplit

Fault = Literal["away", "unanswered", "part"]


@dataclass(frozen=True)
class Batch:
    """How the requests of a service that may be refused in part look, and their answers."""

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
    """The proxy's address, and the faults of the next requests; what is not listed passes.

    `away` answers 503 and forwards nothing, `unanswered` forwards and closes without an answer, `part` refuses the
    middle entry of a batch, and all of a request that is none.
    """

    url: str
    faults: list[Fault] = field(default_factory=list)
    is_away: bool = False
    # Which requests are counted as sending, and have faults: others, such as GetQueueUrl, pass.
    sends: Callable[[str, str], bool] = lambda _method, _operation: True
    requests: int = 0


class _Server(ThreadingHTTPServer):
    """The server of a proxy in front of the address `upstream`."""

    daemon_threads = True

    def __init__(self, upstream: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.upstream = urlsplit(upstream)
        self.proxy = Proxy(f"http://127.0.0.1:{self.server_port}")


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def log_message(self, *_: Any) -> None:
        return

    def _forward(self, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        upstream = self.server.upstream
        connection = http.client.HTTPConnection(upstream.hostname or "", upstream.port, timeout=60)
        try:
            headers = {name: value for name, value in self.headers.items() if name.lower() != "content-length"}
            connection.request(self.command, self.path, body=body, headers=headers)
            answer = connection.getresponse()
            return answer.status, answer.getheaders(), answer.read()
        finally:
            connection.close()

    def _handle(self) -> None:
        proxy, body = self.server.proxy, self.rfile.read(int(self.headers.get("content-length") or 0))
        operation = self.headers.get("x-amz-target", "").rpartition(".")[2]
        is_send = proxy.sends(self.command, operation)
        proxy.requests += is_send
        fault = proxy.faults.pop(0) if proxy.faults and is_send else None
        if proxy.is_away or fault == "away" or (fault == "part" and operation not in BATCHES):
            self._answer(503, [], b"")
        elif fault == "part":
            self._refuse_part(BATCHES[operation], json.loads(body))
        else:
            status, headers, text = self._forward(body)
            if fault == "unanswered":
                self.close_connection = True
                return
            self._answer(status, headers, text)

    def _refuse_part(self, batch: Batch, request: dict[str, Any]) -> None:
        at = len(request[batch.entries]) // 2
        entry = request[batch.entries].pop(at)
        answer: dict[str, Any] = {}
        if request[batch.entries]:
            answer = json.loads(self._forward(json.dumps(request).encode())[2])
        batch.refused(answer, at, entry)
        self._answer(200, [("content-type", "application/x-amz-json-1.1")], json.dumps(answer).encode())

    def _answer(self, status: int, headers: list[tuple[str, str]], text: bytes) -> None:
        self.send_response(status)
        for name, value in headers:
            if name.lower() not in ("content-length", "connection", "transfer-encoding", "date", "server"):
                self.send_header(name, value)
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    do_GET = do_POST = do_PUT = do_HEAD = do_DELETE = _handle


@contextlib.contextmanager
def running(upstream: str) -> Iterator[Proxy]:
    """A proxy in front of the address `upstream`."""
    server = _Server(upstream)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server.proxy
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
