"""`python -m bench.source`: an upstream in a process of its own that sends events as fast as they are taken.

Decides what an event looks like: server-sent, with an id and some 200 bytes of JSON, one in each chunk of the transfer
encoding, as most servers send it. Invariant: each connection gets the same events; the first line it prints is its
port, and after each connection one JSON line says how long sending stood still.
"""

import argparse
import json
import socket
import time

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
# A write of this size or more goes to the kernel: many events at once, as a server under load would.
WRITE_BYTES = 64 * 1024
_TEXT = "The quick brown fox jumps over the lazy dog. "


def data(number: int, event_bytes: int) -> str:
    """The JSON of one event."""
    said = {"n": number, "user": f"user-{number % 97}", "wiki": "enwiki", "at_ms": 1_700_000_000_000 + number}
    room = max(0, event_bytes - len(json.dumps(said)) - 12)
    return json.dumps(said | {"text": (_TEXT * (room // len(_TEXT) + 1))[:room]})


def frame(number: int, event_bytes: int) -> bytes:
    """One event as it stands on the wire."""
    return f"id: {number}\ndata: {data(number, event_bytes)}\n\n".encode()


def body(count: int, event_bytes: int) -> bytes:
    """All of a stream: `count` events, then the one that ends it, each a chunk."""
    frames = [frame(number, event_bytes) for number in range(count)] + [b"event: end\ndata: x\n\n"]
    return b"".join(b"%x\r\n%s\r\n" % (len(one), one) for one in frames) + b"0\r\n\r\n"


def send(connection: socket.socket, content: bytes) -> float:
    """Seconds in which the peer took nothing."""
    stood_s = 0.0
    for at in range(0, len(content), WRITE_BYTES):
        piece = memoryview(content)[at : at + WRITE_BYTES]
        since = time.monotonic()
        connection.sendall(piece)
        stood_s += time.monotonic() - since
    return stood_s


def main() -> None:
    """Serves one connection after the other until the process is ended."""
    parser = argparse.ArgumentParser(prog="python -m bench.source")
    parser.add_argument("--events", type=int, default=10_000)
    parser.add_argument("--event-bytes", type=int, default=200)
    wanted = parser.parse_args()
    content = HEAD + body(wanted.events, wanted.event_bytes)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        print(listener.getsockname()[1], flush=True)
        while True:
            connection, _ = listener.accept()
            with connection:
                connection.recv(65536)
                try:
                    stood_s = send(connection, content)
                    while connection.recv(65536):
                        pass
                except OSError:
                    stood_s = -1.0
            print(json.dumps({"stood_still_s": round(stood_s, 3)}), flush=True)


if __name__ == "__main__":
    main()
