"""`python -m bench.source`: an upstream in a process of its own that sends events as fast as they are read.

An event is server-sent, with an id and some 200 bytes of JSON, one in each chunk of the transfer encoding, as most
servers send it. The first line that it prints is its port; after each connection a JSON line says how long it could not
send. Invariant: each connection gets the same events.
"""

import argparse
import json
import socket
import time

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
# The size of a write: many events at once, as a server under load sends them.
WRITE_BYTES = 64 * 1024
_TEXT = "The quick brown fox jumps over the lazy dog. "


def data(number: int, event_bytes: int) -> str:
    """Return the JSON of one event."""
    fields = {"n": number, "user": f"user-{number % 97}", "wiki": "enwiki", "at_ms": 1_700_000_000_000 + number}
    room = max(0, event_bytes - len(json.dumps(fields)) - 12)
    return json.dumps(fields | {"text": (_TEXT * (room // len(_TEXT) + 1))[:room]})


def frame(number: int, event_bytes: int) -> bytes:
    """Return one event as bytes of the stream."""
    return f"id: {number}\ndata: {data(number, event_bytes)}\n\n".encode()


def body(count: int, event_bytes: int) -> list[bytes]:
    """Return a whole stream: `count` events, then the one that ends it, each a chunk."""
    frames = [frame(number, event_bytes) for number in range(count)] + [b"event: end\ndata: x\n\n"]
    return [*(b"%x\r\n%s\r\n" % (len(one), one) for one in frames), b"0\r\n\r\n"]


def send_paced(connection: socket.socket, chunks: list[bytes], per_s: int) -> float:
    """Send a chunk at a time, so many a second; return the seconds in which the peer read nothing."""
    stood_s = 0.0
    begun = time.monotonic()
    for number, chunk in enumerate(chunks):
        time.sleep(max(0.0, begun + number / per_s - time.monotonic()))
        since = time.monotonic()
        connection.sendall(chunk)
        stood_s += time.monotonic() - since
    return stood_s


def send(connection: socket.socket, content: bytes) -> float:
    """Send the content and return the seconds in which the peer read nothing."""
    stood_s = 0.0
    for at in range(0, len(content), WRITE_BYTES):
        piece = memoryview(content)[at : at + WRITE_BYTES]
        since = time.monotonic()
        connection.sendall(piece)
        stood_s += time.monotonic() - since
    return stood_s


def main() -> None:
    """Serve one connection after the other until the process ends."""
    parser = argparse.ArgumentParser(prog="python -m bench.source")
    parser.add_argument("--events", type=int, default=10_000)
    parser.add_argument("--event-bytes", type=int, default=200)
    parser.add_argument("--per-s", type=int, default=0, help="events a second (default: as fast as they are read)")
    options = parser.parse_args()
    chunks = [HEAD, *body(options.events, options.event_bytes)]
    content = b"".join(chunks)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        print(listener.getsockname()[1], flush=True)
        while True:
            connection, _ = listener.accept()
            with connection:
                connection.recv(65536)
                try:
                    paced = options.per_s > 0
                    stood_s = send_paced(connection, chunks, options.per_s) if paced else send(connection, content)
                    while connection.recv(65536):
                        pass
                except OSError:
                    stood_s = -1.0
            print(json.dumps({"stood_still_s": round(stood_s, 3)}), flush=True)


if __name__ == "__main__":
    main()
