"""An HTTP server on 127.0.0.1 whose answers a function makes."""

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple

# What the server writes itself.
_OWN = ("content-length", "connection", "transfer-encoding", "date", "server")


class Request(NamedTuple):
    """A request; the names of its headers are in lower case."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


class Answer(NamedTuple):
    """The answer to a request."""

    status: int = 200
    headers: Mapping[str, str] = {}
    body: bytes = b""


@contextlib.contextmanager
def answering(answer: Callable[[Request], Answer | None]) -> Iterator[str]:
    """Yields the server's address; if `answer` returns None, the connection ends without an answer."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1

        def handle_expect_100(self) -> bool:
            """Has the client send the body: without the flush the client would wait for a second."""
            expected = super().handle_expect_100()
            self.wfile.flush()
            return expected

        def log_message(self, *_: object) -> None:
            """Prints nothing."""

        def _handle(self) -> None:
            headers = {name.lower(): value for name, value in self.headers.items()}
            body = self.rfile.read(int(headers.get("content-length") or 0))
            answered = answer(Request(self.command, self.path, headers, body))
            if answered is None:
                self.close_connection = True
                return
            self.send_response(answered.status)
            for name, value in answered.headers.items():
                if name.lower() not in _OWN:
                    self.send_header(name, value)
            self.send_header("content-length", str(len(answered.body)))
            self.end_headers()
            self.wfile.write(answered.body)

        do_GET = do_POST = do_PUT = do_HEAD = do_DELETE = _handle

    class Server(ThreadingHTTPServer):
        daemon_threads = True

    with Server(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
