"""DynamoDB on a socket of this machine, in a thread, with the counter of `streamkeeper cost` behind it."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from botocore.exceptions import ClientError

from bench.tables import Connection
from local.costs.deployed_tables import Table
from local.costs.metered import Counts, Meter


class Edge:
    """Counts what it answers; `reached` is set when it has answered so many requests for `table`."""

    def __init__(self, meter: Meter, table: str, requests: int) -> None:
        self._meter = meter
        self._table = table
        self._requests = requests
        self.reached = threading.Event()
        self.url = ""

    @property
    def counts(self) -> Counts:
        """What was requested so far."""
        return self._meter.counts

    def answer(self, operation: str, request: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """The status and the body of a response."""
        try:
            return 200, self._meter.call(operation, request)
        except ClientError as error:
            code, message = error.response["Error"]["Code"], error.response["Error"]["Message"]
            return 400, {"__type": f"com.amazonaws.dynamodb.v20120810#{code}", "message": message}
        finally:
            if self.counts.requests(self._table) >= self._requests:
                self.reached.set()


@contextmanager
def edge(tables: dict[str, Table], table: str, requests: int) -> Iterator[Edge]:
    """An edge that listens, with empty tables."""
    served = Edge(Meter(tables), table, requests)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="edge")
    thread.start()
    transports: list[asyncio.Transport] = []
    closed = asyncio.Event()

    class Served(Connection):
        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            transports.append(transport)

        def connection_lost(self, _error: Exception | None) -> None:
            closed.set()

    async def listen() -> asyncio.Server:
        return await loop.create_server(lambda: Served(served), "127.0.0.1", 0)

    async def close(server: asyncio.Server) -> None:
        server.close()
        for transport in transports:
            transport.abort()
        if transports:
            await closed.wait()

    server = asyncio.run_coroutine_threadsafe(listen(), loop).result()
    served.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield served
    finally:
        asyncio.run_coroutine_threadsafe(close(server), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
