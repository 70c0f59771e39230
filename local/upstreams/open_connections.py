"""Counts the open connections of the demonstration streams, now and at most at the same time.

A connection counts from the moment its answer is made until the answer has ended, however it ends. Invariant: every
counted connection is removed exactly once.
"""

from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager

from starlette.datastructures import Address
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

Client = tuple[str, int]
Watch = Callable[[str, int], None]
"""Called at each change, with the stream id and its number of connections."""


class OpenConnections:
    """The open connections of each stream by the address of their client."""

    def __init__(self, watch: Watch | None = None) -> None:
        self._watch = watch
        self._clients: dict[str, list[Client]] = {}
        self._most_at_once: dict[str, int] = {}

    def clients(self, stream_id: str) -> list[Client]:
        """Returns the clients that are connected to a stream now, oldest first."""
        return list(self._clients.get(stream_id, ()))

    def stream_ids(self) -> list[str]:
        """Returns the streams that ever had a connection."""
        return list(self._clients)

    def most_at_once(self, stream_id: str) -> int:
        """Returns the most connections that a stream had at the same time."""
        return self._most_at_once.get(stream_id, 0)

    def counted_response(
        self,
        request: Request,
        body: AsyncIterator[bytes],
        media_type: str,
        stream_id: str,
        headers: Mapping[str, str] | None = None,
    ) -> StreamingResponse:
        """Returns the answer that streams `body`; the connection counts from now on."""
        stack = ExitStack()
        stack.enter_context(self.count_connection(request.client, stream_id))
        return _CountedResponse(body, media_type, stack.close, headers or {})

    @contextmanager
    def count_connection(self, address: Address | None, stream_id: str) -> Iterator[None]:
        """Counts a connection within the block."""
        client = (address.host, address.port) if address is not None else ("", 0)
        clients = self._clients.setdefault(stream_id, [])
        clients.append(client)
        self._most_at_once[stream_id] = max(self.most_at_once(stream_id), len(clients))
        self._notify(stream_id)
        try:
            yield
        finally:
            clients.remove(client)
            self._notify(stream_id)

    def _notify(self, stream_id: str) -> None:
        if self._watch is not None:
            self._watch(stream_id, len(self._clients[stream_id]))


class _CountedResponse(StreamingResponse):
    """Calls `on_end` when it has ended: the `finally` of a body that never began does not run."""

    def __init__(
        self, body: AsyncIterator[bytes], media_type: str, on_end: Callable[[], None], headers: Mapping[str, str]
    ) -> None:
        super().__init__(body, media_type=media_type, headers={"Cache-Control": "no-store", **headers})
        self._on_end = on_end

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._on_end()
