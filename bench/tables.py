"""`python -m bench.tables`: serves DynamoDB over HTTP in a separate process, so that only its client is measured.

The tables are those of local/simulation/tables.py, which tests compare with the embedded AWS. Signatures are not
checked. `--items-per-s` throttles the statements above that rate one by one, as AWS does.
Invariant: it first prints its port; a response is sent once the items are in the table.
"""

import argparse
import asyncio
import hashlib
import json
import re
import ssl
import time
from typing import Any, Protocol

from botocore.exceptions import ClientError

from local.simulation.tables import MemoryDynamoDB, method

TABLES = ("events", "control", "delivery")
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_TARGET = re.compile(rb"\r\nx-amz-target: *\w+\.(\w+)", re.IGNORECASE)


class Tables:
    """The operations by AWS's names, counted; an `items_per_s` of 0 is no limit."""

    def __init__(self, tables: MemoryDynamoDB, items_per_s: int = 0) -> None:
        self._tables = tables
        self._items_per_s = items_per_s
        self._begun_s = time.monotonic()
        self._taken = 0
        self.requests = 0

    def answer(self, operation: str, request: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """Return the status and the body of the response."""
        self.requests += 1
        # A function invokes the one that repairs gaps by a path, without an operation.
        if not operation:
            return 202, {}
        try:
            return 200, self._perform(operation, request)
        except ClientError as error:
            code, message = error.response["Error"]["Code"], error.response["Error"]["Message"]
            return 400, {"__type": f"com.amazonaws.dynamodb.v20120810#{code}", "message": message}

    def _perform(self, operation: str, request: dict[str, Any]) -> dict[str, Any]:
        match operation:
            case "SendMessage":  # the dead-letter queue has the same endpoint
                digest = hashlib.md5(request["MessageBody"].encode(), usedforsecurity=False).hexdigest()
                return {"MessageId": "0", "MD5OfMessageBody": digest}
            case "BatchExecuteStatement":
                return {"Responses": [self._insert(statement) for statement in request["Statements"]]}
            case "BatchWriteItem":
                for table, writes in request["RequestItems"].items():
                    for write in writes:
                        self._tables.put_item(TableName=table, Item=write["PutRequest"]["Item"])
                return {"UnprocessedItems": {}}
        return method(self._tables, operation)(**request)

    def _insert(self, statement: dict[str, Any]) -> dict[str, Any]:
        if self._items_per_s and self._taken >= (time.monotonic() - self._begun_s) * self._items_per_s:
            return {"Error": {"Code": "ThrottlingError", "Message": "slow down"}}
        self._taken += 1
        response: dict[str, Any] = self._tables.batch_execute_statement(Statements=[statement])["Responses"][0]
        return response


class RequestHandler(Protocol):
    def answer(self, operation: str, request: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """Return the status and the body of the response."""


class Connection(asyncio.Protocol):
    """One client's connection: requests one after the other, kept alive."""

    def __init__(self, tables: RequestHandler) -> None:
        self._tables = tables
        self._held = bytearray()

    def connection_made(self, transport: Any) -> None:
        """Keep the transport for the responses."""
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Answer every complete request."""
        self._held += data
        while (head_bytes := self._held.find(b"\r\n\r\n")) >= 0:
            head = bytes(self._held[:head_bytes])
            length, target = _LENGTH.search(head), _TARGET.search(head)
            end = head_bytes + 4 + (int(length[1]) if length else 0)
            if len(self._held) < end:
                if b"100-continue" in head.lower() and len(self._held) == head_bytes + 4:
                    self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
                return
            body = bytes(self._held[head_bytes + 4 : end])
            del self._held[:end]
            operation = target[1].decode() if target else ""
            # An object is not JSON.
            request = json.loads(body) if body[:1] in b"{[" else {"object": body}
            status, answer = self._tables.answer(operation, request)
            # S3 answers with nothing.
            text = json.dumps(answer, separators=(",", ":")).encode() if operation or answer else b""
            response = (
                b'HTTP/1.1 %d X\r\nContent-Type: application/x-amz-json-1.0\r\nx-amzn-RequestId: 0\r\nETag: "0"\r\n'
                b"Content-Length: %d\r\n\r\n%s" % (status, len(text), text)
            )
            after_s = getattr(self._tables, "after_s", 0.0)
            if after_s:
                asyncio.get_running_loop().call_later(after_s, self._transport.write, response)
            else:
                self._transport.write(response)


async def serve(answering: RequestHandler, tls: ssl.SSLContext | None = None) -> asyncio.Server:
    """Serve on any port until the server is closed."""
    return await asyncio.get_running_loop().create_server(lambda: Connection(answering), "127.0.0.1", 0, ssl=tls)


async def main(items_per_s: int) -> None:
    """Serve empty tables until the process ends."""
    server = await serve(Tables(MemoryDynamoDB(*TABLES), items_per_s))
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m bench.tables")
    parser.add_argument("--items-per-s", type=int, default=0)
    asyncio.run(main(parser.parse_args().items_per_s))
