"""The verb `request`: sends one request to the HTTP API, signed if the stage requires that, and prints the answer."""

import argparse
import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from local.api_client.http_client import LOCAL_HOST, Api, exit_status
from local.terminal import printable_lines, read_port, report_if_slow
from streamkeeper.exceptions import phrase

if TYPE_CHECKING:
    from botocore.session import Session

_UNAUTHORIZED = 403
ENVIRONMENT = "STREAMKEEPER_API_KEY is the API's key."
ADDRESS_HELP = "the API's address (default: STREAMKEEPER_URL, else the run on this machine, at PORT or 3000)"


def add(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "request",
        description="Sends a request to the HTTP API and prints its answer. A request to AWS is signed with the "
        "credentials that the AWS command line would use (api_auth: iam), unless there is a key (api_auth: key).",
        epilog="Exit status: 0 for 2XX, 4 there is no such stream, 2 another mistake or no answer, 1 any other refusal."
        f" {ENVIRONMENT}",
    )
    parser.add_argument("method", metavar="METHOD", type=str.upper, help="GET, POST, PUT or DELETE")
    parser.add_argument("path", metavar="PATH", help="such as /connections/demo, percent-encoded")
    parser.add_argument("--url", help=ADDRESS_HELP)
    parser.add_argument("--sign", action="store_true", help="also sign for an address outside AWS")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Returns 0 for a 2XX answer, else the exit status of the refusal; raises UserError."""
    api = choose_api(os.environ, arguments.url, sign=arguments.sign)
    with report_if_slow(f"{api.url} has not answered yet; waiting."):
        answer = api.request(arguments.method, arguments.path)
    print(printable_lines(answer.body))
    if answer.is_success:
        return 0
    hint = ""
    if answer.status == _UNAUTHORIZED and "Missing Authentication Token" in answer.body:
        hint = " (no such route, or the stage requires a signature and none was sent)"
    print(f"streamkeeper: {phrase(answer.status)}{hint}", file=sys.stderr)
    return exit_status(answer.refusal)


def choose_api(environment: Mapping[str, str], url: str | None, *, sign: bool, session: "Session | None" = None) -> Api:
    """Returns the API at `url`, or else at STREAMKEEPER_URL, or else of the run on this machine; raises UserError."""
    address = url or environment.get("STREAMKEEPER_URL") or f"http://{LOCAL_HOST}:{read_port(environment)}"
    return Api(address, environment.get("STREAMKEEPER_API_KEY", ""), sign=sign, session=session)
