"""An HTTP server before the service that asks for a key, as API Gateway does: 403 without it, but not for the page."""

import contextlib
import http.client
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@contextlib.contextmanager
def key_proxy(port: int, key: str) -> Iterator[int]:
    """The port at which requests with the header `x-api-key` reach the service at `port`."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            if self.path.startswith("/console") or self.headers.get("x-api-key") == key:
                upstream = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
                upstream.request("GET", self.path)
                answer = upstream.getresponse()
                self._answer(answer.status, answer.getheader("content-type", ""), answer.read())
                upstream.close()
            else:
                self._answer(403, "application/json", b'{"message": "Forbidden"}')

        def _answer(self, status: int, kind: str, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Prints nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
