"""Scripts of an API whose answers a test chooses, for tests/handlers/servers.py."""

import json
import re
from typing import Any

from tests.handlers.servers import Script, Server, sends

STREAM = "prices"


def answers(body: dict[str, Any], status: int = 200, *headers: str) -> Script:
    """An answer of JSON, after which the connection ends."""
    text = json.dumps(body).encode()
    more = "".join(f"{header}\r\n" for header in headers)
    head = f"HTTP/1.1 {status} X\r\nConnection: close\r\nContent-Length: {len(text)}\r\n{more}\r\n"
    return sends(head.encode() + text)


def problem(kind: str, detail: str = "No.", field: str | None = None) -> dict[str, Any]:
    """A problem document as the API sends it."""
    return {
        "type": f"urn:problem-type:streamkeeper:{kind}", "detail": detail, "fix": "Fix it.", "field": field,
        "request_id": "r",
    }  # fmt: skip


def event(number: int) -> dict[str, Any]:
    """Returns an event of a log, whose position does not show when the event arrived."""
    at = f"2026-11-24T00:00:{number:02d}.000Z"
    position = f"{number:015d}/{0:012d}/{0:012d}"
    key = str(number)
    return {"position": position, "received_at": at, "key": key, "id": None, "name": "tick", "data": key}


def page(*numbers: int, is_last: bool = True) -> Script:
    """Returns a page of events; the last page has no `next`."""
    events = [event(number) for number in numbers]
    return answers({"stream": STREAM, "events": events, "next": None if is_last else events[-1]["position"]})


def asked(server: Server) -> list[str]:
    """Returns the request lines that the server received, in order, without the HTTP version."""
    return [peer.request.partition(b" HTTP/")[0].decode() for peer in server.peers]


def afters(server: Server) -> list[int | None]:
    """Returns the parameter `after` of each request."""
    found = [re.search(r"[?&]after=(\d+)", line) for line in asked(server)]
    return [None if one is None else int(one[1]) for one in found]
