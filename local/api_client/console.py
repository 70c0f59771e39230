"""The verb `console`: serves the page of an API on this machine's loopback, and passes the page's requests to the API.

A browser cannot sign, so the page of a stage with `api_auth: iam` cannot be opened by its address. Here each request
of the page is signed, or given the key, on its way. Invariants: no credential reaches the browser; a request is refused
unless its path begins with a secret word, new each time, and if it comes from another host's page
(local/listener.py); the API's answers are passed on unchanged, except event streams, which are kept open here.
"""

import argparse
import asyncio
import os
import secrets
import signal
import sys
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl, urlencode

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from handlers.api.answers import Problem
from local import listener
from local.api_client import live_tail
from local.api_client.command import ADDRESS_HELP, ENVIRONMENT, choose_api
from local.api_client.http_client import Api, exit_status, new_session
from local.listener import HOST, Listener, bind
from local.terminal import UserError, printable, whole_number

INTERRUPTED = 130
_DENIED = (401, 403)
# The headers of a request that the API gets, and those of an answer that the page gets.
_CONDITIONS = ("if-none-match",)
_PASSED = (
    *("content-type", "content-security-policy", "x-content-type-options", "referrer-policy"),
    *("cache-control", "date", "etag", "retry-after", "allow"),
)
# How often new events are polled; a deployed API costs money per request.
EVERY_S = 2.0


def add(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "console",
        description="Serves the page of an API on this machine until Ctrl-C, and signs its requests with the "
        "credentials that the AWS command line would use (api_auth: iam), or sends the key (api_auth: key).",
        epilog=f"Exit status: 1 the API refused, 2 a mistake or no answer, 130 Ctrl-C. {ENVIRONMENT}",
    )
    parser.add_argument("--url", metavar="ADDRESS", help=ADDRESS_HELP)
    parser.add_argument("--sign", action="store_true", help="also sign for an address outside AWS")
    parser.add_argument("--port", default="0", metavar="N", help="the port to serve on (default: a free one)")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Serves until a signal; returns the exit status of a refusal; raises UserError."""
    port = whole_number("--port", arguments.port, 0, 65_535)
    api = choose_api(os.environ, arguments.url, sign=arguments.sign, session=new_session())
    first = api.request("GET", "/connections?limit=1")
    if not first.is_success:
        print(f"streamkeeper: {api.url} refuses: {printable(str(first.refusal))}", file=sys.stderr)
        return exit_status(first.refusal)
    return asyncio.run(_serve(api, port))


def make_app(api: Api, word: str) -> Starlette:
    """The application that passes on the API's answers below `/<word>/`."""

    async def check_and_answer(request: Request) -> Response:
        # Compared here, not by a route's pattern, so that the time taken tells nothing about the word.
        if not secrets.compare_digest(request.scope["path"].split("/")[1].encode(), word.encode()):
            return Response(status_code=404)
        # Undecoded, because an encoded slash is not a slash.
        path = request.scope["raw_path"].decode("ascii", "replace").removeprefix(f"/{word}")
        query = request.scope["query_string"].decode("ascii", "replace")
        if request.method == "GET" and path.endswith("/events") and live_tail.accepts_event_stream(request.headers):
            return await tail_events(path, query, request.headers.get("last-event-id"))
        tags = {name: request.headers[name] for name in _CONDITIONS if name in request.headers}
        return await pass_on(request.method, f"{path}?{query}" if query else path, tags)

    async def tail_events(path: str, query: str, last_event_id: str | None) -> Response:
        known = dict(parse_qsl(query, keep_blank_values=True))

        async def page(after: str) -> Response:
            return await pass_on("GET", f"{path}?{urlencode({**known, 'after': after})}")

        return await live_tail.stream_pages(page, last_event_id or known.get("after", ""), EVERY_S)

    async def pass_on(method: str, target: str, headers: Mapping[str, str] | None = None) -> Response:
        try:
            answer = await asyncio.to_thread(api.request, method, target, headers)
        except UserError as mistake:
            return listener.problem_response(Problem("unavailable", str(mistake)))
        if answer.status in _DENIED:
            # With the status of the answer, the page would request a key, which would not help.
            return listener.problem_response(
                Problem("unavailable", f"The API refuses these credentials: {answer.refusal}")
            )
        passed = {name: answer.headers[name] for name in _PASSED if name in answer.headers}
        return Response(answer.body, answer.status, passed)

    return Starlette(routes=[Route("/{path:path}", check_and_answer, methods=["GET", "POST", "DELETE"])])


async def _serve(api: Api, port: int) -> int:
    word = secrets.token_urlsafe(16)
    listener = Listener(make_app(api, word), bind(port, "the page", "--port"))
    await listener.start()
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[int] = loop.create_future()
    for number, status in ((signal.SIGINT, INTERRUPTED), (signal.SIGTERM, 0)):
        loop.add_signal_handler(number, ended.set_result, status)
    print(f"http://{HOST}:{listener.port}/{word}/console", flush=True)
    print(f"The page reads {printable(api.url)} with your credentials; Ctrl-C ends it.", file=sys.stderr)
    try:
        return await ended
    finally:
        # A second Ctrl-C ends it immediately.
        loop.remove_signal_handler(signal.SIGINT)
        loop.remove_signal_handler(signal.SIGTERM)
        await listener.close()
