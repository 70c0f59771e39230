"""Sends what one answer writes in one step of the event loop together, where asyncio sends each part at once.

uvicorn writes the head of an answer and then its body. Each part would wake the client, who reads it and waits again.
Invariant: everything is sent in its order, before the connection is closed or aborted, and no more than 64 KB wait.
"""

import asyncio
from typing import Any

_MOST_BYTES = 65_536


class GatheredWrites:
    """A transport whose writes are gathered; all else is the transport's own."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._parts: list[bytes] = []
        self._bytes = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        """Sends the data behind what waits, when the event loop goes on; at once where much waits."""
        if not self._parts:
            asyncio.get_running_loop().call_soon(self._flush)
        self._parts.append(data)
        self._bytes += len(data)
        if self._bytes > _MOST_BYTES:
            self._flush()

    def close(self) -> None:
        """Closes the connection once all is sent."""
        self._flush()
        self._transport.close()

    def abort(self) -> None:
        """Closes the connection at once."""
        self._flush()
        self._transport.abort()

    def _flush(self) -> None:
        if self._parts:
            data = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
            self._parts, self._bytes = [], 0
            self._transport.write(data)
