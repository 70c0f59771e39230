"""A client of an event stream as WHATWG describes EventSource, over a real socket; it reconnects when it is told to.

Invariant: it knows nothing of Streamkeeper: what it keeps between two connections is the last event ID and the
reconnection time.
"""

import http.client
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from urllib.parse import urlsplit


@dataclass
class EventSource:
    """The state of the client; `opened` counts its connections."""

    url: str
    last_id: str = ""
    retry_ms: int | None = None
    opened: int = 0

    def connect(self) -> Generator[str]:
        """Yields the data of each message until the server ends the answer; to stop earlier cuts the connection."""
        parts = urlsplit(self.url)
        connection = http.client.HTTPConnection(parts.netloc, timeout=120)
        headers = {"Accept": "text/event-stream", "Cache-Control": "no-store"}
        try:
            connection.request("GET", f"{parts.path}?{parts.query}", headers=headers | self._last())
            answer = connection.getresponse()
            kind = answer.headers.get("content-type", "")
            assert (answer.status, kind.partition(";")[0]) == (200, "text/event-stream"), answer.read()
            self.opened += 1
            yield from self._messages(answer)
        finally:
            connection.close()

    def _last(self) -> dict[str, str]:
        return {"Last-Event-ID": self.last_id} if self.last_id else {}

    def _messages(self, answer: http.client.HTTPResponse) -> Iterator[str]:
        data: list[str] = []
        id_ = self.last_id
        for line in answer:
            name, _, value = line.decode().rstrip("\n").partition(":")
            value = value.removeprefix(" ")
            if name == "data":
                data.append(value)
            elif name == "id":
                id_ = value
            elif name == "retry":
                self.retry_ms = int(value)
            elif not line.strip():
                # A blank line dispatches; the id counts where there is no data, too.
                self.last_id = id_
                if data:
                    yield "\n".join(data)
                data = []
