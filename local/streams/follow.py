"""The verb `follow`: prints the events of a stream as they are stored, until Ctrl-C.

Invariants: an event is printed once, however late it was written; requests are repeated while an API that has answered
before is away; at Ctrl-C the command prints how to continue after the last printed event, or from where it began.
"""

import argparse
import contextlib
import json
import shlex
import signal
import sys
from collections.abc import Iterator
from typing import Any

from local.streams import api_session
from local.terminal import printable
from streamkeeper.api import MOST
from streamkeeper.following import Following, instants_by_api_clock, poll_steps
from streamkeeper.instants import NOW
from streamkeeper.transport import path_of, with_query

EVERY_S = 1.0


def add(subparsers: Any) -> None:
    words = "Prints events as they are stored. Ctrl-C ends it and prints how to continue."
    examples = ["follow demo", "follow demo --json | jq -r .data", "follow demo --all", "follow demo --after POSITION"]
    parser = api_session.add_verb(subparsers, "follow", words, examples)
    begin = parser.add_mutually_exclusive_group()
    begin.add_argument("--after", default="", metavar="POSITION", help="begin after the event with this position")
    begin.add_argument("--all", action="store_true", help="begin with the first event (default: with new ones)")
    begin.add_argument(
        "--from", dest="from_at", type=api_session.read_instant, metavar="WHEN", help="begin then, such as 15m"
    )
    parser.set_defaults(run=run)


@api_session.print_refusals
def run(arguments: argparse.Namespace) -> int:
    """Ends when the API refuses; raises KeyboardInterrupt at Ctrl-C."""
    streams, following = api_session.open_session(arguments), Following(arguments.after)
    begin = arguments.from_at or (None if arguments.all or arguments.after else NOW)
    [from_at] = streams.perform(instants_by_api_clock(begin))
    base, printed = path_of(arguments.stream_id, "/events"), arguments.after

    def path(after: str) -> str:
        return with_query(base, {"after": after, "limit": MOST, "from": from_at})

    try:
        while True:
            for event in streams.perform(poll_steps(following, path, EVERY_S)):
                words = json.dumps(event, ensure_ascii=False) if arguments.json else event_line(event)
                with _delay_interrupt():
                    print(words)
                    # A late event comes before others in the order, and the place never goes back.
                    printed = following.later(printed, event["position"])
            sys.stdout.flush()
    except KeyboardInterrupt:
        sys.stdout.flush()
        place = ["--after", printed] if printed else ["--from", from_at] if from_at else ["--all"]
        again = ["follow", arguments.stream_id, *place, *(["--url", arguments.url] if arguments.url else [])]
        print(f"\nstreamkeeper: continue with `streamkeeper {printable(shlex.join(again))}`", file=sys.stderr)
        raise


@contextlib.contextmanager
def _delay_interrupt() -> Iterator[None]:
    """Delays Ctrl-C until the block is over, so that each printed event is remembered; a second one is not delayed."""
    held: list[int] = []

    def hold(number: int, _frame: object) -> None:
        signal.signal(signal.SIGINT, former)
        held.append(number)

    # Set before the handler: the signal may come while that is being set.
    former = signal.getsignal(signal.SIGINT)
    signal.signal(signal.SIGINT, hold)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, former)
    if held:
        raise KeyboardInterrupt


def event_line(event: dict[str, Any]) -> str:
    """An event for people: its time, part, key and body. The time is its own with --order time, else its arrival."""
    data = event.get("data")
    body = data if data is not None else f"[{event.get('left_out') or event.get('dead_letter') or 'bytes, as base64'}]"
    at = event.get("happened_at") or event["received_at"]
    key = f"{event['stream']}  {event['key']}" if "stream" in event else event["key"]
    return printable(f"{at}  {key}  {body}".replace("\n", " "))
