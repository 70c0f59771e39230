"""The verb `follow`: prints the events of a stream as they are stored, until Ctrl-C.

It asks for page after page, as docs/store.md says. Invariants: an event is printed once, however late it was written;
an API that does not answer is asked again, one that will never answer is not; at its end the command prints
how to go on behind what was printed.
"""

import argparse
import contextlib
import json
import math
import shlex
import signal
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, NoReturn

from local.printable import printable
from local.streams import asking
from local.streams.asking import Refused, Streams, path_of
from streamkeeper.following import Following

EVERY_S = 1.0
# How long after a POST its execution may need to claim the stream.
STARTS_S = 15.0


def add(subparsers: Any) -> None:
    """Adds the verb."""
    words = "Prints events as they are stored. Ctrl-C ends it and prints how to continue."
    examples = ["follow demo", "follow demo --json | jq -r .data", "follow demo --all", "follow demo --after POSITION"]
    parser = asking.verb(subparsers, "follow", words, examples)
    begin = parser.add_mutually_exclusive_group()
    begin.add_argument("--after", default="", metavar="POSITION", help="begin behind the event with this position")
    begin.add_argument("--all", action="store_true", help="begin with the first event (default: with new ones)")
    begin.add_argument("--from", dest="from_at", type=asking.instant, metavar="WHEN", help="begin at this instant")
    parser.set_defaults(run=run)


@asking.refusals
def run(arguments: argparse.Namespace) -> int:
    """Ends where the API refuses; raises KeyboardInterrupt at Ctrl-C."""
    follower = _Follower(asking.streams(arguments, math.inf), arguments)
    now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    from_at = arguments.from_at or (None if arguments.all or arguments.after else now)
    try:
        follower.run(from_at)
    except KeyboardInterrupt:
        sys.stdout.flush()
        more = f" --after {shlex.quote(follower.printed)}" if follower.printed else ""
        stands = f"streamkeeper follow {shlex.quote(arguments.stream_id)}{more}"
        print(f"\nstreamkeeper: go on with `{printable(stands)}`", file=sys.stderr)
        raise


class _Follower:
    """Prints what is new; `printed` is the position of the last event that was printed whole."""

    def __init__(self, streams: Streams, arguments: argparse.Namespace) -> None:
        self.printed: str = arguments.after
        self._following = Following(arguments.after)
        self._streams = streams
        self._arguments = arguments

    def run(self, from_at: str | None) -> NoReturn:
        """Raises Refused where the API refuses for good, UserError where it never answered."""
        left_s = STARTS_S
        path = path_of(self._arguments.stream_id, "/events")
        while True:
            after = self._following.after(time.monotonic_ns() // 1_000_000)
            try:
                page = self._streams.ask("GET", path, {"after": after, "limit": 1000, "from": from_at})
            except Refused as refusal:
                # A stream that was started a moment ago is not there until its execution has claimed it.
                if refusal.answer.kind != "never-started" or left_s <= 0:
                    raise
                if left_s == STARTS_S:
                    print(f"streamkeeper: the stream has not started yet; waiting {left_s:g} s.", file=sys.stderr)
                left_s -= EVERY_S
                time.sleep(EVERY_S)
                continue
            self._print(page)
            if not self._following.is_behind(page):
                time.sleep(EVERY_S)

    def _print(self, page: dict[str, Any]) -> None:
        for event in self._following.take(page):
            words = json.dumps(event, ensure_ascii=False) if self._arguments.json else line(event)
            with _uninterrupted():
                print(words)
                # One that was written late stands before others, and nobody goes back.
                self.printed = self._following.later(self.printed, event["position"])
        sys.stdout.flush()


@contextlib.contextmanager
def _uninterrupted() -> Iterator[None]:
    """Holds Ctrl-C back until the block is over: a line is printed and known, or neither; a second one ends it."""
    held: list[int] = []

    def hold(number: int, _frame: object) -> None:
        signal.signal(signal.SIGINT, former)
        held.append(number)

    # Bound before: the signal may come while the handler is set.
    former = signal.getsignal(signal.SIGINT)
    signal.signal(signal.SIGINT, hold)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, former)
    if held:
        raise KeyboardInterrupt


def line(event: dict[str, Any]) -> str:
    """An event for a person: when it came, its key and its body."""
    data = event.get("data")
    body = data if data is not None else f"[{event.get('left_out') or event.get('dead_letter') or 'bytes, as base64'}]"
    return printable(f"{event['received_at']}  {event['key']}  {body}".replace("\n", " "))
