"""An HTTP server before the service: it requires a key, as API Gateway does, or drops every connection."""

import contextlib
import http.client
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PASSED = ("accept", "last-event-id", "if-none-match")


class Gate(ThreadingHTTPServer):
    """Passes requests below /prod on to the service at `to_port`, as a stage does.

    If there is a `key`, requests for anything but the page's files need it in `x-api-key`. While `lost` is set, every
    open and every new connection is dropped.
    """

    daemon_threads = True

    def __init__(self, to_port: int, key: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.to_port, self.key = to_port, key
        self.port = self.server_address[1]
        self.is_lost = False
        self.open: set[socket.socket] = set()

    @contextlib.contextmanager
    def lost(self) -> Iterator[None]:
        """Makes the service unreachable inside the block."""
        self.is_lost = True
        for each in set(self.open):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        try:
            yield
        finally:
            self.is_lost = False


class _Handler(BaseHTTPRequestHandler):
    server: Gate

    def do_GET(self) -> None:
        gate = self.server
        if gate.is_lost:
            return
        path = self.path.removeprefix("/prod")
        assert path != self.path, "the page leaves the stage's path"
        if gate.key and not path.startswith("/console") and self.headers.get("x-api-key") != gate.key:
            self._head(403, "application/json")
            self.wfile.write(b'{"message": "Forbidden"}')
            return
        upstream = http.client.HTTPConnection("127.0.0.1", gate.to_port, timeout=120)
        gate.open.add(self.connection)
        # A browser that has gone, or a gate that is lost, ends an answer that is open.
        with contextlib.suppress(OSError), contextlib.closing(upstream):
            upstream.request("GET", path, headers={k: v for k, v in self.headers.items() if k.lower() in PASSED})
            answer = upstream.getresponse()
            self._head(answer.status, answer.getheader("content-type", ""))
            while piece := answer.read1(65_536):
                self.wfile.write(piece)
        gate.open.discard(self.connection)

    def _head(self, status: int, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Prints nothing."""


@contextlib.contextmanager
def gate(to_port: int, key: str = "") -> Iterator[Gate]:
    """Runs a gate before the service at this port."""
    server = Gate(to_port, key)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
