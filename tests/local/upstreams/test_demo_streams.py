"""The demonstration streams over real sockets."""

import json
from dataclasses import replace

import pytest
import urllib3
from websockets.exceptions import ConnectionClosedError, InvalidStatus
from websockets.sync.client import connect
from websockets.typing import Origin

from local.upstreams.behaviours import DEMOS
from local.upstreams.provider_player import serve_providers
from local.upstreams.socket_conversations import Conversation
from tests.local.support import until


class Http(urllib3.PoolManager):
    """A client that closes all open answers when it is closed."""

    def __init__(self, maxsize: int = 1) -> None:
        super().__init__(maxsize=maxsize)
        self._answers: list[urllib3.BaseHTTPResponse] = []

    def open_answer(self, address: str, **headers: str) -> urllib3.BaseHTTPResponse:
        """Returns an answer whose body is read as it comes."""
        answer = self.request("GET", address, headers=headers, preload_content=False, timeout=120)
        self._answers.append(answer)
        return answer

    def clear(self) -> None:
        """Closes what is open; the pool's own end calls it."""
        for answer in self._answers:
            answer.close()
        super().clear()


def read_ids(answer: urllib3.BaseHTTPResponse, count: int) -> list[int]:
    """Returns the ids of the next `count` events of `demo`."""
    numbers: list[int] = []
    text = ""
    while len(numbers) < count:
        text += answer.read1().decode()
        *blocks, text = text.split("\n\n")
        numbers += [int(block.split("\n")[0].removeprefix("id: ")) for block in blocks if block.startswith("id: ")]
    return numbers[:count]


def read_until_break(answer: urllib3.BaseHTTPResponse, text: bytes) -> bytes:
    """Reads until the connection breaks or ends."""
    while chunk := answer.read1():
        text += chunk
    return text


def test_events_are_numbered_without_a_hole_and_a_reader_can_resume() -> None:
    """Ids are contiguous, and a reader that sends the last id gets the next event first."""
    with serve_providers() as (origin, _), Http() as http:
        first = read_ids(http.open_answer(f"{origin}/demo?interval_ms=20"), 5)
        assert first == list(range(first[0], first[0] + 5))
        again = read_ids(http.open_answer(f"{origin}/demo?interval_ms=20", **{"Last-Event-ID": str(first[1])}), 5)
        assert again == list(range(first[2], first[2] + 5))


def test_a_newer_connection_ends_the_older() -> None:
    """The older connection of a path ends cleanly once the newer is answered; other paths go on."""
    with serve_providers() as (origin, _), Http(maxsize=3) as http:
        older = http.open_answer(f"{origin}/demo")
        other = http.open_answer(f"{origin}/demo:other")
        read_ids(older, 1)
        newer = http.open_answer(f"{origin}/demo")
        assert older.read().endswith(b"\n\n") or older.data == b""
        read_ids(newer, 2)
        read_ids(other, 2)


def test_json_lines_tolerate_two_and_are_reset() -> None:
    """Two connections of demo-ndjson live side by side; each ends with a reset, and `since` closes the gap."""
    with serve_providers(seed=1, drop_after_s=(0.3, 0.4)) as (origin, _), Http(maxsize=2) as http:
        one, two = (http.open_answer(f"{origin}/demo-ndjson:two?interval_ms=20") for _ in range(2))
        text = b""
        while text.count(b"{") < 3:
            text += one.read1()
        with pytest.raises(urllib3.exceptions.ProtocolError):
            text = read_until_break(one, text)
        with pytest.raises(urllib3.exceptions.ProtocolError):
            read_until_break(two, b"")
        last = [json.loads(line)["n"] for line in text.split(b"\n")[:-1] if line][-1]
        resumed = http.open_answer(f"{origin}/demo-ndjson:two?interval_ms=20&since={last}")
        lines = b""
        while lines.count(b"}\n") < 1:
            lines += resumed.read1()
        assert json.loads(lines.split(b"\n")[1])["n"] == last + 1


def test_a_bad_query_is_refused() -> None:
    """An invalid interval is a 400 with a sentence."""
    with serve_providers() as (origin, _), Http() as http:
        answer = http.request("GET", f"{origin}/demo?interval_ms=soon")
        assert (answer.status, "interval_ms" in answer.json()["message"]) == (400, True)
        assert http.request("GET", f"{origin}/other").status == 404


def test_an_exclusive_stream_refuses_a_second_connection() -> None:
    """A second connection gets 429 while the first lives, and is served once that has ended; there are never two."""
    with serve_providers() as (origin, _), Http(maxsize=2) as http:
        path = f"{origin}/demo-exclusive:one?interval_ms=20"
        first = http.open_answer(path)
        last = read_ids(first, 2)[-1]
        assert http.request("GET", path).status == 429
        first.close()
        tried: list[urllib3.BaseHTTPResponse] = []

        def served() -> bool:
            tried.append(http.open_answer(path, **{"Last-Event-ID": str(last)}))
            return tried[-1].status == 200

        assert until(served)
        assert http.open_answer(path).status == 429


def test_a_socket_closes_a_silent_client() -> None:
    """A client that is silent at first or later is closed; a page of another site cannot connect."""
    conversation = replace(DEMOS["demo-socket"].conversation or Conversation(), silent_s=0.3, refusal='{"op": "error"}')
    with serve_providers({"exchange": replace(DEMOS["demo-socket"], conversation=conversation, interval_ms=20)}) as (
        origin,
        _,
    ):
        address = f"ws{origin.removeprefix('http')}/exchange/eur-usd"
        for said in ('{"op": "hello"}', b"binary"):
            with connect(address) as silent:
                silent.send(said)
                assert silent.recv() == '{"op": "error"}'
                with pytest.raises(ConnectionClosedError, match="subscribe first"):
                    silent.recv()
        with connect(address) as lazy:
            lazy.send('{"op": "subscribe", "channel": "x", "since": 7}')
            assert json.loads(lazy.recv()) == {"op": "subscribed", "channel": "x"}
            with pytest.raises(ConnectionClosedError, match="say something now and then"):
                list(lazy)
        with pytest.raises(InvalidStatus, match="403"), connect(address, origin=Origin("https://evil.example")):
            pass
