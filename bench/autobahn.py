"""`python -m bench.autobahn`: runs the cases of the Autobahn test-suite against our side of a WebSocket.

The suite's server plays and judges each case; start it first: `wstest -m fuzzingserver` of autobahntestsuite, which
needs Python 2.7, or its container. Ours are the opening, the reader's thread, the decoder, the pongs and the close, as
in a function; the echo that the cases expect is added here. It exits with 1 if the server judges a case as failed.
"""

import json
import os
import sys
from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import quote

from bench.harness import Row, goal_if, parse_options, say, show
from handlers.connection.conversation import Conversation
from handlers.connection.effects import Send
from handlers.connection.inputs import Chunk, Opened
from handlers.framing import websocket
from handlers.framing.frames import FramingError
from handlers.profile.parse import parse
from handlers.profile.upstream_requests import request_of
from handlers.upstream import reader, socket_response

AGENT, MOST_BYTES, WAITS_S = "Streamkeeper", 16 * 1024 * 1024, 120
# NON-STRICT: as the RFC permits, though not as it prefers. INFORMATIONAL: the RFC leaves it open.
GOOD = ("OK", "NON-STRICT", "INFORMATIONAL")


def echo_messages(address: str) -> Iterator[Any]:
    """Yield each message that the server sends, and send it back."""
    fields: dict[str, Any] = {"framing": "websocket", "key": "each", "resume": "none", "compression": True}
    fields |= {"address": address, "allow_private": True, "max_frame_bytes": MOST_BYTES}
    profile = parse("suite", fields, {})
    conversation, decoder = Conversation(profile, "suite", {}), websocket.WebSocketDecoder(MOST_BYTES)
    upstream = reader.Upstream(
        request_of(profile, "suite", None, {}),
        connect_timeout_s=10,
        stall_after_s=WAITS_S,
        joins=profile.may_join_chunks,
        shares=reader.Share(reader.CHUNK_BYTES, MOST_BYTES),
    )
    upstream.start()
    is_over = False
    while not is_over and isinstance(arrival := upstream.get(WAITS_S), Opened | Chunk):
        if isinstance(arrival, Opened):
            decoder.take_headers(arrival.headers)
            conversation.begin(0, None)
            continue
        messages: Sequence[Any]
        failure = None
        try:
            messages = decoder.feed(arrival.data)
        except FramingError as raised:
            messages, failure = raised.frames, raised
        said, _, end = conversation.take_frames(0, messages, decoder, failure)
        answers = [(one.opcode, one.payload) for one in said if isinstance(one, Send)]
        pongs = [one for one in answers if one[0] == websocket.PONG]
        for opcode, payload in [*pongs, *map(_echo, messages), *(one for one in answers if one not in pongs)]:
            upstream.send(websocket.encoded_frame(opcode, payload, os.urandom(4)))
        is_over = end is not None or failure is not None
        yield from messages
    upstream.close(1)


def _echo(message: Any) -> tuple[int, bytes]:
    return (websocket.TEXT, message.encode()) if isinstance(message, str) else (websocket.BINARY, bytes(message))


def read_first_answer(address: str) -> Any:
    """Return the JSON that the server answers in its first message; exits with 2 if there is none."""
    message = next(echo_messages(address), None)
    if message is None:
        say(__doc__, "no server of the suite answers: start it, or name its address with --url")
        raise SystemExit(2)
    return json.loads(message)


def main(argv: list[str] | None = None) -> int:
    """Print a row for each section of the suite."""
    arguments = parse_options(argv, __doc__, url=("ws://127.0.0.1:9001", "of the suite's server", str))
    # An echo of 16 MB waits to be sent; what a function sends is short. And a binary message stays one.
    socket_response.MOST_UNSENT_BYTES = 2 * MOST_BYTES
    vars(websocket)["text_or_bytes"] = bytes
    url, agent = arguments.url.rstrip("/"), quote(AGENT)
    sections: dict[int, Row] = {}
    failed = []
    for number in range(1, read_first_answer(f"{url}/getCaseCount") + 1):
        for _ in echo_messages(f"{url}/runCase?case={number}&agent={agent}"):
            pass
        name = read_first_answer(f"{url}/getCaseInfo?case={number}")["id"]
        judged = read_first_answer(f"{url}/getCaseStatus?case={number}&agent={agent}")["behavior"]
        section = int(name.partition(".")[0])
        row = sections.setdefault(section, {"section": section, "cases": 0, "failed": 0})
        row["cases"] += 1
        if judged not in GOOD:
            row["failed"] += 1
            failed.append(name)
            say(__doc__, f"case {name}: {judged}")
    next(echo_messages(f"{url}/updateReports?agent={agent}"), None)
    return show(arguments, {"sections": list(sections.values())}, [goal_if("suite", "no case fails", not failed)])


if __name__ == "__main__":
    sys.exit(main())
