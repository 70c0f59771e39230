"""The meaning of each answer of a webhook, with a real server on a socket."""

import threading
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import urllib3

from handlers.deliver.contract import Message, Refusal, Tools
from handlers.deliver.sinks import webhook
from handlers.profile.deliver_field import Target
from handlers.profile.secret_references import Reference
from tests.handlers import servers as raw_servers
from tests.handlers.deliver import rigs
from tests.handlers.servers import Peer, answers, serving
from tests.http_server import Answer, Request, answering


class Server:
    """Answers each POST with `status` and `head`; `asked` holds the requests' headers."""

    def __init__(self) -> None:
        self.status, self.head = 204, dict[str, str]()
        self.asked: list[Mapping[str, str]] = []
        self.is_silent = threading.Event()
        self.over = threading.Event()
        self.url = ""
        self.post: Any = None  # in place of a request to the server

    def send(self, key: str = "7", stream_id: str = "orders:a") -> Refusal | None:
        """Return why an event is refused; None if it is taken."""
        target = Target("webhook", self.url, secret=Reference("secret", "hook"), allow_private=True)
        message = Message(stream_id, key, "1", None, 0, '{"x": 1}')
        tools = Tools(lambda _: None, lambda _: rigs.SECRET, lambda: 1_767_225_600_000, self.post)
        return webhook.send([message], target, tools).get(0)


def sent(raw: raw_servers.Server, keys: str) -> list[Refusal | None]:
    """Send events to a raw server; return for each event why it is refused, or None."""
    sender = Server()
    sender.url = f"{raw.address}/hook"
    return [sender.send(key) for key in keys]


@pytest.fixture
def server() -> Iterator[Server]:
    """Yield a server for each test."""
    made = Server()

    def answer(request: Request) -> Answer | None:
        made.asked.append(request.headers)
        if made.is_silent.is_set():
            made.over.wait(60)
            return None
        return Answer(made.status, made.head)

    with answering(answer) as url:
        made.url = f"{url}/hook?token=abc"
        yield made
        made.over.set()


# These statuses concern the event itself, so they are final.
FINAL = (400, 413, 414, 415, 422, 431)
# All others may pass, or a person may correct the cause.
PASSES = (304, 401, 403, 404, 409, 410, 421, 429, 500, 502, 503, 504)


def test_any_2xx_accepts_the_event_and_another_answer_refuses_it(server: Server) -> None:
    """Any 2xx accepts the event; any other answer refuses it with the status as the reason."""
    refusals = {}
    for server.status in (200, 201, 202, 204, 299, *FINAL, *PASSES):
        refusals[server.status] = server.send()
    assert refusals == {
        **dict.fromkeys((200, 201, 202, 204, 299)),
        **{status: Refusal(f"answered {status}", is_final=True) for status in FINAL},
        **{status: Refusal(f"answered {status}") for status in PASSES},
    }


@pytest.mark.parametrize(
    ("body", "keeps_open"),
    [
        (b"Content-Length: 10\r\n\r\nok", False), (b"Content-Length: 10\r\n\r\no", True),
        (b"Transfer-Encoding: chunked\r\n\r\nzz\r\nok", False), (b"Transfer-Encoding: chunked\r\n\r\n5\r\nok", False),
        (b"Connection: close\r\nContent-Length: 10\r\n\r\n", True),
    ],
)  # fmt: skip
def test_a_2xx_accepts_the_event_even_if_its_body_breaks(body: bytes, *, keeps_open: bool) -> None:
    """A 2xx whose body is cut, malformed or late costs the connection, but the event is not sent again."""

    def script(peer: Peer) -> None:
        peer.read_body()
        peer.send(b"HTTP/1.1 200 OK\r\n" + body)
        if keeps_open:
            peer.wait_until_gone()

    with serving(script) as raw:
        assert (sent(raw, "12"), len(raw.peers)) == ([None, None], 2)


@pytest.mark.parametrize(
    "body", [b"Content-Length: 2\r\n\r\nok", b"Transfer-Encoding: chunked\r\n\r\n1;\r\no\r\n1;\r\nk\r\n0\r\n\r\n"]
)
def test_a_connection_is_kept_for_the_next_event(body: bytes) -> None:
    """The answer's body is read, even in several chunks, so that the connection serves the next event."""
    with serving(answers(*[b"HTTP/1.1 200 OK\r\n" + body] * 3)) as raw:
        assert (sent(raw, "123"), len(raw.peers)) == ([None] * 3, 1)


def test_a_connection_that_ends_as_the_next_event_is_sent_costs_no_back_off() -> None:
    """If a kept connection ends without any answer, the event is sent again at once on a new one, but only once."""
    taken = answers(b"HTTP/1.1 204 No Content\r\n\r\n", b"")
    with serving(taken, taken, answers(b"")) as raw:
        assert sent(raw, "123") == [None, None, Refusal("the connection was closed without an answer")]
        assert len(raw.peers) == 3


def test_a_redirect_is_not_followed(server: Server) -> None:
    """A redirect is not followed, even on the same server; the event waits."""
    server.head = {"location": server.url}
    redirects = (301, 302, 303, 307, 308)
    for server.status in redirects:
        refused = Refusal("the server redirected, and this request follows no redirect")
        assert server.send() == refused, server.status
    assert len(server.asked) == len(redirects)


def test_a_silent_server_is_tried_again(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """The time-out ends a request to a silent server; the reason has no address, whose query may be secret."""
    monkeypatch.setattr(webhook, "TIMEOUT", urllib3.Timeout(connect=3, read=0.1))
    server.is_silent.set()
    assert server.send() == Refusal("no byte came for 10 s")


def test_a_request_ends_before_lambda_ends_the_function() -> None:
    """The longest request, with the connect limit and twice the read limit, ends within the time kept for it."""
    connect_s, read_s = webhook.TIMEOUT.connect_timeout, webhook.TIMEOUT.read_timeout
    assert isinstance(connect_s, int)
    assert isinstance(read_s, int)
    assert (connect_s + 2 * read_s) * 1000 < webhook.PROMISES.longest_ms


@pytest.mark.parametrize(
    ("head", "rest_ms"),
    [
        ({"retry-after": "7"}, 7_000),
        ({"retry-after": "Thu, 01 Jan 2026 00:00:09 GMT"}, 9_000),
        ({"retry-after": "Thu, 01 Jan 2026 00:01:09 GMT", "date": "Thu, 01 Jan 2026 00:01:00 GMT"}, 9_000),
        ({"retry-after": "Wed, 31 Dec 2025 23:59:59 GMT"}, 0),
        ({"retry-after": "soon"}, 0),
    ],
    ids=["in seconds", "at an instant of our clock", "at an instant of its own clock", "in the past", "not valid"],
)
def test_a_webhooks_retry_after_sets_the_back_off(server: Server, head: dict[str, str], rest_ms: int) -> None:
    """Retry-After sets the back-off with any status that refuses the event."""
    server.post = lambda _request: (429, head)
    assert server.send() == Refusal("answered 429", rest_ms=rest_ms)


def test_an_event_has_one_id_of_its_own() -> None:
    """An event's id follows from its stream and key, so it is the same each time and different from all others."""
    events = [("7", "orders:a"), ("7", "orders:b"), ("8", "orders:a"), ("7", "orders:a")]
    ids = [webhook.message_id(Message(stream_id, key, "1", None, 0, "{}")) for key, stream_id in events]
    assert ids[3] == ids[0]
    assert len(set(ids)) == 3
