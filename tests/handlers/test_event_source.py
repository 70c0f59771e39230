"""The event stream of a deployed API: a page that ends, after which an EventSource connects again."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from urllib.parse import parse_qsl, urlsplit

from handlers.framing.events import StreamEvent
from tests.event_source import EventSource
from tests.handlers.api_requests import connected
from tests.handlers.aws import Aws
from tests.handlers.context import Context
from tests.http_server import Answer, Request, answering


@contextmanager
def deployed(function: ModuleType) -> Iterator[str]:
    """Yield the address at which the function answers as behind API Gateway: once a request."""

    def answer(request: Request) -> Answer:
        parts = urlsplit(request.path)
        event = {
            "httpMethod": "GET",
            "resource": "/connections/{streamId}/events",
            "pathParameters": {"streamId": parts.path.split("/")[2]},
            "queryStringParameters": dict(parse_qsl(parts.query)) or None,
            "headers": request.headers,
        }
        answered = function.handler(event, Context())
        return Answer(answered["statusCode"], answered["headers"], answered["body"].encode())

    with answering(answer) as url:
        yield url


def test_a_deployed_stream_comes_again(aws: Aws, function: ModuleType) -> None:
    """Each answer is a page that ends; it says to come again at once if there is more, else in three seconds.

    Events that are stored between two pages come with the next; nothing comes twice.
    """
    connected(aws)
    events = [StreamEvent(f"k{n}", f"{n}", None, None, None, 1_795_242_319_000 + n) for n in range(11)]
    aws.store().write("demo", 1, 0, events[:5])
    with deployed(function) as address:
        source = EventSource(f"{address}/connections/demo/events?limit=2")
        retries: list[int | None] = []
        keys: list[str] = []
        for _ in range(5):
            keys += [json.loads(data)["key"] for data in source.connect()]
            retries.append(source.retry_ms)
        assert keys == [event.key for event in events[:5]]
        # Of the last page nothing more was known to be there, and of an empty one neither.
        assert retries[:2] == [100, 100]
        assert retries[3:] == [3000, 3000]
        aws.store().write("demo", 1, 5, events[5:])
        for _ in range(4):
            keys += [json.loads(data)["key"] for data in source.connect()]
        assert keys == [event.key for event in events]
        assert source.opened == 9
